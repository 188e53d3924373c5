"""The verbs of language models' files and memory: plan, pack, load."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gradloom.options import check_request, given
from gradloom.preset import PRESETS, find_preset, find_workload
from gradloom.words import some

from .app import app
from .arguments import BITS, HEAD, Bits, Head, Json, Model, usual_option
from .diffusion import plan_unet, say_unet
from .output import print_json, progress_bar, say, say_card, table, working

__all__ = ["load", "pack", "plan"]


def pack(
    source: Path | str,
    output: Path | str,
    *,
    bits: int = 4,
    head: str = "float16",
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, Any]:
    """Writes a language model's weights in the board's layout.

    Returns their sizes.
    """
    from gradloom.models.files.checkpoint import find_weights, open_checkpoint
    from gradloom.models.pack import write_pack
    from gradloom.output import check_folder, staged

    check_folder(output, verb="pack")
    checkpoint = open_checkpoint(find_weights(source))
    with staged(output, verb="pack") as stage:
        manifest = write_pack(checkpoint, stage, bits=bits, head=head, progress=progress)
    parameters = checkpoint.model.linear_parameters
    return {
        "model": checkpoint.model.name,
        "bits": bits,
        "head": head,
        "linears": len(manifest["linears"]),
        "linear_parameters": parameters,
        "frozen_bytes": manifest["frozen_bytes"],
        "bits_per_parameter": round(8 * manifest["frozen_bytes"] / parameters, 3),
        "bytes": manifest["bytes"],
    }


def load(
    source: Path | str,
    output: Path | str,
    *,
    adapters: Sequence[Path | str] = (),
    offset: int = 1 << 20,
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, Any]:
    """Writes an image for a memory card.

    It has the output of :func:`pack`, and adapters as PEFT has them, for the memory of a system on chip from ``offset``
    on. Returns the place of each section.
    """
    from gradloom import boards
    from gradloom.firmware import card
    from gradloom.models.adapters.lora import load_lora
    from gradloom.models.adapters.words import pack_adapters
    from gradloom.models.pack import PackedModel
    from gradloom.output import check_file, staged_file

    check_file(output, inputs=(source, *adapters))
    board = boards.find("genesys2")
    if offset < 4096 or offset % 4096 or offset >= board.memory_bytes:
        raise ValueError(f"offset={offset}: must be a multiple of 4096 below {board.memory_bytes}, at least 4096")
    if len(adapters) >= card.MAX_SECTIONS:
        raise ValueError(f"adapter: at most {card.MAX_SECTIONS - 1}, not {len(adapters)}")
    packed = PackedModel(source)
    blocks = [pack_adapters(packed.model, load_lora(each, packed.model)) for each in adapters]
    sections = [card.place("weights", [packed.weights], offset)]
    for number, block in enumerate(blocks):
        sections.append(card.place(f"adapter {number}", [block], sections[-1].end, kind=card.ADAPTER))
    with staged_file(output) as file:
        packed.check(progress)
        rows = card.write_card(file, sections, memory_bytes=board.memory_bytes)
        size = file.seek(0, 2)
    return {"model": packed.model.name, "bytes": size, "memory_end": sections[-1].end, "sections": rows}


def plan(
    model: str,
    *,
    board: str = "genesys2",
    rank: int | None = None,
    targets: str | None = None,
    seq: int = 64,
    bits: int = 4,
    optimizer: str = "adamw",
    head: str = "float16",
    store: str = "words",
    axi_bits: int | None = None,
    method: str = "qlora",
    from_layer: int = 0,
    texts: int = 1,
    steps: int = 1,
) -> dict[str, Any]:
    """Memory, traffic and time of fine-tuning a language model on a board.

    The plan counts every byte. It tells whether it fits. Where the board's preset runs the fine-tune, ``memory`` is
    that of its job of so many ``texts`` and ``steps``, byte by byte; else it is counted by shapes.

    What does not fit has ``misfits``, one for each bound that fails: see ``planned`` in
    :mod:`~gradloom.systems.text.fit`.
    ``rank``: 8 unless given; ``targets``: of QLoRA, "q,v" unless given, of learnt vectors all of their method;
    ``from_layer``: the lowest layer with adapters.
    ``preset``: whose machine is checked; None where the board has none, and
    memory alone is checked.
    """
    from gradloom import boards
    from gradloom.firmware.steps import MAX_STEPS
    from gradloom.models.adapters.methods import LORA, find_method
    from gradloom.models.files.checkpoint import find_model
    from gradloom.systems.text.budget import Request
    from gradloom.systems.text.fit import machine_misfits, planned, refuse
    from gradloom.systems.text.instant_budget import METHODS

    method = "qlora" if method == LORA.name else method
    if method not in METHODS:
        raise ValueError(f"method={method}: must be one of {', '.join(METHODS)}")
    instant = method == "instantft"
    learnt = LORA if instant or method == "qlora" else find_method(method)
    for name, value, usual in (("rank", rank, None), ("store", store, "words")):
        if value != usual and (learnt is not LORA if name == "store" else not learnt.ranked):
            raise ValueError(f"{name}={value}: must be left out with --method {method}; or give --method lora")
    if instant and targets is not None:
        raise ValueError(
            f"targets={targets}: adapters of InstantFT go from every block to the head; leave it out, "
            f"or give --method qlora"
        )
    if instant and store != "words":
        raise ValueError(f"store={store}: must be words for InstantFT; leave it out, or give --method qlora")
    if instant and from_layer:
        raise ValueError(
            f"from_layer={from_layer}: adapters of InstantFT go from every block to the head; leave it "
            f"out, or give --method qlora"
        )
    for name, value in (("texts", texts), ("steps", steps)):
        if not 1 <= value <= MAX_STEPS:
            raise ValueError(f"{name}={value}: must be from 1 to {MAX_STEPS}")
    target, shapes, kind = boards.find(board), find_model(model), "instantft" if instant else "qlora"
    preset = find_workload(target.name, f"text-{kind}")
    if preset is not None and seq > shapes.context:
        # Beyond it there is nothing to plan.
        found = machine_misfits(preset.config, shapes, seq=seq, rank=2, targets=(), method=kind)
        refuse([each for each in found if each.field == "seq"])
    request = Request(
        model=shapes,
        rank=8 if rank is None else rank,
        targets=learnt.parse(targets),
        seq=seq,
        bits=bits,
        optimizer=optimizer,
        head=head,
        store=store,
        from_layer=from_layer,
        method=learnt.name,
    )
    lay = None
    if preset is not None and not instant:
        from gradloom.systems.text.card.layout import planner

        lay = planner(preset.config, texts=min(texts, steps), steps=steps)
    result = planned(
        request,
        target,
        preset.config if preset else None,
        method=kind,
        port_bits=axi_bits,
        laid_out=lay,
        texts=min(texts, steps),
    )
    return result | {"preset": preset.name if preset else None}


@app.command("pack", epilog="Example: gradloom pack SmolLM2-135M-Instruct.Q4_1.gguf -o smollm2-nf4")
def _pack_verb(
    model: Model,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Output folder.")],
    bits: Bits = 4,
    head: Head = "float16",
    as_json: Json = False,
) -> None:
    """Write a language model's weights in the board's layout.

    Each linear has codes and scales in one stream.
    """
    with progress_bar(as_json) as progress:
        result = pack(model, output, bits=bits, head=head, progress=progress)
    if as_json:
        print_json(result)
        return
    say(
        f"[bold]{result['model']}[/bold] is in {output}: {result['linears']} linears, codes and scales "
        f"{result['frozen_bytes']:,} bytes ({result['bits_per_parameter']} bits a parameter), {result['bytes']:,} "
        f"bytes with embedding, norms and head"
    )


@app.command(
    "load",
    epilog="Example: gradloom load smollm2-nf4 -o card.img\n\n"
    "Example: gradloom load smollm2-nf4 -o card.img --adapter run --json",
)
def _load_verb(
    model: Annotated[Path, typer.Argument(metavar="MODEL_DIR", help="Output folder of gradloom pack.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="CARD.img", help="Output file.")],
    adapter: Annotated[list[Path], typer.Option(metavar="DIR", help="An adapter in PEFT's format; repeatable.")] = [],  # noqa: B006
    offset: Annotated[int, typer.Option(help="Offset of the first byte in the board's memory.")] = 1 << 20,
    as_json: Json = False,
) -> None:
    """Write an image for the memory card of the Genesys 2's firmware.

    It has weights and adapters, with sums.
    """
    with progress_bar(as_json) as progress:
        result = load(model, output, adapters=adapter, offset=offset, progress=progress)
    if as_json:
        print_json(result)
        return
    say_card(result["sections"], output, result["model"], result["bytes"])


@app.command(
    "plan",
    epilog="Example: gradloom plan tinyllama-1.1b --board genesys2 --seq 16\n\n"
    "Example: gradloom plan smollm2-135m --targets all --seq 32 --json\n\n"
    "Example: gradloom plan smollm2-135m --method layernorm\n\n"
    "Example: gradloom plan sd-v1.5 --preset cdm-qta-kv260 --only cross-attention",
)
def _plan_verb(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="tinyllama-1.1b, smollm2-135m, sd-v1.5, or a file or folder.")
    ],
    board: Annotated[str | None, usual_option(help="A board: see gradloom boards.", usual="genesys2")] = None,
    preset: Annotated[str | None, typer.Option(help="Preset of a diffusion model: cdm-qta-kv260.")] = None,
    only: Annotated[
        str | None, typer.Option(help="Products of a diffusion model: cross-attention or all.", show_default="all")
    ] = None,
    array: Annotated[
        str | None,
        typer.Option(
            metavar="ROWSxCOLS", help="Array of a diffusion model's products.", show_default="the preset's: 64x32"
        ),
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Images a step of a diffusion model.", show_default="1")] = None,
    known_prompt: Annotated[
        bool, typer.Option("--known-prompt", help="Its products with frozen weights are kept, of a diffusion model.")
    ] = False,
    rank: Annotated[int | None, typer.Option(help="Rank of the adapters.", show_default="8")] = None,
    targets: Annotated[
        str | None,
        typer.Option(help="Linear layers with an adapter: q,v or all or a list; or norms.", show_default="q,v"),
    ] = None,
    seq: Annotated[
        int | None, typer.Option(help="Tokens of a text or prompt.", show_default="64; 77 of a diffusion model")
    ] = None,
    bits: Annotated[int | None, usual_option(help=BITS, usual="4")] = None,
    optimizer: Annotated[str | None, usual_option(help="sgd or adamw.", usual="adamw")] = None,
    store: Annotated[
        str | None, usual_option(help="Format of stored adapters and moments: words, int8 or nf4.", usual="words")
    ] = None,
    head: Annotated[str | None, usual_option(help=HEAD, usual="float16")] = None,
    axi_bits: Annotated[int | None, typer.Option(help="Bits of the memory port.", show_default="the board's")] = None,
    method: Annotated[
        str | None,
        usual_option(
            help="qlora: adapters beside linear layers; lora-xs: a small matrix in each; layernorm: norms; "
            "ia3: factors of linear layers; instantft: adapters to the head.",
            usual="qlora",
        ),
    ] = None,
    from_layer: Annotated[
        int | None,
        usual_option(metavar="K", help="Adapters of QLoRA in this layer and those behind it only, from 0.", usual="0"),
    ] = None,
    texts: Annotated[int | None, usual_option(help="Texts in memory, at most one a step.", usual="1")] = None,
    steps: Annotated[int | None, usual_option(help="Updates of the job.", usual="1")] = None,
    as_json: Json = False,
) -> None:
    """Plan the memory, traffic and time of a fine-tune on a board.

    Of a language model the plan counts every byte, and tells what limits it and whether it fits.
    Of a diffusion model (a configuration of diffusers' UNet2DConditionModel) it lists every product of a LoRA step.

    Exit code 2: it does not fit; the last lines say which bounds fail and what to change.
    """
    from gradloom.systems.text.fit import DoesNotFit, Misfit

    of_language: dict[str, Any] = {"board": board, "bits": bits, "optimizer": optimizer, "store": store, "head": head}
    of_language |= {"axi_bits": axi_bits, "method": method, "from_layer": from_layer, "texts": texts, "steps": steps}
    of_diffusion = {"preset": preset, "only": only, "batch": batch, "array": array, "known_prompt": known_prompt}
    if _is_diffusion(model, preset):
        check_request(f"for {model}, a diffusion model", needless=of_language)
        result = plan_unet(model, rank=rank, targets=targets, seq=seq, **given(of_diffusion))
        if as_json:
            print_json(result)
        else:
            say_unet(result)
        return
    check_request(f"for {model}, a language model: it is of diffusion models", needless=of_diffusion)
    with working(f"planning {model}", as_json):
        result = plan(model, **given(of_language | {"rank": rank, "targets": targets, "seq": seq}))
    if as_json:
        print_json(result)
    else:
        _say_plan(result)
    if not result["fits"]:
        raise DoesNotFit([str(Misfit(**each)) for each in result["misfits"]])


def _is_diffusion(model: str, preset: str | None) -> bool:
    """Whether it is a diffusion model; else it is a language model.

    Refuses a preset with a language model, which is planned on a board.
    """
    from gradloom.models.files.checkpoint import find_model
    from gradloom.models.files.unet import MODELS, is_unet
    from gradloom.models.language import BUILT_IN

    if model not in BUILT_IN and model not in MODELS and not Path(model).exists():
        known = ", ".join((*BUILT_IN, *MODELS))
        raise ValueError(f"{model}: no such file or folder, nor a model known by name ({known})")
    if preset is None or is_unet(model):
        return is_unet(model)
    try:
        find_model(model)
    except ValueError:
        return True  # What cannot be read either is refused as the preset's own.
    fits = [each for each in PRESETS.values() if each.workload.can("generate_text")]
    raise ValueError(
        f"preset={preset}: fine-tunes {find_preset(preset).workload.title}, {model} is a language model: leave it out; "
        f"--board {' or '.join({each.board: 0 for each in fits})} plans for {', '.join(each.name for each in fits)}"
    )


def _say_plan(result: dict[str, Any]) -> None:
    learns = ", ".join(
        each for each in (result.get("method"), "" if result["rank"] is None else f"rank {result['rank']}") if each
    )
    rows = [{"memory": name.replace("_", " "), "bytes": size} for name, size in result["memory"].items()]
    table(
        [*rows, {"memory": "together", "bytes": result["total_bytes"]}],
        ("memory", "bytes"),
        False,
        title=f"{result['model']} on {result['board']}, "
        f"{learns}, {some(result['seq'], 'token')}, "
        f"{result['bits']}-bit, {result['optimizer']}",
    )
    say(
        f"codes and scales of the linears: {result['frozen_bytes']:,} bytes"
        + (f"; beside the frozen model: {result['learning_bytes']:,}" if "learning_bytes" in result else "")
    )
    if "cache" in result:
        cache = result["cache"]
        say(
            f"forward cache: {cache['bytes_per_text']:,} bytes a text, [bold]{some(cache['texts'], 'text')}[/bold] fit"
            + (
                f"; of the frozen model, a step reads {cache['base_bytes']:,} bytes in the first epoch and "
                f"{cache['base_bytes_later']:,} later"
                if "base_bytes" in cache
                else ""
            )
        )
    later = "one training step" + ", later epochs" * ("cache" in result)
    for title, key in (
        ("one decoded token", "token"),
        ("one training step, first epoch", "first_step"),
        (later, "step"),
    ):
        if key not in result:
            continue
        timed = result[key]
        table(
            [
                {
                    title: name,
                    "MB": round(part["bytes"] / 1e6, 1),
                    "M MAC": round(part["macs"] / 1e6, 1),
                    "ms": round(1e3 * part["seconds"], 2),
                }
                for name, part in timed["parts"].items()
            ],
            (title, "MB", "M MAC", "ms"),
            False,
        )
        say(
            f"{title}: {timed['bytes'] / 1e6:,.1f} MB, at least [bold]{1e3 * timed['seconds']:,.1f} ms[/bold]; "
            f"what limits: {timed['limit']}"
        )
    for note in result["assumptions"]:
        say(f"- {note}")
    say(_verdict(result))


def _verdict(result: dict[str, Any]) -> str:
    from gradloom.systems.text.fit import options

    total, room = result["total_bytes"], result["available_bytes"]
    share = f"{total:,} of {room:,} bytes, {100 * total / room:.0f} %"
    if not result["fits"]:
        near = result["nearest"]
        return (
            "does not fit"
            + (f" {result['preset']}" if result["preset"] else "")
            + f"; memory: {share}"
            + (f"; the nearest that does: {options(near['change'])} ({near['total_bytes']:,} bytes)" if near else "")
        )
    machine = result["preset"] or f"memory; no preset has a machine for it on {result['board']}"
    if result["preset"] and (result["bits"], result["head"]) != (4, "float16"):
        machine = f"memory; {machine} runs 4-bit codes and a float16 head only"
    return f"[bold]fits[/bold] {machine}: {share}"
