"""Times of the DRAM on a board, from its standard."""

import math
from dataclasses import dataclass

__all__ = ["DramFacts"]


@dataclass(frozen=True, kw_only=True)
class DramFacts:
    """Times of a DRAM, in nanoseconds, as JEDEC's standards have them.

    Parameters
    ----------
    refresh_every, refresh_for : float
        tREFI and tRFC.
    turn : float
        A read after a write, and a write after a read; the mean of both.
    miss : float
        A burst to a page that is not open: tRP + tRCD.
    page_bytes : int
        Of the chips beside each other.
    banks : int
        Pages that follow each other are in so many banks; 1 where a bank's pages follow each other.
    """

    refresh_every: float
    refresh_for: float
    turn: float
    miss: float
    page_bytes: int
    banks: int

    def __post_init__(self) -> None:
        for name, value in (("page_bytes", self.page_bytes), ("banks", self.banks)):
            if value < 1 or value & value - 1:
                raise ValueError(f"{name}={value}: must be a power of two")

    def cycles(self, *, clock_mhz: float, port_bits: int, bandwidth: int) -> dict[str, int]:
        """The fields of :class:`~gradloom.sim.time.shell.dram.Dram`, times rounded up.

        ``clock_mhz``: of the machine, whose ports have beats of ``port_bits``; ``bandwidth``: the memory's, bytes a
        second. A port that is faster than the memory is refused.
        """
        beat = math.ceil(256 * port_bits / 8 * clock_mhz * 1e6 / bandwidth)
        if beat > 256:
            raise ValueError(
                f"clock_mhz={clock_mhz:g}: a port of {port_bits} bits is faster than the memory, {bandwidth:,} bytes a "
                f"second; must be at most {bandwidth * 8 / port_bits / 1e6:g}"
            )
        return {
            name: math.ceil(getattr(self, name) * clock_mhz / 1e3)
            for name in ("refresh_every", "refresh_for", "turn", "miss")
        } | {"beat": beat, "page": self.page_bytes.bit_length() - 1, "bank": self.banks.bit_length() - 1}
