"""Products of tensors with matrices, and gradients of what learns beside them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradloom.graph.operations import Convolution, Linear, Rest
from gradloom.program.tiles.drafts import Block, DraftValue, Term
from gradloom.program.tiles.layout import Tiles
from gradloom.rtl.formats.tiles.codes import EDGE, NARROW, REST

from ..weights.matrices import ROWS, among, portions
from .base import Kept
from .elements import Elements
from .gathers import Gather

__all__ = ["Pair", "Products", "Summand", "last_of"]

#: A tensor, and the matrices that it is multiplied with.
Pair = tuple[DraftValue, Kept]


@dataclass(frozen=True)
class Summand:
    """Products that are added to a tensor: of pairs by address, and of own rows.

    ``layer``: whose they are. ``deep``: of pairs, tiles of what is summed over; None: all.
    """

    layer: str
    rows: Sequence[Pair]
    gather: Gather | None = None
    pairs: Sequence[Pair] = ()
    deep: range | None = None

    def cut(self, back: bool) -> "list[Summand]":
        """The same as several by depth, where that reads less; see :func:`~..weights.matrices.depths`."""
        if self.gather is None:
            return [self]
        tensors = {x.name: x.wide for x, _ in self.pairs}
        parts = self.gather.depths(max(tensors.values()), self.counts(back), len(tensors))
        if len(parts) == 1:
            return [self]
        return [replace(self, rows=() if n else self.rows, deep=deep) for n, deep in enumerate(parts)]

    def counts(self, back: bool) -> list[int]:
        """Tiles of each tap that a tile of the result takes at most; the first has those of own rows."""
        places = 1 if self.gather is None else len(self.gather.places)
        counts = [kept.counts(places, among(x.wide, self.deep), back) for x, kept in self.pairs]
        made = [sum(many) for many in zip([0] * places, *counts)]
        made[0] += sum(x.wide for x, _ in self.rows)
        return made

    @property
    def streamed(self) -> int:
        """Tiles of tensors that a tile of the result takes at most."""
        reach = 0 if self.gather is None else self.gather.tiles
        wide = {x.name: len(among(x.wide, self.deep)) for x, _ in self.pairs}
        return reach * sum(wide.values()) + sum(x.wide for x, _ in self.rows)


class Products(Elements):
    """Writes linear layers with their adapters."""

    def matrix(
        self,
        made: DraftValue,
        pairs: Sequence[Pair],
        *,
        layer: tuple[Linear | Convolution, str] | None = None,
        back: bool = False,
    ) -> None:
        """A product of rows with matrices, tile by tile.

        ``layer``: whose biases are added, and whose result it is. ``back``: it is a gradient.
        """
        positive = layer is not None and layer[0].positive
        places = [(pair, k) for pair in pairs for k in range(pair[0].wide)]
        parts = portions([1] * len(places))

        def some(own: DraftValue, part: slice) -> None:
            some = [(pair, [k for of, k in places[part] if of is pair]) for pair in pairs]
            # As many columns as their weights are held of: rows come once for all of them.
            most = max(self.tiler.config.w_slots // sum(len(ks) for _, ks in some), 1)
            groups = [range(j, min(j + most, made.wide)) for j in range(0, made.wide, most)]
            for i, j in ((i, j) for group in groups for i in range(made.high) for j in group):
                bias = None if layer is None or part.start else self.bias(*layer, j)
                terms = [
                    self._term(*pair, i, j, back, deep) for pair, ks in some for deep in pair[1].spans(ks, j, back)
                ]
                self.tiler.product(own, (i, j), terms, bias=bias, positive=positive and len(parts) == 1)

        self.added(made, parts, some, **({"positive": 1} if positive else {}))

    def _term(self, x: DraftValue, kept: Kept, i: int, j: int, back: bool, deep: range | None = None) -> Term:
        deep = range(x.wide) if deep is None else deep
        return Term(
            Block.of(self.tiler.read(x, NARROW), [(i, k) for k in deep]),
            Block.of(kept.tiles, [kept.at(k, j, 0, back) for k in deep]),
            {"tiles": len(deep) - 1, "k_to": last_of(x.features, x.wide, deep), "w_turn": int(kept.flips(back))},
        )

    def over_rows(self, made: DraftValue, one: DraftValue, other: DraftValue) -> None:
        """``one' other``, summed over all rows of both."""
        tiles, kept = self.tiler.read(one, NARROW), self.tiler.read(other, NARROW)

        def some(own: DraftValue, part: slice) -> None:
            # Tile by tile: those that are still there need not lie side by side.
            deep = [range(one.high)[k : k + 1] for k in range(one.high)[part]]
            given = [{"tiles": 0, "k_to": last_of(one.rows, one.high, k), "x_turn": 1} for k in deep]
            for j in range(own.wide):
                for i in range(own.high):
                    blocks = [(Block.of(tiles, [(k.start, i)]), Block.of(kept, [(k.start, j)])) for k in deep]
                    self.tiler.product(own, (i, j), [Term(*both, some) for both, some in zip(blocks, given)])

        self.added(made, portions([1] * one.high, ROWS), some)

    def reads(self, name: str) -> None:
        """A product reads what learns otherwise than the forward pass does."""

    def learnt_over_rows(self, name: str, one: DraftValue, other: DraftValue) -> None:
        """Gradient of what learns, see :meth:`over_rows`."""
        self.over_rows(self.learnt[name], one, other)

    def _linear(self, each: Linear) -> None:
        x, *rest = self.given(each)
        self.layer(each, x, rest)

    def _rest(self, each: Rest) -> None:
        """What makes the tensor stores its second codes, too."""
        (x,) = self.given(each)
        for tiles in self.places.get(each.o.name, ()):
            x.places[REST] = tiles
        rest = {NARROW: self.tiler.read(x, REST)}
        self.found[each.o.name] = DraftValue(each.o.name, x.count, x.rows, x.features, rest)

    def pairs(self, each: Linear | Convolution, x: DraftValue, rest: Sequence[DraftValue]) -> list[Pair]:
        """What a layer sums; ``rest``: second codes of ``x``."""
        weight = self.kept[f"{each.layer}.weight"]
        made = [(x, weight), *((second, weight) for second in rest)]
        if rest and (second_of_weight := self.kept.get(f"{each.layer}.weight~rest")) is not None:
            made.append((x, second_of_weight))
        return made

    def layer(self, each: Linear | Convolution, x: DraftValue, rest: Sequence[DraftValue] = ()) -> None:
        """A layer's result, and what its adapter has between both factors; ``rest``: second codes of ``x``."""
        pairs = self.pairs(each, x, rest)
        if each.rank:
            a, b = (self.kept[weight.name] for weight in each.adapter)
            h = self.found[f"{each.o.name}.hidden"] = self.tiler.value(f"{each.o.name}.hidden", x.rows, each.rank)
            self.matrix(h, [(x, a)])
            pairs.append((h, b))
        self.matrix(self.made(each), pairs, layer=(each, each.layer))

    def _linear_back(self, each: Linear, dy: DraftValue, wanted: Sequence[bool]) -> list[Summand | None]:
        return [self.layer_back(each, self.given(each)[0], dy, wanted[0])]

    def layer_back(self, each: Linear | Convolution, x: DraftValue, dy: DraftValue, wanted: bool) -> Summand | None:
        """Gradients of what learns in a layer; products that make that of what it reads."""
        self.own_back(each, x, dy)
        through = None
        if each.rank:
            a = each.adapter[0].name
            if wanted or a in self.learnt:
                through = self.through(each, dy)
            self.second_back(each, dy)
            if through is not None and a in self.learnt:
                self.learnt_over_rows(a, through, x)
        if not wanted:
            return None
        pairs = [(dy, self.kept[f"{each.layer}.weight"])]
        if through is not None:
            pairs.append((through, self.kept[each.adapter[0].name]))
        return Summand(each.layer, pairs)

    def own_back(self, each: Linear | Convolution, x: DraftValue, dy: DraftValue) -> None:
        """Gradients of a layer's own weight and bias, where they learn."""
        weight, bias = f"{each.layer}.weight", f"{each.layer}.bias"
        if weight in self.learnt:
            self.learnt_over_rows(weight, dy, x)
        if bias in self.learnt:
            self.summed(self.learnt[bias], dy)

    def through(self, each: Linear | Convolution, dy: DraftValue) -> DraftValue:
        """What comes back through an adapter's B."""
        back = self.tiler.value(f"{each.o.name}.back", dy.rows, each.rank)
        self.matrix(back, [(dy, self.kept[each.adapter[1].name])], back=True)
        return back

    def second_back(self, each: Linear | Convolution, dy: DraftValue) -> None:
        """Gradient of an adapter's B, where it learns."""
        name = each.adapter[1].name
        if name in self.learnt:
            self.learnt_over_rows(name, dy, self.found[f"{each.o.name}.hidden"])

    def summed(self, made: DraftValue, x: DraftValue) -> None:
        """The sum of all rows of a tensor, in one row."""
        kept = self.tiler.read(x, NARROW)

        def some(own: DraftValue, part: slice) -> None:
            deep = range(x.high)[part]
            given = {"tiles": len(deep) - 1, "k_to": last_of(x.rows, x.high, deep), "x_step": 0}
            for j in range(own.wide):
                term = Term(Block.of(self.ones, [(0, 0)]), Block.of(kept, [(k, j) for k in deep]), given)
                self.tiler.product(own, (0, j), [term])

        self.added(made, portions([1] * x.high), some)

    @property
    def ones(self) -> Tiles:
        """A row of ones."""
        raise NotImplementedError


def last_of(count: int, tiles: int, deep: range) -> int:
    """Last index that counts in the last of some tiles."""
    return ((count if deep.stop == tiles else EDGE) - 1) % EDGE
