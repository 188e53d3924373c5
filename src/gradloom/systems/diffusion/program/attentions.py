"""Attention and its gradients."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from gradloom.program.tiles.drafts import Block, DraftValue, Term
from gradloom.rtl.formats.norm import NormOpcode, constant
from gradloom.rtl.formats.tile_codes import EDGE, NARROW

from ..operations import Attention
from .tensors import Part

__all__ = ["Attentions"]


class Attentions(Part):
    """Writes attention, whose probabilities stay for its gradients."""

    def attention(self, each: Attention, q: DraftValue, k: DraftValue, v: DraftValue) -> None:
        """The context of queries, keys and values."""
        scores = self._matrices(each, "scores", q, k)
        self._scored(each, scores, q, k)
        p = self.found[f"{each.o.name}.probabilities"] = self._matrices(each, "probabilities", q, k)
        factor = float((each.o.features // each.heads) ** -0.5)
        self._soft(p, {"a": scores}, NormOpcode.SOFTMAX, constant(factor * np.log2(np.e)))
        self._mixed(each, self.made(each), p, v, False)

    def back(
        self, each: Attention, given: Sequence[DraftValue], dy: DraftValue, wanted: Sequence[bool]
    ) -> Iterator[DraftValue | None]:
        """Gradients of queries, keys and values, where they are wanted."""
        q, k, v = given
        p = self.found[f"{each.o.name}.probabilities"]
        ds = None
        if wanted[0] or wanted[1]:
            dp = self._matrices(each, "dp", q, k)
            self._scored(each, dp, dy, v)
            ds = self._matrices(each, "ds", q, k)
            factor = constant(float((each.o.features // each.heads) ** -0.5))
            self._soft(ds, {"a": p, "b": dp}, NormOpcode.SOFTMAX_BACK, factor)
        for t, x, matrices, other, turned, want in zip(
            each.i, given, (ds, ds, p), (k, q, dy), (False, True, True), wanted
        ):
            made = None
            if want and matrices is not None:
                made = self.gradient(x, t.name)
                self._mixed(each, made, matrices, other, turned)
            yield made

    def _matrices(self, each: Attention, name: str, q: DraftValue, k: DraftValue) -> DraftValue:
        return self.tiler.value(f"{each.o.name}.{name}", q.rows, k.rows // self.images, each.heads)

    def _images(self, i: int, rows: int) -> list[int]:
        """Images of ``rows`` rows that lie in row tile ``i``."""
        return [n for n in range(self.images) if n * rows // EDGE == i]

    def _check_heads(self, each: Attention) -> int:
        deep = each.o.features // each.heads
        if deep > EDGE or EDGE % deep:
            raise ValueError(f"{each.o.name}: {deep} features of a head must divide {EDGE}")
        for t in each.i:
            if t.rows > EDGE or (self.images > 1 and EDGE % t.rows):
                raise ValueError(f"{each.o.name}: {t.rows} rows of an image must divide {EDGE}")
        return deep

    def _scored(self, each: Attention, made: DraftValue, x: DraftValue, y: DraftValue) -> None:
        """Products of rows with rows, of each image and head."""
        deep = self._check_heads(each)
        rows, keys = x.rows // self.images, y.rows // self.images
        one, other = self.tiler.read(x, NARROW), self.tiler.read(y, NARROW)
        for head in range(each.heads):
            tile, begin = divmod(head * deep, EDGE)
            for i in range(made.high):
                terms = [
                    Term(
                        Block.of(one, [(i, tile)]),
                        Block.of(other, [(n * keys // EDGE, tile)]),
                        {
                            "k_from": begin,
                            "k_to": begin + deep - 1,
                            "x_row": n * rows % EDGE,
                            "o_row": n * rows % EDGE,
                            "rows": rows - 1,
                            "columns": keys - 1,
                            "w_column": n * keys % EDGE,
                            "w_turn": 1,
                        },
                    )
                    for n in self._images(i, rows)
                ]
                self.tiler.product(made, (i, 0, head), terms, apart=True)

    def _mixed(self, each: Attention, made: DraftValue, p: DraftValue, y: DraftValue, turned: bool) -> None:
        """Products of matrices of heads with features of heads.

        ``turned``: of their columns, summed over their rows.
        """
        deep = self._check_heads(each)
        queries, keys = p.rows // self.images, p.features
        inner, rows = (queries, keys) if turned else (keys, queries)
        matrices, other = self.tiler.read(p, NARROW), self.tiler.read(y, NARROW)
        for j in range(made.wide):
            for i in range(made.high):
                terms = []
                for n in self._images(i, rows):
                    for head in range(each.heads):
                        tile, begin = divmod(head * deep, EDGE)
                        if tile != j:
                            continue
                        more = {"rows": rows - 1, "columns": deep - 1, "o_row": n * rows % EDGE}
                        more |= {"o_column": begin, "w_column": begin}
                        if turned:
                            # Rows of both are what is summed over.
                            start = n * queries % EDGE
                            more |= {"x_turn": 1, "k_from": start, "k_to": start + queries - 1}
                        else:
                            more |= {"x_row": n * queries % EDGE, "k_to": keys - 1, "w_row": n * keys % EDGE}
                        x = Block.of(matrices, [(n * queries // EDGE, 0, head)])
                        terms.append(Term(x, Block.of(other, [(n * inner // EDGE, j)]), more))
                self.tiler.product(made, (i, j), terms, apart=True)

    def _soft(
        self, made: DraftValue, operands: Mapping[str, DraftValue], opcode: NormOpcode, factor: tuple[int, int]
    ) -> None:
        rows, keys = made.tile
        given = {"rows": rows - 1, "features": keys - 1, "mantissa": factor[0], "exponent": factor[1], "fresh": 1}
        for head in range(made.count):
            for i in range(made.high):
                blocks = {port: self.wide(value, i, 0, head) for port, value in operands.items()}
                self.tiler.norm(made, [(i, 0, head)], blocks, lambda held, slot: [(opcode, given | held | {"o": slot})])
