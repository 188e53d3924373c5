"""Operations of InstantFT of a language model: fill and step.

With ``u_k`` what block k's attention reads (the result of its first norm), and ``x`` what leaves the last block::

    z = x + Σ_k B_k · A_k · u_k

and ``z`` goes through the last norm and the head. No block sees an adapter, so a text's ``u_k`` and ``x`` never change:
:meth:`InstantStep.fill` makes them once, and they stay in memory, the *forward cache*. :meth:`InstantStep.operations`
makes a step from them, without a weight of any block: every adapter learns from the gradient of z, which the head
makes.

An adapter here stands beside no frozen linear. Its words are tensors like activations, and all its products dense tiles
(``docs/explanation/language-machine.md`` says why that is cheaper than the lanes beside a linear). A's are ``[rank,
hidden]`` a block, in the order of blocks. Several blocks share the tiles of B: as many as have their ranks in a tile's
rows are a *group*, so that ``B_k h_k`` of all blocks are one product, summed in the array.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gradloom.models.adapters.lora import Adapter
from gradloom.models.filled import cut, fill
from gradloom.models.language import LanguageModel
from gradloom.program.descent import AdamW
from gradloom.rtl.machines.configs.language import LanguageConfig

from .base import Operation
from .elements import Add
from .learnt.updates import Descent
from .products import Product
from .tensors import EDGE, Tensor, TensorSlice, Words
from .transformer import StepOperations

__all__ = ["A", "B", "InstantStep"]

#: Names of all blocks' adapter words; their gradients and moments: :class:`~.operations.Descent`.
A, B = "instant.a", "instant.b"


@dataclass(frozen=True)
class InstantStep:
    """Operations on a text of ``tokens`` tokens.

    Parameters
    ----------
    model : LanguageModel
        See :class:`~.transformer.StepOperations`.
    tokens : int
    rank : int
        Of every block's adapter, 1 to ``rows``.
    layers : sequence of int
        Which blocks, one behind the other.
    rows : int
        Rows of a tensor at most: the machine's tokens, at most :data:`~.operations.EDGE` count.
    head_part : int
        See :class:`~.transformer.StepOperations`.
    """

    model: LanguageModel
    tokens: int
    rank: int
    layers: Sequence[int]
    rows: int = EDGE
    head_part: int = 16

    def __post_init__(self) -> None:
        if not 1 <= self.rank <= min(self.rows, EDGE):
            raise ValueError(f"rank={self.rank}: must be from 1 to {min(self.rows, EDGE)}")
        if "norm1" not in self.model.layer_norms.values():
            raise ValueError(
                f"model={self.model.name}: InstantFT learns of norms in front of attention, which it has not; use qlora"
            )

    def check(self, config: LanguageConfig) -> None:
        """Refuses a step that a machine cannot run; linears are not checked."""
        self.base.check(config)

    @cached_property
    def base(self) -> StepOperations:
        """The model without adapters."""
        return StepOperations(self.model, self.tokens, {}, self.layers, head_part=self.head_part)

    # names

    @property
    def members(self) -> int:
        """Blocks of a group."""
        return min(len(self.layers), min(self.rows, EDGE) // self.rank)

    @property
    def groups(self) -> int:
        return -(-len(self.layers) // self.members)

    @property
    def inputs(self) -> list[Tensor]:
        """``u_k`` of every block."""
        return [self.base.tensor(layer, "attended", self.model.hidden) for layer in self.layers]

    @property
    def cached(self) -> list[Tensor]:
        """Tensors that are kept of a text."""
        return [*self.inputs, self.base.output]

    @property
    def cache_bytes(self) -> int:
        """Of a text."""
        return sum(4 * each.rows * each.features for each in self.cached)

    def _tensor(self, name: str, features: int, *, rows: int | None = None, wide: bool = False) -> Tensor:
        return Tensor(f"instant.{name}", self.tokens if rows is None else rows, features, wide)

    @property
    def _packed(self) -> Tensor:
        """Ranks of all blocks, a group a tile."""
        return self._tensor("packed", self.groups * EDGE)

    @property
    def a(self) -> Tensor:
        return Tensor(A, self.rank, len(self.layers) * self.model.hidden)

    @property
    def b(self) -> Tensor:
        """B of all members, transposed.

        Row ``member * rank + r``, column ``group * hidden + output``. Rows without a block are 0.
        """
        return Tensor(B, self.members * self.rank, self.groups * self.model.hidden)

    @property
    def spread(self) -> Tensor:
        """Ones of a tile a member, for the ranks of a group.

        A product with them moves a member's ranks to their place among a group's, and back.
        """
        return Tensor("instant.spread", self.rank, self.members * EDGE)

    @property
    def identity(self) -> Tensor:
        """Identity that transposes a group's tile in a product."""
        return Tensor("instant.identity", self.members * self.rank, EDGE)

    def constants(self) -> dict[Tensor, np.ndarray]:
        """Values of both."""
        spread = np.zeros((self.rank, self.members, EDGE))
        for member in range(self.members):
            spread[:, member, member * self.rank : (member + 1) * self.rank] = np.eye(self.rank)
        return {self.spread: spread.reshape(self.rank, -1), self.identity: np.eye(self.members * self.rank, EDGE)}

    # adapters

    def stacked(self, adapters: Mapping[int, Adapter]) -> dict[Tensor, np.ndarray]:
        """Values of ``a`` and ``b`` from adapters by block.

        ``b`` includes the adapters' scale.
        """
        model, used = self.model, [adapters[layer] for layer in self.layers]
        hidden = model.hidden
        a = np.concatenate([fill(model, np.asarray(each.a, np.float64), None, "hidden") for each in used], axis=1)
        b = np.zeros((self.groups, self.members, self.rank, hidden))
        for place, each in enumerate(used):
            b[divmod(place, self.members)] = fill(model, np.asarray(each.b, np.float64).T, None, "hidden") * each.scale
        return {self.a: a, self.b: b.reshape(self.groups, -1, hidden).swapaxes(0, 1).reshape(-1, self.groups * hidden)}

    def split(self, a: np.ndarray, b: np.ndarray) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """``(A [rank, hidden], B [hidden, rank])`` by block.

        ``a`` and ``b`` are arrays as :meth:`stacked` makes them; the scale is in B.
        """
        model, hidden = self.model, self.model.hidden
        by_block = b.reshape(-1, self.groups, hidden).swapaxes(0, 1).reshape(-1, self.rank, hidden)
        return {
            layer: (
                cut(model, a[:, place * hidden : (place + 1) * hidden], None, "hidden"),
                cut(model, by_block[place].T, "hidden", None),
            )
            for place, layer in enumerate(self.layers)
        }

    # operations

    def fill(self) -> list[Operation]:
        """All blocks forward."""
        return [each for layer in self.layers for each in self.base.forward(layer)]

    def added(self, of: Callable[[Tensor], Tensor] = lambda held: held) -> tuple[list[Operation], Tensor]:
        """Operations from ``u_k`` and ``x`` to ``z``, and ``z``.

        ``of``: the tensor that has the place of one of a text.
        """
        width, count, groups = self.model.hidden // EDGE, len(self.layers), self.groups
        h, packed = of(self._tensor("h", count * EDGE)), of(self._packed)
        delta, z = of(self._tensor("delta", self.model.hidden)), of(self._tensor("z", self.model.hidden, wide=True))
        made: list[Operation] = [
            Product(of(u).all(), Words(_tiles(self.a, place * width, width)), h.part(place))
            for place, u in enumerate(self.inputs)
        ]
        for group in range(groups):
            first = group * self.members
            size = min(self.members, count - first)
            spread = Words(_tiles(self.spread, 0, size))
            made.append(Product(h.part(first, size), spread, packed.part(group), backward=True))
        by_column = [self.b.part(group * width + column) for column in range(width) for group in range(groups)]
        made += [
            Product(packed.all(), Words(tuple(by_column)), delta.all(), backward=True),
            Add(of(self.base.output).all(), delta.all(), z.all()),
        ]
        return made, z

    def operations(self, rules: tuple[float | AdamW, float | AdamW] | None = None, number: int = 1) -> list[Operation]:
        """Operations from the forward cache to loss and gradients.

        With ``rules`` of A and B, also to update ``number``.
        """
        width, count, groups = self.model.hidden // EDGE, len(self.layers), self.groups
        a, b, spread = self.a, self.b, self.spread
        t, packed, dz = self._tensor, self._packed, self.base.gradient
        dh = t("dh", groups * EDGE)
        made, z = self.added()
        made += self.base.logits(z)

        # Every tile of B is read before the first gradient, so before B's update: see Descent.
        turned = t("turned", groups * EDGE, rows=b.rows)
        turned_dh = t("turned_dh", count * EDGE, rows=self.rank)
        ga, gb = t("ga", a.features, rows=a.rows), t("gb", b.features, rows=b.rows)
        made += [
            Product(dz.all(), Words(_tiles(b, 0, b.tiles)), dh.all()),
            Product(self.identity.all(), Words(_tiles(packed, 0, groups)), turned.all()),
        ]
        made += [
            Product(turned.part(group), Words(_tiles(dz, 0, width)), gb.part(group * width, width), backward=True)
            for group in range(groups)
        ]
        made += [
            Product(spread.part(place % self.members), Words((dh.part(place // self.members),)), turned_dh.part(place))
            for place in range(count)
        ]
        made += [
            Product(turned_dh.part(place), Words(_tiles(u, 0, width)), ga.part(place * width, width), backward=True)
            for place, u in enumerate(self.inputs)
        ]
        if rules is not None:
            made += [
                Descent(a.all(), ga.all(), f"{A[:-1]}ma", rules[0], number),
                Descent(b.all(), gb.all(), f"{B[:-1]}mb", rules[1], number),
            ]
        return made


def _tiles(tensor: Tensor, first: int, count: int) -> tuple[TensorSlice, ...]:
    return tuple(tensor.part(first + each) for each in range(count))
