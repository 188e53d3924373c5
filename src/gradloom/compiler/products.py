"""Products of tensors with matrices, and gradients of what learns beside them."""

from collections.abc import Sequence

from gradloom.graph.operations import Convolution, Linear
from gradloom.program.tiles.drafts import Block, DraftValue, Term
from gradloom.program.tiles.layout import Tiles
from gradloom.rtl.formats.tile_codes import EDGE, NARROW

from .base import Base, Kept

__all__ = ["Pair", "Products"]

#: A tensor, and the matrices that it is multiplied with.
Pair = tuple[DraftValue, Kept]


class Products(Base):
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
        for j in range(made.wide):
            bias = None if layer is None else self.bias(*layer, j)
            for i in range(made.high):
                terms = [self._term(x, kept, i, j, back) for x, kept in pairs]
                self.tiler.product(made, (i, j), terms, bias=bias, positive=positive)

    def _term(self, x: DraftValue, kept: Kept, i: int, j: int, back: bool) -> Term:
        deep = range(x.wide)
        return Term(
            Block.of(self.tiler.read(x, NARROW), [(i, k) for k in deep]),
            Block.of(kept.tiles, [kept.at(k, j, 0, back) for k in deep]),
            {"tiles": x.wide - 1, "k_to": (x.features - 1) % EDGE, "w_turn": int(kept.flips(back))},
        )

    def over_rows(self, made: DraftValue, one: DraftValue, other: DraftValue, number: int = 0) -> None:
        """``one' other``, summed over all rows of both; matrix ``number`` of a gradient."""
        tiles, kept = self.tiler.read(one, NARROW), self.tiler.read(other, NARROW)
        for j in range(made.wide):
            for i in range(made.high):
                deep = range(one.high)
                x, w = Block.of(tiles, [(k, i) for k in deep]), Block.of(kept, [(k, j) for k in deep])
                given = {"tiles": one.high - 1, "k_to": (one.rows - 1) % EDGE, "x_turn": 1}
                self.tiler.product(made, (i, j, number), [Term(x, w, given)])

    def _linear(self, each: Linear) -> None:
        (x,) = self.given(each)
        self.layer(each, x)

    def layer(self, each: Linear | Convolution, x: DraftValue) -> None:
        """A layer's result, and what its adapter has between both factors."""
        pairs = [(x, self.kept[f"{each.layer}.weight"])]
        if each.rank:
            a, b = (self.kept[weight.name] for weight in each.adapter)
            h = self.found[f"{each.o.name}.hidden"] = self.tiler.value(f"{each.o.name}.hidden", x.rows, each.rank)
            self.matrix(h, [(x, a)])
            pairs.append((h, b))
        self.matrix(self.made(each), pairs, layer=(each, each.layer))

    def _linear_back(self, each: Linear, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        (x,) = self.given(each)
        return [self.layer_back(each, x, dy, wanted[0])]

    def layer_back(self, each: Linear | Convolution, x: DraftValue, dy: DraftValue, wanted: bool) -> DraftValue | None:
        """Gradients of what learns in a layer, and of what it reads."""
        self.own_back(each, x, dy)
        through = self.adapter_back(each, dy)
        if through is not None:
            self.over_rows(self.learnt[each.adapter[0].name], through, x)
        if not wanted:
            return None
        pairs = [(dy, self.kept[f"{each.layer}.weight"])]
        if through is not None:
            pairs.append((through, self.kept[each.adapter[0].name]))
        made = self.part(each.i[0])
        self.matrix(made, pairs, back=True)
        return made

    def own_back(self, each: Linear | Convolution, x: DraftValue, dy: DraftValue) -> None:
        """Gradients of a layer's own weight and bias, where they learn."""
        weight, bias = f"{each.layer}.weight", f"{each.layer}.bias"
        if weight in self.learnt:
            self.over_rows(self.learnt[weight], dy, x)
        if bias in self.learnt:
            self.summed(self.learnt[bias], dy)

    def adapter_back(self, each: Linear | Convolution, dy: DraftValue) -> DraftValue | None:
        """Gradient of B, and what comes back through it; None without an adapter."""
        if not each.rank:
            return None
        h, name = self.found[f"{each.o.name}.hidden"], each.adapter[1].name
        back = self.tiler.value(f"{each.o.name}.back", dy.rows, each.rank)
        self.matrix(back, [(dy, self.kept[name])], back=True)
        self.over_rows(self.learnt[name], dy, h)
        return back

    def summed(self, made: DraftValue, x: DraftValue) -> None:
        """The sum of all rows of a tensor, in one row."""
        kept, deep = self.tiler.read(x, NARROW), range(x.high)
        for j in range(made.wide):
            given = {"tiles": x.high - 1, "k_to": (x.rows - 1) % EDGE, "x_step": 0}
            term = Term(Block.of(self.ones, [(0, 0)]), Block.of(kept, [(k, j) for k in deep]), given)
            self.tiler.product(made, (0, j), [term])

    @property
    def ones(self) -> Tiles:
        """A row of ones."""
        raise NotImplementedError
