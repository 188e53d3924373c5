"""Sets the PLL of a routed design to a clock that the design reaches.

Only words of the bitstream change, so the wires stay as they are. The PLL's oscillator is a multiple of the board's
clock and is divided by a whole number; both numbers are chosen. The UART's bits take as many cycles as before.
"""

import math
import re
from collections.abc import Collection
from fractions import Fraction
from pathlib import Path

from ..flow import FlowError
from .project import BAUD, INPUT_MHZ, pll

__all__ = ["next_clock", "slow_down"]

#: Multiples of the board's clock: 500 to 700 MHz, around the 600 that the loop filter is made for.
_MULTIPLES = range(20, 29)
_MOST = 128
#: A routing aims at a clock so much above the one that was reached.
_STEP = 1.03


def _clocks(asked: int) -> dict[Fraction, tuple[int, int]]:
    """Clocks of up to ``asked`` MHz: each one's multiple and divider.

    Of several the multiple is next to the design's own.
    """
    own = pll(asked)["CLKOP_DIV"]
    found: dict[Fraction, tuple[int, int]] = {}
    for multiple in sorted(_MULTIPLES, key=lambda each: abs(each - own)):
        for divider in range(1, _MOST + 1):
            found.setdefault(Fraction(INPUT_MHZ * multiple, divider), (multiple, divider))
    return {mhz: each for mhz, each in found.items() if mhz <= asked}


def next_clock(*, asked: int, reached: float, tried: Collection[float]) -> float | None:
    """The clock that a routing aims at, of the PLL's, in MHz, rounded up to 10 kHz.

    Without one of ``tried`` above ``reached`` it is the slowest one 3 % or more above ``reached``, at most ``asked``.
    Else it is the middle one between the two, or None where there is none.
    """
    faster = sorted(aim for mhz in _clocks(asked) if (aim := math.ceil(100 * mhz) / 100) > reached)
    missed = min((aim for aim in tried if aim > reached), default=None)
    if missed is None:
        return next((aim for aim in faster if aim >= _STEP * reached), faster[-1])
    between = [aim for aim in faster if aim < missed]
    return between[len(between) // 2] if between else None


def slow_down(config: Path, *, asked: int, reached: float) -> dict[str, float]:
    """Sets the PLL in ``config`` to at most ``reached`` MHz.

    ``config`` is nextpnr's, of a design that was generated for ``asked`` MHz, more than ``reached``. Returns the clock
    in MHz, and the UART's bits a second.
    """
    clocks = _clocks(asked)
    clock = max((mhz for mhz in clocks if mhz <= reached), default=None)
    if clock is None:
        raise FlowError(f"the design reaches {reached} MHz, which is less than the PLL makes")
    multiple, divider = clocks[clock]
    text = config.read_text(encoding="utf-8")
    # Phases of half a cycle, as with the clock that was asked for.
    words = {
        "CLKOP_DIV": multiple - 1,
        "CLKOP_CPHASE": multiple // 2,
        "CLKOS_DIV": divider - 1,
        "CLKOS_CPHASE": divider // 2,
    }
    for name, value in words.items():
        text, found = re.subn(rf"(?m)^(word: {name}) [01]{{7}}$", rf"\1 {value:07b}", text)
        if found != 1:
            raise FlowError(f"{config.name}: {found} words {name} of a PLL, not one")
    config.write_text(text, encoding="utf-8", newline="\n")
    return {"clock_mhz": round(float(clock), 3), "baud": round(BAUD * clock / asked)}
