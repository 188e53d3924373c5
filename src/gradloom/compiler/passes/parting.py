"""Norms of more values than the engine takes, by norms of parts.

A part has a mean m and a deviation s, and its own norm makes u of it. The values ``m + s`` and ``m - s`` of all parts
have the mean and the deviation of the whole. Their norm gives ``(m - mean) / deviation`` and ``s / deviation`` of each
part, with which u becomes the norm of the whole: no square or root has to be in a table's range.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from gradloom.graph.base import Operation, Tensor
from gradloom.graph.operations import Activation, Add, Linear, MatMul, Multiply, Norm, Parameter, Rest
from gradloom.graph.rewriting.editor import Editor
from gradloom.rtl.formats.tiles.codes import EDGE

from .expressed import label

__all__ = ["LONGEST", "of_parts"]

#: Values of a row, and rows, that the engine's slots hold of a group as they are by default.
LONGEST = 8 * EDGE
#: Of eps of the whole what a part has: it must not count beside the deviation.
_LESS = 2.0**-24
#: What each part gives: signs of its mean and its deviation. Without a mean its opposite, too, so that there is none.
_SIGNS = {True: ((1, 1), (1, -1)), False: ((1, 1), (1, -1), (-1, -1), (-1, 1))}


def _divisor(count: int, most: int) -> int:
    """The largest power of two up to ``most`` that divides a number."""
    return min(count & -count, most)


def _power(count: int) -> int:
    return 1 << (count - 1).bit_length()


@dataclass(frozen=True)
class _Parts:
    """Parts of a norm's groups: ``rows`` by ``features`` each, ``count`` side by side in a group."""

    norm: Norm
    rows: int
    features: int

    @property
    def count(self) -> int:
        return self.norm.o.features // self.norm.groups // self.features

    @property
    def width(self) -> int:
        """What a group's parts give, filled up to a power of two."""
        return _power(self.used)

    @property
    def used(self) -> int:
        return self.count * len(_SIGNS[self.norm.centred])

    @classmethod
    def of(cls, each: Norm) -> "_Parts | None":
        """Parts as the engine takes them; None where there are none, or one is enough."""
        group = each.o.features // each.groups
        if each.over_rows:
            rows = _divisor(each.span, LONGEST)
            # What fits, or becomes rows that do, stays what it is.
            if each.span == rows and group == _divisor(group, EDGE):
                return None
            if each.span * group <= LONGEST or (rows < EDGE and each.span > rows):
                return None
            made = cls(each, rows, _divisor(group, EDGE))
        else:
            if _power(group if each.centred else 2 * group) <= LONGEST or group % EDGE or each.groups > 1:
                return None
            made = cls(each, 1, _divisor(group, LONGEST))
        return made if made.width <= (EDGE if each.over_rows else LONGEST) else None

    def places(self, which: int) -> np.ndarray:
        """Factors ``[groups, width, features]`` of a group: 1 where a feature's part has its mean, or its deviation."""
        made = np.zeros((self.width, self.count, self.features))
        for number, signs in enumerate(_SIGNS[self.norm.centred]):
            at = np.arange(self.count)
            made[number * self.count + at, at] = signs[which]
        return self._spread(made)

    def filling(self) -> np.ndarray:
        """The same for what is filled up: all features of the group."""
        made = np.zeros((self.width, self.count, self.features))
        made[self.used :] = 1
        return self._spread(made)

    def _spread(self, made: np.ndarray) -> np.ndarray:
        return np.kron(np.eye(self.norm.groups), made.reshape(self.width, -1))


def of_parts(made: Editor, each: Operation) -> bool:
    """A norm of parts, as a rule of an editor."""
    if not isinstance(each, Norm) or not (each.gain and each.bias) or each.i[0].features != each.o.features:
        return False
    found = _Parts.of(each)
    if found is None:
        return False
    made.change(each, _Writer(made, found).write())
    return True


class _Writer:
    def __init__(self, made: Editor, parts: _Parts) -> None:
        self.made, self.parts, self.norm = made, parts, parts.norm
        self.done: list[Operation] = []

    def write(self) -> list[Operation]:
        """The operations, of which the last has the norm's result."""
        norm, parts = self.norm, self.parts
        x = norm.i[0]
        many = x.rows // parts.rows
        if norm.over_rows:
            x = self.seen(x, "parts", many, parts.rows)
        u = self.unit(x)
        means, deviations = self.rows(x, "sums"), self.rows(self.multiplied(x, u, "squares"), "deviations")
        size = parts.rows * parts.features
        whole = self.added(
            self.scaled_sum(means, "means", parts.places(0), 1 / size),
            self.scaled_sum(deviations, "spread", parts.places(1), 1 / size),
            "ends",
        )
        if norm.centred and parts.width > parts.used:
            over = many // (norm.o.rows // norm.span) if norm.over_rows else 1
            if over > 1:
                means = self.product(np.kron(np.eye(many // over), np.ones((over, over))), means, "whole")
            fill = self.scaled_sum(means, "mean", parts.filling(), 1 / (size * over * parts.count))
            whole = self.added(whole, fill, "filled")
        ends = self.normed(whole, many)
        factors, shifts = self.halves(ends)
        if norm.over_rows:
            factors, shifts = (self.seen(t, name, many, 1) for name, t in (("factor", factors), ("shift", shifts)))
        y = self.added(self.multiplied(u, factors, "scaled"), shifts, "moved")
        *before, last = self.done
        assert last.o is y
        if y.sides == norm.o.sides:
            return [*before, replace(last, o=norm.o, positive=norm.positive)]
        return [*before, replace(last, positive=norm.positive), label(y, norm.o)]

    # -- pieces --------------------------------------------------------------------------------------------------

    def unit(self, x: Tensor) -> Tensor:
        """Each part by its own mean and deviation."""
        norm, parts = self.norm, self.parts
        o = self.named("unit", x.sides, x.features)
        self.plain(o.name, x.features)
        return self.put(
            Norm(
                (x,),
                o,
                o.name,
                eps=norm.eps * _LESS,
                over_rows=norm.over_rows,
                part=parts.rows if norm.over_rows else 0,
                groups=x.features // parts.features,
            )
        )

    def rows(self, x: Tensor, name: str) -> Tensor:
        """Sums of the rows of a part."""
        if not self.norm.over_rows:
            return x
        many = x.rows // self.parts.rows
        line = self.seen(x, f"{name}.line", x.rows)
        return self.product(np.kron(np.eye(many), np.ones((1, self.parts.rows))), line, name)

    def normed(self, whole: Tensor, many: int) -> Tensor:
        """The norm of what parts give; where it is filled up, eps and gain are those of more values."""
        norm, parts = self.norm, self.parts
        share = parts.used / parts.width
        o = self.named("norm", whole.sides, whole.features)
        self.plain(o.name, whole.features, sqrt(share))
        groups, over = (norm.groups, many * norm.span // norm.o.rows) if norm.over_rows else (1, 0)
        more: dict[str, Any] = {"over_rows": norm.over_rows, "part": over, "groups": groups}
        return self.put(Norm((whole,), o, o.name, eps=norm.eps * share, **more))

    def halves(self, ends: Tensor) -> tuple[Tensor, Tensor]:
        """Factors and shifts of each feature, with the norm's gain and bias."""
        norm, parts, found = self.norm, self.parts, []
        gain, bias = (self.made.values[f"{norm.layer}.{name}"] for name in ("weight", "bias"))
        for name, which, shift in (("factors", 1, None), ("shifts", 0, bias)):
            # Back from the first two of what a part gives.
            back = np.copy(parts.places(which).T) / 2
            used = np.tile(np.arange(parts.width) < 2 * parts.count, norm.groups if norm.over_rows else 1)
            back[:, ~used] = 0
            if norm.over_rows:
                found.append(self.by_feature(self.linear(ends, name, back), name, gain, shift))
            else:
                found.append(self.linear(ends, name, back * gain[:, None], shift))
        return found[0], found[1]

    def by_feature(self, x: Tensor, name: str, gain: np.ndarray, shift: np.ndarray | None) -> Tensor:
        """Times a gain, plus a shift."""
        made = self.multiplied(x, self.table(f"{name}.gain", gain[None]), f"{name}.scaled")
        return made if shift is None else self.added(made, self.table(f"{name}.bias", shift[None]), f"{name}.moved")

    def scaled_sum(self, x: Tensor, name: str, weights: np.ndarray, factor: float) -> Tensor:
        """Sums of features, times a constant, which has more bits than weights."""
        o = self.linear(x, f"{name}.sums", weights)
        return self.put(Activation((o,), self.named(name, o.sides, o.features), "affine", (factor, 0.0)))

    def linear(self, x: Tensor, name: str, weights: np.ndarray, shift: np.ndarray | None = None) -> Tensor:
        """A product with two codes of both sides."""
        o = self.named(name, x.sides, len(weights))
        self.made.values[f"{o.name}.weight"] = weights
        if shift is not None:
            self.made.values[f"{o.name}.bias"] = shift
        rest = self.put(Rest((x,), self.named(f"{name}.rest", x.sides, x.features)))
        return self.put(Linear((x, rest), o, o.name, bias=shift is not None, codes=2))

    def seen(self, x: Tensor, name: str, *sides: int) -> Tensor:
        """The same values under other sides."""
        return x if x.sides == sides else self.put(label(x, self.named(name, sides, x.features)))

    def product(self, matrix: np.ndarray, x: Tensor, name: str) -> Tensor:
        """A matrix that makes rows of rows."""
        table = self.table(f"{name}.matrix", matrix)
        return self.put(MatMul((table, x), self.named(name, (len(matrix),), x.features)))

    def multiplied(self, x: Tensor, y: Tensor, name: str) -> Tensor:
        return self.put(Multiply((x, y), self.named(name, x.sides, x.features)))

    def added(self, x: Tensor, y: Tensor, name: str) -> Tensor:
        return self.put(Add((x, y), self.named(name, x.sides, x.features)))

    def table(self, name: str, values: np.ndarray) -> Tensor:
        t = self.named(name, values.shape[:-1], values.shape[-1])
        self.made.values[t.name] = values
        return self.put(Parameter((), t, t.name))

    def plain(self, layer: str, features: int, gain: float = 1.0) -> None:
        """One gain for all features, and no bias."""
        self.made.values[f"{layer}.weight"] = np.full(features, gain)
        self.made.values[f"{layer}.bias"] = np.zeros(features)

    def named(self, name: str, sides: Sequence[int], features: int) -> Tensor:
        return Tensor(self.made.free(f"{self.norm.o.name}~{name}"), tuple(sides), features)

    def put(self, operation: Operation) -> Tensor:
        self.done.append(operation)
        return operation.o
