"""Elementwise operations on codes of tiles, in integers; the engine's commands.

A code is ``code * 2**at``; a result a word times a power of two. Arrays of exponents broadcast with those of codes;
exponents of tiles of zeros may be any that are not above the others.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradloom.rtl.engines.element.commands import ElementOpcode
from gradloom.rtl.formats.element import EXPONENT_LIMIT, FACTOR_FRAC, LIFT, TABLES
from gradloom.rtl.formats.interpolation import Interpolation
from gradloom.rtl.formats.linear import half_up
from gradloom.rtl.formats.tile_codes import EDGE, WIDE, ZERO, stored
from gradloom.rtl.formats.tile_records import TileRecord

__all__ = [
    "ElementModel",
    "add",
    "aligned",
    "factors",
    "geglu",
    "geglu_gate_back",
    "scaled",
    "silu",
    "silu_back",
    "squares",
]

Words = NDArray[np.int64]
#: Words, and the exponent of each row or element.
Result = tuple[Words, Any]

_SIGMOID, _SILU_SLOPE, _NORMAL, _GELU_SLOPE = TABLES
_BEAT = 8


def aligned(words: Words, up: Any) -> Words:
    """``words * 2**up``, to the nearest integer."""
    up = np.asarray(up, np.int64)
    return np.where(up >= 0, words << np.clip(up, 0, 40), half_up(words, np.clip(-up, 0, 62)))


def factors(codes: Words, at: Any, table: tuple[Interpolation, int]) -> Words:
    """A table's values at ``code * 2**at``, 16 fraction bits.

    Below zero they are 1 less that of the opposite.
    """
    function, whole = table
    most = (1 << function.frac_in) - 1
    up = np.asarray(at + function.frac_in - whole)
    magnitude = np.abs(codes)
    argument = np.where(up >= 0, magnitude << np.clip(up, 0, 40), magnitude >> np.clip(-up, 0, 62))
    found = function(np.minimum(argument, most))
    return np.where(codes < 0, (1 << FACTOR_FRAC) - found, found)


def add(one: Words, one_at: Any, other: Words, other_at: Any, *, subtract: bool = False) -> Result:
    """The sum, under the larger exponent and with 8 bits more than a code."""
    top = np.maximum(one_at, other_at)
    one, other = aligned(one, one_at - top + LIFT), aligned(other, other_at - top + LIFT)
    return one - other if subtract else one + other, top - LIFT


def squares(codes: Words, at: Any, axes: int | tuple[int, ...]) -> Result:
    """Sums over axes, each under the largest exponent of its values.

    ``codes`` and ``at`` have the same shape.
    """
    top = at.max(axes, keepdims=True)
    return aligned(codes, at - top + LIFT).sum(axes), top.squeeze(axes) - LIFT


def scaled(codes: Words, at: Any, mantissa: int, exponent: int) -> Result:
    """Codes times a constant of 17 bits."""
    return codes * mantissa, at + exponent


def silu(codes: Words, at: Any) -> Result:
    """``x sigmoid(x)``."""
    return codes * factors(codes, at, _SIGMOID), at - FACTOR_FRAC


def silu_back(incoming: Words, its: Any, codes: Words, at: Any) -> Result:
    """Gradient of x."""
    return incoming * factors(codes, at, _SILU_SLOPE), its - FACTOR_FRAC


def geglu(value: Words, value_at: Any, gate: Words, gate_at: Any) -> Result:
    """``value · gelu(gate)``; with the gradient as value, that of value."""
    term = half_up(gate * factors(gate, gate_at, _NORMAL), LIFT)
    return term * value, gate_at + value_at + LIFT - FACTOR_FRAC


def geglu_gate_back(value: Words, value_at: Any, gate: Words, gate_at: Any, incoming: Words, its: Any) -> Result:
    """Gradient of the gate."""
    slope = half_up(value * factors(gate, gate_at, _GELU_SLOPE), LIFT)
    return slope * incoming, value_at + its + LIFT - FACTOR_FRAC
