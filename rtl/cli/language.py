"""The verbs of language models. Like ``cli.py``, it looks upwards only when a verb is used."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .output import print_json, progress_bar, say, table

__all__ = ["register", "say_tuned"]

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A .gguf or .safetensors file, or a folder of Hugging Face's.")
]
Bits = Annotated[int, typer.Option(help="Of a frozen weight's code: 4, 3 or 2.")]
Head = Annotated[str, typer.Option(help="Format of the head: float16, or nf as the linears.")]
Json = Annotated[bool, typer.Option("--json", help="Print figures as JSON.")]


def register(app: typer.Typer) -> None:
    """Adds the verbs to the command line."""
    app.command(
        epilog="Example: gradloom plan tinyllama-1.1b --board genesys2 --seq 16\n\n"
        "Example: gradloom plan smollm2-135m --targets all --seq 32 --json\n\n"
        "Example: gradloom plan smollm2-135m --method instantft"
    )(plan)
    app.command(epilog="Example: gradloom pack SmolLM2-135M-Instruct.Q4_1.gguf -o smollm2-nf4")(pack)
    app.command(
        epilog="Example: gradloom load smollm2-nf4 -o card.img\n\n"
        "Example: gradloom load smollm2-nf4 -o card.img --adapter run --json"
    )(load)
    app.command(
        "generate-text",
        epilog="Example: gradloom generate-text edge-qlora-genesys2 --prompt 'A loom weaves'\n\n"
        "Example: gradloom generate-text edge-qlora-genesys2 --prompt 'A loom weaves' --adapter run --tokens 20",
    )(generate_text)


def pack(
    model: Model,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Where to write.")],
    bits: Bits = 4,
    head: Head = "float16",
    as_json: Json = False,
) -> None:
    """Write a language model's weights in the board's layout: codes and scales in one stream a linear."""
    import gradloom

    with progress_bar(as_json) as progress:
        result = gradloom.pack(model, output, bits=bits, head=head, progress=progress)
    if as_json:
        print_json(result)
        return
    say(
        f"[bold]{result['model']}[/bold] is in {output}: {result['linears']} linears, codes and scales "
        f"{result['frozen_bytes']:,} bytes ({result['bits_per_parameter']} bits a parameter), {result['bytes']:,} "
        f"bytes with embedding, norms and head"
    )


def load(
    model: Annotated[Path, typer.Argument(metavar="MODEL_DIR", help="What gradloom pack wrote.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="CARD.img", help="Where to write.")],
    adapter: Annotated[
        list[Path], typer.Option(metavar="DIR", help="An adapter, as PEFT writes them; repeatable.")
    ] = [],  # noqa: B006
    offset: Annotated[int, typer.Option(help="Where in the board's memory the first byte goes.")] = 1 << 20,
    as_json: Json = False,
) -> None:
    """Write an image for the memory card that the Genesys 2's firmware reads: weights and adapters, with sums."""
    import gradloom

    with progress_bar(as_json) as progress:
        result = gradloom.load(model, output, adapters=adapter, offset=offset, progress=progress)
    if as_json:
        print_json(result)
        return
    _say_card(result["sections"], output, result["model"], result["bytes"])


def generate_text(
    preset: Annotated[str, typer.Argument(help="A preset for language models.")],
    prompt: Annotated[str, typer.Option(help="How the text begins; taken as it is, without a chat template.")],
    model: Annotated[
        str, typer.Option(metavar="M", help="smollm2-135m, a file or a folder.")
    ] = "smollm2-135m",
    adapter: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Result of a fine-tune, or PEFT's; none: the base.")
    ] = None,
    tokens: Annotated[int, typer.Option(help="At most so many.")] = 40,
    as_json: Json = False,
) -> None:
    """Continue a text by the likeliest tokens, before or after a fine-tune. In floating point, not in RTL."""
    import gradloom

    with progress_bar(as_json) as progress:
        result = gradloom.generate_text(
            preset, prompt=prompt, model=model, adapter=adapter, tokens=tokens, progress=progress
        )
    if as_json:
        print_json(result)
        return
    print(result["prompt"] + result["text"])
    print(f"({len(result['tokens'])} tokens by the float reference, weights in NF4)", file=sys.stderr)


def _say_card(sections: list[dict[str, Any]], image: Path, what: str, size: int) -> None:
    """Prints what is in a memory card's image, and how it gets to a card."""
    table(sections, ("name", "kind", "offset", "bytes", "capacity", "crc32"), False,
          title=f"{what} on {image}, {size:,} bytes")
    say(f"to a card: dd if={image} of=/dev/CARD bs=1M conv=fsync, which overwrites what is on it")


def say_tuned(metrics: dict[str, Any], output: Path) -> None:
    """Prints what a fine-tune of a language model did, or what is on the card that shall do it."""
    if "card_bytes" in metrics:
        what = f"{metrics['model']}, {metrics['steps']} steps of {metrics['tokens']} tokens"
        _say_card(metrics["sections"], output / "card.img", what, metrics["card_bytes"])
        say(f"the board needs {metrics['memory_bytes']:,} bytes of memory. Offsets and fraction bits are in "
            f"{output / 'job.json'}")
        return
    after = "not finite" if metrics["loss_after"] is None else f"{metrics['loss_after']:.4f}"
    say(
        f"loss {metrics['loss_before']:.4f} before, [bold]{after}[/bold] after "
        f"{metrics['steps']} steps; results are in {output}"
    )
    if metrics["tokens_left_out"]:
        say(f"windows of {metrics['seq']} tokens: {metrics['windows']:,}; the last {metrics['tokens_left_out']:,} of "
            f"the text's {metrics['tokens']:,} tokens are left out")
    if metrics["engine"] != "float":
        say(f"in the machine's integers, {metrics['saturated']:,} words clipped")
    if metrics["cycles"]:
        say(f"{sum(metrics['cycles']):,} cycles of simulated RTL, {metrics['cycles'][-1]:,} in the last step")


def plan(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="tinyllama-1.1b, smollm2-135m, or a file or folder.")
    ],
    board: Annotated[str, typer.Option(help="A board: see gradloom boards.")] = "genesys2",
    rank: Annotated[int, typer.Option(help="Rank of the adapters.")] = 8,
    targets: Annotated[
        str | None,
        typer.Option(help="Linears with an adapter of QLoRA: q,v or all or a list.", show_default="q,v"),
    ] = None,
    seq: Annotated[int, typer.Option(help="Tokens of a text.")] = 64,
    bits: Bits = 4,
    optimizer: Annotated[str, typer.Option(help="sgd or adamw.")] = "adamw",
    store: Annotated[str, typer.Option(help="Adapters and moments between steps: words, int8 or nf4.")] = "words",
    head: Head = "float16",
    axi_bits: Annotated[
        int | None, typer.Option(help="Width of the memory port.", show_default="the board's")
    ] = None,
    method: Annotated[
        str, typer.Option(help="qlora, or instantft: adapters from every block to the head, and a cache.")
    ] = "qlora",
    as_json: Json = False,
) -> None:
    """What fine-tuning a language model takes of a board: every byte, traffic, time, what limits, what fits.

    Exit code 2: it does not fit; the last lines say which bounds fail and what to change.
    """
    import gradloom

    from ..plan.language.fit import DoesNotFit, Misfit

    result = gradloom.plan(
        model, board=board, rank=rank, targets=targets, seq=seq, bits=bits, optimizer=optimizer, head=head,
        store=store, axi_bits=axi_bits, method=method,
    )
    if as_json:
        print_json(result)
    else:
        _say_plan(result)
    if not result["fits"]:
        raise DoesNotFit([str(Misfit(**each)) for each in result["misfits"]])


def _say_plan(result: dict[str, Any]) -> None:
    rows = [{"memory": name.replace("_", " "), "bytes": size} for name, size in result["memory"].items()]
    table([*rows, {"memory": "together", "bytes": result["total_bytes"]}], ("memory", "bytes"), False,
           title=f"{result['model']} on {result['board']}, rank {result['rank']}, {result['seq']} tokens, "
                 f"{result['bits']}-bit, {result['optimizer']}")
    say(f"codes and scales of the linears: {result['frozen_bytes']:,} bytes"
        + (f"; beside the frozen model: {result['learning_bytes']:,}" if "learning_bytes" in result else ""))
    if "cache" in result:
        cache = result["cache"]
        say(f"forward cache: {cache['bytes_per_text']:,} bytes a text, [bold]{cache['texts']:,} texts[/bold] fit; of "
            f"the frozen model, a step reads {cache['base_bytes']:,} bytes in the first epoch and "
            f"{cache['base_bytes_later']:,} later")
    later = "one training step" + ", later epochs" * ("cache" in result)
    for title, key in (("one decoded token", "token"), ("one training step, first epoch", "first_step"),
                       (later, "step")):
        if key not in result:
            continue
        timed = result[key]
        table(
            [{title: name, "MB": round(part["bytes"] / 1e6, 1), "M MAC": round(part["macs"] / 1e6, 1),
              "ms": round(1e3 * part["seconds"], 2)} for name, part in timed["parts"].items()],
            (title, "MB", "M MAC", "ms"), False)
        say(f"{title}: {timed['bytes'] / 1e6:,.1f} MB, at least [bold]{1e3 * timed['seconds']:,.1f} ms[/bold]; "
             f"what limits: {timed['limit']}")
    for note in result["assumptions"]:
        say(f"- {note}")
    say(_verdict(result))


def _verdict(result: dict[str, Any]) -> str:
    from ..plan.language.fit import options

    total, room = result["total_bytes"], result["available_bytes"]
    share = f"{total:,} of {room:,} bytes, {100 * total / room:.0f} %"
    if not result["fits"]:
        near = result["nearest"]
        return "does not fit" + (f" {result['preset']}" if result["preset"] else "") + f"; memory: {share}" + (
            f"; the nearest that does: {options(near['change'])} ({near['total_bytes']:,} bytes)" if near else "")
    machine = result["preset"] or f"memory; no preset has a machine for it on {result['board']}"
    if result["preset"] and (result["bits"], result["head"]) != (4, "float16"):
        machine = f"memory; {machine} runs 4-bit codes and a float16 head only"
    return f"[bold]fits[/bold] {machine}: {share}"
