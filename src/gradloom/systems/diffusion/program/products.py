"""Products of tensors with matrices, and the gradients of adapters."""

from collections.abc import Sequence

from gradloom.program.tiles.drafts import Block, DraftValue, Term
from gradloom.program.tiles.layout import Tiles
from gradloom.rtl.formats.tile_codes import EDGE, NARROW

from ..operations import Linear
from .tensors import Part

__all__ = ["Products"]


class Products(Part):
    """Writes linear layers with their adapters."""

    def linear(self, each: Linear, x: DraftValue) -> None:
        """A layer's result, and h where it has an adapter."""
        pairs = [(x, self.frozen[f"{each.layer}.weight"], False)]
        if each.rank:
            h = self.tiler.value(f"{each.layer}.hidden", x.rows, each.rank)
            self.matrix(h, [(x, self.adapted[each.layer, "a"].codes, True)])
            self.found[f"{each.layer}.hidden"] = h
            pairs.append((h, self.adapted[each.layer, "b"].codes, True))
        self.matrix(self.made(each), pairs, bias=self.frozen.get(f"{each.layer}.bias"))

    def matrix(
        self,
        made: DraftValue,
        pairs: Sequence[tuple[DraftValue, Tiles, bool]],
        bias: Tiles | None = None,
        *,
        turned: bool = False,
    ) -> None:
        """A product with what is kept, tile by tile.

        A pair has a third element where its second matrix is turned. ``turned``: first matrices are.
        """
        for j in range(made.wide):
            for i in range(made.high):
                terms = [self._term(x, kept, i, j, turn, turned) for x, kept, turn in pairs]
                self.tiler.product(made, (i, j), terms, bias=None if bias is None else Block.of(bias, [(0, j)]))

    def _term(self, x: DraftValue, kept: Tiles, i: int, j: int, turn: bool, turned: bool) -> Term:
        tiles = self.tiler.read(x, NARROW)
        inner, deep = (x.rows, x.high) if turned else (x.features, x.wide)
        return Term(
            Block.of(tiles, [(k, i) if turned else (i, k) for k in range(deep)]),
            Block.of(kept, [(j, k) if turn else (k, j) for k in range(deep)]),
            {"tiles": deep - 1, "k_to": (inner - 1) % EDGE, "w_turn": int(turn), "x_turn": int(turned)},
        )

    def learnt(self, each: Linear, dy: DraftValue) -> DraftValue:
        """Gradients of A and B; what comes back through B."""
        x, h = self.found[each.i[0].name], self.found[f"{each.layer}.hidden"]
        back = self.tiler.value(f"{each.layer}.back", dy.rows, each.rank)
        self.matrix(back, [(dy, self.adapted[each.layer, "b"].codes, False)])
        for part, stream, kept in (("a", back, x), ("b", dy, h)):
            tiles = self.tiler.read(kept, NARROW)
            self.matrix(self.found[f"{each.layer}.{part}"], [(stream, tiles, False)], turned=True)
        return back
