"""Attention and its gradients."""

from collections.abc import Sequence

from gradloom.graph.operations import Attention
from gradloom.program.tiles.drafts import Block, DraftValue, Term
from gradloom.rtl.formats.tile_codes import EDGE, NARROW

from .norms import Norms

__all__ = ["Attentions"]


class Attentions(Norms):
    """Writes attention, whose probabilities stay for its gradients."""

    def _attention(self, each: Attention) -> None:
        if len(each.i) > 3:
            raise ValueError(f"{each.o.name}: a tensor that is added to the scores has no command")
        q, k, v = self.given(each)
        scores = self._matrices(each, "scores", q, k)
        self._scored(each, scores, q, k)
        p = self.found[f"{each.o.name}.probabilities"] = self._matrices(each, "probabilities", q, k)
        self.soft(p, {"a": scores}, each.scale)
        self._mixed(each, self.made(each), p, v, False)

    def _attention_back(self, each: Attention, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        q, k, v = self.given(each)
        p = self.found[f"{each.o.name}.probabilities"]
        ds = None
        if wanted[0] or wanted[1]:
            dp = self._matrices(each, "dp", q, k)
            self._scored(each, dp, dy, v)
            ds = self._matrices(each, "ds", q, k)
            self.soft(ds, {"a": p, "b": dp}, each.scale)
        found: list[DraftValue | None] = []
        for t, matrices, other, turned, want in zip(each.i, (ds, ds, p), (k, q, dy), (False, True, True), wanted):
            found.append(self.part(t) if want and matrices is not None else None)
            if found[-1] is not None and matrices is not None:
                self._mixed(each, found[-1], matrices, other, turned)
        return found

    def _matrices(self, each: Attention, name: str, q: DraftValue, k: DraftValue) -> DraftValue:
        return self.tiler.value(f"{each.o.name}.{name}", q.rows, k.rows // self.samples, each.heads)

    def _inside(self, i: int, rows: int) -> list[int]:
        """Samples of ``rows`` rows that lie in row tile ``i``."""
        return [n for n in range(self.samples) if n * rows // EDGE == i]

    def _check_heads(self, each: Attention) -> int:
        deep = each.o.features // each.heads
        if deep > EDGE or EDGE % deep:
            raise ValueError(f"{each.o.name}: {deep} features of a head must divide {EDGE}")
        for t in each.i:
            if t.rows > EDGE or (self.samples > 1 and EDGE % t.rows):
                raise ValueError(f"{each.o.name}: {t.rows} rows of a sample must divide {EDGE}")
        return deep

    def _scored(self, each: Attention, made: DraftValue, x: DraftValue, y: DraftValue) -> None:
        """Products of rows with rows, of each sample and head."""
        deep = self._check_heads(each)
        rows, keys = x.rows // self.samples, y.rows // self.samples
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
                    for n in self._inside(i, rows)
                ]
                self.tiler.product(made, (i, 0, head), terms, apart=True)

    def _mixed(self, each: Attention, made: DraftValue, p: DraftValue, y: DraftValue, turned: bool) -> None:
        """Products of matrices of heads with features of heads.

        ``turned``: of their columns, summed over their rows.
        """
        deep = self._check_heads(each)
        queries, keys = p.rows // self.samples, p.features
        inner, rows = (queries, keys) if turned else (keys, queries)
        matrices, other = self.tiler.read(p, NARROW), self.tiler.read(y, NARROW)
        for j in range(made.wide):
            for i in range(made.high):
                terms = []
                for n in self._inside(i, rows):
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
