"""Slots of records behind the load and store ports of engines on tiles."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradloom.rtl.formats.tiles.codes import EDGE, NARROW, REST, WIDE, ZERO, stored
from gradloom.rtl.formats.tiles.records import BEAT, TileArgument, TileRecord

__all__ = ["ResultSlots", "TileSlots"]

Words = NDArray[np.int64]


def _argument(arg: int, bits: int | None = None) -> tuple[int, TileRecord]:
    """Slot and record of LOAD's or STORE's operand.

    A STORE says itself how many bits its codes have, and a LOAD where they have fewer than the port's.
    """
    view = TileArgument.from_bits(arg)
    if bits is None:
        bits = WIDE if view.wide else NARROW
    elif view.short:
        bits = NARROW
    return int(view.slot), TileRecord(int(view.rows) + 1, int(view.features) + 1, bits)


class TileSlots:
    """Codes ``[slots, rows, 64]`` and exponents of a load port's slots.

    A slot without a record is a tile of zeros. ``short``: records may have codes of 8 bits instead of ``bits``.
    """

    def __init__(self, slots: int, bits: int, rows: int = EDGE, *, short: bool = False) -> None:
        self.bits, self.short = bits, short
        self.codes = np.zeros((slots, rows, EDGE), np.int64)
        self.at = np.full(slots, ZERO, np.int64)

    def load(self, port: str, arg: int, content: bytes) -> None:
        """LOAD of whole records, which go to consecutive slots.

        :class:`ValueError` where the engine refuses a beat.
        """
        first, record = _argument(arg, self.bits)
        if record.bits != self.bits and not self.short:
            raise ValueError(f"{port}: records of {record.bits} bits, must be of {self.bits}")
        if not content or len(content) % record.size:
            raise ValueError(f"{port}: {len(content)} bytes, must be records of {record.size}")
        slots, rows = self.codes.shape[:2]
        for slot, at in enumerate(range(0, len(content), record.size), first):
            if slot >= slots or record.rows > rows:
                raise ValueError(f"{port}: slot {slot}, {record.rows} rows; must be below {slots}, at most {rows}")
            codes, self.at[slot] = record.unpack(content[at : at + record.size])
            # A row's last beat is whole.
            self.codes[slot, : record.rows, : record.row_beats * 8 * BEAT // record.bits] = 0
            self.codes[slot, : record.rows, : record.features] = codes


class ResultSlots:
    """Words of an engine's results, an exponent a row.

    Attributes
    ----------
    saturated, underflowed : int
        Codes that STORE limited; that it made 0.
    """

    def __init__(self, slots: int) -> None:
        self.words = np.zeros((slots, EDGE, EDGE), np.int64)
        self.exponents = np.zeros((slots, EDGE, 1), np.int64)
        self.written = np.zeros(self.words.shape, bool)
        self.peaks: list[int | None] = [None] * slots
        self.saturated = self.underflowed = 0

    def clear(self, slot: int) -> None:
        """The slot is empty."""
        self.written[slot] = False
        self.peaks[slot] = None

    def write(self, slot: int, row: int, column: int, words: Words, exponents: Any) -> None:
        """Words ``[rows, columns]``, and the exponents of their rows."""
        rows, columns = words.shape
        part = np.s_[slot, row : row + rows, column : column + columns]
        self.words[part] = words
        self.exponents[part[:2]] = exponents
        self.written[part] = True
        tops = [self.peaks[slot], _peak(words, self.exponents[part[:2]])]
        self.peaks[slot] = max((top for top in tops if top is not None), default=None)

    def store(self, port: str, arg: int, beats: int) -> bytes:
        """STORE of one record.

        :class:`ValueError` where the engine refuses it; where a word of it was not written since the slot was empty, or
        a larger one was written outside of it.
        """
        slot, record = _argument(arg)
        if port != "o" or slot >= len(self.peaks) or beats != record.beats:
            raise ValueError(f"{port}: slot {slot}, {beats} beats; must be o, below {len(self.peaks)}, {record.beats}")
        part = np.s_[slot, : record.rows, : record.features]
        words, exponents = self.words[part], self.exponents[slot, : record.rows]
        if not self.written[part].all():
            row, feature = (int(n) for n in np.argwhere(~self.written[part])[0])
            raise ValueError(f"o: word [{row}, {feature}] of slot {slot} was not written")
        if _peak(words, exponents) != self.peaks[slot]:
            raise ValueError(f"o: slot {slot} has a larger word outside of {record.rows} x {record.features}")
        made = stored(words, exponents, REST if TileArgument.from_bits(arg).rest else record.bits)
        self.saturated += made.clipped
        self.underflowed += made.zeroed
        return record.pack(made.codes, made.exponent)


def _peak(words: Words, exponents: Words) -> int | None:
    """Exponent of the leading bit of the largest word; None if all are 0."""
    tops = np.frexp(np.abs(words).astype(np.float64))[1] - 1 + exponents
    found = tops[words != 0]
    return int(found.max()) if len(found) else None
