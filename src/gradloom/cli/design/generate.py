"""The verb ``generate``: Verilog of a preset or a unit.

Modules above this room are imported only when used.
"""

import contextlib
import dataclasses
import functools
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradloom import __version__
from gradloom.json_file import json_text, read_json
from gradloom.options import check_request, given
from gradloom.output import some
from gradloom.rtl.catalog import KNOWN as UNITS
from gradloom.rtl.catalog import Unit, find_unit
from gradloom.rtl.emit.names import module_name
from gradloom.rtl.shell import registers

from ..app import app
from ..arguments import Json, Settings, TrustedKey, usual_option
from ..output import print_json, say, working

if TYPE_CHECKING:
    from gradloom.sim.testbench.plan import WrittenBench
    from gradloom.systems.asked import Asked

__all__ = ["REPORT", "configured", "generate"]

REPORT = "report.json"
#: Bytes of a large design, twice.
_NEEDS = 8 << 20


def generate(
    target: str,
    directory: Path | str,
    *,
    board: str | None = None,
    settings: Mapping[str, object] | None = None,
    rank: int | None = None,
    data: Path | str | None = None,
    samples: int | None = None,
    trust: Path | str | None = None,
    name: str | None = None,
) -> dict[str, Any]:
    """Writes a preset's, a model's or a unit's Verilog to ``directory``.

    Returns the content of ``report.json``.

    A model is as in :func:`gradloom.finetune`, with ``board``: its preset's design has sizes chosen for it where the
    system chooses sizes, and must take it elsewhere. No size is below the preset's, and parameters in ``settings``
    stay. ``rank``: of its adapters; ``samples``: to learn from, or those of ``data``. Unless given, both are the
    preset's.

    ``settings`` changes parameters by name. Nothing is written if anything is wrong. ``trust``: the public key of
    :func:`gradloom.package.keys` that signs what the board's firmware installs. ``name``: of the outermost module, and
    of the board's files; all other modules begin with it. Two designs in one netlist or on one card need two names,
    neither of which begins with the other.
    """
    from gradloom.output import staged

    root = None if trust is None else _public(trust)
    called = None if name is None else module_name(name)
    wanted = {"rank": rank, "data": data, "samples": samples}
    if target in UNITS:
        check_request(f"with {target}, a unit", needless={"board": board, **wanted})
        make: Callable[..., dict[str, Any]] = functools.partial(_generate_unit, target, called)
        kind, made = "unit", target
    else:
        from gradloom.preset import KNOWN
        from gradloom.systems.asked import asked_for

        if target not in KNOWN and not Path(target).exists() and target not in _shipped():
            raise ValueError(f"{target}: is no file, no preset ({KNOWN}), no unit ({UNITS}) and no shipped model")
        asked = asked_for(target, board=board, verb=None)
        make = functools.partial(_generate_preset, asked, called or "gradloom", wanted=wanted)
        kind, made = "preset", asked.preset.name
    _check_kept(directory, kind)
    with staged(directory, verb="generate", needs=_NEEDS) as stage:
        summary = {"gradloom": __version__, kind: made} | make(dict(settings or {}), stage)
        if root is not None:
            from gradloom.boards.trusted import trust as put_key

            summary["trust"] = put_key(stage, root)
        (stage / REPORT).write_text(json_text(summary), encoding="utf-8", newline="\n")
    return summary


def _shipped() -> set[str]:
    """Names of models that presets ship."""
    from gradloom.models.language import BUILT_IN
    from gradloom.models.onnx_import import shipped_networks
    from gradloom.preset import KNOWN

    return {*BUILT_IN, *shipped_networks(), *(str(each.workload.ships) for each in KNOWN.values())}


def _check_kept(directory: Path | str, kind: str) -> None:
    """Refuses a folder with a preset's design for a unit, and so on."""
    try:
        held = read_json(Path(directory) / REPORT)
    except (OSError, ValueError):
        return
    for other in ("preset", "unit"):
        if isinstance(held, dict) and other in held and other != kind:
            raise ValueError(f"output={directory}: holds the {other} {held[other]}, not a {kind}: name another folder")


def _generate_unit(target: str, name: str | None, settings: dict[str, object], stage: Path) -> dict[str, Any]:
    from gradloom.boards.integrate import write_integration
    from gradloom.rtl.emit.verilog import convert

    unit = find_unit(target)
    parameters = unit.settings(settings)
    component = unit.build(**settings)
    emission = convert(component, name=name or target.replace("-", "_"))
    emission.write(stage)
    summary = _described(emission) | {
        "parameters": parameters,
        "testbench": _unit_bench(unit, parameters, component, emission, stage),
    }
    write_integration(stage, summary)
    return summary


def _unit_bench(
    unit: Unit, parameters: Mapping[str, Any], component: Any, emission: Any, stage: Path
) -> "WrittenBench":
    """Writes the unit's test bench; returns its entry of the report."""
    from gradloom.sim.testbench.plan import write_bench
    from gradloom.sim.testbench.units import plan_unit

    plan = plan_unit(unit, parameters, component)
    if plan is None:
        return {"files": None, "reason": f"unit {unit.name} has no vectors"}
    return write_bench(stage, emission.name, plan.content(emission.port_list))


def _generate_preset(
    asked: "Asked", name: str, settings: dict[str, object], stage: Path, *, wanted: Mapping[str, Any]
) -> dict[str, Any]:
    from gradloom import boards
    from gradloom.boards.clocks import reached
    from gradloom.boards.integrate import write_integration
    from gradloom.rtl.emit.verilog import convert
    from gradloom.rtl.machines.accelerator import Accelerator
    from gradloom.rtl.machines.fit import check_fit
    from gradloom.rtl.shell.registers.regmap import markdown
    from gradloom.rtl.shell.registers.regtable import REGISTERS
    from gradloom.rtl.shell.table import table_of

    preset = asked.preset
    board = boards.find(preset.board)
    sizes: dict[str, Any] | None = None
    workload: dict[str, Any] = {}
    config = configured(preset.config, settings)
    if asked.model is not None or given(wanted):
        if not preset.workload.can("sizes"):
            field, value = next(iter({**given(wanted), "model": asked.model}.items()))
            raise ValueError(f"{field}={value}: must be left out, no sizes are chosen for {preset.name}")
        config, sizes = preset.workload.function("sizes")(asked, config, settings, **wanted)
        workload = sizes.pop("expects", {})
    # What is wrong with the request is said before the long part.
    try:
        counted = check_fit(config, board)
        boards.check(board, dataclasses.replace(preset, config=config))
    except ValueError as error:
        raise ValueError(f"{_said(sizes)}{error}") from None
    expects = preset.workload.can("expectation")
    with _Expectation(config, preset.workload, **workload) if expects else contextlib.nullcontext() as expected:
        emission = convert(Accelerator(config), name=name, family=board.family)
        emission.write(stage)
    described = _described(emission)
    summary = (
        {"preset": preset.name}
        | described
        | {
            "board": board.name,
            "parameters": dataclasses.asdict(config),
            "counted": counted,
            "machine": {"table": table_of(config), "data_bits": config.data_bits},
            "registers": {register.name: register.address for register in REGISTERS},
        }
        | ({} if expected is None else _expected(expected.result(), board, described["ports"]))
    )
    if preset.workload.window_bytes:
        summary["window_bytes"] = preset.workload.window_bytes
    if (clock := reached(preset.name, config.clock_mhz)) is not None:
        summary["clock"] = clock
    summary["testbench"] = _machine_bench(config, summary, stage)
    if sizes is not None:
        _check_window(summary, sizes, preset, board)
        summary["sizes"] = sizes
    folder = stage / "registers"
    folder.mkdir()
    # The C header is the driver's, among the project's files.
    shutil.copyfile(Path(registers.__file__).parent / "gradloom.xml", folder / "gradloom.xml")
    (folder / "registers.md").write_text(markdown(), encoding="utf-8", newline="\n")
    try:
        boards.write_project(board, stage, summary)
    except boards.NoProjectError as error:
        summary["project"] = {"files": None, "reason": str(error)}
    write_integration(stage, summary, board.family)
    return summary


def _machine_bench(config: Any, summary: Mapping[str, Any], stage: Path) -> "WrittenBench":
    """Writes the machine's test bench; returns its entry of the report."""
    from gradloom.sim.testbench.machines import machine_content, programs
    from gradloom.sim.testbench.plan import wrapped, write_bench

    content = machine_content(config, programs(config), summary["registers"], summary["ports"])
    wrapper = wrapped(summary["module"], summary["ports"], without=["trace"])
    return write_bench(stage, summary["module"], content, bench="machine.py", wrapper=wrapper)


def _public(key: Path | str) -> bytes:
    """A public key, read before anything is made."""
    from gradloom.delivery.keys import read_public

    try:
        return read_public(key)
    except OSError as error:
        raise ValueError(
            f"trust={key}: cannot be read ({error.strerror}); give a public key of gradloom package keys"
        ) from None


def _said(sizes: Mapping[str, Any] | None) -> str:
    """The beginning of a refusal: the network and its chosen sizes."""
    if sizes is None:
        return ""
    chosen = ", ".join(f"{field}={each['value']}" for field, each in sizes["chosen"].items())
    rank = f" at rank {sizes['rank']}" if "rank" in sizes else ""
    return f"{sizes['network']}{rank} needs {chosen or 'no more than the preset has'}: "


def _check_window(summary: Mapping[str, Any], sizes: Mapping[str, Any], preset: Any, board: Any) -> None:
    """Refuses a fine-tune that the board's memory does not hold."""
    from gradloom.systems.images.workload import DIGITS

    # A tuner on its own brings its digits with it; another network runs in simulation.
    if summary.get("memory_map") is None or preset.workload is DIGITS:
        return
    needs = summary["memory_map"]["window_bytes"]
    if needs > board.memory_bytes:
        raise ValueError(
            f"samples={sizes['samples']}: fine-tuning {sizes['network']} needs a window of {needs:,} "
            f"bytes, {board.name} has {board.memory_bytes:,}"
        )


# Reads a configuration and its workload, writes what is expected of it, as pickles; an interrupt ends it
# without a word.
_EXPECTATION = """\
import pickle, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
config, workload, more = pickle.load(sys.stdin.buffer)
pickle.dump(workload.function("expectation")(config, workload, **more), sys.stdout.buffer)
"""


class _Expectation:
    """The workload's ``expectation`` in a process of its own.

    It runs beside the block that makes Verilog.
    """

    def __init__(self, config: Any, workload: Any, **more: Any) -> None:
        self._asked = config, workload, more

    def __enter__(self) -> "_Expectation":
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _EXPECTATION], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdin is not None
        pickle.dump(self._asked, self._process.stdin)
        self._process.stdin.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
            self._process.wait()

    def result(self) -> dict[str, Any]:
        """The expectation, when the process has ended."""
        with self._process:
            assert self._process.stdout is not None
            result = self._process.stdout.read()
        if self._process.returncode:
            raise RuntimeError(f"the forecast ended with exit code {self._process.returncode}, see above")
        return pickle.loads(result)


def _expected(expected: dict[str, Any], board: Any, ports: list[dict[str, Any]]) -> dict[str, Any]:
    """Forecast and memory map of the preset's own workload."""
    if expected["memory_map"] is not None:
        bits = next(port["width"] for port in ports if port["name"] == "s_axi_awaddr")
        expected["memory_map"] = {
            "registers": {"address": board.register_base, "bytes": 1 << bits},
            "window_base": "any multiple of 4096; registers WINDOW_BASE_LO, WINDOW_BASE_HI and WINDOW_SIZE",
        } | expected["memory_map"]
    return expected


def configured(config: Any, settings: Mapping[str, object], *, check: bool = True) -> Any:
    """``config`` with parameters as texts.

    :class:`ValueError` names the one that is wrong.

    Without ``check`` only their names and kinds are looked at, and ``config`` comes back as it was.
    """
    fields = {field.name: field for field in dataclasses.fields(config)}
    changes: dict[str, object] = {}
    for name, value in settings.items():
        if name not in fields:
            raise ValueError(f"{name}: no such parameter; there are {', '.join(fields)}")
        kind = type(getattr(config, name))
        fraction = fields[name].metadata.get("fraction", False)
        try:
            if kind is bool:
                changes[name] = {"true": True, "false": False, "1": True, "0": False}[str(value).lower()]
            elif fraction:
                changes[name] = _number(str(value))
            else:
                changes[name] = int(str(value), 0) if kind is int else kind(value)
        except (ValueError, KeyError):
            wanted = {int: "an integer", bool: "true or false", float: "a number"}.get(
                float if fraction else kind, kind.__name__
            )
            raise ValueError(f"{name}={value}: must be {wanted}") from None
    return dataclasses.replace(config, **changes) if check else config


def _number(text: str) -> float:
    """The number that ``text`` writes: an integer where it is whole."""
    value = float(text)
    return int(value) if value.is_integer() else value


def _described(emission: Any) -> dict[str, Any]:
    return {
        "name": emission.name,
        "module": emission.name,
        "ports": emission.port_list,
        "modules": sorted(emission.files),
        "bytes": sum(len(text.encode()) for text in emission.files.values()),
    }


@app.command(
    "generate",
    epilog="Example: gradloom generate instantft-kv260 -o design\n\n"
    "Example: gradloom generate mine.onnx --board kv260 --rank 8 -o design\n\n"
    "Example: gradloom generate mesh --set rows=32 --set cols=32 -o mesh",
)
def _generate_verb(
    target: Annotated[
        str, typer.Argument(metavar="MODEL|UNIT", help="A preset, a shipped model, a file or a folder; or a unit.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Output folder.")],
    board: Annotated[
        str | None, typer.Option(metavar="BOARD", help="Board, where several have a preset for the model.")
    ] = None,
    settings: Settings = [],  # noqa: B006
    rank: Annotated[
        int | None, usual_option(min=1, max=16, help="Rank of the adapters that sizes are for.", usual="the preset's")
    ] = None,
    data: Annotated[
        Path | None, usual_option(metavar="D.npz", help="Data set that sizes are for.", usual="as many as the preset's")
    ] = None,
    samples: Annotated[
        int | None, usual_option(min=1, help="Number of training images that sizes are for.", usual="the preset's")
    ] = None,
    trust: TrustedKey = None,
    name: Annotated[
        str | None, usual_option(metavar="NAME", help="Name of the module and of the board's files.", usual="gradloom")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the Verilog for a model on a board, or of one unit.

    A design has a register map, board project and report too.
    Its sizes are chosen for the model, a network's data and a rank; --set takes precedence.
    """
    from gradloom.rtl.catalog import parse_settings
    from gradloom.rtl.hierarchy import uncollected

    with uncollected(), working(f"generating {target}", as_json):
        asked: dict[str, Any] = {"rank": rank, "data": data, "samples": samples, "trust": trust, "name": name}
        report = generate(target, output, board=board, settings=parse_settings(settings), **asked)
    if as_json:
        print_json(report)
        return
    say(
        f"[bold]{report['name']}[/bold] is in {output}: {some(len(report['modules']), 'module')}, "
        f"{report['bytes']:,} bytes of Verilog"
    )
    if "sizes" in report:
        sizes, chosen = report["sizes"], report["sizes"]["chosen"]
        say(
            f"sizes for {sizes['network']}{sizes.get('at', '')}: "
            + (
                ", ".join(
                    f"{name}={each['value']} ({each['for']}; preset: {each['preset']})" for name, each in chosen.items()
                )
                or "the preset's own"
            )
        )
    if "counted" in report:
        from gradloom.boards import find

        chip, counted = find(report["board"]), report["counted"]
        slices, bits = (sum(counted[key].values()) for key in ("dsp", "memory_bits"))
        say(
            f"by count: {slices} DSP slices ({100 * slices / chip.dsp:.1f} % of {chip.name}), "
            f"{bits / 1e6:.1f} Mbit of memory ({100 * bits / chip.memory_bits:.1f} %); "
            + (
                f"gradloom build {chip.name} {output} places it"
                if chip.family == "ecp5" and "project" not in report
                else f"gradloom report {output} synthesises it"
            )
        )
    if "workload" in report:
        work, forecast = report["workload"], report["forecast"]
        say(
            f"forecast: {forecast['cycles']:,} cycles ({forecast['milliseconds']:.2f} ms at {forecast['clock_mhz']} "
            f"MHz) for {some(work['epochs'], 'epoch')} of {some(work['samples'], 'image')}; memory map in report.json"
            if forecast
            else f"no forecast: {report['reason']}"
        )
    if report.get("clock", {}).get("short"):
        say(report["clock"]["short"])
    if "project" in report:
        say(report["project"]["reason"])
