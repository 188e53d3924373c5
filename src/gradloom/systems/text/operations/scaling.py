"""Norms, factors of features, and sums over tokens."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..operations import vector
from .base import Fracs, Operation, checked_shifts, within
from .tensors import EDGE, Gain, TensorSlice

__all__ = ["Narrow", "Norm", "NormBackward", "Scale", "ScaleBackward", "TokenSum"]


@dataclass(frozen=True)
class Norm(Operation):
    """RMSNorm.

    ``weight`` names a vector in which ``sqrt(features)`` is folded.
    """

    takes, gives = ("x",), ("y",)

    x: TensorSlice
    weight: str
    y: TensorSlice
    eps: float

    @property
    def wants(self) -> tuple[str, ...]:
        """See :class:`Operation`; of a norm that learns, the step makes the weight."""
        return *self.reads, self.weight

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        return {self.y.name: within(24 + frac[self.weight])}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        return vector.rms_norm(frac[self.weight], frac[self.y.name])

    def epsilon(self, frac: Fracs) -> dict[str, int]:
        return vector.epsilon(self.eps, EDGE * self.x.count, frac[self.x.name])


@dataclass(frozen=True)
class NormBackward(Operation):
    """Gradient of RMSNorm's operand.

    ``residual``, if there is one, is added to dx. ``u``, where it is made, is ``dy · x / |x|``; there is no residual
    then. Its sum over tokens times ``sqrt(features)`` is the weight's gradient.
    """

    takes, gives = ("x", "dy", "residual"), ("dx", "u")

    x: TensorSlice
    dy: TensorSlice
    weight: str
    dx: TensorSlice
    eps: float
    u: TensorSlice | None = None
    residual: TensorSlice | None = None

    @property
    def wants(self) -> tuple[str, ...]:
        """See :class:`Operation`; of a norm that learns, the step makes the weight."""
        return *self.reads, self.weight

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        base = self._base(frac)
        limits = {self.dx.name: (base - 63, base + 64)}
        if self.residual is not None:
            held = frac[self.residual.name]
            # A term has a bit more than the residual.
            limits[self.dx.name] = max(base, held) - 63, min(base + 64, held + 1)
        if self.u is not None:
            limits[self.u.name] = within(24 + frac[self.dy.name])
        return limits

    def shifts(self, frac: Fracs) -> Mapping[str, Mapping[str, int]]:
        return vector.rms_norm_backward(
            frac[self.dy.name],
            frac[self.x.name],
            frac[self.weight],
            frac[self.dx.name],
            u=None if self.u is None else frac[self.u.name],
            residual=None if self.residual is None else frac[self.residual.name],
        )

    def epsilon(self, frac: Fracs) -> dict[str, int]:
        return vector.epsilon(self.eps, EDGE * self.x.count, frac[self.x.name])

    def _base(self, frac: Fracs) -> int:
        result = vector.rms_norm_backward(frac[self.dy.name], frac[self.x.name], frac[self.weight], 0)["result"]
        return result["shift"]


@dataclass(frozen=True)
class Narrow(Operation):
    """Factors of features from words that learn: ``gain · words``."""

    takes, gives = ("words",), ("y",)

    words: TensorSlice
    gain: Gain
    y: TensorSlice

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        return {self.y.name: within(frac[self.words.name] + self.gain.frac)}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        return vector.scale(frac[self.words.name], self.gain.frac, frac[self.y.name])


@dataclass(frozen=True)
class Scale(Operation):
    """``x · factors``, of each token."""

    takes, gives = ("x", "factors"), ("y",)

    x: TensorSlice
    factors: TensorSlice
    y: TensorSlice

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        return {self.y.name: within(frac[self.x.name] + frac[self.factors.name])}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        return vector.scale(frac[self.x.name], frac[self.factors.name], frac[self.y.name])


@dataclass(frozen=True)
class ScaleBackward(Operation):
    """Gradient of the operand of :class:`Scale`.

    The sum over tokens of ``u = x · dy`` is the gradient of the factors.
    """

    takes, gives = ("x", "dy", "factors"), ("dx", "u")

    x: TensorSlice
    dy: TensorSlice
    factors: TensorSlice
    dx: TensorSlice
    u: TensorSlice

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        x, dy, factors = (frac[each.name] for each in (self.x, self.dy, self.factors))
        return {self.dx.name: within(dy + factors), self.u.name: within(x + dy)}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        return vector.scale_backward(*(frac[each.name] for each in (self.x, self.dy, self.factors, self.dx, self.u)))


@dataclass(frozen=True)
class TokenSum(Operation):
    """``gain · Σ x`` over tokens, a row of features."""

    takes, gives = ("x",), ("y",)
    lasting = True

    x: TensorSlice
    gain: Gain
    y: TensorSlice

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        return {self.y.name: within(frac[self.x.name] + self.gain.frac)}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        return checked_shifts(self.y.name, shift=frac[self.x.name] + self.gain.frac - frac[self.y.name])
