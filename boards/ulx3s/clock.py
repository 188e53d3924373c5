"""Sets the PLL of a routed design to a clock that the design reaches.

Only a word of the bitstream changes, so the wires stay as they are. The PLL's oscillator is divided by a whole number;
the next one that is slow enough is taken. The UART's bits take as many cycles as before.
"""

import math
import re
from pathlib import Path

from ..flow import FlowError
from .project import BAUD, pll

__all__ = ["next_clock", "slow_down"]

_MOST = 128


def _oscillator(asked: int) -> int:
    """MHz of the oscillator of a PLL that was made for ``asked`` MHz."""
    return asked * pll(asked)["CLKOS_DIV"]


def next_clock(*, asked: int, reached: float) -> float:
    """The slowest of the PLL's clocks above ``reached`` MHz.

    It is at most ``asked``; in MHz, rounded up to 10 kHz.
    """
    divider = max(math.ceil(_oscillator(asked) / reached) - 1, pll(asked)["CLKOS_DIV"])
    return math.ceil(100 * _oscillator(asked) / divider) / 100


def slow_down(config: Path, *, asked: int, reached: float) -> dict[str, float]:
    """Sets the PLL in ``config`` to at most ``reached`` MHz.

    ``config`` is nextpnr's, of a design that was generated for ``asked`` MHz, more than ``reached``. Returns the clock
    in MHz, and the UART's bits a second.
    """
    oscillator = _oscillator(asked)
    divider = next((n for n in range(1, _MOST + 1) if oscillator / n <= reached), None)
    if divider is None:
        raise FlowError(f"the design reaches {reached} MHz, which is less than the PLL makes")
    text = config.read_text(encoding="utf-8")
    # A phase of half a cycle, as with the clock that was asked for.
    for name, value in {"CLKOS_DIV": divider - 1, "CLKOS_CPHASE": divider // 2}.items():
        text, found = re.subn(rf"(?m)^(word: {name}) [01]{{7}}$", rf"\1 {value:07b}", text)
        if found != 1:
            raise FlowError(f"{config.name}: {found} words {name} of a PLL, not one")
    config.write_text(text, encoding="utf-8", newline="\n")
    return {"clock_mhz": round(oscillator / divider, 3), "baud": round(BAUD * oscillator / divider / asked)}
