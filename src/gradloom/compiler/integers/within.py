"""Products within samples, in integers: attention, matrices of a sample, and columns that become rows."""

from collections.abc import Sequence
from math import prod

import numpy as np

from gradloom.graph.operations import Attention, MatMul, Rearrange, Softmax
from gradloom.rtl.formats.tiles.codes import EDGE, NARROW, TileCoded, coded
from gradloom.sim.reference.tiles import vector
from gradloom.sim.reference.tiles.products import block_sums

from .held import Counts, Held

__all__ = ["Within"]

Codes = tuple[np.ndarray, np.ndarray]
_Back = Sequence[Held | None]


class Within:
    """Rules of :class:`~.integers.IntegerNetwork`."""

    samples: int
    counts: Counts

    def held(self, exact: np.ndarray, *, positive: bool = False) -> Held:
        """A tensor that the machine makes."""
        raise NotImplementedError

    def _parts(self, x: TileCoded, heads: int, count: int) -> Codes:
        """Codes ``[images, parts, rows, features]`` and exponents of their tiles; a head has whole parts of a tile."""
        deep, rows = x.codes.shape[1] // heads, x.codes.shape[0] // count
        many, wide = -(-deep // EDGE), min(deep, EDGE)
        codes = np.pad(x.codes, ((0, 0), (0, heads * (many * wide - deep))))
        codes = codes.reshape(count, rows, heads * many, wide).transpose(0, 2, 1, 3)
        return codes, x.exponents[np.ix_(_at(count, rows), _at(heads * many, wide))]

    def _shares(self, x: TileCoded, count: int) -> Codes:
        """The same of a matrix of each head, ``[heads, rows, keys]``."""
        heads, rows, keys = x.codes.shape
        codes = x.codes.reshape(heads, count, -1, keys).swapaxes(0, 1)
        return codes, x.exponents[:, _at(count, rows // count), 0].swapaxes(0, 1)

    def _blocks(self, x: Codes, w: Codes, tiles: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Products of parts; exponents have an axis for tiles of what is summed over."""
        made, lost = block_sums(x, w, tiles)
        self.counts.lost += lost
        return made

    def _scored(self, heads: int, x: Codes, y: Codes) -> np.ndarray:
        """Products of rows with rows of each head: a matrix ``[heads, rows, keys]``."""
        (x, y), (count, _, rows, _) = (_whole_heads(each, heads) for each in (x, y)), x[0].shape
        made = self._blocks(x, (y[0].swapaxes(2, 3), y[1]), (_at(count, rows), np.arange(heads)))
        return made.swapaxes(0, 1).reshape(heads, -1, made.shape[3])

    def _mixed(self, x: Codes, y: Codes, features: int) -> np.ndarray:
        """Products of matrices of heads, whose columns are features of heads."""
        (count, parts, _, wide), rows = y[0].shape, x[0].shape[2]
        many = parts // x[0].shape[1]
        given = x[0].repeat(many, axis=1), x[1].repeat(many, axis=1)[..., None]
        made = self._blocks(given, (y[0], y[1][..., None]), (_at(count, rows), _at(parts, wide)))
        return made.transpose(0, 2, 1, 3).reshape(-1, parts * wide)[:, :features]

    def _attention(self, each: Attention, found: dict[str, Held]) -> None:
        q, k, v = (self._parts(found[t.name].narrow, each.heads, self.samples) for t in each.i)
        scores = self.held(self._scored(each.heads, q, k))
        p = found[f"{each.o.name}.probabilities"] = self.held(vector.softmax(scores.values, each.scale))
        found[each.o.name] = self.held(self._mixed(self._shares(p.narrow, self.samples), v, each.o.features))

    def _attention_back(
        self, each: Attention, found: dict[str, Held], dy: Held, wanted: list, learnt: dict[str, Held]
    ) -> _Back:
        heads, count = each.heads, self.samples
        q, k, v = (found[t.name] for t in each.i)
        p, d = found[f"{each.o.name}.probabilities"], self._parts(dy.narrow, heads, count)
        made: list[Held | None] = [None, None, None]

        def mixed(x: Codes, y: Held) -> Held:
            return self.held(self._mixed(x, self._parts(y.narrow, heads, count), y.exact.shape[1]))

        if wanted[0] or wanted[1]:
            dp = self.held(self._scored(heads, d, self._parts(v.narrow, heads, count)))
            ds = self._shares(self.held(vector.softmax_back(p.values, dp.values, each.scale)).narrow, count)
            if wanted[0]:
                made[0] = mixed(ds, k)
            if wanted[1]:
                made[1] = mixed(_turned(ds), q)
        if wanted[2]:
            made[2] = mixed(_turned(self._shares(p.narrow, count)), dy)
        return made

    def _softmax(self, each: Softmax, found: dict[str, Held]) -> None:
        found[each.o.name] = self.held(vector.softmax(found[each.i[0].name].values, 1.0))

    def _softmax_back(self, each: Softmax, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        return [self.held(vector.softmax_back(found[each.o.name].values, dy.values, 1.0))]

    def _matmul(self, each: MatMul, found: dict[str, Held]) -> None:
        a, b = (found[t.name] for t in each.i)
        count = self.samples * prod(each.o.sides[:-1])
        found[each.o.name] = self._inside(a, b, count, turned=each.turned, positive=each.positive)

    def _matmul_back(self, each: MatMul, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        a, b = (found[t.name] for t in each.i)
        count = self.samples * prod(each.o.sides[:-1])
        made: list[Held | None] = [None, None]
        if wanted[0]:
            made[0] = self._inside(dy, b, count, turned=not each.turned)
        if wanted[1]:
            first, second = (dy, a) if each.turned else (a, dy)
            shares = _turned(self._shares(_matrix(first.narrow), count))
            parts = self._parts(second.narrow, 1, count)
            made[1] = self.held(self._mixed(shares, parts, second.exact.shape[1]))
        return made

    def _inside(self, a: Held, b: Held, count: int, *, turned: bool, positive: bool = False) -> Held:
        """Products of matrices of ``count`` images."""
        parts = self._parts(b.narrow, 1, count)
        if turned:
            made = self._scored(1, self._parts(a.narrow, 1, count), parts)[0]
        else:
            made = self._mixed(self._shares(_matrix(a.narrow), count), parts, b.exact.shape[1])
        return self.held(made, positive=positive)

    def _rearrange(self, each: Rearrange, found: dict[str, Held]) -> None:
        x = found[each.i[0].name]
        found[each.o.name] = x if each.is_label else self._across(x, each.o.rows == 1)

    def _rearrange_back(self, each: Rearrange, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        return [dy if each.is_label else self._across(dy, each.o.rows != 1)]

    def _across(self, x: Held, to_row: bool) -> Held:
        """A column of each sample as a row, or a row as a column."""
        count, narrow = self.samples, x.narrow
        size = x.exact.size // count
        many, wide = -(-size // EDGE), min(size, EDGE)
        codes = narrow.codes.reshape(count, many, wide)
        if to_row:
            same, rows = coded(np.eye(EDGE), NARROW), np.arange(count) * size // EDGE
            exponents = narrow.exponents[rows[:, None] + np.arange(many), 0]
            given, tiles = codes[:, :, None], (_at(count, 1), np.arange(many))
            kept = same.codes[:wide, :wide]
        else:
            same = coded(np.ones((1, 1)), NARROW)
            exponents = narrow.exponents[_at(count, 1)]
            given, tiles = codes[..., None], (np.arange(count) if many > 1 else _at(count, size), np.arange(many))
            kept = same.codes
        stationary = np.broadcast_to(kept, (count, many, *kept.shape))
        whole = np.full((count, many, 1), same.exponents.item())
        made = self._blocks((given, exponents[..., None]), (stationary, whole), tiles)
        return self.held(made.reshape((count, size) if to_row else (-1, 1)))


def _at(count: int, rows: int) -> np.ndarray:
    """Tile of each of ``count`` parts."""
    found: np.ndarray = np.arange(count) * rows // EDGE
    return found


def _whole_heads(x: Codes, heads: int) -> Codes:
    """Parts of heads side by side."""
    count, parts, rows, wide = x[0].shape
    codes = x[0].reshape(count, heads, -1, rows, wide).swapaxes(2, 3).reshape(count, heads, rows, -1)
    return codes, x[1].reshape(count, heads, parts // heads)


def _matrix(x: TileCoded) -> TileCoded:
    """The same as of one head."""
    return TileCoded(x.codes[None], x.exponents[None])


def _turned(x: Codes) -> Codes:
    return x[0].swapaxes(2, 3), x[1]
