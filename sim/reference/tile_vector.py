"""Operations between products on codes of tiles of 16 bits, in integers.

Operands are arrays of values that codes of 16 bits hold. A result is an integer times a power of two, in float64, which
holds it exactly; :func:`~gradloom.rtl.formats.tile_codes.coded` then makes codes of it. Tables, reciprocal roots and
the softmax are those of the vector engine.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gradloom.rtl.formats.element import CONSTANT, LIFT
from gradloom.rtl.formats.linear import half_up
from gradloom.rtl.formats.tile_codes import LEAST, WIDE, ZERO, coded, spread
from gradloom.rtl.formats.vector import LEAST_GATE, PROBABILITY_FRAC, TERM

from . import element
from .vector import reciprocal_roots
from .vector_softmax import levels
from .vector_softmax import softmax as engine_softmax

__all__ = [
    "Norm",
    "Statistics",
    "add",
    "geglu",
    "geglu_back",
    "scaled",
    "silu",
    "silu_back",
    "softmax",
    "softmax_back",
    "total",
]

Words = NDArray[np.int64]

#: Fraction bits of a normalised value.
UNIT = 16
#: Elements of a beat, whose order a softmax's sum follows.
_LANES = 8
#: Exponent of zero.
_NEVER = -(1 << 12)


def _parts(x: np.ndarray) -> tuple[Words, Words]:
    """Codes, and the exponent of each."""
    made = coded(x, WIDE)
    exponents = np.where(made.exponents == ZERO, _NEVER, made.exponents)
    return made.codes.astype(np.int64), spread(exponents, x.shape)


def _values(words: Words, exponents: Words | int) -> np.ndarray:
    made: np.ndarray = np.ldexp(words.astype(np.float64), np.maximum(exponents, -1000))
    return made


def _constant(value: float) -> tuple[int, int]:
    """Mantissa of 17 bits and exponent of a positive constant."""
    mantissa, exponent = np.frexp(value)
    rounded = int(np.rint(mantissa * (1 << CONSTANT)))
    # What rounds to a power of two has no place in 17 bits.
    return (rounded >> 1, int(exponent) - CONSTANT + 1) if rounded >> CONSTANT else (rounded, int(exponent) - CONSTANT)


def add(a: np.ndarray, b: np.ndarray, *, subtract: bool = False) -> np.ndarray:
    """The sum, under the larger exponent and with 8 bits more than a code.

    ``b`` may have one row for many of ``a``, of the same shape otherwise.
    """
    one, other = _parts(a), _parts(b)
    if len(b) != len(a):
        codes, at = (each.repeat(len(a) // len(b), axis=0) for each in other)
        other = codes, at
    return _values(*element.add(*one, *other, subtract=subtract))


def total(x: np.ndarray, axes: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    """Sums over some axes of ``x`` in another shape.

    Each is under the largest exponent of its values.
    """
    codes, at = (each.reshape(shape) for each in _parts(x))
    return _values(*element.squares(codes, at, axes))


def scaled(x: np.ndarray, factor: float) -> np.ndarray:
    """Codes times a constant of 17 bits."""
    return _values(*element.scaled(*_parts(x), *_constant(factor)))


def silu(x: np.ndarray) -> np.ndarray:
    """``x sigmoid(x)``."""
    return _values(*element.silu(*_parts(x)))


def silu_back(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Gradient of x."""
    return _values(*element.silu_back(*_parts(dy), *_parts(x)))


def _halves(x: np.ndarray) -> tuple[tuple[Words, Words], tuple[Words, Words]]:
    """Value and gate, which is behind, each with its exponents."""
    (value, gate), (value_at, gate_at) = (np.split(each, 2, axis=1) for each in _parts(x))
    return (value, value_at), (gate, gate_at)


def geglu(x: np.ndarray) -> np.ndarray:
    """``value · gelu(gate)``, the gate behind."""
    value, gate = _halves(x)
    return _values(*element.geglu(*value, *gate))


def geglu_back(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Gradients of value and gate."""
    value, gate = _halves(x)
    incoming = _parts(dy)
    return np.hstack(
        [_values(*element.geglu(*incoming, *gate)), _values(*element.geglu_gate_back(*value, *gate, *incoming))]
    )


def softmax(scores: np.ndarray, factor: float) -> np.ndarray:
    """Softmax of ``factor · scores`` over the last axis.

    It is the vector engine's, of powers of two.
    """
    codes, at = (each.reshape(-1, scores.shape[-1]) for each in _parts(scores))
    mantissa, exponent = _constant(factor * np.log2(np.e))
    top = at.max(1, keepdims=True)
    words = element.aligned(codes * mantissa, at - top - LIFT - 1)
    gate = -(top + exponent + LIFT + 1) - LIFT
    words = np.clip(element.aligned(words, np.clip(LEAST_GATE - gate, 0, 30)), TERM.lo, TERM.hi)
    gate, limit = np.clip(gate, LEAST_GATE, 63), scores.shape[-1] - 1
    level = levels(words, gate_shift=gate, lanes=_LANES, limit=limit)
    made = engine_softmax(words, level, gate_shift=gate, limit=limit)
    return _values(made.words.reshape(scores.shape), -PROBABILITY_FRAC)


def softmax_back(p: np.ndarray, dp: np.ndarray, factor: float) -> np.ndarray:
    """Gradient of the scores: ``factor · p · (dp - sum of p dp)``."""
    (share, share_at), (codes, at) = _parts(p), _parts(dp)
    top = at.max(-1, keepdims=True)
    share = element.aligned(share, share_at + PROBABILITY_FRAC)
    words = element.aligned(codes, at - top + LIFT)
    pull = half_up((share * words).sum(-1, keepdims=True), PROBABILITY_FRAC)
    mantissa, exponent = _constant(factor)
    term = half_up((words - pull) * mantissa, CONSTANT)
    return _values(share * term, top + exponent + CONSTANT - LIFT - PROBABILITY_FRAC)


@dataclass(frozen=True, eq=False)
class Statistics:
    """Sums of each group: what the second pass over its values needs.

    ``words`` are codes under the group's exponent ``top``. ``mantissa · 2**-(17 + exponent)`` is the reciprocal root of
    ``n² · (variance + eps)`` in the square of their unit.
    """

    words: Words
    top: Words
    sum: Words
    mantissa: Words
    exponent: Words


class Norm:
    """GroupNorm, or LayerNorm of rows as groups.

    Parameters
    ----------
    gain, bias : array ``[features]``
        Rounded to 16 bits.
    rows, groups : int
        Rows of a group, groups of a row.
    eps : float
    """

    def __init__(self, gain: np.ndarray, bias: np.ndarray, *, rows: int, groups: int, eps: float) -> None:
        self.gain, self.gain_at = _parts(gain[None])
        self.bias, self.bias_at = _parts(bias[None])
        self.rows, self.groups, self.size = rows, groups, rows * len(gain) // groups
        if self.size > 1 << 15:
            raise ValueError(f"groups={groups}: a group has {self.size} values, must have at most {1 << 15}")
        mantissa, exponent = np.frexp(eps)
        self.eps = int(np.rint(mantissa * (1 << 16))) * self.size**2, int(exponent) - 16

    def _grouped(self, x: Words) -> Words:
        return x.reshape(-1, self.rows, self.groups, x.shape[1] // self.groups)

    def statistics(self, x: np.ndarray) -> Statistics:
        """Sums of x and its squares, and the variance's reciprocal root."""
        codes, at = (self._grouped(each) for each in _parts(x))
        top = np.maximum(at.max((1, 3), keepdims=True), LEAST)
        words = element.aligned(codes, at - top)
        one = words.sum((1, 3), keepdims=True)
        variance = self.size * (words * words).sum((1, 3), keepdims=True) - one * one
        # eps in the same unit; where it is beyond 60 bits, the variance is shifted down to it.
        most = 60 - self.eps[0].bit_length()
        up = np.clip(self.eps[1] - 2 * top, -62, 62 + most)
        down = np.maximum(up - most, 0)
        down += down & 1
        whole = element.aligned(np.full_like(variance, self.eps[0]), up - down) + (variance >> np.minimum(down, 62))
        mantissa, exponent = reciprocal_roots(np.maximum(whole, 1))
        return Statistics(words, top, one, mantissa, exponent + (down >> 1))

    def _unit(self, found: Statistics) -> Words:
        """Normalised values, 16 fraction bits."""
        return half_up(
            (self.size * found.words - found.sum) * found.mantissa, np.clip(CONSTANT + found.exponent - UNIT, 0, 62)
        )

    def forward(self, x: np.ndarray) -> np.ndarray:
        """Normalised values times gain, plus bias."""
        unit = self._unit(self.statistics(x)).reshape(x.shape)
        return _values(
            unit * self.gain + element.aligned(self.bias, self.bias_at - self.gain_at + UNIT), self.gain_at - UNIT
        )

    def backward(self, dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Gradient of x."""
        found = self.statistics(x)
        unit = self._unit(found)
        codes, at = _parts(dy)
        wide, wide_at = self._grouped(codes * self.gain), self._grouped(at + self.gain_at)
        top = wide_at.max((1, 3), keepdims=True)
        words = element.aligned(wide, wide_at - top - LIFT)
        mantissa, exponent = _constant(1 / self.size)
        mean = half_up(words.sum((1, 3), keepdims=True) * mantissa, -exponent)
        along = half_up((words * unit).sum((1, 3), keepdims=True), UNIT)
        along = half_up(along * mantissa, -exponent)
        rest = words - mean - half_up(unit * along, UNIT)
        size, size_at = _constant(float(self.size))
        root = half_up(found.mantissa * size, CONSTANT)
        made = _values(rest * root, top + LIFT + size_at - found.exponent - found.top)
        return made.reshape(x.shape)
