"""The verbs of a generated design: area, self-test, bitstream, board."""

import dataclasses
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import typer

from gradloom.json_file import read_json
from gradloom.output import check_folder
from gradloom.preset import KNOWN, find_preset
from gradloom.rtl.catalog import KNOWN as UNITS

from ..app import app
from ..arguments import Json, designed, usual_option
from ..output import print_json, progress_bar, say, table, working
from .generate import REPORT

if TYPE_CHECKING:
    from gradloom.boards.netlist.area import AreaReport

__all__ = ["Checked", "build", "flash", "monitor", "parse_shares", "report", "selftest"]

#: What a report tells the share of.
_SHARES = ("lut", "ff", "dsp", "bram36", "uram", "bits")


def parse_shares(items: Sequence[str]) -> dict[str, float]:
    """``RESOURCE=PERCENT`` strings as a dictionary."""
    shares: dict[str, float] = {}
    for item in items:
        key, _, value = item.partition("=")
        try:
            most = float(value)
        except ValueError:
            most = -1
        if key not in _SHARES or not 0 <= most <= 100:
            raise ValueError(f"--max-share {item}: must be RESOURCE=PERCENT, of {', '.join(_SHARES)}")
        shares[key] = most
    return shares


def report(directory: Path | str, *, board: str | None = None, unit: str | None = None) -> "AreaReport":
    """Area and deepest paths of a generated design, by open synthesis.

    With ``unit``, of this module of the design alone.

    Units of a preset or stand-alone unit that is as it came, on the board it came for, have the ``budget`` of their
    ``levels`` too; ``beyond`` says which have more.
    """
    from gradloom import boards
    from gradloom.boards.budgets import allowed, beyond

    path = Path(directory) / REPORT
    if not path.is_file():
        raise ValueError(f"{directory}: has no {REPORT}; name a directory that gradloom generate made")
    try:
        summary = read_json(path)
    except ValueError as error:
        raise ValueError(f"{path}: is not JSON ({error}); generate the design again") from None
    if not isinstance(summary, dict):
        raise ValueError(f"{path}: holds a {type(summary).__name__}, not an object; generate the design again")
    own = summary.get("board") or "kv260"
    found = boards.find(board or own)
    budget = _budget(summary) if found.name == own else None
    result = boards.measure(found, directory, unit=unit)
    result["clock_mhz"] = summary.get("parameters", {}).get("clock_mhz")
    if budget is not None:
        for name, entry in result["units"].items():
            entry["budget"] = allowed(budget, name)
        result["beyond"] = beyond(result["units"], budget)
    return result


def _budget(summary: Mapping[str, Any]) -> Mapping[str, int] | None:
    """Budgets of the units of a design, from its ``report.json``.

    None where parameters were changed.
    """
    from gradloom.boards.budgets import budget

    if summary.get("preset") in KNOWN:
        name, parameters = summary["preset"], dataclasses.asdict(KNOWN[summary["preset"]].config)
    elif summary.get("unit") in UNITS:
        name, parameters = summary["unit"], UNITS[summary["unit"]].settings({})
    else:
        return None
    found = budget(name) if json.loads(json.dumps(parameters)) == summary.get("parameters") else None
    own = "gradloom" if "preset" in summary else name.replace("-", "_")
    module = summary.get("module", own)
    if found is None or module == own:
        return found
    return {re.sub(rf"^{own}(?=_|$)", module, unit): levels for unit, levels in found.items()}


class Checked(TypedDict):
    """A check of a self-test, whether it is ``ok``, and how."""

    check: str
    ok: bool
    detail: str


def selftest(
    preset: str,
    *,
    design: Path | str | None = None,
    host: str | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[Checked]:
    """Checks of simulated RTL that a user asks of a board first.

    Returns ``check``, ``ok`` and ``detail`` of each check.

    ``design``: directory of an earlier ``generate``, whose Verilog is simulated; else the preset's own. With ``host``
    (``USER@BOARD``) the board itself is checked, over ssh, which has the design.
    """
    if host is not None:
        from gradloom.jobs.on_board import selftest_on
        from gradloom.systems.asked import asked_for

        from ..on_board import board_of

        done = selftest_on(board_of(asked_for(preset, verb=None), host, design))
        return [{"check": name, "ok": ok, "detail": detail} for name, ok, detail in done]
    # Simulation is a room above: it is entered when it is used.
    from gradloom.sim.run.selftest import selftest as ask

    found = find_preset(preset)
    if design is not None:
        designed(Path(design))
    checks = ask(found, design, progress=progress)
    return [{"check": name, "ok": ok, "detail": detail} for name, ok, detail in checks]


def build(
    board: str,
    directory: Path | str,
    *,
    saif: Path | str | None = None,
    dry_run: bool = False,
    echo: Callable[[str], object] | None = None,
) -> None:
    """Makes the bitstream of a design and the bundle for its board.

    The board loads the bundle. ``saif``: switching activity of the design's workload (:func:`gradloom.energy`), from
    which Vivado estimates power in ``board/build/out/power.rpt``. ``dry_run``: only tell ``echo`` the commands.
    """
    from gradloom import boards

    found = boards.find(board)
    if not dry_run:
        check_folder(designed(Path(directory)) / "board", name="directory")
    boards.build(found, designed(Path(directory)), saif=saif, dry_run=dry_run, echo=echo or print)


def flash(
    board: str,
    directory: Path | str,
    *,
    host: str | None = None,
    dry_run: bool = False,
    echo: Callable[[str], object] | None = None,
) -> None:
    """Copies a built design to its board and loads it.

    ``host``: ``USER@HOST`` of a board that answers ssh.
    """
    from gradloom import boards

    boards.flash(boards.find(board), designed(Path(directory)), host=host, dry_run=dry_run, echo=echo or print)


def monitor(port: str | None = None, *, baud: int = 115_200, write: Callable[[str], object] | None = None) -> None:
    """Reads the UART of a board until it is interrupted.

    Gives its output to ``write`` (else prints it).

    ``port``: of the serial line, else the only one on USB; ``baud``: bits a second.
    """
    from gradloom.boards.links.monitor import monitor as listen

    listen(port, baud=baud, write=write or sys.stdout.write)


@app.command("report", epilog="Example: gradloom report design --json")
def _report_verb(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of gradloom generate.")],
    board: Annotated[str | None, typer.Option(help="Board for the report, if it is not the design's own.")] = None,
    unit: Annotated[str | None, typer.Option(metavar="MODULE", help="Only this module and its submodules.")] = None,
    max_levels: Annotated[
        int | None, typer.Option(min=1, help="Exit with 3 if a path between registers has more levels.")
    ] = None,
    max_share: Annotated[
        list[str] | None, typer.Option(metavar="RESOURCE=PERCENT", help="Exit with 3 if more of a resource is used.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show area and deepest paths of a design, by open synthesis.

    The area is compared with the board's totals.

    Levels of a preset's units are held to their budgets: exit with 3 if a unit has more.
    """
    shares = parse_shares(max_share or [])
    with working(f"synthesising {directory}, {_synthesis_time(directory, unit)}", as_json):
        result = report(directory, board=board, unit=unit)
    if as_json:
        print_json(result)
    else:
        _show_report(result)
    beyond = [
        f"{result['share'][key]} % of {key}: {most:g} were allowed"
        for key, most in shares.items()
        if result["share"][key] > most
    ]
    if max_levels is not None and result["levels"] > max_levels:
        beyond.append(f"{result['levels']} levels of logic between registers: {max_levels} were allowed")
    beyond += result.get("beyond", [])
    for line in beyond:
        typer.echo(line, err=True)
    if beyond:
        raise typer.Exit(3)


def _synthesis_time(directory: Path, unit: str | None) -> str:
    """How long synthesis takes, by the Verilog's size."""
    size = sum(each.stat().st_size for each in (directory / "rtl").glob("*.v"))
    return "some minutes" if unit is None and size > 300_000 else "some seconds"


def _show_report(result: Mapping[str, Any]) -> None:
    columns = ("lut", "ff", "dsp", "bram36", "uram")
    # Of a flat netlist LUTs are told of the whole only.
    rows = [
        {"": name, **{key: entry.get(key, "") for key in (*columns, "levels", "budget")}}
        for name, entry in result["units"].items()
    ]
    rows.append(
        {"": "total", **{key: result["total"][key] for key in columns}, "levels": result["levels"], "budget": ""}
    )
    rows.append(
        {"": f"% of {result['board']}", **{key: result["share"][key] for key in columns}, "levels": "", "budget": ""}
    )
    shown = (*columns, "levels", "budget") if "beyond" in result else (*columns, "levels")
    table(rows, ("", *shown), False, title=f"{result['top']} on {result['board']}, open synthesis")
    say(f"block and ultra RAM: {result['share']['bits']} % of the bits")
    table(result["paths"], ("levels", "start", "end"), False, title="deepest paths, levels of logic")
    slowest = result.get("estimate")
    if slowest:
        say(
            f"slowest path by estimate, without placement ({slowest['grade']}): {slowest['ns']} ns, "
            f"{slowest['wires_ns']} of it wires: {slowest['mhz']} MHz"
        )
        if (result["clock_mhz"] or 0) > slowest["mhz"]:
            say(f"clock_mhz={result['clock_mhz']} is asked for: more than this estimate; no vendor's tool has timed it")


@app.command("selftest", epilog="Example: gradloom selftest instantft-kv260 --design design")
def _selftest_verb(
    preset: Annotated[str, typer.Argument(help="A preset: see gradloom list presets.")],
    design: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Simulate the Verilog of an earlier gradloom generate.")
    ] = None,
    host: Annotated[
        str | None, typer.Option(metavar="USER@BOARD", help="Check this board, over ssh, after gradloom flash.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check simulated RTL as a user checks a board first, or a board.

    The checks are registers, window, errors, and a copy through it.
    """
    with progress_bar(as_json) as progress:
        checks = selftest(preset, design=design, host=host, progress=progress)
    table(checks, ("check", "ok", "detail"), as_json)
    if not all(each["ok"] for each in checks):
        raise typer.Exit(3)


@app.command("build", epilog="Example: gradloom build kv260 design --dry-run")
def _build_verb(
    board: Annotated[str, typer.Argument(help="A board: see gradloom list boards.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of gradloom generate.")],
    saif: Annotated[
        Path | None, typer.Option(metavar="OUT.saif", help="Estimate power from this result of gradloom energy.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the commands.")] = False,
) -> None:
    """Make the bitstream and the bundle that the board loads."""
    from gradloom.boards import find

    usual = "" if dry_run else find(board).build_time

    def echo(line: str) -> None:
        nonlocal usual
        if usual:
            # With the first command: what is refused is one line.
            print(f"{board}: a build takes {usual}", file=sys.stderr)
            usual = ""
        print(line)

    build(board, directory, saif=saif, dry_run=dry_run, echo=echo)


@app.command("flash", epilog="Example: gradloom flash kv260 design --host ubuntu@kria --dry-run")
def _flash_verb(
    board: Annotated[str, typer.Argument(help="A board: see gradloom list boards.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Design folder after gradloom build.")],
    host: Annotated[
        str | None, typer.Option(metavar="USER@HOST", help="User and host name of the board for ssh.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the commands.")] = False,
) -> None:
    """Copy the bundle to the board and load it."""
    flash(board, directory, host=host, dry_run=dry_run, echo=print)


@app.command("monitor", epilog="Example: gradloom monitor --port /dev/ttyUSB0")
def _monitor_verb(
    port: Annotated[
        str | None, usual_option(metavar="TTY", help="Serial port of the board.", usual="the only one on USB")
    ] = None,
    baud: Annotated[
        int, typer.Option(metavar="N", help="Bits a second: of the ULX3S what build said, else 115200.")
    ] = 115_200,
) -> None:
    """Show what the board says on its UART, until Ctrl-C.

    The ULX3S repeats all its lines every 2 s, so it does not matter how late the port is opened.

    Of a first line that was under way only the rest appears, or characters that nobody sent.
    """

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    try:
        monitor(port, baud=baud, write=write)
    except KeyboardInterrupt:
        # How it is meant to end.
        print()
