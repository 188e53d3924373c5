"""Products within samples, in integers: attention, matrices of a sample, and rows that become columns."""

from collections.abc import Sequence

import numpy as np

from gradloom.graph.operations import Attention, MatMul, Pad, Rearrange, Slice
from gradloom.rtl.formats.tiles.codes import EDGE, NARROW, ZERO, TileCoded, coded
from gradloom.sim.reference import element
from gradloom.sim.reference.tiles.norm import parts, pulls, values
from gradloom.sim.reference.tiles.products import DROP, NEVER

from ..commands.attentions import matmul
from ..commands.images import Image, Part, mixed, scored, split, turns
from ..commands.rows import adjoint, order_of_rows, padding, passes, slicing, turning
from .held import Counts, Held
from .shares import Shares

__all__ = ["Within"]

_Back = Sequence[Held | None]


class Within(Shares):
    """Rules of :class:`~.integers.IntegerNetwork`."""

    samples: int
    counts: Counts
    tables: set[str]

    def _added(self, made: Sequence[Held], positive: bool = False) -> Held:
        raise NotImplementedError

    def _images(self, images: Sequence[Image], x: TileCoded, w: TileCoded, *, positive: bool = False) -> Held:
        """Products of images, in parts where they read many tiles."""
        sums = split(images)
        made = []
        for some in sums:
            found, lost = image_sums(some, x, w)
            self.counts.lost += lost
            made.append(self.held(found, positive=positive and len(sums) == 1))
        return self._added(made, positive)

    def _attention(self, each: Attention, found: dict[str, Held]) -> None:
        q, k, v = (found[t.name] for t in each.i)
        rows, keys = (len(part.exact) // self.samples for part in (q, k))
        shape = (self.samples, each.heads, rows, keys)
        scores = self._images(scored(*shape, q.exact.shape[1]), q.narrow, _turned(k.narrow))
        p = found[f"{each.o.name}.probabilities"] = self.soft(scores.values, each.scale)
        found[each.o.name] = self._images(mixed(*shape, v.exact.shape[1]), p.narrow, v.narrow)

    def _attention_back(
        self, each: Attention, found: dict[str, Held], dy: Held, wanted: list, learnt: dict[str, Held]
    ) -> _Back:
        q, k, v = (found[t.name] for t in each.i)
        p = found[f"{each.o.name}.probabilities"]
        shape = (self.samples, each.heads, len(q.exact) // self.samples, len(k.exact) // self.samples)
        made: list[Held | None] = [None, None, None]
        if wanted[0] or wanted[1]:
            dp = self._images(scored(*shape, v.exact.shape[1]), dy.narrow, _turned(v.narrow))
            if shape[-1] > EDGE:
                pull = pulls(found[each.o.name].values, dy.values, each.heads)
                ds = self.soft_back(p.narrow.values, dp.values, each.scale, pull)
            else:
                ds = self.soft_back(p.values, dp.values, each.scale)
            if wanted[0]:
                made[0] = self._images(mixed(*shape, k.exact.shape[1]), ds.narrow, k.narrow)
            if wanted[1]:
                made[1] = self._images(mixed(*shape, q.exact.shape[1], turned=True), _turned(ds.narrow), q.narrow)
        if wanted[2]:
            made[2] = self._images(mixed(*shape, v.exact.shape[1], turned=True), _turned(p.narrow), dy.narrow)
        return made

    def _matmul(self, each: MatMul, found: dict[str, Held]) -> None:
        a, b = (found[t.name] for t in each.i)
        (count, rows), keys = matmul(each, self.samples), len(b.exact)
        if each.turned:
            images = scored(count, 1, rows, keys // count, a.exact.shape[1])
        else:
            shape = (rows, a.exact.shape[1], b.exact.shape[1])
            images = mixed(count, 1, *shape, is_table=each.i[0].name in self.tables)
        second = _turned(b.narrow) if each.turned else b.narrow
        found[each.o.name] = self._images(images, a.narrow, second, positive=each.positive)

    def _matmul_back(self, each: MatMul, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        a, b = (found[t.name] for t in each.i)
        count, rows = matmul(each, self.samples)
        made: list[Held | None] = [None, None]
        if wanted[0] and each.turned:
            images = mixed(count, 1, rows, dy.exact.shape[1], b.exact.shape[1])
            made[0] = self._images(images, dy.narrow, b.narrow)
        elif wanted[0]:
            images = scored(count, 1, rows, len(b.exact) // count, dy.exact.shape[1])
            made[0] = self._images(images, dy.narrow, _turned(b.narrow))
        if wanted[1]:
            one, other = (dy, a) if each.turned else (a, dy)
            shape = (rows, one.exact.shape[1], other.exact.shape[1])
            images = mixed(count, 1, *shape, turned=True, is_table=each.i[0].name in self.tables)
            made[1] = self._images(images, _turned(one.narrow), other.narrow)
        return made

    # -- values that move ----------------------------------------------------------------------------------------

    def _rearrange(self, each: Rearrange, found: dict[str, Held]) -> None:
        x, order = found[each.i[0].name], order_of_rows(each)
        if each.is_label:
            found[each.o.name] = x
        elif order is not None:
            found[each.o.name] = self._taken(x, [order])
        else:
            found[each.o.name] = self._across(x, turning(each))

    def _rearrange_back(self, each: Rearrange, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        order = order_of_rows(each)
        if each.is_label:
            return [dy]
        if order is not None:
            return [self._taken(dy, adjoint(order, each.i[0].rows))]
        return [self._across(dy, turning(each))]

    def _across(self, x: Held, count: int | None) -> Held:
        """Rows of images as columns."""
        assert count is not None
        count *= self.samples
        rows, features = len(x.exact) // count, x.exact.shape[1]
        return self._images(turns(count, rows, features), _turned(x.narrow), coded(np.eye(EDGE), NARROW))

    def _pad(self, each: Pad, found: dict[str, Held]) -> None:
        found[each.o.name] = self._taken(found[each.i[0].name], [padding(each)])

    def _pad_back(self, each: Pad, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        return [self._taken(dy, adjoint(padding(each), each.i[0].rows))]

    def _slice(self, each: Slice, found: dict[str, Held]) -> None:
        found[each.o.name] = self._taken(found[each.i[0].name], [slicing(each)])

    def _slice_back(self, each: Slice, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        return [self._taken(dy, adjoint(slicing(each), each.i[0].rows))]

    def _taken(self, x: Held, indices: Sequence[np.ndarray]) -> Held:
        """Rows of samples, those of each index added to those before."""
        codes, at = (
            np.concatenate([each, np.full_like(each[:1], nothing)]) for each, nothing in zip(parts(x.values), (0, ZERO))
        )
        total: Held | None = None
        for rows in passes(indices, self.samples, len(x.exact) // self.samples):
            shape = (len(rows), codes.shape[1])
            words, exponents = parts(total.values) if total else (np.zeros(shape, np.int64), np.full(shape, ZERO))
            total = self.held(values(*element.add(words, exponents, codes[rows], at[rows])))
        assert total is not None
        return total


def _turned(x: TileCoded) -> TileCoded:
    return TileCoded(x.codes.swapaxes(-1, -2), x.exponents.swapaxes(-1, -2))


def image_sums(images: Sequence[Part], x: TileCoded, w: TileCoded) -> tuple[np.ndarray, int]:
    """Values of products of parts of matrices, ``[rows, columns]`` or a matrix a number, and how many are lost.

    A tile of the result has one unit: products of tiles far below its largest do not count.
    """
    pairs, tops = [], dict[tuple[int, int, int], int]()
    shape = [0, 0, 0]
    for each in images:
        end = (each.numbers[2] + 1, each.o[0] + each.rows, each.o[1] + each.columns)
        shape = [max(pair) for pair in zip(shape, end)]
        for one, other in zip(*each.read()):
            scales = [int(_matrix(side, "exponents", at[2])[at[:2]]) for side, at in ((x, one), (w, other))]
            own = NEVER if ZERO in scales else sum(scales)
            pairs.append((each, one[1], own))
            tops[each.tile] = max(tops.get(each.tile, NEVER), own)
    made, lost = np.zeros(shape), 0
    for each, tile, own in pairs:
        if own <= NEVER // 2:
            continue
        # What is summed over of this tile.
        first, last = max(EDGE * tile, each.x[1]), min(EDGE * (tile + 1), each.x[1] + each.deep)
        inner = first - each.x[1] + each.w[0]
        rows = slice(each.x[0], each.x[0] + each.rows)
        columns = slice(each.w[1], each.w[1] + each.columns)
        left = _matrix(x, "codes", each.numbers[0])[rows, first:last]
        found = left @ _matrix(w, "codes", each.numbers[1])[inner : inner + last - first, columns]
        if own < tops[each.tile] - DROP:
            lost += int(np.count_nonzero(found))
            continue
        at = each.o
        made[each.numbers[2], at[0] : at[0] + each.rows, at[1] : at[1] + each.columns] += found * 2.0**own
    return (made if shape[0] > 1 else made[0]), lost


def _matrix(x: TileCoded, name: str, number: int) -> np.ndarray:
    found: np.ndarray = getattr(x, name)
    return found[number] if found.ndim > 2 else found
