"""Reference of the vector engine, word for word, on arrays.

Every operation is made of two steps, whose shifts are its operands:

- a *term*: ``(a1 · b1 · 2**(7 - left)) ± (a0 · b0 · 2**(7 - right))``, rounded to 25 bits;
- a *word*: ``term · v · 2**-shift``, rounded half up to 24 bits; or sums of ``term · v`` over rows.

Operands have up to 25 bits. Reals are ``word · 2**-frac``, a ``frac`` a tensor; ``systems/text/operations/vector.py``
turns these into shifts. Rows are the last axis. What is clipped is counted; ``magnitude`` is how many bits the largest
result had before it was clipped, its sign not counted, so that a tensor fits where it is at most 23.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradloom.rtl.formats.fixed import Fixed
from gradloom.rtl.formats.interpolation import Interpolation
from gradloom.rtl.formats.rounding import saturate
from gradloom.rtl.formats.vector import (
    FACTOR_FRAC,
    GATE_FRAC,
    GATE_INT,
    GATE_LIFT,
    GATES,
    GUARD,
    LIFT,
    MANTISSA,
    ROOT_FRAC,
    ROOTS,
    SUM,
    TERM,
)
from gradloom.rtl.formats.weights.linear import ACTIVATION

__all__ = [
    "Root",
    "VectorTensor",
    "add",
    "backward_roots",
    "reciprocal_roots",
    "gate_factor",
    "rms_norm",
    "rms_norm_backward",
    "rms_norm_backward_add",
    "rms_norm_gain",
    "roots",
    "rope",
    "scale",
    "scale_backward",
    "swiglu",
    "swiglu_backward",
    "term_of",
    "word_of",
]

Words = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class VectorTensor:
    """Words, the number of clipped ones, and the bits of the largest.

    Clipped terms of the words count too.
    """

    words: Words
    saturated: int
    magnitude: int


@dataclass(frozen=True, kw_only=True)
class Root:
    """Reciprocal roots of each row, and their gradients.

    ``mantissa · 2**-(17 + exponent)`` is the reciprocal root of a row's sum of squares; ``pull · 2**(7 - pull_shift)``
    times x is subtracted from the gradient along x. ``saturated``: terms clipped on the way.
    """

    mantissa: Words
    exponent: Words
    pull: Words
    pull_shift: Words
    saturated: int


def _integers(x: ArrayLike) -> Words:
    return np.asarray(x, np.int64)


def term_of(
    a1: ArrayLike,
    b1: ArrayLike,
    left: ArrayLike,
    a0: ArrayLike = 0,
    b0: ArrayLike = 0,
    right: ArrayLike = 0,
    *,
    subtract: ArrayLike = False,
) -> tuple[Words, int]:
    """``(terms, how many were clipped)``."""
    first = _integers(a1) * _integers(b1) << LIFT >> _integers(left)
    other = _integers(a0) * _integers(b0) << LIFT >> _integers(right)
    total = first + np.where(subtract, -other, other) + (1 << (GUARD - 1))
    return saturate(total >> GUARD, TERM.lo, TERM.hi)


def word_of(
    term: Words,
    v: ArrayLike,
    shift: ArrayLike,
    clipped: int,
    form: Fixed = ACTIVATION,
    *,
    plus: tuple[ArrayLike, ArrayLike] = (0, 0),
) -> VectorTensor:
    """Words of terms, of which ``clipped`` were clipped.

    ``plus``: a value and its shift; like the other, it is cut to half a unit before both are added and rounded half up.
    """
    other, by = plus
    halves = (term * _integers(v) << 1 >> np.clip(shift, 0, 63)) + (_integers(other) << 1 >> _integers(by))
    rounded = halves + 1 >> 1
    words, lost = saturate(rounded, form.lo, form.hi)
    magnitude = int(np.max(rounded ^ (rounded >> 63), initial=0)).bit_length()
    return VectorTensor(words=words, saturated=clipped + lost, magnitude=magnitude)


def gate_factor(gate: ArrayLike, table: Interpolation, shift: int) -> Words:
    """What the gate is multiplied by, or the slope of the activation there.

    It has 16 fraction bits; ``shift`` is the gate's frac less 4.
    """
    gate = _integers(gate)
    argument = np.minimum(np.abs(gate) << GATE_LIFT >> shift, (1 << (GATE_INT + GATE_FRAC)) - 1)
    factor = table(argument)
    return np.where(gate < 0, (1 << FACTOR_FRAC) - factor, factor)


def swiglu(
    gate: ArrayLike,
    up: ArrayLike,
    tables: tuple[Interpolation, ...] = GATES["silu"],
    /,
    *,
    gate_shift: int,
    left: int,
    shift: int,
) -> VectorTensor:
    """``f(gate) · up``; ``tables``: of f."""
    term, clipped = term_of(gate, gate_factor(gate, tables[0], gate_shift), left)
    return word_of(term, up, shift, clipped)


def swiglu_backward(
    dy: ArrayLike,
    gate: ArrayLike,
    up: ArrayLike,
    tables: tuple[Interpolation, ...] = GATES["silu"],
    /,
    *,
    gate_shift: int,
    left: int,
    right: int,
    shift: int,
    second_shift: int,
) -> tuple[VectorTensor, VectorTensor]:
    """``(dgate, dup)``; ``tables`` as of :func:`swiglu`.

    ``right`` and ``shift`` are of dgate, ``left`` and ``second_shift`` of dup.
    """
    term, clipped = term_of(gate, gate_factor(gate, tables[0], gate_shift), left)
    dup = word_of(term, dy, second_shift, clipped)
    term, clipped = term_of(up, gate_factor(gate, tables[1], gate_shift), right)
    return word_of(term, dy, shift, clipped), dup


def _normalised(value: Words) -> tuple[Words, Words]:
    """``value`` shifted until its top bit is set, and that bit's number.

    The result is ``(value, number)``; 0 counts as the bit of 1.
    """
    high = np.frexp((value >> 31).astype(np.float64))[1].astype(np.int64) + 31
    low = np.frexp((value & ((1 << 31) - 1)).astype(np.float64))[1].astype(np.int64)
    bit = np.maximum(np.where(value >> 31 > 0, high, low) - 1, 0)
    return value << (SUM - 1 - bit), bit


def roots(x: ArrayLike, *, eps: int = 0, eps_shift: int = 0) -> Root:
    """Reciprocal roots of the rows' sums of squares.

    One piece of a table each, within 2**-15 of themselves.
    """
    return _roots(_integers(x), eps << eps_shift)


def _roots(x: Words, eps: int) -> Root:
    mantissa, exponent = reciprocal_roots((x * x).sum(axis=-1) + eps)
    zero = np.zeros_like(exponent)
    return Root(mantissa=mantissa, exponent=exponent, pull=zero, pull_shift=zero, saturated=0)


def reciprocal_roots(sums: Words) -> tuple[Words, Words]:
    """Mantissas and exponents of sums' reciprocal roots.

    A root is ``mantissa · 2**-(17 + exponent)``.
    """
    top, bit = _normalised(sums)
    fraction = (top >> (SUM - 17)) & 0xFFFF
    mantissa = np.minimum(np.where(bit & 1, ROOTS[1](fraction), ROOTS[0](fraction)), (1 << ROOT_FRAC) - 1)
    return mantissa, bit >> 1


def backward_roots(
    dy: ArrayLike, x: ArrayLike, weight: ArrayLike, *, right: int, eps: int = 0, eps_shift: int = 0
) -> Root:
    """:func:`roots`, and the size of ``dy · weight`` along x.

    The size, as terms, is ``Σ dy w x / Σ x²``.
    """
    x = _integers(x)
    root = roots(x, eps=eps, eps_shift=eps_shift)
    term, clipped = term_of(dy, weight, right)
    along = (term * x).sum(axis=-1)
    top, bit = _normalised(np.abs(along))
    square = root.mantissa * root.mantissa >> ROOT_FRAC
    pull = np.sign(along) * (square * (top >> (SUM - MANTISSA)) >> ROOT_FRAC)
    shift = np.clip(MANTISSA + 6 - bit + 2 * root.exponent, 0, 63)
    return Root(mantissa=root.mantissa, exponent=root.exponent, pull=pull, pull_shift=shift, saturated=clipped)


def rms_norm(x: ArrayLike, weight: ArrayLike, root: Root, *, shift: int) -> VectorTensor:
    """``weight · x · root``.

    ``weight`` has 18 bits and sqrt(d) in it, since the root is of a sum, not of a mean.
    """
    term, clipped = term_of(x, root.mantissa[..., None], root.exponent[..., None])
    return word_of(term, weight, shift, clipped)


def rms_norm_backward(
    dy: ArrayLike, x: ArrayLike, weight: ArrayLike, root: Root, *, left: int, shift: int
) -> VectorTensor:
    """Gradient of x; ``left`` as :func:`backward_roots` had it."""
    term, clipped = term_of(dy, weight, left, x, root.pull[..., None], root.pull_shift[..., None], subtract=True)
    return word_of(term, root.mantissa[..., None], shift + root.exponent[..., None], clipped)


def rms_norm_backward_add(
    dy: ArrayLike,
    x: ArrayLike,
    weight: ArrayLike,
    root: Root,
    residual: ArrayLike,
    *,
    left: int,
    right: int,
    shift: int,
    second_shift: int,
) -> VectorTensor:
    """Gradient of x, and a residual added to it, which ``left`` and ``second_shift`` move; rounded once."""
    plain, lost = term_of(residual, 1, left)
    term, clipped = term_of(dy, weight, right, x, root.pull[..., None], root.pull_shift[..., None], subtract=True)
    return word_of(
        term, root.mantissa[..., None], shift + root.exponent[..., None], clipped + lost, plus=(plain, second_shift)
    )


def rms_norm_gain(dy: ArrayLike, x: ArrayLike, root: Root, *, shift: int) -> VectorTensor:
    """``dy · x · root``; the weight's gradient is made of its sum over rows."""
    term, clipped = term_of(x, root.mantissa[..., None], root.exponent[..., None])
    return word_of(term, dy, shift, clipped)


def scale(x: ArrayLike, factors: ArrayLike, *, left: int, shift: int) -> VectorTensor:
    """``x · factors``, which have 18 bits."""
    term, clipped = term_of(x, 1, left)
    return word_of(term, factors, shift, clipped)


def scale_backward(
    dy: ArrayLike, x: ArrayLike, factors: ArrayLike, *, left: int, right: int, shift: int, second_shift: int
) -> tuple[VectorTensor, VectorTensor]:
    """``(dy · factors, x · dy)``.

    ``right`` and ``shift`` are of the first result, ``left`` and ``second_shift`` of the second.
    """
    term, clipped = term_of(x, 1, left)
    u = word_of(term, dy, second_shift, clipped)
    term, clipped = term_of(dy, 1, right)
    return word_of(term, factors, shift, clipped), u


def add(a: ArrayLike, b: ArrayLike, *, left: int, right: int, shift: int = 0, wide: bool = False) -> VectorTensor:
    """``a · 2**(7 - left) + b · 2**(7 - right)``, of 25 bits where ``wide``."""
    term, clipped = term_of(a, 1, left, b, 1, right)
    return word_of(term, 1, shift, clipped, TERM if wide else ACTIVATION)


def rope(
    x: ArrayLike, cos: ArrayLike, sin: ArrayLike, *, left: int, right: int, shift: int = 0, turn: bool = False
) -> VectorTensor:
    """Rotates ``x [..., head_dim]`` by angles, backward with ``turn``.

    Angles are ``[..., head_dim / 2]`` and have 16 fraction bits.
    """
    x = _integers(x)
    half = x.shape[-1] // 2
    other = np.concatenate([x[..., half:], x[..., :half]], axis=-1)
    cos, sin = (np.concatenate([each, each], axis=-1) for each in (cos, sin))
    term, clipped = term_of(x, cos, left, other, sin, right, subtract=(np.arange(x.shape[-1]) < half) != turn)
    return word_of(term, 1, shift, clipped)
