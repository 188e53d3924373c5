"""Operations on elements and rows: sums, angles, activations, softmax and the loss."""

from collections.abc import Mapping
from dataclasses import dataclass

from gradloom.rtl.formats.vector import FACTOR_FRAC, PROBABILITY_FRAC

from ..operations import vector
from .base import Fracs, Operation, sums, within
from .tensors import Angles, TensorSlice

__all__ = ["Add", "Biased", "Gated", "GatedBackward", "Loss", "Rope", "Softmax", "SoftmaxBackward"]


@dataclass(frozen=True)
class Add(Operation):
    """``a + b``; ``y`` may be ``a``. ``lazy``: nothing waits for it soon."""

    takes, gives = ("a", "b"), ("y",)

    a: TensorSlice
    b: TensorSlice
    y: TensorSlice
    lazy: bool = False

    @property
    def in_place(self) -> bool:
        """Whether it adds to what was there before the step."""
        return self.y.name == self.a.name

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        return {self.y.name: sums(frac[self.a.name], frac[self.b.name])}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        return vector.add(frac[self.a.name], frac[self.b.name], frac[self.y.name])


@dataclass(frozen=True)
class Biased(Operation):
    """``x + b``, a frozen vector in each row.

    ``bias``: the model's tensor. ``b``: where its words are in memory, a row a token.
    """

    takes, gives = ("x",), ("y",)

    x: TensorSlice
    bias: str
    b: TensorSlice
    y: TensorSlice

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        return {self.y.name: sums(frac[self.x.name], frac[self.bias])}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        return vector.add(frac[self.x.name], frac[self.bias], frac[self.y.name])


@dataclass(frozen=True)
class Rope(Operation):
    """Rotates the tiles of heads by a token's angles, backward with ``turn``.

    The gain of ``angles`` multiplies the result.
    """

    takes, gives = ("x",), ("y",)

    x: TensorSlice
    angles: Angles
    y: TensorSlice
    turn: bool = False

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        return {self.y.name: within(frac[self.x.name] + FACTOR_FRAC + 7)}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        return vector.rope(frac[self.x.name], frac[self.y.name])


@dataclass(frozen=True)
class Gated(Operation):
    """``f(gate) · up``, of an activation ``kind``."""

    takes, gives = ("gate", "up"), ("y",)

    gate: TensorSlice
    up: TensorSlice
    y: TensorSlice
    kind: str

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        return {self.y.name: within(frac[self.gate.name] + 1 + frac[self.up.name])}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        return vector.swiglu(frac[self.gate.name], frac[self.up.name], frac[self.y.name])


@dataclass(frozen=True)
class GatedBackward(Operation):
    """Gradients of gate and up."""

    takes, gives = ("gate", "up", "dy"), ("dgate", "dup")

    gate: TensorSlice
    up: TensorSlice
    dy: TensorSlice
    dgate: TensorSlice
    dup: TensorSlice
    kind: str

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        gate, up, dy = (frac[each.name] for each in (self.gate, self.up, self.dy))
        return {self.dgate.name: within(up + dy), self.dup.name: within(gate + 1 + dy)}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        parts = (self.dy, self.gate, self.up, self.dgate, self.dup)
        return vector.swiglu_backward(*(frac[each.name] for each in parts))


@dataclass(frozen=True)
class Softmax(Operation):
    """``2**s`` of each row over the row's sum.

    Token n's row ends after element ``limit + n``.
    """

    takes, gives = ("s",), ("p",)

    s: TensorSlice
    p: TensorSlice
    limit: int = 0

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        return {self.p.name: (PROBABILITY_FRAC, PROBABILITY_FRAC)}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        return vector.softmax(frac[self.s.name])


@dataclass(frozen=True)
class SoftmaxBackward(Operation):
    """``ds = p (dp - Σ p dp)``, natural: without the factor ln 2 of base 2.

    The sum may be that of ``y dy`` instead, if y is what the probabilities mix and dy its gradient.
    """

    takes, gives = ("p", "dp", "y", "dy"), ("ds",)

    p: TensorSlice
    dp: TensorSlice
    ds: TensorSlice
    y: TensorSlice | None = None
    dy: TensorSlice | None = None

    @property
    def summed(self) -> tuple[TensorSlice, TensorSlice]:
        """Factors of the sum."""
        return self.y or self.p, self.dy or self.dp

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        return {self.ds.name: within(PROBABILITY_FRAC + frac[self.dp.name])}

    def shifts(self, frac: Fracs) -> Mapping[str, Mapping[str, int]]:
        y, dy = (frac[each.name] for each in self.summed)
        return vector.softmax_backward(frac[self.dp.name], frac[self.ds.name], y + dy)


@dataclass(frozen=True)
class Loss(Operation):
    """Softmax of logits in base 2, and cross-entropy.

    ``d`` is ``p`` less 1 at each token's target. ``targets`` names them; ``vocab`` elements of a row count.
    """

    takes, gives = ("logits",), ("d",)
    lasting = True

    logits: TensorSlice
    targets: str
    d: TensorSlice
    loss: str
    vocab: int

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        return {self.d.name: (PROBABILITY_FRAC, PROBABILITY_FRAC)}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        return vector.softmax(frac[self.logits.name])
