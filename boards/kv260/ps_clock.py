"""Clocks that the processing system of a Zynq UltraScale+ gives the programmable logic (PL0).

PL0 is a PLL's output behind two dividers of 6 bits. The boot firmware sets the PLLs and the operating system does not
change them; a bitstream that Linux loads finds them as they are.
"""

import dataclasses

__all__ = ["FASTEST_HZ", "IOPLL", "REFERENCE_HZ", "Pll", "PsClock", "clock_of", "clocks", "slower"]

#: The crystal beside the processing system, as Linux's device trees have it.
REFERENCE_HZ = 33_333_333
#: What an AXI port of the processing system takes: F_AXICLK of AMD's data sheet DS925, "PS-PL Interface Performance".
FASTEST_HZ = 333_000_000
_DIVISORS = range(1, 64)
#: Share by which what is asked for may differ from what is made: 166.67 for 166.666665 MHz.
_NEAR = 5e-4


@dataclasses.dataclass(frozen=True)
class Pll:
    """A PLL of the processing system.

    It has its name in Vivado, and its clock as a multiple of the reference.
    """

    name: str
    multiple: int

    @property
    def hz(self) -> int:
        """Its clock in Hz."""
        return REFERENCE_HZ * self.multiple


#: 1,500 MHz: the clock of the peripherals, from which boot firmware makes PL0. A KV260 with PL0 at a fifteenth of it
#: says 99,999,999 Hz.
IOPLL = Pll("IOPLL", 45)


@dataclasses.dataclass(frozen=True)
class PsClock:
    """A clock that PL0 makes: ``pll`` through two ``divisors``."""

    pll: Pll
    divisors: tuple[int, int]

    @property
    def hz(self) -> int:
        """Frequency in Hz, as Linux says it."""
        return self.pll.hz // (self.divisors[0] * self.divisors[1])

    @property
    def mhz(self) -> float:
        """Frequency in MHz."""
        return self.hz / 1e6


def clocks() -> list[PsClock]:
    """All that PL0 makes of the IOPLL and an AXI port takes, fastest first."""
    found: dict[int, PsClock] = {}
    for second in _DIVISORS:
        for first in _DIVISORS:
            made = PsClock(IOPLL, (first, second))
            if made.hz <= FASTEST_HZ:
                found.setdefault(made.hz, made)
    return [found[hz] for hz in sorted(found, reverse=True)]


def clock_of(mhz: float, board: str, usual: PsClock) -> PsClock:
    """The clock that is asked for, as the board makes it; ``usual`` is one of another PLL.

    :class:`ValueError` with its neighbours if there is none within half a thousandth.
    """
    if mhz * 1e6 > FASTEST_HZ * (1 + _NEAR):
        raise ValueError(
            f"clock_mhz={mhz:g}: must be at most {FASTEST_HZ / 1e6:g} on {board}, the clock of an AXI port (DS925)"
        )
    made = sorted([*clocks(), usual], key=lambda each: -each.hz)
    nearest = min(made, key=lambda each: abs(each.mhz - mhz))
    if abs(nearest.mhz / mhz - 1) > _NEAR:
        above = [each for each in made if each.mhz > mhz][-1:]
        below = [each for each in made if each.mhz < mhz][:1]
        near = " or ".join(f"{each.mhz:.6g}" for each in (*below, *above))
        raise ValueError(f"clock_mhz={mhz:g}: must be a clock that the processing system of {board} makes: {near}")
    return nearest


def slower(than: PsClock) -> list[PsClock]:
    """Clocks that a design made for ``than`` may run at, fastest first: ``than``, and what Linux sets below it.

    None is below a quarter of it.
    """
    return [than, *(each for each in clocks() if than.hz / 4 < each.hz < than.hz * (1 - _NEAR))]
