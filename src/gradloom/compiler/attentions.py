"""Products within samples: attention, its gradients, and columns that become rows."""

from collections.abc import Sequence
from math import prod

from gradloom.graph.base import Operation
from gradloom.graph.operations import Attention, MatMul, Rearrange
from gradloom.program.tiles.drafts import Block, DraftValue, Term
from gradloom.program.tiles.layout import Tiles
from gradloom.rtl.formats.tiles.codes import EDGE, NARROW

from .norms import Norms

__all__ = ["Attentions"]


class Attentions(Norms):
    """Writes products within samples; probabilities of attention stay for its gradients."""

    def _attention(self, each: Attention) -> None:
        if len(each.i) > 3:
            raise ValueError(f"{each.o.name}: a tensor that is added to the scores has no command")
        self._check_heads(each)
        q, k, v = self.given(each)
        scores = self._matrices(each, "scores", q, k)
        self._scored(scores, q, k, self.samples, each.heads)
        p = self.found[f"{each.o.name}.probabilities"] = self._matrices(each, "probabilities", q, k)
        self.soft(p, {"a": scores}, each.scale)
        self._mixed(self.made(each), p, v, self.samples, each.heads, False)

    def _attention_back(self, each: Attention, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        q, k, v = self.given(each)
        p = self.found[f"{each.o.name}.probabilities"]
        ds = None
        if wanted[0] or wanted[1]:
            dp = self._matrices(each, "dp", q, k)
            self._scored(dp, dy, v, self.samples, each.heads)
            ds = self._matrices(each, "ds", q, k)
            self.soft(ds, {"a": p, "b": dp}, each.scale)
        found: list[DraftValue | None] = []
        for t, matrices, other, turned, want in zip(each.i, (ds, ds, p), (k, q, dy), (False, True, True), wanted):
            found.append(self.part(t) if want and matrices is not None else None)
            if found[-1] is not None and matrices is not None:
                self._mixed(found[-1], matrices, other, self.samples, each.heads, turned)
        return found

    def _matrices(self, each: Attention, name: str, q: DraftValue, k: DraftValue) -> DraftValue:
        return self.tiler.value(f"{each.o.name}.{name}", q.rows, k.rows // self.samples, each.heads)

    def _matmul(self, each: MatMul) -> None:
        self._images(each)
        a, b = self.given(each)
        self._product(each, self.made(each), a, b, each.turned)

    def _matmul_back(self, each: MatMul, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        (a, b), made = self.given(each), [self.part(t) if want else None for t, want in zip(each.i, wanted)]
        if made[0] is not None:
            self._product(each, made[0], dy, b, not each.turned)
        if made[1] is not None:
            one, other = (dy, a) if each.turned else (a, dy)
            self._mixed(made[1], one, other, self._images(each), 1, True)
        return made

    def _product(self, each: MatMul, made: DraftValue, x: DraftValue, y: DraftValue, turned: bool) -> None:
        """Products of matrices of samples; ``turned``: of rows with rows."""
        positive = each.positive and made is self.found[each.o.name]
        if turned:
            self._scored(made, x, y, self._images(each), 1, positive)
        else:
            self._mixed(made, x, y, self._images(each), 1, False, positive)

    def _images(self, each: MatMul) -> int:
        """Matrices of all samples."""
        a, b = each.i
        if a.sides[:-1] != b.sides[:-1] or {a.name, b.name} & self.tables:
            raise ValueError(f"{each.o.name}: {a.shape} by {b.shape} has no command; both must be of each sample")
        count = self.samples * prod(a.sides[:-1])
        self._check_rows(each, [a.sides[-1], b.sides[-1]], count)
        if not each.turned:
            self._check_rows(each, [a.features], count)
        return count

    def _check_rows(self, each: Operation, rows: Sequence[int], count: int) -> None:
        for size in rows:
            if size > EDGE or (count > 1 and EDGE % size):
                raise ValueError(f"{each.o.name}: {size} rows of a sample must divide {EDGE}")

    def _check_heads(self, each: Attention) -> None:
        deep = each.o.features // each.heads
        if EDGE % deep and deep % EDGE:
            raise ValueError(f"{each.o.name}: {deep} features of a head must divide {EDGE}, or be a multiple of it")
        self._check_rows(each, [t.rows for t in each.i], self.samples)

    def _scored(
        self, made: DraftValue, x: DraftValue, y: DraftValue, count: int, heads: int, positive: bool = False
    ) -> None:
        """Products of rows with rows, of each of ``count`` images and each head."""
        deep = x.features // heads
        rows, keys = x.rows // count, y.rows // count
        one, other = self.tiler.read(x, NARROW), self.tiler.read(y, NARROW)
        for head in range(heads):
            begin = head * deep
            tiles = range(begin // EDGE, -(-(begin + deep) // EDGE))
            for i in range(made.high):
                terms = [
                    Term(
                        Block.of(one, [(i, tile) for tile in tiles]),
                        Block.of(other, [(n * keys // EDGE, tile) for tile in tiles]),
                        {
                            "tiles": len(tiles) - 1,
                            "k_from": begin % EDGE,
                            "k_to": (begin + deep - 1) % EDGE,
                            "x_row": n * rows % EDGE,
                            "o_row": n * rows % EDGE,
                            "rows": rows - 1,
                            "columns": keys - 1,
                            "w_column": n * keys % EDGE,
                            "w_turn": 1,
                        },
                    )
                    for n in _inside(i, rows, count)
                ]
                self.tiler.product(made, (i, 0, head), terms, apart=True, positive=positive)

    def _mixed(
        self,
        made: DraftValue,
        p: DraftValue,
        y: DraftValue,
        count: int,
        heads: int,
        turned: bool,
        positive: bool = False,
    ) -> None:
        """Products of matrices of heads with features of heads.

        ``turned``: of their columns, summed over their rows.
        """
        deep = y.features // heads
        queries, keys = p.rows // count, p.features
        inner, rows = (queries, keys) if turned else (keys, queries)
        matrices, other = self.tiler.read(p, NARROW), self.tiler.read(y, NARROW)
        for j in range(made.wide):
            columns = range(EDGE * j, EDGE * j + made.part(0, j)[1])
            for i in range(made.high):
                terms = []
                for n in _inside(i, rows, count):
                    for head in range(columns.start // deep, -(-columns.stop // deep)):
                        begin = max(head * deep, columns.start)
                        width = min((head + 1) * deep, columns.stop) - begin
                        more = {"rows": rows - 1, "columns": width - 1, "o_row": n * rows % EDGE}
                        more |= {"o_column": begin % EDGE, "w_column": begin % EDGE}
                        if turned:
                            # Rows of both are what is summed over.
                            start = n * queries % EDGE
                            more |= {"x_turn": 1, "k_from": start, "k_to": start + queries - 1}
                        else:
                            more |= {"x_row": n * queries % EDGE, "k_to": keys - 1, "w_row": n * keys % EDGE}
                        x = Block.of(matrices, [(n * queries // EDGE, 0, head)])
                        terms.append(Term(x, Block.of(other, [(n * inner // EDGE, j)]), more))
                self.tiler.product(made, (i, j), terms, apart=True, positive=positive)

    def _rearrange(self, each: Rearrange) -> None:
        (x,) = self.given(each)
        if each.is_label:
            self.found[each.o.name] = x
            return
        size = each.i[0].rows * each.i[0].features
        in_order = each.order == tuple(range(len(each.order)))
        is_turn = (each.i[0].features == each.o.rows == 1) or (each.i[0].rows == each.o.features == 1)
        if not in_order or not is_turn or (EDGE % size and size % EDGE):
            raise ValueError(
                f"{each.o.name}: values in another order have no command; rows and features must stay, or a column "
                f"becomes a row whose {size} values divide {EDGE} or are a multiple of it"
            )
        self._across(self.made(each), x, each.o.rows == 1)

    def _rearrange_back(self, each: Rearrange, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        if each.is_label:
            return [dy]
        made = self.part(each.i[0])
        self._across(made, dy, each.o.rows != 1)
        return [made]

    def _across(self, made: DraftValue, x: DraftValue, to_row: bool) -> None:
        """A column of each sample as a row, or a row as a column."""
        size, tiles = max(x.rows, x.features * x.rows) // self.samples, self.tiler.read(x, NARROW)
        many, wide = -(-size // EDGE), min(size, EDGE)
        for i in range(made.high):
            for j in range(made.wide):
                terms = []
                if to_row:
                    for n in range(EDGE * i, EDGE * i + made.part(i, j)[0]):
                        start = n * size % EDGE
                        given = {"rows": 0, "o_row": n % EDGE, "columns": wide - 1, "k_from": start}
                        given |= {"k_to": start + wide - 1, "w_row": -start % EDGE}
                        terms.append((n * size // EDGE + j, 0, self.same, given))
                else:
                    for n in range(self.samples):
                        if i not in range(n * size // EDGE, n * size // EDGE + many):
                            continue
                        row = n % EDGE
                        given = {"rows": wide - 1, "o_row": n * size % EDGE, "columns": 0, "k_from": row, "k_to": row}
                        terms.append((n // EDGE, i - n * size // EDGE, self.ones, given | {"w_row": -row % EDGE}))
                whole = [
                    Term(Block.of(tiles, [(row, column)]), Block.of(kept, [(0, 0)]), given | {"x_turn": 1})
                    for row, column, kept, given in terms
                ]
                self.tiler.product(made, (i, j), whole, apart=True)

    @property
    def same(self) -> Tiles:
        """A tile that changes nothing."""
        raise NotImplementedError

    @property
    def ones(self) -> Tiles:
        """A row of ones."""
        raise NotImplementedError


def _inside(i: int, rows: int, count: int) -> list[int]:
    """Of ``count`` images of ``rows`` rows, those that lie in row tile ``i``."""
    return [n for n in range(count) if n * rows // EDGE == i]
