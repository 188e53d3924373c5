"""Reference of the gradient engine, word for word."""

import numpy as np
from numpy.typing import NDArray

from gradloom.rtl.formats.rounding import saturate
from gradloom.rtl.formats.weights.linear import ACTIVATION, WEIGHT, half_up

from .units.exact import matmul

__all__ = ["gradient"]

Words = NDArray[np.int64]


def gradient(x: Words, h: Words, *, shift: int) -> tuple[Words, int]:
    """``(h' x, saturated)``; the product is ``[rank, inputs]``.

    h is rounded to the narrow operand first.
    """
    narrow, clipped = saturate(half_up(h, ACTIVATION.width - WEIGHT.width), WEIGHT.lo, WEIGHT.hi)
    g, lost = saturate(half_up(matmul(narrow.T, x), shift), ACTIVATION.lo, ACTIVATION.hi)
    return g, clipped + lost
