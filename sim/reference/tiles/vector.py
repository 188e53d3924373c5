"""Operations between products on codes of tiles of 16 bits, in integers.

Operands are arrays of values that codes of 16 bits hold. A result is an integer times a power of two, in float64, which
holds it exactly; :func:`~gradloom.rtl.formats.tiles.codes.coded` then makes codes of it. Norms and softmaxes
stand in :mod:`.tiles.norm`.
"""

import numpy as np
from numpy.typing import NDArray

from gradloom.rtl.formats.tiles.functions import GELU, SILU, Curve
from gradloom.rtl.formats.tiles.norm import constant

from .. import element
from .norm import TileNorm, parts, softmax, softmax_back, values

__all__ = [
    "TileNorm",
    "add",
    "equal",
    "function",
    "function_back",
    "geglu",
    "geglu_back",
    "larger",
    "mask",
    "multiply",
    "scaled",
    "silu",
    "silu_back",
    "softmax",
    "softmax_back",
    "total",
]

Words = NDArray[np.int64]

_GATE, _GATE_SLOPE = (element.Looked.of(each) for each in (GELU.value, GELU.slope))


def _rows_for(a: np.ndarray, b: np.ndarray) -> tuple[Words, Words]:
    """Codes of ``b`` and their exponents, each row for as many as ``a`` has more."""
    codes, at = (each.repeat(len(a) // len(b), axis=0) for each in parts(b))
    return codes, at


def add(a: np.ndarray, b: np.ndarray, *, subtract: bool = False, positive: bool = False) -> np.ndarray:
    """The sum, under the larger exponent and with 8 bits more than a code.

    ``b`` may have one row for many of ``a``, of the same shape otherwise. ``positive``: sums below 0 become 0.
    """
    made = values(*element.add(*parts(a), *_rows_for(a, b), subtract=subtract))
    return np.maximum(made, 0) if positive else made


def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product, exact; ``b`` may have one row for many of ``a``."""
    return values(*element.multiply(*parts(a), *_rows_for(a, b)))


def mask(dy: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``dy`` where ``y`` is above 0."""
    return values(*element.mask(*parts(dy), parts(y)[0]))


def larger(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The larger of both, under the larger exponent and with 8 bits more than a code.

    ``b`` may have one row for many of ``a``.
    """
    return values(*element.larger(*parts(a), *_rows_for(a, b)))


def equal(dy: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``dy`` where ``x`` and ``y`` are equal, to half a unit of the codes of the larger exponent."""
    return values(*element.equal(*parts(x), *_rows_for(x, y), *parts(dy)))


def total(x: np.ndarray, axes: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    """Sums over some axes of ``x`` in another shape.

    Each is under the largest exponent of its values.
    """
    codes, at = (each.reshape(shape) for each in parts(x))
    return values(*element.squares(codes, at, axes))


def scaled(x: np.ndarray, factor: float, *, positive: bool = False) -> np.ndarray:
    """Codes times a constant of 17 bits; with ``positive`` what is below 0 becomes 0."""
    made = values(*element.scaled(*parts(x), *constant(factor)))
    return np.maximum(made, 0) if positive else made


def function(x: np.ndarray, curve: Curve) -> np.ndarray:
    """``g(x)``, or ``x g(x)`` as the curve says; by table."""
    own, looked = parts(x), element.Looked.of(curve)
    return values(*(element.product(*own, *own, looked) if curve.times else element.alone(*own, looked)))


def function_back(dy: np.ndarray, x: np.ndarray, slope: Curve) -> np.ndarray:
    """``dy · g(x)``: gradient of x."""
    return values(*element.product(*parts(dy), *parts(x), element.Looked.of(slope)))


def silu(x: np.ndarray) -> np.ndarray:
    """``x sigmoid(x)``."""
    return function(x, SILU.value)


def silu_back(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Gradient of x."""
    return function_back(dy, x, SILU.slope)


def _halves(x: np.ndarray) -> tuple[tuple[Words, Words], tuple[Words, Words]]:
    """Value and gate, which is behind, each with its exponents."""
    (value, gate), (value_at, gate_at) = (np.split(each, 2, axis=1) for each in parts(x))
    return (value, value_at), (gate, gate_at)


def geglu(x: np.ndarray) -> np.ndarray:
    """``value · gelu(gate)``, the gate behind."""
    value, gate = _halves(x)
    return values(*element.term(*value, *gate, *gate, _GATE))


def geglu_back(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Gradients of value and gate."""
    value, gate = _halves(x)
    incoming = parts(dy)
    return np.hstack(
        [
            values(*element.term(*incoming, *gate, *gate, _GATE)),
            values(*element.term(*incoming, *value, *gate, _GATE_SLOPE)),
        ]
    )
