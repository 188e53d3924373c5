"""The verb plan."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

from gradloom.output import some
from gradloom.systems.asked import asked_for
from gradloom.systems.request import answered

from ..app import app
from ..faces import face, more
from ..output import print_json, say, say_left_out, table, working

__all__: list[str] = []


@app.command(
    "plan",
    epilog="Example: gradloom plan tinyllama-1.1b --board genesys2 --seq 16\n\n"
    "Example: gradloom plan smollm2-135m --targets all --seq 32 --json\n\n"
    "Example: gradloom plan mine.onnx --board kv260 --rank 8 --samples 400\n\n"
    f"Example: gradloom plan sd-v1.5 --only cross-attention\n\n{more('plan')}",
)
@face("plan")
def _plan_verb(model_name: str, *, board: str | None, as_json: bool, **options: Any) -> None:
    """Plan the memory, traffic and time of a fine-tune on a board.

    Of a language model the plan counts every byte, and tells what limits it and whether it fits.
    Of a diffusion model (a configuration of diffusers' UNet2DConditionModel) it lists every product of a LoRA step.
    Of a network it has the forecast, in cycles, and operations or the memory map.
    Of a recurrent network it has the cycles of an answer and of a fine-tune.

    Exit code 2: it does not fit; the last lines say which bounds fail and what to change.
    """
    asked = asked_for(model_name, board=board, method=options.get("method"), verb="plan", any_board=True, given=options)
    with working(f"planning {model_name}", as_json):
        result = answered("plan", asked, **options)
    if as_json:
        print_json(result)
    else:
        if asked.why is not None and result.get("fits", True):
            print(asked.why, file=sys.stderr)
        _SAY[asked.preset.workload.label](result)
    if not result.get("fits", True):
        from gradloom.systems.text.costs.fit import DoesNotFit, Misfit

        raise DoesNotFit([str(Misfit(**each)) for each in result["misfits"]])


def _say_images(result: dict[str, Any]) -> None:
    """Prints the regions of memory and the forecast."""
    work, forecast = result["workload"], result["forecast"]
    if result["memory_map"] is not None:
        table(
            result["memory_map"]["regions"],
            ("name", "address", "bytes"),
            False,
            title=f"{work['network']} on {result['board']}, rank {work['rank']}",
        )
    table(
        [{"phase": name, "cycles": cycles} for name, cycles in forecast["phases"].items() if cycles],
        ("phase", "cycles"),
        False,
    )
    say(
        f"{some(work['epochs'], 'epoch')} of {some(work['samples'], 'image')}: "
        f"[bold]{forecast['cycles']:,} cycles[/bold], {forecast['milliseconds']:.2f} ms at {forecast['clock_mhz']} MHz"
    )


def _say_network(result: dict[str, Any]) -> None:
    """Prints operations, cycles and memory."""
    table(
        [each | {"products": f"{each['products']:,}"} for each in result["operations"]],
        ("name", "kind", "rows", "features", "codes", "products"),
        False,
        title=f"{result['model']} on {result['board']}, {some(result['batch'], 'sample')}",
    )
    phases = {name: cycles for name, cycles in result["cycles"].items() if name not in ("total", "sample") and cycles}
    table([{"phase": name, "cycles": f"{cycles:,}"} for name, cycles in phases.items()], ("phase", "cycles"), False)
    moved, what = result["bytes"], "forward pass" if result["method"] == "none" else f"step by {result['method']}"
    say(
        f"{what}: [bold]{result['cycles']['total']:,} cycles[/bold], {result['cycles']['sample']:,} a sample, "
        f"{result['milliseconds']:.2f} ms at {result['clock_mhz']} MHz; forward products take "
        f"{100 * result['share']:.1f} % of the array's"
    )
    if (once := result["once"]) is not None:
        say(
            f"once for each batch: {once['cycles']:,} cycles, {once['sample']:,} a sample, of all that depends on "
            f"nothing that learns; {once['bytes']:,} bytes are kept"
        )
    say(
        f"{result['learnt']:,} of {result['parameters']:,} parameters learn; {moved['read']:,} bytes read, "
        f"{moved['written']:,} written, {moved['memory']:,} of memory"
    )
    say_left_out(result)


def _say_sequences(result: dict[str, Any]) -> None:
    """Prints cycles of an answer, and of the fine-tune by phase."""
    work, answer, forecast = result["workload"], result["answer"], result["forecast"]
    say(
        f"{work['network']} on {result['board']}: a sequence of {some(work['steps'], 'step')} takes "
        f"[bold]{answer['cycles']:,} cycles[/bold], {answer['milliseconds']:.3f} ms"
    )
    if forecast is None:
        say(f"no fine-tune: {result['reason']}")
        return
    phases = [{"phase": name, "cycles": cycles} for name, cycles in forecast["phases"].items() if cycles]
    table(phases, ("phase", "cycles"), False)
    say(
        f"{some(work['epochs'], 'epoch')} of {some(work['samples'], 'sequence')}: [bold]{forecast['cycles']:,} "
        f"cycles[/bold], {forecast['milliseconds']:.2f} ms at {forecast['clock_mhz']} MHz; a window of "
        f"{forecast['window_bytes']:,} bytes"
    )


def _say_unet(result: dict[str, Any]) -> None:
    """Prints products by kind, memory and sums."""
    kinds: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in result["products"]:
        shape = tuple(row[key] for key in ("way", "part", "m", "k", "n", "times"))
        kind = kinds.setdefault(
            shape,
            {
                "product": f"{row['way']} {row['part']}",
                "M": row["m"],
                "K": row["k"],
                "N": row["n"],
                "count": 0,
                "M MAC": 0.0,
                "cycles": 0,
                "kB": 0.0,
                "busy %": round(100 * row["utilisation"], 1),
            },
        )
        kind["count"] += row["times"]
        kind["M MAC"] = round(kind["M MAC"] + row["macs"] / 1e6, 1)
        kind["cycles"] += row["cycles"]
        kind["kB"] = round(kind["kB"] + row["bytes"] / 1e3, 1)
    rows = list(kinds.values())
    high, wide = result["array"]
    # A part may have no product.
    if rows:
        what = f"{result['model']}: products by shape on {high}×{wide}, of {result['only']}"
        table(rows, tuple(rows[0]), False, title=what)
    memory = [{"memory": name.replace("_", " "), "bytes": size} for name, size in result["memory"].items()]
    total = sum(result["memory"].values())
    table([*memory, {"memory": "together", "bytes": total}], ("memory", "bytes"), False)
    say(
        f"{result['parameters']:,} parameters; forward {result['forward_macs'] / 1e9:,.2f} GMAC an image, "
        f"without adapters; "
        f"these products of a LoRA step, rank {result['rank']}: {result['step_macs'] / 1e9:,.2f} GMAC, "
        f"{result['bytes'] / 1e6:,.0f} MB, {result['cycles'] / 1e6:,.2f} M cycles, "
        f"{result['bytes_a_cycle']} bytes a cycle, "
        f"array {100 * result['utilisation']:.1f} % busy"
    )
    say("- cycles are of the products, by shape, loads under compute: no other engine and no memory port is counted")
    step = result["step"]
    what = "whole step" if result["only"] in ("all", "cross-attention") else "part"
    say(
        f"- the {what}, every record through memory: bound {step['cycles'] / 1e6:,.2f} M cycles, if operations "
        f"follow one another; alone, array {step['array'] / 1e6:,.2f} M, elements {step['element'] / 1e6:,.2f} M, "
        f"norms {step['norm'] / 1e6:,.2f} M, reading {step['read'] / 1e6:,.2f} M, writing {step['write'] / 1e6:,.2f} M"
    )
    if (found := result.get("forecast")) is not None:
        pieces = f" in {found['pieces']} pieces, {found['programs']} of them unlike" if found["pieces"] > 1 else ""
        say(
            f"- the program of {result['only']}, what it reads and makes in memory: [bold]{found['cycles']:,} "
            f"cycles[/bold], {found['milliseconds']:.2f} ms at {found['clock_mhz']} MHz; {found['commands']:,} "
            f"commands{pieces}, a window of {found['window_bytes']:,} bytes"
        )


def _say_text(result: dict[str, Any]) -> None:
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
    if "fill" in result:
        shapes = [f"{name} {old:,} to {new:,}" for name, (old, new) in result["fill"]["shapes"].items()]
        share = 100 * result["fill"]["share"]
        say(f"filled with zeros: {', '.join(shapes)}; {share:.1f} % of a step's multiplications")
    for note in result["assumptions"]:
        say(f"- {note}")
    if result["machine"]:
        made = ", ".join(f"{name}={value}" for name, value in result["machine"].items())
        say(f"machine: {made}; gradloom generate makes the design")
    say(_verdict(result))


def _verdict(result: dict[str, Any]) -> str:
    from gradloom.systems.text.costs.fit import options

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


#: Printers of a plan, by what the preset's workload fine-tunes.
_SAY: Mapping[str, Callable[[dict[str, Any]], None]] = {
    "images": _say_images,
    "text": _say_text,
    "sequences": _say_sequences,
    "answers": _say_sequences,
    "diffusion": _say_unet,
    "networks": _say_network,
}
