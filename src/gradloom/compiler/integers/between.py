"""Operations between products, in integers: sums, functions, norms, columns side by side."""

from collections.abc import Sequence

import numpy as np

from gradloom.graph.base import Tensor
from gradloom.graph.operations import (
    Activation,
    Add,
    Concat,
    Gated,
    Larger,
    Multiply,
    Norm,
    Parameter,
    Reduce,
    Upsample,
)
from gradloom.rtl.formats.tiles.codes import EDGE, NARROW, coded
from gradloom.sim.reference import element
from gradloom.sim.reference.tiles import vector
from gradloom.sim.reference.tiles.norm import parts, values
from gradloom.sim.reference.tiles.products import TileSums, sums

from ..commands.curves import check_within, function_of
from ..weights.matrices import levels
from .held import Beside, Counts, Held, joined
from .within import Within

__all__ = ["Between"]

_Back = Sequence[Held | None]


class Between(Within):
    """Rules of :class:`~.integers.IntegerNetwork`."""

    values: dict[str, np.ndarray]
    beside: set[str]
    risen: dict[str, Tensor]
    _norms: dict[str, vector.TileNorm]

    def summed(self, found: TileSums) -> Held:
        """A product."""
        raise NotImplementedError

    def _parameter(self, each: Parameter, found: dict[str, Held]) -> None:
        found[each.o.name] = Held(self.values[each.name].reshape(each.o.rows, -1), Counts())

    def _parameter_back(self, each: Parameter, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        learnt[each.name] = self.held(vector.scaled(dy.values, 1.0))
        return []

    def _spread(self, each: Add | Multiply, other: Held) -> np.ndarray:
        """Which row of the second tensor each row of the result has."""
        count, rows = self.samples * each.o.rows, np.arange(self.samples * each.o.rows)
        if each.i[1].name in self.tables:
            return rows % len(other.exact)
        found: np.ndarray = rows * len(other.exact) // count
        return found

    def _add(self, each: Add, found: dict[str, Held]) -> None:
        a, b = (found[t.name] for t in each.i)
        other = (part[self._spread(each, b)] for part in parts(b.values))
        made = values(*element.add(*parts(a.values), *other, subtract=each.subtract))
        found[each.o.name] = self.held(made, positive=each.positive)

    def _add_back(self, each: Add, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        second = self._fewer(each, dy) if wanted[1] else None
        if second is not None and each.subtract:
            second = self.held(vector.add(0 * second.values, second.values, subtract=True))
        return [dy if wanted[0] else None, second]

    def _fewer(self, each: Add | Multiply, dy: Held) -> Held:
        """A gradient of a tensor's rows, each of which counted for several."""
        t = each.i[1]
        rows = t.rows if t.name in self.tables else self.samples * t.rows
        return dy if rows == len(dy.exact) else self._summed_rows(dy, len(dy.exact) // rows)

    def _summed_rows(self, x: Held, count: int) -> Held:
        for part in levels(count, len(x.exact) // count):
            chosen = np.kron(np.eye(len(x.exact) // part), np.ones((1, part)))
            x = self.summed(sums((coded(chosen, NARROW), x.narrow)))
        return x

    def _multiply(self, each: Multiply, found: dict[str, Held]) -> None:
        a, b = (found[t.name] for t in each.i)
        found[each.o.name] = self.held(a.values * b.values[self._spread(each, b)], positive=each.positive)

    def _multiply_back(self, each: Multiply, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        a, b = (found[t.name] for t in each.i)
        rows = self._spread(each, b)
        first, second = (
            self.held(dy.values * other) if want else None for want, other in zip(wanted, (b.values[rows], a.values))
        )
        return [first, self._fewer(each, second) if second is not None else None]

    def _larger(self, each: Larger, found: dict[str, Held]) -> None:
        a, b = (found[t.name].values for t in each.i)
        found[each.o.name] = self.held(vector.larger(a, b), positive=each.positive)

    def _larger_back(self, each: Larger, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        first = self.held(vector.equal(dy.values, found[each.i[0].name].values, found[each.o.name].values))
        second = self.held(vector.add(dy.values, first.values, subtract=True)) if wanted[1] else None
        return [first if wanted[0] else None, second]

    def _activation(self, each: Activation, found: dict[str, Held]) -> None:
        x = found[each.i[0].name].values
        if each.kind == "relu":
            made = vector.scaled(x, 1.0, positive=True)
        elif each.kind == "affine":
            made = vector.scaled(x, each.parameters[0])
        else:
            function = function_of(each)
            check_within(each, x)
            made = vector.function(x, function.value)
            if function.line:
                line = self.held(vector.scaled(x, function.line, positive=True))
                made = vector.add(line.values, self.held(made).values)
        found[each.o.name] = self.held(made, positive=each.positive)

    def _activation_back(self, each: Activation, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        if each.kind == "relu":
            return [self.held(vector.mask(dy.values, found[each.o.name].values))]
        if each.kind == "affine":
            return [self.held(vector.scaled(dy.values, each.parameters[0]))]
        return [self.held(vector.function_back(dy.values, found[each.i[0].name].values, function_of(each).slope))]

    def _gated(self, each: Gated, found: dict[str, Held]) -> None:
        found[each.o.name] = self.held(vector.geglu(found[each.i[0].name].values))

    def _gated_back(self, each: Gated, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        return [self.held(vector.geglu_back(dy.values, found[each.i[0].name].values))]

    def _norm_of(self, each: Norm) -> vector.TileNorm:
        if each.layer not in self._norms:
            beyond = (0, each.i[0].features - each.o.features)
            gain, bias = (np.pad(self.values[f"{each.layer}.{name}"], beyond) for name in ("weight", "bias"))
            self._norms[each.layer] = vector.TileNorm(
                gain, bias, rows=each.span, groups=each.groups, eps=each.eps, by_row=not each.over_rows
            )
        return self._norms[each.layer]

    def _norm(self, each: Norm, found: dict[str, Held]) -> None:
        made = self._norm_of(each).forward(found[each.i[0].name].values)
        found[each.o.name] = self.held(made[:, : each.o.features])

    def _norm_back(self, each: Norm, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        given = np.pad(dy.values, ((0, 0), (0, each.i[0].features - each.o.features)))
        return [self.held(self._norm_of(each).backward(given, found[each.i[0].name].values))]

    def _reduce(self, each: Reduce, found: dict[str, Held]) -> None:
        x, rows = found[each.i[0].name], each.i[0].rows
        total = self._summed_rows(x, rows)
        if each.kind == "mean":
            total = self.held(vector.scaled(total.values, 1 / rows), positive=each.positive)
        found[each.o.name] = total

    def _reduce_back(self, each: Reduce, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        rows = each.i[0].rows
        if each.kind == "mean":
            dy = self.held(vector.scaled(dy.values, 1 / rows))
        return [self.held(dy.values.repeat(rows, axis=0))]

    def _upsample(self, each: Upsample, found: dict[str, Held]) -> None:
        found[each.o.name] = found[each.i[0].name]
        self.risen[each.o.name] = each.i[0]

    def _upsample_back(self, each: Upsample, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        return [self._shrunk(dy, each.i[0])]

    def _shrunk(self, x: Held, t: Tensor) -> Held:
        """Sums of 2 x 2 pixels."""
        (height, width), features = t.sides, x.exact.shape[1]
        made = vector.total(x.values, (2, 4), (-1, height, 2, width, 2, features))
        return self.held(made.reshape(-1, features))

    def _concat(self, each: Concat, found: dict[str, Held]) -> None:
        if each.o.name in self.beside:
            found[each.o.name] = Beside(*((found[t.name], slice(0, -(-t.features // EDGE))) for t in each.i))
            return
        parts = [(found[t.name].wide, slice(0, t.features)) for t in each.i]
        found[each.o.name] = self.held(joined(*parts))

    def _concat_back(self, each: Concat, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        ends = np.cumsum([t.features for t in each.i])
        spans = [slice(end - t.features, end) for t, end in zip(each.i, ends)]

        def part(span: slice) -> Held:
            if each.o.name in self.beside:
                return Beside((dy, slice(span.start // EDGE, -(-span.stop // EDGE))))
            return self.held(joined((dy.wide, span)))

        return [part(span) if want else None for span, want in zip(spans, wanted)]
