"""Sets the PLL of a routed design to a clock that the design reaches.

Only words of the bitstream change, so the wires stay as they are. The PLL's oscillator is a multiple of the board's
clock and is divided by a whole number; both numbers are chosen. The UART's bits take as many cycles as before.
"""

import math
import re
from fractions import Fraction
from pathlib import Path

from ..flow import FlowError
from .project import BAUD, INPUT_MHZ, pll

__all__ = ["next_clock", "slow_down"]

#: Multiples of the board's clock: 500 to 700 MHz, around the 600 that the loop filter is made for.
_MULTIPLES = range(20, 29)
_MOST = 128


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


def next_clock(*, asked: int, reached: float, step: float) -> float:
    """The slowest clock of the PLL at least ``step`` above ``reached`` MHz: 0.03 is 3 %.

    It is at most ``asked``; in MHz, rounded up to 10 kHz.
    """
    aim = min((mhz for mhz in _clocks(asked) if mhz >= (1 + step) * reached), default=Fraction(asked))
    return math.ceil(100 * aim) / 100


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
