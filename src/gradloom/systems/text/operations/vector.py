"""Operands of the vector engine from the exponents of tensors.

A tensor's ``frac`` says what its integers stand for: ``n · 2**-frac``. Each function returns the shifts of one command
and refuses, by :class:`ValueError`, exponents that lie further apart than the engine can shift.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from gradloom.rtl.formats.fixed import Fixed
from gradloom.rtl.formats.vector import EPS_SHIFT, FACTOR_FRAC, LEAST_GATE, PROBABILITY_FRAC
from gradloom.rtl.formats.weights.linear import ACTIVATION, WEIGHT

__all__ = [
    "UNIT",
    "add",
    "epsilon",
    "frac_of",
    "norm_weight",
    "rms_norm",
    "rms_norm_backward",
    "rope",
    "scale",
    "scale_backward",
    "softmax",
    "softmax_backward",
    "swiglu",
    "swiglu_backward",
]

#: A shift of 7 leaves a product as it is.
UNIT = 7


def frac_of(magnitude: float, form: Fixed = ACTIVATION) -> int:
    """Most fraction bits with which a word holds ``magnitude``."""
    if magnitude <= 0:
        return 0
    frac = form.width - 1 - math.frexp(magnitude)[1]
    return frac if round(magnitude * 2.0**frac) <= form.hi else frac - 1


def _checked(**shifts: int) -> dict[str, int]:
    for name, value in shifts.items():
        low = -64 if name.endswith("base") else 0
        if not low <= value <= 63:
            raise ValueError(f"{name}={value}: the exponents lie too far apart, must be from {low} to 63")
    return {name.removesuffix("_base"): value for name, value in shifts.items()}


def swiglu(gate: int, up: int, y: int) -> dict[str, int]:
    """Shifts from the fractions of gate, up and y."""
    # A term may have a bit more than the gate.
    return _checked(gate_shift=gate - 4, left=FACTOR_FRAC + UNIT - 1, shift=gate + 1 + up - y)


def swiglu_backward(dy: int, gate: int, up: int, dgate: int, dup: int) -> dict[str, int]:
    """Shifts of SWIGLU_BACKWARD from fractions.

    SiLU is as steep as 1.1, so the term of dgate gets no bit more than up.
    """
    return _checked(
        gate_shift=gate - 4,
        left=FACTOR_FRAC + UNIT - 1,
        right=FACTOR_FRAC + UNIT,
        shift=up + dy - dgate,
        second_shift=gate + 1 + dy - dup,
    )


def norm_weight(weight: ArrayLike) -> tuple[np.ndarray, int]:
    """``(words, frac)`` of ``weight · sqrt(d)``, 18 bits."""
    scaled = np.asarray(weight, np.float64) * math.sqrt(np.size(weight))
    frac = WEIGHT.width - 1 - math.frexp(float(np.abs(scaled).max()))[1]
    return np.clip(np.rint(scaled * 2.0**frac), WEIGHT.lo, WEIGHT.hi).astype(np.int64), frac


def epsilon(eps: float, features: int, x: int) -> dict[str, int]:
    """Operands for ``eps`` of a mean over ``features`` squares.

    The words have ``x`` fraction bits. It is the largest that fits if ``eps`` does not, which is when rows are far
    below it.
    """
    value = eps * features * 4.0**x
    shift = max(0, math.frexp(value)[1] - 16)
    if shift > EPS_SHIFT:
        return {"eps": 0xFFFF, "eps_shift": EPS_SHIFT}
    return {"eps": min(round(value / 2.0**shift), 0xFFFF), "eps_shift": shift}


def rms_norm(weight: int, y: int) -> dict[str, int]:
    """Shifts of a norm from the fractions of the weight's words and of y.

    x may have any.
    """
    return _checked(shift=24 + weight - y)


def rms_norm_backward(
    dy: int, x: int, weight: int, dx: int, *, u: int | None = None, residual: int | None = None
) -> Mapping[str, Mapping[str, int]]:
    """Shifts of ``sums`` and of ``result``.

    The term of ``dy · weight`` never clips. ``u``: of ``dy · x · root``, where it is made; ``residual``: of what is
    added to dx instead, whose fraction may be one bit longer.
    """
    left = WEIGHT.width - 1 + UNIT - 1
    term = dy + weight + UNIT - left
    shift = term + 17 - x - dx
    return {
        "sums": _checked(left=UNIT, right=left),
        "result": _checked(right=left, shift_base=shift, second_shift=24 + dy - u)
        if u is not None
        else _checked(left=left, shift_base=shift)
        if residual is None
        else _checked(
            right=left, shift_base=shift, left=UNIT - max(dx - residual, 0), second_shift=max(residual - dx, 0)
        ),
    }


def scale(x: int, factors: int, y: int) -> dict[str, int]:
    """Shifts from the fractions of x, of the factors' words and of y."""
    return _checked(left=UNIT, shift=x + factors - y)


def scale_backward(x: int, dy: int, factors: int, dx: int, u: int) -> dict[str, int]:
    """Shifts from fractions; u is ``x · dy``."""
    return _checked(left=UNIT, right=UNIT, shift=dy + factors - dx, second_shift=x + dy - u)


def add(a: int, b: int, y: int) -> dict[str, int]:
    """Shifts from fractions."""
    return _checked(left=a + UNIT - y, right=b + UNIT - y, shift=0)


def rope(x: int, y: int) -> dict[str, int]:
    """Shifts from fractions."""
    left = x + FACTOR_FRAC + UNIT - y
    return _checked(left=left, right=left, shift=0)


def softmax(s: int) -> dict[str, int]:
    """Operands of SOFTMAX and SOFTMAX_SUMS from the fraction of s.

    A row is the softmax of ``2**s``, which is why s must stay within ±4096: at least 12 fraction bits. Probabilities
    have 22.
    """
    shifts = _checked(gate_shift=s - 8, shift=0)
    if s - 8 < LEAST_GATE:
        raise ValueError(f"s={s}: a softmax needs at least {LEAST_GATE + 8} fraction bits")
    return shifts


def softmax_backward(dp: int, ds: int, summed: int | None = None) -> Mapping[str, Mapping[str, int]]:
    """Shifts of ``sums`` and of ``result`` from fractions; ``summed``: of what is summed, p · dp unless given.

    dp has 24 bits. ``ds`` is the gradient in base e, since ln(2) belongs to the operation that made s.
    """
    # A sum has dp's fraction, or as much of it as its first factor, which has a bit to spare, can be raised to.
    over = 0 if summed is None else summed - PROBABILITY_FRAC - dp
    left = max(UNIT + over, UNIT - 1)
    return {
        "sums": _checked(left=left),
        "result": _checked(left=UNIT, right=UNIT + over - (left - UNIT), shift=dp + PROBABILITY_FRAC - ds),
    }
