"""Tiles of codes as they lie in memory: a header, then rows."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from amaranth.lib import data

from .codes import EDGE, LEAST, MOST, NARROW, WIDE, ZERO

__all__ = ["BEAT", "STEP", "TileArgument", "TileRecord", "record_of", "tile_argument"]

#: Bytes of a beat.
BEAT = 32
#: Codes that STORE makes in a cycle, of an engine that does not give more.
STEP = 16

#: ``arg`` of a LOAD or STORE of records. A LOAD may have several, which go to slots one after another; a STORE has one.
TileArgument = data.StructLayout(
    {
        "slot": 8,  #: of the first record
        "rows": 6,  #: rows of a record, less 1
        "features": 6,  #: features of a record, less 1
        "wide": 1,  #: STORE: codes of 16 bits, else of 8
        "rest": 1,  #: STORE: codes of 8 bits of what such codes leave
        "short": 1,  #: LOAD to a port that takes records of codes of 16 bits and of 8: these are of 8
        "_pad": 9,
    }
)


@cache
def tile_argument(
    slot: int, rows: int, features: int, *, wide: bool = False, rest: bool = False, short: bool = False
) -> int:
    """``arg`` of a LOAD or STORE."""
    flags = {"wide": int(wide), "rest": int(rest), "short": int(short), "_pad": 0}
    return int(TileArgument.const({"slot": slot, "rows": rows - 1, "features": features - 1, **flags}).as_bits())


@dataclass(frozen=True)
class TileRecord:
    """A tile of ``rows`` by ``features`` codes of 8 or 16 ``bits``.

    The first beat is the header, whose byte 0 is the exponent, a signed byte; -128 is that of a tile of zeros. Rows
    follow, each of whole beats. A row's codes lie in order, little-endian; those beyond the features are 0.
    """

    rows: int
    features: int
    bits: int = NARROW

    def __post_init__(self) -> None:
        for field, value in (("rows", self.rows), ("features", self.features)):
            if not 1 <= value <= EDGE:
                raise ValueError(f"{field}={value}: a tile has 1 to {EDGE}")
        if self.bits not in (NARROW, WIDE):
            raise ValueError(f"bits={self.bits}: must be {NARROW} or {WIDE}")

    @property
    def row_beats(self) -> int:
        """Beats of a row."""
        return -(-self.features * self.bits // (8 * BEAT))

    @property
    def beats(self) -> int:
        """Beats of the record, its header included."""
        return 1 + self.rows * self.row_beats

    def steps(self, codes: int = STEP) -> int:
        """Cycles in which STORE makes the record of an engine that gives so many codes in one: a beat at most."""
        return 1 + self.rows * -(-self.features // min(codes, 8 * BEAT // self.bits))

    @property
    def size(self) -> int:
        """Bytes of the record."""
        return BEAT * self.beats

    def pack(self, codes: np.ndarray, exponent: int) -> bytes:
        """The record of integer codes ``[rows, features]``.

        Where there are fewer, zeros follow.
        """
        whole = np.zeros((self.rows, self.row_beats * 8 * BEAT // self.bits), f"<i{self.bits // 8}")
        whole[: codes.shape[0], : codes.shape[1]] = codes
        return bytes([exponent & 0xFF]) + bytes(BEAT - 1) + whole.tobytes()

    def unpack(self, content: bytes) -> tuple[np.ndarray, int]:
        """Codes ``[rows, features]``, int64, and the exponent.

        :class:`ValueError` where the record has another length, or a code that no quantiser makes.
        """
        if len(content) != self.size:
            raise ValueError(f"record: has {len(content)} bytes, must have {self.size}")
        exponent = int.from_bytes(content[:1], "little", signed=True)
        assert ZERO <= exponent <= MOST and LEAST > ZERO
        whole = np.frombuffer(content[BEAT:], f"<i{self.bits // 8}").reshape(self.rows, -1).astype(np.int64)
        if (whole == -(1 << self.bits - 1)).any():
            row, at = (int(n) for n in np.argwhere(whole == -(1 << self.bits - 1))[0])
            raise ValueError(f"record[{row}, {at}] is {whole[row, at]}: codes must be at least {1 + whole[row, at]}")
        return whole[:, : self.features], exponent


def record_of(arg: int) -> TileRecord:
    """The record of a STORE with this ``arg``."""
    view = TileArgument.from_bits(arg)
    return TileRecord(int(view.rows) + 1, int(view.features) + 1, WIDE if view.wide else NARROW)
