"""Tensors as records of tiles in memory."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gradloom.rtl.formats.tile_codes import EDGE, TileCoded
from gradloom.rtl.formats.tile_records import TileRecord

__all__ = ["Tiled", "Tiles", "LayoutWords"]


class Tiled:
    """A matrix of ``rows`` by ``features`` as tiles."""

    rows: int
    features: int

    @property
    def high(self) -> int:
        """Tiles of rows."""
        return -(-self.rows // EDGE)

    @property
    def wide(self) -> int:
        """Tiles of features."""
        return -(-self.features // EDGE)

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and features of each tile."""
        return min(EDGE, self.rows), min(EDGE, self.features)


@dataclass(frozen=True)
class Tiles(Tiled):
    """``count`` matrices ``[rows, features]`` of codes from ``offset`` on.

    Tiles lie by matrix, then row tile, then tile of features, a record each; all records of a tensor have one size.
    Rows and features beyond 64 must be whole tiles: a record that a result fills has no rows of another.
    """

    offset: int
    count: int
    rows: int
    features: int
    bits: int

    @staticmethod
    def check(name: str, rows: int, features: int) -> None:
        """Refuses a size of which a tile would be filled in part."""
        for field, value in (("rows", rows), ("features", features)):
            if value > EDGE and value % EDGE:
                raise ValueError(f"{name}: {value} {field} must be at most {EDGE} or a multiple of it")

    @property
    def record(self) -> TileRecord:
        """Of each tile."""
        return TileRecord(*self.tile, self.bits)

    @property
    def size(self) -> int:
        """Bytes of all records."""
        return self.count * self.high * self.wide * self.record.size

    def at(self, row: int, column: int, number: int = 0) -> int:
        """Offset of a tile's record."""
        return self.offset + ((number * self.high + row) * self.wide + column) * self.record.size

    def _parts(self) -> Iterator[tuple[int, int, int]]:
        return ((n, i, j) for n in range(self.count) for i in range(self.high) for j in range(self.wide))

    def pack(self, x: TileCoded) -> bytes:
        """Bytes of codes ``[rows, features]`` or ``[count, rows, features]``."""
        codes = x.codes.reshape(self.count, self.rows, self.features).astype(np.int64)
        exponents = x.exponents.reshape(self.count, self.high, self.wide)
        return b"".join(
            self.record.pack(codes[n, EDGE * i : EDGE * (i + 1), EDGE * j : EDGE * (j + 1)], int(exponents[n, i, j]))
            for n, i, j in self._parts()
        )

    def unpack(self, content: bytes) -> TileCoded:
        """Codes ``[rows, features]``, or ``[count, rows, features]`` of several."""
        codes = np.zeros((self.count, self.rows, self.features))
        exponents = np.zeros((self.count, self.high, self.wide), np.int64)
        size = self.record.size
        for number, (n, i, j) in enumerate(self._parts()):
            part, exponents[n, i, j] = self.record.unpack(content[number * size : (number + 1) * size])
            codes[n, EDGE * i : EDGE * (i + 1), EDGE * j : EDGE * (j + 1)] = part
        return TileCoded(codes, exponents) if self.count > 1 else TileCoded(codes[0], exponents[0])


@dataclass(frozen=True)
class LayoutWords:
    """Masters and moments of an adapter's matrix.

    They have the order of the codes of its gradient's records. ``words``, ``moments``: their first bytes. A row of a
    record has a whole number of 4 words; those beyond the features are 0.
    """

    words: int
    moments: int
    gradient: Tiles

    @property
    def lanes(self) -> int:
        """Words of a row of a record."""
        return -(-self.gradient.record.features // 4) * 4

    @property
    def length(self) -> int:
        """Words of a record."""
        return self.gradient.record.rows * self.lanes

    @property
    def records(self) -> int:
        """Records of the matrix."""
        return self.gradient.high * self.gradient.wide

    @property
    def size(self) -> int:
        """Bytes of all words; moments take twice as many."""
        return 4 * self.length * self.records

    def _shaped(self, words: np.ndarray) -> np.ndarray:
        t = self.gradient
        rows, features = t.record.rows, t.record.features
        whole = np.zeros((t.high, t.wide, rows, self.lanes), np.int64)
        whole[..., :features] = words.reshape(t.high, rows, t.wide, features).swapaxes(1, 2)
        return whole.reshape(-1)

    def _plain(self, words: np.ndarray) -> np.ndarray:
        t = self.gradient
        rows, features = t.record.rows, t.record.features
        shaped = words.reshape(t.high, t.wide, rows, self.lanes)[..., :features].swapaxes(1, 2)
        return shaped.reshape(t.rows, t.features).astype(np.int64)

    def pack(self, words: np.ndarray) -> bytes:
        """Bytes of masters ``[rows, features]``."""
        return self._shaped(words).astype("<i4").tobytes()

    def unpack(self, content: bytes) -> np.ndarray:
        """Masters back."""
        return self._plain(np.frombuffer(content, "<i4"))

    def pack_moments(self, m: np.ndarray, v: np.ndarray) -> bytes:
        """Bytes of moments: halves of beats of each alternate."""
        halves = [self._shaped(each).astype("<u4").reshape(-1, 2) for each in (m, v)]
        return np.stack(halves, axis=1).tobytes()

    def unpack_moments(self, content: bytes) -> tuple[np.ndarray, np.ndarray]:
        """Moments back."""
        m, v = np.frombuffer(content, "<u4").reshape(-1, 2, 2).swapaxes(0, 1)
        return self._plain(m.reshape(-1)), self._plain(v.reshape(-1))
