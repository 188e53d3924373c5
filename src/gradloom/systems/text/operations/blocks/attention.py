"""Operations of attention, by blocks of queries and of keys.

A text is in blocks of 64 tokens. Queries of a block see the keys of the blocks up to theirs: the scores of a head are a
tile a block of keys, and one softmax takes them all. Keys and values of all blocks have one tensor, and with it one
exponent, so a product reads several blocks of them. On the way back keys of a block have products that sum over the
blocks of queries from theirs on.
"""

from dataclasses import dataclass
from functools import lru_cache

from gradloom.models.language import LanguageModel

from ..base import Operation
from ..elements import Softmax, SoftmaxBackward
from ..products import Product
from ..tensors import EDGE, Tensor, TensorSlice, Words
from .rows import TextBlock, blocks

__all__ = ["IDENTITY", "BlockAttention"]

#: Rows of the identity: a product with it turns a tile.
IDENTITY = "identity"


@dataclass(frozen=True)
class BlockAttention:
    """That of a layer.

    Parameters
    ----------
    model : LanguageModel
    layer, tokens : int
    lift : int
        The power of two that scores are multiplied by.
    """

    model: LanguageModel
    layer: int
    tokens: int
    lift: int

    @property
    def span(self) -> int:
        """Tiles of a head."""
        return self.model.head_dim // EDGE

    def group(self, head: int) -> int:
        """The head of keys and values that a head of queries reads."""
        return head * self.model.kv_heads // self.model.heads

    def groups(self) -> list[tuple[int, list[int]]]:
        """Heads of keys and values, each with the heads of queries that read them, which are neighbours."""
        return [
            (group, [head for head in range(self.model.heads) if self.group(head) == group])
            for group in range(self.model.kv_heads)
        ]

    # tensors

    def _of_head(self, tensor: Tensor, head: int, block: TextBlock) -> TensorSlice:
        """A block's rows of a head of queries, keys, values or results."""
        return block.of(tensor.part(head * self.span, self.span))

    def _pairs(self, name: str, block: TextBlock) -> Tensor:
        """A row a query of a block; a head's tiles are neighbours, a tile a block of keys."""
        features = (block.number + 1) * self.model.heads * EDGE
        return Tensor(f"{self.layer}.{block.named(name)}", block.rows, features)

    def _pair(self, name: str, block: TextBlock, head: int) -> TensorSlice:
        return self._pairs(name, block).part(head * (block.number + 1), block.number + 1)

    def _graded(self, block: TextBlock, head: int) -> TensorSlice:
        """Gradients of scores: all blocks have one tensor, since a product reads several of them."""
        heads, pairs = self.model.heads, block.count * (block.count + 1) // 2
        first = heads * block.number * (block.number + 1) // 2 + head * (block.number + 1)
        held = Tensor(f"{self.layer}.ds", min(self.tokens, EDGE), heads * pairs * EDGE)
        return block.of(held.part(first, block.number + 1), start=0)

    def _pairs_of(self, name: str, block: TextBlock, head: int) -> TensorSlice:
        """Probabilities, or gradients of scores."""
        return self._graded(block, head) if name == "ds" else self._pair(name, block, head)

    def _seen(self, tensor: Tensor, head: int, block: TextBlock, *, by_key: bool = False) -> Words:
        """Keys or values that a block sees: the blocks of each tile, or the tiles of each block."""
        return _seen(tensor.part(self.group(head) * self.span, self.span), block, by_key)

    # operations

    def scored(self, block: TextBlock, q: Tensor, k: Tensor) -> list[Operation]:
        """Probabilities from queries and keys."""
        made: list[Operation] = []
        for head in range(self.model.heads):
            scores, p = (self._pair(name, block, head) for name in ("scores", "p"))
            seen = self._seen(k, head, block, by_key=True)
            made.append(Product(self._of_head(q, head, block), seen, scores, lift=self.lift))
            made.append(Softmax(scores, p, limit=block.first))
        return made

    def mixed(self, block: TextBlock, v: Tensor, context: Tensor) -> list[Operation]:
        """Values by their probabilities."""
        return [
            Product(
                self._pair("p", block, head),
                self._seen(v, head, block),
                self._of_head(context, head, block),
                backward=True,
            )
            for head in range(self.model.heads)
        ]

    def scored_back(self, block: TextBlock, context: Tensor, dcontext: Tensor, v: Tensor) -> list[Operation]:
        """Gradients of scores."""
        made: list[Operation] = []
        for head in range(self.model.heads):
            p, dp = (self._pair(name, block, head) for name in ("p", "dp"))
            dy = self._of_head(dcontext, head, block)
            made.append(Product(dy, self._seen(v, head, block, by_key=True), dp))
            # A row's sum of p times dp is that of its result times the result's gradient, which may have fewer tiles.
            mixed = (self._of_head(context, head, block), dy) if p.count > self.span else (None, None)
            made.append(SoftmaxBackward(p, dp, self._graded(block, head), *mixed))
        return made

    def gathered(self, block: TextBlock, pairs: str, against: Tensor, result: Tensor, lift: int = 0) -> list[Operation]:
        """Sums over the queries that see a block's keys: of ``pairs``, ``p`` or ``ds``, times rows of ``against``.

        The left factor of the product is turned first: the pairs, or where these have more tiles what they multiply,
        and then the result.
        """
        every, count = self.model.heads, block.count
        if (every + self.model.kv_heads) * self.span * count < every * count * (count + 1) // 2:
            return self._turned_sums(block, pairs, against, result, lift)
        made: list[Operation] = []
        turned, later = self._turned(pairs, block), blocks(self.tokens)[block.number :]
        identity = block.of(Tensor(IDENTITY, min(self.tokens, EDGE), EDGE).all(), start=0)
        for _, heads in self.groups():
            for number, each in enumerate(later):
                tiles = Words(tuple(self._pairs_of(pairs, each, head).part(block.number, 1) for head in heads))
                place = heads[0] * len(later) + number * len(heads)
                made.append(Product(identity, tiles, turned.part(place, len(heads))))
        for group, heads in self.groups():
            rows = [
                each.of(against.part(head * self.span + number))
                for number in range(self.span)
                for each in later
                for head in heads
            ]
            part = turned.part(heads[0] * len(later), len(later) * len(heads))
            y = self._of_head(result, group, block)
            made.append(Product(part, Words(tuple(rows)), y, backward=True, lift=lift))
        return made

    def _turned_sums(self, block: TextBlock, pairs: str, against: Tensor, result: Tensor, lift: int) -> list[Operation]:
        heads, span, later = self.model.heads, self.span, blocks(self.tokens)[block.number :]
        identity, own = Tensor(IDENTITY, EDGE, EDGE).all(), against.name.rpartition(".")[2]
        turned = Tensor(f"{self.layer}.turned_{own}", EDGE, block.count * against.features)
        sums = Tensor(f"{self.layer}.{block.named(f'turned_{pairs}')}", EDGE, result.features)
        tiles = Words(tuple(block.of(against.part(tile)) for tile in range(against.tiles)))
        made: list[Operation] = [Product(identity, tiles, turned.part(block.number * against.tiles, against.tiles))]
        for group, members in self.groups():
            seen = Words(
                tuple(self._pairs_of(pairs, each, head).part(block.number, 1) for each in later for head in members)
            )
            for number in range(span):
                places = [(each.number * heads + head) * span + number for each in later for head in members]
                y = sums.part(group * span + number)
                made.append(Product(turned.at(places), seen, y, backward=True, lift=lift))
        back = Words(tuple(sums.part(tile) for tile in range(sums.tiles)))
        return [*made, Product(block.of(identity, start=0), back, block.of(result.all()))]

    def keyed(self, block: TextBlock, k: Tensor, dq: Tensor) -> list[Operation]:
        """Gradients of queries."""
        return [
            Product(
                self._graded(block, head),
                self._seen(k, head, block),
                self._of_head(dq, head, block),
                backward=True,
                lift=self.lift,
            )
            for head in range(self.model.heads)
        ]

    def _turned(self, pairs: str, block: TextBlock) -> Tensor:
        """A row a key of a block, a tile a head and a block of queries that see it."""
        features = (block.count - block.number) * self.model.heads * EDGE
        return Tensor(f"{self.layer}.{block.named(f'turned_{pairs}')}", block.rows, features)


@lru_cache(maxsize=4)
def _seen(heads: TensorSlice, block: TextBlock, by_key: bool) -> Words:
    """Rows up to a block's of a head of keys or values, which several heads of queries read one after the other."""
    parts = blocks(heads.rows)[: block.number + 1]
    tiles = [[each.of(heads.part(number, 1)) for each in parts] for number in range(heads.count)]
    return Words(tuple(each for row in (zip(*tiles) if by_key else tiles) for each in row))
