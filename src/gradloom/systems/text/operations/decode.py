"""Operations of decoded tokens, with cached keys and values.

The cache is what a step's forward part leaves behind: its ``N.k`` and ``N.v``, a row a token. A new token's row is
written behind them, straight by the operations that make it, and then read with the others as rows of a tile. Beyond
the step's rows come further tensors of 64 rows each, ``N.k.1`` and so on.

All other tensors have a row a new token and are called ``next.`` and the step's name (``next8.`` of eight); with the
step's fraction bits they are the rows that a step over all tokens would have made. Where a head has several tiles of
queries, scores or results, those of the same number of all heads are neighbours: so heads that share keys and values
are rows of the same tiles, and the array reads keys and values once for them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from .base import Fracs, Operation
from .blocks.head import head_products
from .elements import Add, Gated, Rope, Softmax
from .instant import InstantStep
from .products import Product
from .scaling import Norm
from .tensors import EDGE, Angles, Tensor, TensorSlice, Words
from .transformer import StepOperations

__all__ = ["Decode"]


@dataclass(frozen=True)
class Decode:
    """Operations of one token, or of ``count`` that follow each other.

    Parameters
    ----------
    step : Step
        Made the cache, or could have; its layers, adapters and head are the token's.
    position : int
        Tokens before this one. Of a step of fewer than 64 tokens, less than those.
    count : int
        Tokens, whose rows are in one tile of the cache.
    whole : bool
        Products read all rows of the cache. Those behind the position count for nothing, so all positions of a tile of
        64 have the same commands. The token's own rows are in tensors of their own, :meth:`own`, whose place must be
        its row of the cache.
    instant : InstantStep, optional
        Adapters from blocks to the head.
    coded : bool
        The head is in codes, as the linears are.
    """

    step: StepOperations
    position: int
    whole: bool = False
    instant: InstantStep | None = None
    coded: bool = False
    count: int = 1

    def __post_init__(self) -> None:
        rows, room = self.step.tokens, self.room(self.step, self.position)
        if not 0 <= self.position or room < 1:
            most = (rows if rows < EDGE else self.step.model.context) - 1
            raise ValueError(f"position={self.position}: must be 0 to {most}")
        if not 1 <= self.count <= room:
            raise ValueError(f"count={self.count}: must be 1 to {room} at position {self.position}")

    @staticmethod
    def room(step: StepOperations, position: int) -> int:
        """Tokens from a position on, to the end of its tile of the cache or of the model's context."""
        rows = step.tokens
        return min(rows - position % rows, (rows if rows < EDGE else step.model.context) - position)

    # names

    @property
    def input(self) -> Tensor:
        """The token's embedding."""
        return self.tensor(self.step.input)

    @property
    def logits(self) -> Tensor:
        """Of the token behind this one, to base 2."""
        return self.tensor(self.step.tensor(self._after, "logits", -(-self.step.model.vocab // EDGE) * EDGE))

    @property
    def output(self) -> Tensor:
        """Output of the last layer."""
        return self.tensor(self.step.output)

    @property
    def _after(self) -> int:
        return self.step.layers[-1] + 1

    @property
    def _next(self) -> str:
        """Before the name of a step's tensor: of its rows for the new tokens."""
        return "next." if self.count == 1 else f"next{self.count}."

    def tensor(self, held: Tensor) -> Tensor:
        """The new rows of a step's tensor."""
        return Tensor(self._next + held.name, self.count, held.features, held.wide)

    def angles(self, which: str, layer: int) -> Angles:
        """``q`` and ``k``, of the positions."""
        held = self.step.angles(which, layer)
        return replace(held, name=self._next + held.name, rows=self.count)

    def cache(self, layer: int, which: str) -> list[Tensor]:
        """Keys or values of a layer, ``k`` or ``v``."""
        features, rows = self.step.model.kv, self.step.tokens
        first = self.step.tensor(layer, which, features)
        more = range(1, self.position // rows + 1)
        return [first, *(Tensor(f"{first.name}.{number}", EDGE, features) for number in more)]

    def own(self, cache: Tensor) -> Tensor:
        """The tensor that takes the tokens' rows of a cache."""
        return Tensor(self._next + cache.name, cache.rows, cache.features) if self.whole else cache

    def fracs(self, frac: Fracs) -> dict[str, int]:
        """The step's fraction bits, and all others from them."""
        made = dict(frac)
        for operation in self.operations:
            read = (
                operation.weight.tiles if isinstance(operation, Product) and isinstance(operation.weight, Words) else ()
            )
            for part in (*operation.results, *read, self.input.all()):
                name = part.name
                if name not in made:
                    # Of a row that of the step, of a further tensor of a cache that of its first.
                    held = name.removeprefix(self._next)
                    made[name] = frac[held if held in frac else held.rpartition(".")[0]]
        return made

    # operations

    @cached_property
    def operations(self) -> list[Operation]:
        """Operations from the embedding to the logits or the last layer."""
        made = [operation for layer in self.step.layers for operation in self._layer(layer)]
        if self.step.head:
            normed = self.tensor(self.step.tensor(self._after, "normed", self.step.model.hidden))
            added, output = ([], self.output) if self.instant is None else self.instant.added(self.tensor)
            made += [
                *added,
                Norm(output.all(), "norm", normed.all(), self.step.model.norm_eps),
                *head_products(normed.all(), self.logits, coded=self.coded),
            ]
        return made

    def _layer(self, layer: int) -> list[Operation]:
        step, model, count = self.step, self.step.model, self.count
        row, heads = self.position % step.tokens, model.heads
        keys, values = self.cache(layer, "k"), self.cache(layer, "v")
        sizes: Mapping[str, int] = {
            "x": model.hidden,
            "raw_q": model.attention,
            "q": model.attention,
            "raw_k": model.kv,
            "scores": heads * EDGE * len(keys),
            "p": heads * EDGE * len(keys),
            "context": model.attention,
            "o": model.hidden,
            "middle": model.hidden,
            "gate": model.inter,
            "up": model.inter,
            "act": model.inter,
            "down": model.hidden,
        }
        t = {
            name: self.tensor(step.tensor(layer, name, size, wide=step.wide and name in ("x", "middle")))
            for name, size in sizes.items()
        }
        after = self.tensor(step.tensor(layer + 1, "x", model.hidden, wide=step.wide))

        attended, fed = step.norms.behind(t["x"], "norm1"), step.norms.behind(t["middle"], "norm2")

        def through(projection: str, x: TensorSlice, y: TensorSlice) -> list[Operation]:
            return step.through(layer, projection, x, y, next_of=self.tensor)

        def rows(cache: list[Tensor], group: int) -> list[list[TensorSlice]]:
            """A head's rows up to the tokens' own, by tensor and tile."""
            heights = [EDGE] * (len(cache) - 1) + [cache[-1].rows if self.whole else row + count]
            first = group * step.span
            return [
                [each.some(0, height, tile) for tile in range(first, first + step.span)]
                for each, height in zip(cache, heights, strict=True)
            ]

        def stacked(name: str, members: Sequence[int], tiles: int) -> TensorSlice:
            """Tiles of heads that share keys and values as rows of the same tiles."""
            return t[name].at([number * heads + members[0] for number in range(tiles)], len(members))

        #: Tiles of queries and results, head by head.
        by_head = [number * heads + head for head in range(heads) for number in range(step.span)]
        made: list[Operation] = [
            *step.norms.placed(layer, "norm1", t["x"]),
            *through("k_proj", attended.all(), t["raw_k"].all()),
            *step.norms.normed(layer, "k_proj", t["raw_k"]),
            Rope(
                step.norms.plain(t["raw_k"]).all(),
                self.angles("k", layer),
                self.own(keys[-1]).some(row, count, 0, keys[-1].tiles),
            ),
            *through("q_proj", attended.all(), t["raw_q"].all()),
            *step.norms.normed(layer, "q_proj", t["raw_q"]),
            Rope(step.norms.plain(t["raw_q"]).all(), self.angles("q", layer), t["q"].at(by_head)),
        ]
        for group, members in step.groups():
            words = Words(tuple(tile for each in rows(keys, group) for tile in each))
            q, scores = stacked("q", members, step.span), stacked("scores", members, len(keys))
            made.append(Product(q, words, scores, lift=step.lift))
            for head in members:
                places = range(head, heads * len(keys), heads)
                made.append(Softmax(t["scores"].at(places), t["p"].at(places), limit=self.position))
        made += through("v_proj", attended.all(), self.own(values[-1]).some(row, count, 0, values[-1].tiles))
        for group, members in step.groups():
            words = Words(tuple(tile for each in zip(*rows(values, group)) for tile in each))
            p, context = stacked("p", members, len(keys)), stacked("context", members, step.span)
            made.append(Product(p, words, context, backward=True))
        return made + [
            *through("o_proj", t["context"].at(by_head), t["o"].all()),
            *step.norms.placed(layer, "norm3", t["o"]),
            Add(t["x"].all(), step.norms.behind(t["o"], "norm3").all(), t["middle"].all()),
            *step.norms.placed(layer, "norm2", t["middle"]),
            *through("gate_proj", fed.all(), t["gate"].all()),
            *through("up_proj", fed.all(), t["up"].all()),
            Gated(t["gate"].all(), t["up"].all(), t["act"].all(), model.gate),
            *through("down_proj", t["act"].all(), t["down"].all()),
            *step.norms.placed(layer, "norm4", t["down"]),
            Add(t["middle"].all(), step.norms.behind(t["down"], "norm4").all(), after.all()),
        ]
