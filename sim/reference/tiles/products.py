"""Products of codes of tiles, as the product engine makes them.

A product of a tile is a sum of 64 products of codes, exact. All tiles of an output tile have one unit: its top is the
largest exponent among the pairs of tiles that are multiplied, and a word is in units of ``2**(top - 16)``. A pair that
lies more than 16 bits below the top is not added. So sums are exact but for whole pairs. Integers lie in floats, which
hold them exactly.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gradloom.rtl.formats.tiles.codes import EDGE, WORD, ZERO, TileCoded, spread

__all__ = ["BIAS", "DROP", "NEVER", "TileSums", "block_sums", "sums", "transposed"]

#: Exponent of what is not there, below all sums of exponents.
NEVER = -(1 << 12)
#: Bits below the top that a pair of tiles may lie, and below its own exponent that a bias counts.
DROP, BIAS = 16, 5


@dataclass(frozen=True, eq=False)
class TileSums:
    """Values ``[..., rows, columns]`` and the top of each output tile.

    ``values`` are words times ``2**(top - 16)``. ``lost``: products and biases, not zero, that lie too far below.
    """

    values: np.ndarray
    tops: np.ndarray
    lost: int = 0

    @property
    def words(self) -> np.ndarray:
        """Integers of at most 48 bits."""
        # Where nothing is, the words are zeros in any unit.
        scale = np.exp2(DROP - np.maximum(self.tops, -512).astype(np.float64))
        found: np.ndarray = self.values * spread(scale, self.values.shape)
        return found

    def checked(self) -> "TileSums":
        """Refuses words of more than 48 bits."""
        rows, columns = self.values.shape[-2:]
        if rows and columns and np.abs(self.words).max() >= 1 << WORD - 1:
            raise ValueError(f"sum of {columns} columns: above {WORD} bits, its product has too many tiles")
        return self


def transposed(x: TileCoded) -> TileCoded:
    """The same codes with rows for columns."""
    return TileCoded(x.codes.swapaxes(-1, -2), x.exponents.swapaxes(-1, -2))


def _exponents(x: TileCoded) -> np.ndarray:
    return np.where(x.exponents == ZERO, NEVER, x.exponents)


class _Plain:
    """A product ``x w``.

    ``own``: exponents of its pairs of tiles ``[rows, pairs, columns]``, :data:`NEVER` where one is zero.
    """

    def __init__(self, x: TileCoded, w: TileCoded) -> None:
        self.x, self.w = x, w
        self.own = _exponents(x)[:, :, None] + _exponents(w)[None]

    def total(self, top: np.ndarray) -> tuple[np.ndarray, int]:
        """Its sums, and how many products are too far below ``top``."""
        x, w = self.x, self.w
        far = (self.own < top[:, None] - DROP) & (self.own > NEVER // 2)
        part, lost = x.values @ w.values, 0
        for row, column in np.argwhere(far.any(axis=1)):
            at, across = (slice(n * EDGE, (n + 1) * EDGE) for n in (row, column))
            kept = ~far[row, :, column].repeat(EDGE)[: x.codes.shape[1]]
            lost += _lost(x.codes[at], w.codes[:, across], far[row, :, column])
            part[at, across] = x.values[at][:, kept] @ w.values[kept, across]
        return part, lost


def _lost(x: np.ndarray, w: np.ndarray, dropped: np.ndarray) -> int:
    """Products of tiles, not zero, of the pairs that are dropped."""
    tiles = (slice(n * EDGE, (n + 1) * EDGE) for n in np.flatnonzero(dropped))
    return sum(int(np.count_nonzero(x[:, at] @ w[at])) for at in tiles)


class _Gathered:
    """A convolution: each place counts in an output tile with all tiles that its rows lie in, the first to the last."""

    def __init__(self, x: TileCoded, rows: np.ndarray, kept: TileCoded) -> None:
        self.x, self.rows, self.kept = x, rows, kept
        places, count = rows.shape
        self.high = -(-count // EDGE)
        self.source = np.pad(
            np.where(rows < 0, -1, rows // EDGE), ((0, 0), (0, self.high * EDGE - count)), constant_values=-1
        ).reshape(places, self.high, EDGE)
        last = self.source.max(axis=2)
        first = np.where(self.source < 0, 1 << 20, self.source).min(axis=2)
        number = np.arange(len(x.exponents))
        touched = (number >= first[..., None]) & (number <= last[..., None])
        # [places, tiles of rows, tiles of the source, tiles of inner]
        self.shown = np.where(touched[..., None], _exponents(x), NEVER)
        self.theirs = _exponents(kept)
        own = np.moveaxis(self.shown.max(axis=2)[..., None] + self.theirs[:, None], 0, 1)
        self.own = own.reshape(self.high, -1, self.theirs.shape[-1])

    def total(self, top: np.ndarray) -> tuple[np.ndarray, int]:
        """See :class:`_Plain`."""
        x, w = self.x, self.kept.values
        places, count = self.rows.shape
        inner = x.codes.shape[1]
        whole = np.concatenate([x.values, np.zeros((1, inner))])
        total = whole[self.rows.T].reshape(count, -1) @ w.reshape(places * inner, -1)
        # [places, tiles of rows, source, inner, columns]
        pairs = self.shown[..., None] + self.theirs[:, None, None]
        far = (pairs < top[None, :, None, None] - DROP) & (pairs > NEVER // 2)
        lost = 0
        values = whole[self.rows] if far.any() else whole
        for row, column in np.argwhere(far.any(axis=(0, 2, 3))):
            at, across = (slice(n * EDGE, (n + 1) * EDGE) for n in (row, column))
            # [places, rows of the tile, tiles of inner]
            mine = self.source[:, row, : count - row * EDGE]
            dropped = np.take_along_axis(far[:, row, ..., column], np.maximum(mine, 0)[..., None], axis=1) & (
                mine[..., None] >= 0
            )
            for place, tile in np.argwhere(dropped.any(axis=1)):
                part = slice(tile * EDGE, (tile + 1) * EDGE)
                gone = values[place, at, part] * dropped[place, :, tile, None]
                product = gone @ w[place, part, across]
                lost += int(np.count_nonzero(product))
            # Exact where both are in words of one unit; else the tile is summed anew below.
            keep = ~dropped.repeat(EDGE, axis=2)[..., :inner]
            stream = (values[:, at] * keep).swapaxes(0, 1)
            total[at, across] = stream.reshape(stream.shape[0], -1) @ w[..., across].reshape(places * inner, -1)
        return total, lost


def sums(*parts: tuple[Any, ...], bias: TileCoded | None = None, positive: bool = False) -> TileSums:
    """Sums of products.

    Parameters
    ----------
    parts : tuples
        ``(x, w)``: the product of codes ``[rows, inner]`` and ``[inner, columns]``. ``(x, rows, kept)``: a convolution
        of codes ``[source rows, inner]`` with ``[places, inner, columns]``, which reads the source rows ``[places,
        rows]``; -1 is a row of zeros.
    bias : TileCoded, optional
        ``[1, columns]``, codes of 16 bits.
    positive : bool
        Sums below 0 become 0.
    """
    made = [_Plain(*part) if len(part) == 2 else _Gathered(*part) for part in parts]
    top: np.ndarray = np.max([each.own.max(axis=1) for each in made], axis=0)
    if bias is not None:
        top = np.maximum(top, _exponents(bias) - BIAS)
    top = np.maximum(top, NEVER)
    total: Any = 0.0
    lost = 0
    for each in made:
        part, dropped = each.total(top)
        total, lost = total + part, lost + dropped
    if bias is not None:
        counts = _exponents(bias) - BIAS >= top - DROP
        total = total + bias.values * spread(counts.astype(np.float64), total.shape)
        lost += int(((spread(counts.astype(np.float64), total.shape) == 0) & (bias.codes != 0)).sum())
    found = TileSums(total, top, lost).checked()
    return replace(found, values=np.maximum(total, 0)) if positive else found


def block_sums(
    x: tuple[np.ndarray, np.ndarray], w: tuple[np.ndarray, np.ndarray], tiles: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, int]:
    """Values of products of parts of tiles, and how many are lost.

    Several products make an output tile, which has one unit.

    Parameters
    ----------
    x, w : tuples
        Codes ``[images, heads, rows, inner]`` and ``[images, heads, inner, columns]``, exponents ``[images, heads,
        tiles of inner]``.
    tiles : tuple
        Row and column of the output tile of each image and of each head.
    """
    (codes, scale), (stationary, theirs) = x, w
    own = np.where((scale == ZERO) | (theirs == ZERO), NEVER, scale + theirs)
    top = np.full((tiles[0].max() + 1, tiles[1].max() + 1), NEVER)
    at = np.ix_(*tiles)
    np.maximum.at(top, at, own.max(axis=2))
    gone = (own < top[at][..., None] - DROP) & (own > NEVER // 2)
    unit = np.where(gone | (own == NEVER), 0, np.exp2(own.astype(np.float64)))
    values, lost = np.zeros((*codes.shape[:3], stationary.shape[3])), 0
    for n in range(own.shape[2]):
        inner = slice(n * EDGE, (n + 1) * EDGE)
        made = codes[..., inner] @ stationary[..., inner, :]
        lost += int(np.count_nonzero(made[gone[..., n]]))
        values += made * unit[..., n, None, None]
    return values, lost
