"""A DRAM behind the machine's ports: refresh, open pages, and one data bus for reads and writes.

``sim/bench/harness/axi_memory.sv`` is the same memory in simulation. It takes bursts in the order in which they come: a
controller that gathers reads and writes turns its bus round less often.
"""

import heapq
from dataclasses import astuple, dataclass

__all__ = ["Dram", "DramTime"]

#: Bits of each field in the bench's input, from the lowest.
_BITS = 16, 12, 9, 8, 8, 5, 3
_WHOLE = 256


@dataclass(frozen=True)
class Dram:
    """Times of a DRAM, in cycles of the machine.

    Parameters
    ----------
    refresh_every, refresh_for : int
        The last ``refresh_for`` of each ``refresh_every`` cycles are a refresh: no burst begins, and all pages close.
    beat : int
        1/256 cycles that a port's beat takes on the data bus; at most 256.
    turn : int
        From a read to a write, or from a write to a read.
    miss : int
        Further cycles of a burst whose bank has another page open.
    page, bank : int
        Pages of ``2**page`` bytes go round ``2**bank`` banks.
    """

    refresh_every: int
    refresh_for: int
    beat: int
    turn: int
    miss: int
    page: int
    bank: int

    def __post_init__(self) -> None:
        for (name, value), bits in zip(vars(self).items(), _BITS):
            if not 0 <= value < 1 << bits:
                raise ValueError(f"{name}={value}: must be 0 to {(1 << bits) - 1}")
        for name, value, most in (("beat", self.beat, _WHOLE), ("bank", self.bank, 4)):
            if value > most:
                raise ValueError(f"{name}={value}: must be at most {most}")
        if not self.refresh_for < self.refresh_every:
            raise ValueError(f"refresh_for={self.refresh_for}: must be less than refresh_every={self.refresh_every}")

    @property
    def word(self) -> int:
        """The bench's input ``dram``."""
        word = 0
        for value, bits in reversed(list(zip(astuple(self), _BITS))):
            word = word << bits | value
        return word

    def timed(self, beat_bytes: int) -> "DramTime":
        """A new one, behind a machine whose beats have so many bytes."""
        return DramTime(self, beat_bytes)

    @classmethod
    def of(cls, word: int) -> "Dram | None":
        """That of a :attr:`word`; none of 0."""
        values = []
        for bits in _BITS:
            values.append(word & (1 << bits) - 1)
            word >>= bits
        return cls(*values) if any(values) else None


class DramTime:
    """What the bursts until now have made of the memory.

    ``beat_bytes``: of a beat of the machine, in which addresses count.
    """

    def __init__(self, dram: Dram, beat_bytes: int) -> None:
        self._dram = dram
        self._shift = dram.page - (beat_bytes.bit_length() - 1)
        self._free = 0  # in 1/256 cycles
        self._refreshed = self._interval = 0
        self._accessed: int | None = None
        self._opened: dict[int, int] = {}
        self._writes = False
        #: Writes whose last datum comes then, by port: address and length in beats.
        self._coming: list[tuple[int, int, int, int]] = []

    def write(self, at: int, port: int, address: int, beats: int) -> None:
        """The last of a burst's data comes in cycle ``at``; in any order of cycles."""
        heapq.heappush(self._coming, (at, port, address, beats))

    def read(self, at: int, address: int, beats: int, latency: int) -> int:
        """Cycles by which a burst comes later than ``latency`` cycles after its address, which comes in cycle ``at``.

        All reads are told in their order, and all writes up to ``at`` are told before.
        """
        while self._coming and self._coming[0][0] <= at:
            then, _, place, count = heapq.heappop(self._coming)
            self._begin(then, place, count, True, then)
        return self._begin(at, address, beats, False, at + latency) - at - latency

    def _begin(self, at: int, address: int, beats: int, writes: bool, begin: int) -> int:
        dram = self._dram
        if self._accessed is None or at - self._accessed >= dram.refresh_every:
            self._refreshed, self._interval, self._writes = at, 0, False
            self._opened.clear()
        self._accessed = at
        page = address >> self._shift
        bank = page & (1 << dram.bank) - 1
        if self._opened.get(bank) != page:
            begin += dram.miss
        begin = max(begin, -(-self._free // _WHOLE) + (dram.turn if writes != self._writes else 0))
        self._writes = writes
        interval, into = divmod(begin - self._refreshed, dram.refresh_every)
        if into >= dram.refresh_every - dram.refresh_for:
            begin += dram.refresh_every - into
            interval += 1
        if interval != self._interval:
            self._opened.clear()
        self._interval = interval
        self._opened[bank] = page
        self._free = begin * _WHOLE + beats * dram.beat
        return begin
