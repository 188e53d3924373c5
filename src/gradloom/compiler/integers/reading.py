"""A network's passes on codes of tiles, in integers.

All products are those of :mod:`gradloom.sim.reference.tiles.products`, all operations between them those of
:mod:`gradloom.sim.reference.tiles.vector`. A result is words; codes of 8 bits for products and of 16
bits for all others are rounded from them, each where something reads it. Masters have 32 bits, and AdamW is that of the
update engine.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from gradloom.graph.base import Operation, Tensor
from gradloom.graph.dependence import dependent
from gradloom.graph.network import Network
from gradloom.graph.operations import Convolution, Linear, Parameter, Rest
from gradloom.program.operations import needed
from gradloom.rtl.formats.tiles.codes import EDGE, NARROW, TileCoded, coded
from gradloom.sim.reference.tiles import vector
from gradloom.sim.reference.tiles.products import sums, transposed

from ..commands.base import WHOLE, is_plain
from ..commands.elements import beside
from ..commands.gathers import Gather, addresses, by_lines, shifts
from ..commands.tied import taken_back
from ..weights.matrices import ROWS, TapRows, parted, portions, together
from .between import Between
from .held import Counts, Held, columns
from .kernels import SAME, came, shifted
from .objectives import falling
from .summands import Summand
from .weights import LINES, REST, CodedWeights

__all__ = ["IntegerNetwork"]

_Back = Sequence[Held | Summand | list[Summand] | None]


class IntegerNetwork(CodedWeights, Between):
    """Forward and backward passes of samples.

    Parameters
    ----------
    network : Network
        As :func:`~.lowering.lower` takes it.
    learners : collection of str
        Weights that learn.

    Attributes
    ----------
    values : dict
        Weights by name; what learns is changed here.
    counts : Counts
        Of the codes that are stored.
    """

    def __init__(self, network: Network, learners: Sequence[str] = ()) -> None:
        self.port, self.outputs = network.outputs[0], [port.tensor.name for port in network.outputs]
        self.operations = needed(network.operations, self.outputs)
        super().__init__(network, self.operations, learners)
        self.inputs = {port.tensor.name: port.tensor for port in network.inputs}
        self.beside = beside(self.operations, [*self.inputs, *self.outputs])
        self.moving = dependent(self.operations, self.learners)
        self.samples = 0
        self.risen: dict[str, Tensor] = {}
        self.tables = {each.o.name for each in self.operations if isinstance(each, Parameter)}
        self._norms: dict[str, vector.TileNorm] = {}
        self._rows: dict[tuple[str, bool, int], np.ndarray] = {}

    # -- passes --------------------------------------------------------------------------------------------------

    def forward(self, inputs: Mapping[str, np.ndarray | Held]) -> dict[str, Held]:
        """Every tensor by name, of inputs ``[samples, *sides, features]`` or ``[samples * rows, features]``."""
        found = self.taken(inputs)
        for each in self.operations:
            self._call(each, "", found)
        return found

    def taken(self, inputs: Mapping[str, np.ndarray | Held]) -> dict[str, Held]:
        """Tensors of the inputs, whose codes are there: nobody counts them."""
        made = {
            name: given
            if isinstance(given := inputs[name], Held)
            else Held(np.asarray(given, np.float64).reshape(-1, t.features), Counts())
            for name, t in self.inputs.items()
        }
        name, t = next(iter(self.inputs.items()))
        self.samples = len(made[name].exact) // t.rows
        return made

    def result(self, inputs: Mapping[str, np.ndarray | Held]) -> Held:
        """The result alone; see :meth:`results`."""
        return self.results(inputs)[self.port.tensor.name]

    def results(self, inputs: Mapping[str, np.ndarray | Held]) -> dict[str, Held]:
        """The results alone: a tensor is forgotten behind its last reader."""
        found, last = self.taken(inputs), {t.name: each for each in self.operations for t in each.i}
        for each in self.operations:
            before = set(found)
            self._call(each, "", found)
            behind = {t.name for t in each.i if last[t.name] is each} | (set(found) - before - {each.o.name})
            for name in behind.difference(self.outputs):
                found.pop(name, None)
        return {name: found[name] for name in self.outputs}

    def backward(self, found: Mapping[str, Held], last: Held) -> dict[str, np.ndarray]:
        """Gradients of what learns as matrices, from that of the result."""
        gradients: dict[str, list[Held | Summand]] = {self.port.tensor.name: [last]}
        learnt = dict[str, Held]()
        for each in reversed(self.operations):
            if each.o.name not in gradients:
                continue
            dy = self._gradient(gradients.pop(each.o.name))
            if each.positive:
                dy = self.held(vector.mask(dy.values, found[each.o.name].values))
            wanted = [t.name in self.moving for t in each.i]
            for t, dx in zip(each.i, self._call(each, "_back", found, dy, wanted, learnt)):
                if dx is not None:
                    gradients.setdefault(t.name, []).extend(dx if isinstance(dx, list) else [dx])
        for name in self.ties.keys() & learnt.keys():
            learnt[name] = self._product(*taken_back(self._chosen[name], learnt[name].narrow))
        return {name: held.values for name, held in learnt.items()}

    def falling(self, loss: str, result: Held, target: np.ndarray) -> tuple[float, Held]:
        """The loss, and its gradient of the result."""
        return falling(loss, result, target, self.held, self.soft)

    def _call(self, each: Operation, back: str, *more: Any) -> Any:
        return getattr(self, f"_{type(each).__name__.lower()}{back}")(each, *more)

    # -- products ------------------------------------------------------------------------------------------------

    def _linear(self, each: Linear, found: dict[str, Held]) -> None:
        self._layer(each, found)

    def _added(self, parts: Sequence[Held], positive: bool = False) -> Held:
        """A tensor that is a sum of parts."""
        total = parts[0]
        for number, part in enumerate(parts[1:], 2):
            made = vector.add(total.values, part.values)
            total = self.held(made, positive=positive and number == len(parts))
        return total

    def _product(
        self,
        *pairs: tuple[TileCoded, TileCoded],
        bias: TileCoded | None = None,
        positive: bool = False,
        most: int | None = None,
    ) -> Held:
        """A sum of products; ``most``: see :func:`portions`."""
        places = [(n, k) for n, (x, _) in enumerate(pairs) for k in range(x.exponents.shape[1])]
        parts = portions([1] * len(places), most)
        made = []
        for part in parts:
            some = []
            for n, (x, w) in enumerate(pairs):
                ks = [k for of, k in places[part] if of == n]
                if ks:
                    deep = slice(ks[0], ks[-1] + 1)
                    some.append((columns(x, deep), transposed(columns(transposed(w), deep))))
            own = None if part.start else bias
            made.append(self.summed(sums(*some, bias=own, positive=positive and len(parts) == 1)))
        return self._added(made, positive)

    def _over_rows(self, one: Held, other: Held) -> Held:
        return self._product((transposed(one.narrow), other.narrow), most=ROWS)

    def _layer(self, each: Linear | Convolution, found: dict[str, Held]) -> None:
        x = found[each.i[0].name].narrow
        pairs = [(held.narrow, self.weight(each, weight)) for held, weight in self._pairs(each, found)]
        if each.rank:
            a, b = (self.weight(each, weight.name) for weight in each.adapter)
            h = found[f"{each.o.name}.hidden"] = self._product((x, a))
            pairs.append((h.narrow, b))
        found[each.o.name] = self._product(*pairs, bias=self._bias(each), positive=each.positive)

    def _pairs(self, each: Linear | Convolution, found: Mapping[str, Held]) -> list[tuple[Held, str]]:
        """Tensors and weights that a layer multiplies, second codes among them."""
        x, *rest = (found[t.name] for t in each.i)
        weight = f"{each.layer}.weight"
        made = [(second, weight) for second in (x, *rest)]
        if each.codes > 1 and weight not in self.learners and self.weight(each, f"{weight}{REST}").codes.any():
            made.append((x, f"{weight}{REST}"))
        return made

    def _rest(self, each: Rest, found: dict[str, Held]) -> None:
        found[each.o.name] = found[each.i[0].name].rest

    def _bias(self, each: Linear | Convolution) -> TileCoded | None:
        return self.weight(each, f"{each.layer}.bias") if each.bias else None

    def _linear_back(self, each: Linear, *given: Any) -> _Back:
        return self._layer_back(each, *given)

    def _layer_back(
        self, each: Linear | Convolution, found: dict[str, Held], dy: Held, wanted: list, learnt: dict[str, Held]
    ) -> Sequence[Summand | None]:
        x, weight = found[each.i[0].name], f"{each.layer}.weight"
        self._bias_back(each, dy, learnt)
        if weight in self.learners:
            learnt[weight] = self._over_rows(dy, x)
        through = None
        if each.rank:
            a = each.adapter[0].name
            if wanted[0] or a in self.learners:
                through = self._through(each, dy)
            self._second_back(each, found, dy, learnt)
            if through is not None and a in self.learners:
                learnt[a] = self._over_rows(through, x)
        if not wanted[0]:
            return [None]
        pairs = [(dy.narrow, transposed(self.weight(each, weight)))]
        if through is not None:
            pairs.append((through.narrow, transposed(self.weight(each, each.adapter[0].name))))
        return [Summand(each, pairs)]

    def _bias_back(self, each: Linear | Convolution, dy: Held, learnt: dict[str, Held]) -> None:
        if f"{each.layer}.bias" in self.learners:
            row = coded(np.ones((1, len(dy.exact))), NARROW)
            learnt[f"{each.layer}.bias"] = self._product((row, dy.narrow))

    def _through(self, each: Linear | Convolution, dy: Held) -> Held:
        return self._product((dy.narrow, transposed(self.weight(each, each.adapter[1].name))))

    def _second_back(
        self, each: Linear | Convolution, found: dict[str, Held], dy: Held, learnt: dict[str, Held]
    ) -> None:
        if (name := each.adapter[1].name) in self.learners:
            learnt[name] = self._over_rows(dy, found[f"{each.o.name}.hidden"])

    def _is_plain(self, each: Convolution) -> bool:
        return is_plain(each) and each.i[0].name not in self.risen

    def _addresses(self, each: Convolution, back: bool) -> np.ndarray:
        """Rows ``[taps, rows]`` that a convolution reads; -1 is a row of zeros."""
        key = (each.o.name, back, self.samples)
        if key not in self._rows:
            t = each.i[0]
            source = t.sides if back else self.risen.get(t.name, t).sides
            pixels, places = addresses(each, self.samples, source, back=back)
            self._rows[key] = np.stack([pixels.rows(*place) for place in places])
        return self._rows[key]

    def _taps(self, x: TileCoded) -> TileCoded:
        return x if x.codes.ndim == 3 else TileCoded(x.codes[None], x.exponents[None])

    def _convolution(self, each: Convolution, found: dict[str, Held]) -> None:
        if self._is_plain(each):
            self._layer(each, found)
            return
        x, rows = found[each.i[0].name], self._addresses(each, False)
        more: list[tuple[TileCoded, TileCoded]] = []
        if each.rank:
            a, b = (weight.name for weight in each.adapter)
            a = f"{a}{WHOLE}" if f"{a}{WHOLE}" in self._chosen else a
            h = found[f"{each.o.name}.hidden"] = self._gathered([Summand(each, (), rows, [(x, a)])])
            more = [(h.narrow, self.weight(each, b))]
        own = Summand(each, more, rows, self._pairs(each, found))
        found[each.o.name] = self._gathered([own], bias=self._bias(each), positive=each.positive)

    def _gathered(
        self, summands: Sequence[Summand], *, back: bool = False, bias: TileCoded | None = None, positive: bool = False
    ) -> Held:
        """Sums of products by address, and of own rows, in parts where they are many."""
        summands = [part for each in summands for part in each.cut(self._summed_tiles(each, back))]
        counts = [self._summed_tiles(each, back) for each in summands]
        begins = list(accumulate(map(len, counts), initial=0))
        parts, made = parted(counts, sum(each.streamed for each in summands)), []
        for part in parts:
            some: list[tuple[Any, ...]] = []
            for each, begin, end in zip(summands, begins, begins[1:]):
                taps = slice(max(part.start - begin, 0), min(part.stop, end) - begin)
                if taps.start < taps.stop:
                    some += self._by_address(each, taps, back)
                    some += each.more if taps.start == 0 else ()
            own, cut = bias if part.start == 0 else None, positive and len(parts) == 1
            made.append(self.summed(sums(*some, bias=own, positive=cut)))
        return self._added(made, positive)

    def _summed_tiles(self, each: Summand, back: bool) -> list[int]:
        """Tiles of each tap that a tile of the result takes at most; the first has those of own rows."""
        counts = [
            sum(many) for many in zip(*(self._counts(each.each, name, back, each.deep) for _, name in each.pairs))
        ] or [0]
        counts[0] += sum(x.exponents.shape[1] for x, _ in each.more)
        return counts

    def _by_address(self, each: Summand, taps: slice, back: bool) -> list[tuple[Any, ...]]:
        """Products of some taps."""
        made: list[tuple[Any, ...]] = []
        for x, name in each.pairs:
            kernel = self._taps(self.weight(each.each, name))
            kernel = transposed(kernel) if back else kernel
            assert each.rows is not None
            own, kept = each.within(x.narrow, kernel, taps)
            made.append((own, each.rows[taps], kept))
        return made

    def _gradient(self, parts: Sequence[Held | Summand]) -> Held:
        """A gradient that readers of a tensor have made: their products are one sum, where that is held at once."""
        made = list[Held]()
        for own in together(parts, Summand, lambda each: (sum(self._summed_tiles(each, True)), each.streamed)):
            if isinstance(own, Held):
                made.append(own)
                continue
            alone = len(own) == 1 and own[0].rows is None
            made.append(self._product(*own[0].more) if alone else self._gathered(own, back=True))
        return self._added(made)

    def _convolution_back(
        self, each: Convolution, found: dict[str, Held], dy: Held, wanted: list, learnt: dict[str, Held]
    ) -> _Back:
        if self._is_plain(each):
            return self._layer_back(each, found, dy, wanted, learnt)
        x, weight = found[each.i[0].name], f"{each.layer}.weight"
        self._bias_back(each, dy, learnt)
        pairs, more, lines = [(dy, weight)], list[tuple[TileCoded, TileCoded]](), list[Summand]()
        if each.rank:
            a, b = (factor.name for factor in each.adapter)
            if a in self.learners:
                taps = self._rows_of(each, a)
                if dy.exact.shape[1] <= EDGE and taps.within(each.rank):
                    moved, tile = dy, transposed(self.weight(each, b))
                else:
                    moved, tile = self._through(each, dy), SAME
                if (steps := self._shifted(each, a, taps)) is not None:
                    lines.append(self._lines_back(each, a, moved, tile, x, learnt, *steps))
                else:
                    came = self._taps_back(each, a, moved, tile, x, learnt)
                    more += [(came.narrow, self._stacked(a))] if wanted[0] else ()
            elif wanted[0]:
                pairs.append((self._through(each, dy), a))
            self._second_back(each, found, dy, learnt)
        if weight in self.learners:
            self._taps_back(each, weight, dy, SAME, x, learnt)
        if not wanted[0]:
            return [None]
        return [[Summand(each, more, self._addresses(each, True), pairs), *lines]]

    def _shifted(self, each: Convolution, name: str, taps: TapRows) -> tuple[Gather, Gather] | None:
        return shifts(each, taps, self.samples) if name in self.ties and each.i[0].name not in self.risen else None

    def _lines_back(
        self,
        each: Convolution,
        name: str,
        moved: Held,
        tile: TileCoded,
        x: Held,
        learnt: dict[str, Held],
        first: Gather,
        second: Gather,
    ) -> Summand:
        """Gradient of a kernel whose lines are shifts of rows; its share of the input's."""
        rows = self._rows_of(each, name)
        assert rows.line is not None
        line = self._came(moved, tile, rows.line, first)
        pairs, made = shifted(x.narrow, line.narrow, rows, second.sources), list[Held]()
        for part in portions([1] * -(-len(x.exact) // EDGE), ROWS):
            some = [(columns(x, part), transposed(columns(transposed(w), part))) for x, w in pairs]
            made.append(self.summed(sums(*some)))
        learnt[name] = Held(self._added(made).exact.T, self.counts)
        return Summand(each, (), np.stack(second.sources), [(line, f"{name}{LINES}")])

    def _taps_back(
        self, each: Convolution, name: str, moved: Held, tile: TileCoded, x: Held, learnt: dict[str, Held]
    ) -> Held:
        """Gradient of a kernel by what comes to a row of the input by each tap, side by side.

        ``tile`` makes of rows of a tensor what comes.
        """
        t, rows = each.i[0], self._rows_of(each, name)
        pixels, places = addresses(each, self.samples, t.sides, back=True)
        if rows.line is None:
            came = self._came(moved, tile, rows, Gather(pixels, places))
        else:
            first, second = by_lines(pixels, places)
            came = self._came(self._came(moved, tile, rows.line, first), SAME, rows.lines, second)
        small = self._shrunk(came, self.risen[t.name]) if t.name in self.risen else came
        learnt[name] = self._over_rows(small, x)
        return came

    def _came(self, moved: Held, tile: TileCoded, rows: TapRows, gather: Gather) -> Held:
        values, lost = came(moved.narrow, tile, rows, np.stack(gather.sources))
        self.counts.lost += lost
        return self.held(values)
