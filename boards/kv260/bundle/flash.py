"""Builds the bundle of a design for a Zynq UltraScale+ and loads it over ssh."""

import shutil
from collections.abc import Callable
from pathlib import Path

from ...board import Board
from ...flow import FlowCommand, FlowError, FlowStep, run
from ...links.ssh import ssh, valid_host
from ...links.usb import RULES
from ...vivado.activity import activity_step, check_activity
from ..carriers import CARRIERS
from ..settle import settle

#: Where designs go in the user's home there; a folder of ours holds the file.
FOLDER, _OURS = "gradloom-designs", ".gradloom-flash"


def design_name(directory: Path) -> str:
    """Name of the design in ``directory``.

    :class:`ValueError` if there is none.
    """
    recipes = sorted((directory / "board").glob("*.dtso"))
    if len(recipes) != 1:
        raise FlowError(
            f"directory {str(directory)!r} holds no generated design for a Zynq UltraScale+ (board/NAME.dtso): "
            f"run gradloom generate first"
        )
    return recipes[0].stem


def bundle_files(name: str) -> tuple[str, ...]:
    """Files of a complete bundle."""
    return f"{name}.bit.bin", f"{name}.dtbo", "shell.json", f"{name}.bit", f"{name}.hwh"


def build(
    board: Board,
    directory: Path | str,
    *,
    saif: Path | str | None = None,
    dry_run: bool = False,
    echo: Callable[[str], object] = print,
) -> list[str]:
    """Builds with Vivado, bootgen and dtc.

    ``board/bundle`` appears at the end, whole or not at all. Overlay and host get the clock that the design
    meets, which is that of the project or a slower one.
    """
    directory = Path(directory)
    name = design_name(directory)
    if not dry_run and not any((directory / "rtl").glob("*.v")):
        raise FlowError(f"directory {str(directory)!r} holds no Verilog (rtl/*.v): run gradloom generate first")
    if saif is not None:
        check_activity(saif, directory)
    work = directory / "board" / "build"
    out = work / "out"
    bundle = directory / "board" / "bundle"
    partial = work / "bundle"

    def begin() -> None:
        for folder in (partial, bundle):
            shutil.rmtree(folder, ignore_errors=True)
        (out / "clock.txt").unlink(missing_ok=True)
        out.mkdir(parents=True, exist_ok=True)

    def take_clock() -> None:
        echo(f"clock: {settle(directory, name):g} MHz")

    def collect() -> None:
        partial.mkdir(parents=True)
        made = [out / f"{name}{suffix}" for suffix in (".bit", ".hwh", ".bit.bin", ".dtbo")]
        for source in [*made, directory / "board" / "shell.json"]:
            if not source.is_file():
                raise FlowError(f"the flow did not create {source.name}")
            shutil.copyfile(source, partial / source.name)
        partial.rename(bundle)

    steps: list[FlowCommand | FlowStep] = [
        FlowStep("rm -rf board/build/bundle board/bundle board/build/out/clock.txt && mkdir -p board/build/out", begin),
        activity_step(saif, directory),
        FlowCommand(
            ("vivado", "-mode", "batch", "-nojournal", "-notrace", "-log", "build/vivado.log", "-source", "build.tcl"),
            "board",
        ),
        FlowStep(f"python3 -m gradloom.boards.kv260.settle . {name}", take_clock),
        FlowStep(
            f"cp board/{name}.bif board/build/out/",
            lambda: shutil.copyfile(directory / "board" / f"{name}.bif", out / f"{name}.bif"),
        ),
        FlowCommand(
            ("bootgen", "-arch", "zynqmp", "-process_bitstream", "bin", "-image", f"{name}.bif", "-w", "on"),
            "board/build/out",
        ),
        FlowCommand(
            ("dtc", "-@", "-q", "-I", "dts", "-O", "dtb", "-o", f"build/out/{name}.dtbo", f"{name}.dtso"), "board"
        ),
        FlowStep(
            "mkdir board/build/bundle && "
            f"cp board/build/out/{name}.bit board/build/out/{name}.hwh board/build/out/{name}.bit.bin "
            f"board/build/out/{name}.dtbo board/shell.json board/build/bundle/ && "
            "mv board/build/bundle board/bundle",
            collect,
        ),
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
    """Copies a design to the board and loads it there.

    Bundle, ``load.sh`` and host go to ``~/gradloom-designs/NAME`` on the board.

    A folder of that name that an earlier flash did not make is not touched. ``load.sh`` fails, and so does this, if the
    design is not there after xmutil has loaded it.
    """
    directory = Path(directory)
    name = design_name(directory)
    host = valid_host(CARRIERS[board.name].host if host is None else host)
    bundle = directory / "board" / "bundle"
    absent = [file for file in bundle_files(name) if not (bundle / file).is_file()]
    if absent and not dry_run:
        raise FlowError(
            f"directory {str(directory)!r} has no board/bundle/{absent[0]}: run gradloom build {board.name} first"
        )
    target = f"{FOLDER}/{name}"
    title = CARRIERS[board.name].title
    words = " ".join(f"-e {word}" for word in CARRIERS[board.name].tree)
    # A word for the shell there; names have no character that it would read.
    tree = "/proc/device-tree"
    clear = (
        f"if ! cat {tree}/compatible {tree}/model 2>/dev/null | tr '\\000' ' ' | grep -qi {words}; then "
        f'echo "gradloom: {host} is no {title}: its device tree names another board" >&2; exit 1; fi; '
        f"if [ -e {target} ] && [ ! -e {target}/{_OURS} ]; then "
        f'echo "gradloom: ~/{target} on the board is not of gradloom flash: move it away" >&2; exit 1; fi; '
        f"rm -rf {target} && mkdir -p {target} && touch {target}/{_OURS}"
    )
    # Designs of older versions have none.
    rules = (RULES,) if (directory / RULES).is_file() else ()
    steps: list[FlowCommand | FlowStep] = [
        FlowCommand(ssh(host, clear), explain={255: silent(host)}),
        FlowCommand(
            ("scp", "-r", "board/bundle", "board/load.sh", *rules, "firmware", f"{host}:{target}/"),
            explain={255: silent(host), 1: f"{host}: not all files were copied; is its storage full?"},
        ),
        # xmutil reads only root's folder; -t lets sudo ask for its password.
        FlowCommand(("ssh", "-t", host, f"sudo sh {target}/load.sh {name}"), explain={255: silent(host)}),
    ]
    return run(steps, directory, dry_run=dry_run, echo=echo)


def silent(host: str) -> str:
    return f"{host} does not answer over ssh: is the board on, in this network, and its name right? (--host USER@HOST)"
