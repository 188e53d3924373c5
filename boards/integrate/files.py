"""All files for integrators that a generated design has."""

from collections.abc import Mapping
from pathlib import Path

from ..vivado.project import TopPorts
from .component import EDITIONS, ComponentPart, component
from .core import core

__all__ = ["integration_files", "write_integration"]

_HERE = Path(__file__).parent
#: The bench as FuseSoC runs it.
_TEST = "integrate/fusesoc_bench.py"


def integration_files(directory: Path, report: Mapping, family: str | None = None) -> dict[str, str]:
    """Content of every file, by its path in the design's folder.

    ``directory`` holds the Verilog, the test bench and the board's project already; ``report`` has ``module`` and
    ``ports``. ``family``: of the board, as open synthesis calls it; a unit on its own has none, and its ports are no
    buses that IP-XACT could name.
    """
    module = report["module"]
    rtl = sorted(f"rtl/{path.name}" for path in (directory / "rtl").glob("*.v"))
    # A module of synth holds this family's primitives and stands in for its namesake.
    held = {path.name for path in (directory / "synth").glob("*.v")}
    synthesis = [path.replace("rtl/", "synth/") if path[4:] in held else path for path in rtl]
    bench = _bench(report)
    files = {f"{module}.core": core(module, rtl=rtl, synthesis=synthesis, bench=bench, wrapper="tb/tb.v" in bench)}
    if bench:
        files[_TEST] = (_HERE / "fusesoc_bench.py").read_text(encoding="utf-8")
    if family is None:
        return files
    part = ComponentPart(
        ports=report["ports"],
        top=TopPorts.of(report),
        family=family,
        synthesis=synthesis,
        simulation=rtl,
        clock_file="board/clock.xdc" if (directory / "board/clock.xdc").is_file() else None,
    )
    files["integrate/litex_gradloom.py"] = (_HERE / "litex_gradloom.py").read_text(encoding="utf-8")
    files["component.xml"] = component(part, EDITIONS["1685-2009"])
    files["component-2014.xml"] = component(part, EDITIONS["1685-2014"])
    return files


def write_integration(directory: Path, report: Mapping, family: str | None = None) -> None:
    """Writes the files of :func:`integration_files`."""
    for path, text in integration_files(directory, report, family).items():
        (directory / path).parent.mkdir(exist_ok=True)
        (directory / path).write_text(text, encoding="utf-8", newline="\n")


def _bench(report: Mapping) -> list[str]:
    """Paths of what a bench consists of, without what runs it elsewhere; none where there is no bench."""
    files = report.get("testbench", {}).get("files")
    if not files:
        return []
    return [f"tb/{name}" for name in files if name.endswith((".v", ".vlt", ".json")) or name == "bench.py"] + [_TEST]
