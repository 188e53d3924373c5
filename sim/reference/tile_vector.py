"""Operations between products on codes of tiles of 16 bits, in integers.

Operands are arrays of values that codes of 16 bits hold. A result is an integer times a power of two, in float64, which
holds it exactly; :func:`~gradloom.rtl.formats.tile_codes.coded` then makes codes of it. Norms and softmaxes
stand in :mod:`.tile_norm`.
"""

import numpy as np
from numpy.typing import NDArray

from gradloom.rtl.formats.norm import constant

from . import element
from .tile_norm import TileNorm, parts, softmax, softmax_back, values

__all__ = ["TileNorm", "add", "geglu", "geglu_back", "scaled", "silu", "silu_back", "softmax", "softmax_back", "total"]

Words = NDArray[np.int64]


def add(a: np.ndarray, b: np.ndarray, *, subtract: bool = False) -> np.ndarray:
    """The sum, under the larger exponent and with 8 bits more than a code.

    ``b`` may have one row for many of ``a``, of the same shape otherwise.
    """
    one, other = parts(a), parts(b)
    if len(b) != len(a):
        codes, at = (each.repeat(len(a) // len(b), axis=0) for each in other)
        other = codes, at
    return values(*element.add(*one, *other, subtract=subtract))


def total(x: np.ndarray, axes: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    """Sums over some axes of ``x`` in another shape.

    Each is under the largest exponent of its values.
    """
    codes, at = (each.reshape(shape) for each in parts(x))
    return values(*element.squares(codes, at, axes))


def scaled(x: np.ndarray, factor: float) -> np.ndarray:
    """Codes times a constant of 17 bits."""
    return values(*element.scaled(*parts(x), *constant(factor)))


def silu(x: np.ndarray) -> np.ndarray:
    """``x sigmoid(x)``."""
    return values(*element.silu(*parts(x)))


def silu_back(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Gradient of x."""
    return values(*element.silu_back(*parts(dy), *parts(x)))


def _halves(x: np.ndarray) -> tuple[tuple[Words, Words], tuple[Words, Words]]:
    """Value and gate, which is behind, each with its exponents."""
    (value, gate), (value_at, gate_at) = (np.split(each, 2, axis=1) for each in parts(x))
    return (value, value_at), (gate, gate_at)


def geglu(x: np.ndarray) -> np.ndarray:
    """``value · gelu(gate)``, the gate behind."""
    value, gate = _halves(x)
    return values(*element.geglu(*value, *gate))


def geglu_back(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Gradients of value and gate."""
    value, gate = _halves(x)
    incoming = parts(dy)
    return np.hstack(
        [values(*element.geglu(*incoming, *gate)), values(*element.geglu_gate_back(*value, *gate, *incoming))]
    )
