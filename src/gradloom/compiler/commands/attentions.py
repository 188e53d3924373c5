"""Products within samples: attention, its gradients, and columns that become rows."""

from collections.abc import Sequence
from math import prod

from gradloom.graph.operations import Attention, MatMul
from gradloom.program.tiles.drafts import DraftValue
from gradloom.program.tiles.layout import Tiles
from gradloom.rtl.formats.tiles.codes import NARROW

from .images import Image, mixed, scored, split, terms
from .softmaxes import Softmaxes

__all__ = ["Attentions"]


class Attentions(Softmaxes):
    """Writes products within samples; probabilities of attention stay for its gradients."""

    def _attention(self, each: Attention) -> None:
        if len(each.i) > 3:
            raise ValueError(f"{each.o.name}: a tensor that is added to the scores has no command")
        q, k, v = self.given(each)
        first = len(self.tiler.drafts)
        scores = self._matrices(each, "scores", q, k)
        self.within(scores, self._heads(each, q, k, True), q, k, w_turn=True)
        p = self.found[f"{each.o.name}.probabilities"] = self._matrices(each, "probabilities", q, k)
        self.soft(p, scores, each.scale)
        self.within(self.made(each), self._heads(each, q, v), p, v)
        self.tiler.by_rows(first)

    def _attention_back(self, each: Attention, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        q, k, v = self.given(each)
        p = self.found[f"{each.o.name}.probabilities"]
        ds, first = None, len(self.tiler.drafts)
        if wanted[0] or wanted[1]:
            dp = self._matrices(each, "dp", q, k)
            self.within(dp, self._heads(each, dy, v, True), dy, v, w_turn=True)
            ds = self._matrices(each, "ds", q, k)
            self.soft_back(ds, p, dp, each.scale, (self.found[each.o.name], dy))
        found: list[DraftValue | None] = []
        for t, matrices, other, turned, want in zip(each.i, (ds, ds, p), (k, q, dy), (False, True, True), wanted):
            found.append(self.part(t) if want and matrices is not None else None)
            if found[-1] is not None and matrices is not None:
                count, shape = self.samples, (q.rows // self.samples, matrices.features, other.features)
                images = mixed(count, each.heads, *shape, turned=turned)
                self.within(found[-1], images, matrices, other, x_turn=turned)
            if not turned:
                self.tiler.by_rows(first)
        return found

    def _heads(self, each: Attention, q: DraftValue, k: DraftValue, of_rows: bool = False) -> list[Image]:
        """Products of rows with rows, or of matrices with rows, of every head."""
        shape = (q.rows // self.samples, k.rows // self.samples, k.features)
        return (scored if of_rows else mixed)(self.samples, each.heads, *shape)

    def _matrices(self, each: Attention, name: str, q: DraftValue, k: DraftValue) -> DraftValue:
        return self.tiler.value(f"{each.o.name}.{name}", q.rows, k.rows // self.samples, each.heads)

    def _matmul(self, each: MatMul) -> None:
        a, b = self.given(each)
        images = self._images(each, a, b)
        self.within(self.made(each), images, a, b, w_turn=each.turned, positive=each.positive)

    def _matmul_back(self, each: MatMul, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        (a, b), made = self.given(each), [self.part(t) if want else None for t, want in zip(each.i, wanted)]
        count, rows = matmul(each, self.samples)
        if made[0] is not None:
            if each.turned:
                images = mixed(count, 1, rows, dy.features, b.features)
            else:
                images = scored(count, 1, rows, b.rows // count, dy.features)
            self.within(made[0], images, dy, b, w_turn=not each.turned)
        if made[1] is not None:
            one, other = (dy, a) if each.turned else (a, dy)
            is_table = each.i[0].name in self.tables
            images = mixed(count, 1, rows, one.features, other.features, turned=True, is_table=is_table)
            self.within(made[1], images, one, other, x_turn=True)
        return made

    def _images(self, each: MatMul, a: DraftValue, b: DraftValue) -> list[Image]:
        first, second = each.i
        is_table = first.name in self.tables
        if second.name in self.tables or (is_table and each.turned):
            raise ValueError(f"{each.o.name}: a table behind, or rows of a table, have no product; take a linear layer")
        if not is_table and first.sides[:-1] != second.sides[:-1]:
            what = f"{first.shape} by {second.shape}"
            raise ValueError(f"{each.o.name}: {what} has no command; both must be of one batch")
        count, rows = matmul(each, self.samples)
        if each.turned:
            return scored(count, 1, rows, b.rows // count, a.features)
        return mixed(count, 1, rows, a.features, b.features, is_table=is_table)

    def within(
        self,
        made: DraftValue,
        images: Sequence[Image],
        x: DraftValue,
        w: DraftValue | Tiles,
        *,
        positive: bool = False,
        **turned: bool,
    ) -> None:
        """Products of images, tile by tile of what they make."""
        sums = split(images)

        def some(own: DraftValue, part: slice) -> None:
            one, other = self.tiler.read(x, NARROW), w if isinstance(w, Tiles) else self.tiler.read(w, NARROW)
            for (j, i, number), found in terms(sums[part.start], one, other, **turned).items():
                self.tiler.product(own, (i, j, number), found, apart=True, positive=positive and len(sums) == 1)

        self.added(made, [slice(n, n + 1) for n in range(len(sums))], some, **({"positive": 1} if positive else {}))


def matmul(each: MatMul, samples: int) -> tuple[int, int]:
    """Matrices of all samples, and rows of each of the first tensor."""
    return samples * prod(each.i[1].sides[:-1]), each.i[0].sides[-1]
