"""Tensors as records of tiles in memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gradloom.rtl.formats.tiles.codes import EDGE, TileCoded
from gradloom.rtl.formats.tiles.records import TileRecord

__all__ = ["Tiled", "Tiles", "TilesBeside", "LayoutWords"]


class Tiled:
    """A matrix of ``rows`` by ``features`` as tiles; the last of each side may be smaller."""

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
        """Rows and features of the first tile, the largest."""
        return self.part(0, 0)

    def part(self, row: int, column: int) -> tuple[int, int]:
        """Rows and features of a tile."""
        return min(EDGE, self.rows - EDGE * row), min(EDGE, self.features - EDGE * column)


@dataclass(frozen=True)
class Tiles(Tiled):
    """``count`` matrices ``[rows, features]`` of codes from ``offset`` on.

    Tiles lie by matrix, then row tile, then tile of features, a record each, which has the tile's own size.
    """

    offset: int
    count: int
    rows: int
    features: int
    bits: int

    def record(self, row: int, column: int) -> TileRecord:
        """Of a tile."""
        return TileRecord(*self.part(row, column), self.bits)

    @cached_property
    def _line(self) -> int:
        """Bytes of a row of whole tiles."""
        return sum(self.record(0, column).size for column in range(self.wide))

    @cached_property
    def _matrix(self) -> int:
        """Bytes of a matrix."""
        last = sum(self.record(self.high - 1, column).size for column in range(self.wide))
        return (self.high - 1) * self._line + last

    @property
    def size(self) -> int:
        """Bytes of all records."""
        return self.count * self._matrix

    def at(self, row: int, column: int, number: int = 0) -> int:
        """Offset of a tile's record."""
        return self.offset + number * self._matrix + row * self._line + column * self.record(row, 0).size

    def places(self) -> Iterator[tuple[int, int, int]]:
        """Row, column and number of each tile, as they lie in memory."""
        return ((i, j, n) for n in range(self.count) for i in range(self.high) for j in range(self.wide))

    def pack(self, x: TileCoded) -> bytes:
        """Bytes of codes ``[rows, features]`` or ``[count, rows, features]``."""
        codes = x.codes.reshape(self.count, self.rows, self.features).astype(np.int64)
        exponents = x.exponents.reshape(self.count, self.high, self.wide)
        return b"".join(
            self.record(i, j).pack(
                codes[n, EDGE * i : EDGE * (i + 1), EDGE * j : EDGE * (j + 1)], int(exponents[n, i, j])
            )
            for i, j, n in self.places()
        )

    def unpack(self, content: bytes) -> TileCoded:
        """Codes ``[rows, features]``, or ``[count, rows, features]`` of several."""
        codes = np.zeros((self.count, self.rows, self.features))
        exponents = np.zeros((self.count, self.high, self.wide), np.int64)
        for i, j, n in self.places():
            record, begin = self.record(i, j), self.at(i, j, n) - self.offset
            part, exponents[n, i, j] = record.unpack(content[begin : begin + record.size])
            codes[n, EDGE * i : EDGE * (i + 1), EDGE * j : EDGE * (j + 1)] = part
        return TileCoded(codes, exponents) if self.count > 1 else TileCoded(codes[0], exponents[0])


@dataclass(frozen=True)
class TilesBeside(Tiles):
    """A tensor whose tiles are those of others, and lie where these do; ``columns``: tensor and column of each column.

    It has no place of its own, so only its records are asked for.
    """

    columns: tuple[tuple[Tiles, int], ...]

    def at(self, row: int, column: int, number: int = 0) -> int:
        """Offset of a tile's record."""
        tiles, own = self.columns[column]
        return tiles.at(row, own, number)


@dataclass(frozen=True)
class LayoutWords:
    """Masters and moments of what learns.

    They have the order of the codes of its gradient's records. ``words``, ``moments``: their first bytes. A row of a
    record has a whole number of 8 words; those beyond the features are 0.
    """

    words: int
    moments: int
    gradient: Tiles

    def lanes(self, column: int) -> int:
        """Words of a row of a record in a column of tiles."""
        return -(-self.gradient.part(0, column)[1] // 8) * 8

    def length(self, row: int, column: int) -> int:
        """Words of a record."""
        return self.gradient.part(row, column)[0] * self.lanes(column)

    def at(self, row: int, column: int, number: int = 0) -> int:
        """Words in front of a record."""
        t = self.gradient
        across = sum(self.lanes(n) for n in range(t.wide))
        high = t.part(row, 0)[0]
        return (number * t.rows + EDGE * row) * across + high * sum(self.lanes(n) for n in range(column))

    @property
    def size(self) -> int:
        """Bytes of all words; moments take twice as many."""
        return 4 * self.gradient.count * self.gradient.rows * sum(self.lanes(n) for n in range(self.gradient.wide))

    def _parts(self) -> Iterator[tuple[int, int, tuple[int, slice, slice]]]:
        """First word and length of each record, and where its codes are."""
        for i, j, n in self.gradient.places():
            rows, features = self.gradient.part(i, j)
            where = n, slice(EDGE * i, EDGE * i + rows), slice(EDGE * j, EDGE * j + features)
            yield self.at(i, j, n), self.length(i, j), where

    def _shaped(self, words: np.ndarray) -> np.ndarray:
        made = np.zeros(self.size // 4, np.int64)
        whole = words.reshape(self.gradient.count, self.gradient.rows, self.gradient.features)
        for begin, length, where in self._parts():
            part = whole[where]
            made[begin : begin + length].reshape(len(part), -1)[:, : part.shape[1]] = part
        return made

    def _plain(self, words: np.ndarray) -> np.ndarray:
        t = self.gradient
        made = np.zeros((t.count, t.rows, t.features), np.int64)
        for begin, length, where in self._parts():
            part = made[where]
            part[:] = words[begin : begin + length].reshape(len(part), -1)[:, : part.shape[1]]
        return made if t.count > 1 else made[0]

    def pack(self, words: np.ndarray) -> bytes:
        """Bytes of masters ``[rows, features]``."""
        return self._shaped(words).astype("<i4").tobytes()

    def unpack(self, content: bytes) -> np.ndarray:
        """Masters back."""
        return self._plain(np.frombuffer(content, "<i4"))

    def pack_moments(self, m: np.ndarray, v: np.ndarray) -> bytes:
        """Bytes of moments: halves of beats of each alternate."""
        halves = [self._shaped(each).astype("<u4").reshape(-1, 4) for each in (m, v)]
        return np.stack(halves, axis=1).tobytes()

    def unpack_moments(self, content: bytes) -> tuple[np.ndarray, np.ndarray]:
        """Moments back."""
        m, v = np.frombuffer(content, "<u4").reshape(-1, 2, 4).swapaxes(0, 1)
        return self._plain(m.reshape(-1)), self._plain(v.reshape(-1))
