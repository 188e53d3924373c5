"""Operations of one decoded token, with cached keys and values.

The cache is what a step's forward part leaves behind: its ``N.k`` and ``N.v``, a row a token. A new token's row is
written behind them, straight by the operations that make it, and then read with the others as rows of a tile. Beyond
the step's rows come further tensors of 64 rows each, ``N.k.1`` and so on.

All other tensors have one row and are called ``next.`` and the step's name; with the step's fraction bits they are the
row that a step over all tokens would have made.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from .base import Fracs, Operation
from .elements import Add, Gated, Rope, Softmax
from .instant import InstantStep
from .products import Product
from .scaling import Norm
from .tensors import EDGE, Angles, Tensor, TensorSlice, Words
from .transformer import StepOperations

__all__ = ["NEXT", "Decode"]

#: Before the name of a step's tensor: of its one row for the next token.
NEXT = "next."


@dataclass(frozen=True)
class Decode:
    """Operations of one token.

    Parameters
    ----------
    step : Step
        Made the cache, or could have; its layers, adapters and head are the token's.
    position : int
        Tokens before this one. Of a step of fewer than 64 tokens, less than those.
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

    def __post_init__(self) -> None:
        most = self.step.tokens - 1 if self.step.tokens < EDGE else self.step.model.context - 1
        if not 0 <= self.position <= most:
            raise ValueError(f"position={self.position}: must be 0 to {most}")

    # names

    @property
    def input(self) -> Tensor:
        """The token's embedding."""
        return self.tensor(self.step.input)

    @property
    def logits(self) -> Tensor:
        """Of the token behind this one, to base 2."""
        return Tensor(f"{NEXT}{self._after}.logits", 1, -(-self.step.model.vocab // EDGE) * EDGE)

    @property
    def output(self) -> Tensor:
        """Output of the last layer."""
        return Tensor(f"{NEXT}{self._after}.x", 1, self.step.model.hidden, wide=self.step.wide)

    @property
    def _after(self) -> int:
        return self.step.layers[-1] + 1

    @staticmethod
    def tensor(held: Tensor) -> Tensor:
        """The row of a step's tensor."""
        return Tensor(NEXT + held.name, 1, held.features, held.wide)

    def angles(self, which: str, layer: int) -> Angles:
        """``q`` and ``k``, of the position."""
        held = self.step.angles(which, layer)
        return replace(held, name=NEXT + held.name, rows=1)

    def cache(self, layer: int, which: str) -> list[Tensor]:
        """Keys or values of a layer, ``k`` or ``v``."""
        features, rows = self.step.model.kv, self.step.tokens
        first = self.step.tensor(layer, which, features)
        more = range(1, -(-(self.position + 1) // rows))
        return [first, *(Tensor(f"{first.name}.{number}", EDGE, features) for number in more)]

    def own(self, cache: Tensor) -> Tensor:
        """The tensor that takes the token's row of a cache."""
        return Tensor(NEXT + cache.name, cache.rows, cache.features) if self.whole else cache

    def fracs(self, frac: Fracs) -> dict[str, int]:
        """The step's fraction bits, and all others from them."""
        made = dict(frac)
        for operation in self.operations:
            for part in (*operation.results, self.input.all()):
                name = part.name
                if name not in made:
                    # Of a row that of the step, of a further tensor of a cache that of its first.
                    held = name.removeprefix(NEXT)
                    made[name] = frac[held if held in frac else held.rpartition(".")[0]]
        return made

    # operations

    @cached_property
    def operations(self) -> list[Operation]:
        """Operations from the embedding to the logits or the last layer."""
        made = [operation for layer in self.step.layers for operation in self._layer(layer)]
        if self.step.head:
            normed = Tensor(f"{NEXT}{self._after}.normed", 1, self.step.model.hidden)
            added, output = ([], self.output) if self.instant is None else self.instant.added(self.tensor)
            made += [
                *added,
                Norm(output.all(), "norm", normed.all(), self.step.model.norm_eps),
                *self.step.head_products(normed, self.logits, coded=self.coded),
            ]
        return made

    def _layer(self, layer: int) -> list[Operation]:
        step, model = self.step, self.step.model
        row = self.position % step.tokens
        keys, values = self.cache(layer, "k"), self.cache(layer, "v")
        sizes: Mapping[str, int] = {
            "x": model.hidden,
            "raw_q": model.attention,
            "q": model.attention,
            "raw_k": model.kv,
            "scores": model.heads * EDGE * len(keys),
            "p": model.heads * EDGE * len(keys),
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

        def through(projection: str, x: Tensor, y: TensorSlice) -> list[Operation]:
            return step.through(layer, projection, x.all(), y, next_of=self.tensor)

        def rows(cache: list[Tensor], group: int) -> list[list[TensorSlice]]:
            """A head's rows up to the token's own, by tensor and tile."""
            heights = [EDGE] * (len(cache) - 1) + [cache[-1].rows if self.whole else row + 1]
            first = group * step.span
            return [
                [each.some(0, height, tile) for tile in range(first, first + step.span)]
                for each, height in zip(cache, heights, strict=True)
            ]

        made: list[Operation] = [
            *step.norms.placed(layer, "norm1", t["x"]),
            *through("k_proj", attended, t["raw_k"].all()),
            *step.norms.normed(layer, "k_proj", t["raw_k"]),
            *(
                Rope(
                    step.of_head(step.norms.plain(t["raw_k"]), group),
                    self.angles("k", layer),
                    self.own(keys[-1]).some(row, 1, group * step.span, step.span),
                )
                for group in range(model.kv_heads)
            ),
            *through("q_proj", attended, t["raw_q"].all()),
            *step.norms.normed(layer, "q_proj", t["raw_q"]),
            Rope(step.norms.plain(t["raw_q"]).all(), self.angles("q", layer), t["q"].all()),
        ]
        # Heads that share keys and values, which are read once for all of them, where each has one tile of all.
        once = step.span == len(keys) == 1
        shared = [heads for _, heads in step.groups()] if once else [[head] for head in range(model.heads)]

        def of(name: str, heads: list[int], tiles: int) -> TensorSlice:
            return t[name].stacked(heads[0], len(heads)) if once else t[name].part(heads[0] * tiles, tiles)

        for heads in shared:
            words = Words(tuple(tile for each in rows(keys, step.group(heads[0])) for tile in each))
            made.append(Product(of("q", heads, step.span), words, of("scores", heads, len(keys)), lift=step.lift))
            for head in heads:
                scores, p = (t[name].part(head * len(keys), len(keys)) for name in ("scores", "p"))
                made.append(Softmax(scores, p, limit=self.position))
        made += through("v_proj", attended, self.own(values[-1]).some(row, 1, 0, values[-1].tiles))
        for heads in shared:
            words = Words(tuple(tile for each in zip(*rows(values, step.group(heads[0]))) for tile in each))
            p, context = of("p", heads, len(keys)), of("context", heads, step.span)
            made.append(Product(p, words, context, backward=True))
        return made + [
            *through("o_proj", t["context"], t["o"].all()),
            *step.norms.placed(layer, "norm3", t["o"]),
            Add(t["x"].all(), step.norms.behind(t["o"], "norm3").all(), t["middle"].all()),
            *step.norms.placed(layer, "norm2", t["middle"]),
            *through("gate_proj", fed, t["gate"].all()),
            *through("up_proj", fed, t["up"].all()),
            Gated(t["gate"].all(), t["up"].all(), t["act"].all(), model.gate),
            *through("down_proj", t["act"], t["down"].all()),
            *step.norms.placed(layer, "norm4", t["down"]),
            Add(t["middle"].all(), step.norms.behind(t["down"], "norm4").all(), after.all()),
        ]
