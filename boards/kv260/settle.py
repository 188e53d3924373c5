"""The clock that the built bitstream meets, put where it is set and where it is read.

Run as ``python -m gradloom.boards.kv260.settle DESIGN NAME``.
"""

import json
import re
import sys
from pathlib import Path

from ..flow import FlowError
from .ps_clock import PsClock, clocks

__all__ = ["settle"]


def settle(directory: Path | str, name: str) -> float:
    """Puts the clock of ``board/build/out/clock.txt`` into the overlay, the handoff for PYNQ, and the host's files.

    Returns it in MHz. :class:`FlowError` if the build left none, or a file does not take it; no file is changed then.
    """
    directory = Path(directory)
    out = directory / "board" / "build" / "out"
    try:
        hz = int((out / "clock.txt").read_text(encoding="ascii"))
    except (OSError, ValueError):
        raise FlowError("the flow did not create clock.txt") from None
    overlay, handoff = directory / "board" / f"{name}.dtso", out / f"{name}.hwh"
    texts = {overlay: _put(overlay, r"(assigned-clock-rates = <)\d+(>)", str(hz))}
    asked = re.search(r"^set clocks \[list (\d+)", (directory / "board" / "settings.tcl").read_text("utf-8"), re.M)
    if asked is None:
        raise FlowError("settings.tcl: names no clock that was asked for")
    if int(asked[1]) != hz:
        made = next(each for each in clocks() if each.hz == hz)
        # PYNQ sets the dividers that the handoff names.
        text = handoff.read_text(encoding="utf-8")
        for what, value in _handoff(made).items():
            pattern = rf'(NAME="PSU__CRL_APB__PL0_REF_CTRL__{what}" VALUE=")[^"]*(")'
            text = _put(handoff, pattern, value, text)
        texts[handoff] = text
    design = directory / "firmware" / "gradloom_host" / "design.json"
    if design.is_file():
        texts[design] = json.dumps(json.loads(design.read_text(encoding="utf-8")) | {"clock_mhz": hz / 1e6}, indent=2)
        texts[design] += "\n"
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8", newline="\n")
    return hz / 1e6


def _handoff(made: PsClock) -> dict[str, str]:
    first, second = made.divisors
    return {"SRCSEL": made.pll.name, "FREQMHZ": f"{made.mhz:.6f}", "DIVISOR0": str(first), "DIVISOR1": str(second)}


def _put(path: Path, pattern: str, value: str, text: str | None = None) -> str:
    """The text with ``value`` in the one place that ``pattern`` finds."""
    changed, count = re.subn(pattern, rf"\g<1>{value}\g<2>", path.read_text(encoding="utf-8") if text is None else text)
    if count != 1:
        raise FlowError(f"{path.name}: holds {count} places for the clock, not one")
    return changed


if __name__ == "__main__":
    print(f"{settle(sys.argv[1], sys.argv[2]):g} MHz")
