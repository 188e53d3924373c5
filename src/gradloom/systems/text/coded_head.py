"""A head in NF4 codes, such that a model loses little.

Its inputs have a large mean, so that the errors of the nearest codes add up. As in :mod:`gradloom.graph.rounding`,
codes are chosen one input after the other, and weights that are left make up for the error so far (GPTQ, Frantar et al.
2022). Format and scales are those of every other linear. The inputs are those of tokens drawn at random, so that a head
needs no text.
"""

from dataclasses import replace

import numpy as np

from gradloom.models.pack import QuantizedLinear, quantize_linear
from gradloom.rtl.formats.weights.blocks import dequantize_scales
from gradloom.rtl.formats.weights.weight_stream import BOOKS, TILE

from .reference.llama import Llama

__all__ = ["coded_head", "compensated"]

#: Windows of random tokens, and tokens of each at most.
_WINDOWS, _TOKENS = 4, 64
#: Part of the inputs' mean square that each one gains: they are fewer than the features.
_DAMPING = 0.1
#: Rows at once.
_ROWS = 4096


def coded_head(llama: Llama) -> QuantizedLinear:
    """A model's head in 4-bit codes, whether it is tied or not."""
    model = llama.model
    drawn = np.random.default_rng(0).integers(0, model.vocab, (_WINDOWS, min(_TOKENS, model.context)))
    return compensated(llama.head.astype(np.float32), np.concatenate([llama.last_normed(each) for each in drawn]))


def compensated(weight: np.ndarray, inputs: np.ndarray) -> QuantizedLinear:
    """Quantises ``weight [N, K]`` such that its products with rows like ``inputs [n, K]`` stay close.

    Scales are those of :func:`~gradloom.models.pack.quantize_linear`.
    """
    held = quantize_linear(weight)
    x = inputs.astype(np.float64)
    square = x.T @ x / len(x)
    damped = square + (_DAMPING * np.trace(square) / len(square) or 1.0) * np.eye(len(square))
    factor = np.linalg.cholesky(np.linalg.inv(damped)).T.astype(np.float32)
    scales = dequantize_scales(held.scale_codes, held.absmax2, held.offset).reshape(len(weight), -1)
    codes = [_codes(weight[at : at + _ROWS], scales[at : at + _ROWS], factor) for at in range(0, len(weight), _ROWS)]
    return replace(held, codes=np.concatenate(codes))


def _codes(weight: np.ndarray, scales: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Codes ``[rows, inputs]`` in blocks with these scales; ``factor`` is the root of the inverse of the moments."""
    book, left = BOOKS[4], weight.T.copy()
    made = np.empty(left.shape, np.uint8)
    for first in range(0, len(left), TILE):
        scale, end = scales[:, first // TILE], first + TILE
        inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
        errors = np.empty_like(left[first:end])
        for at in range(first, end):
            made[at] = book.encode(np.clip(left[at] * inverse, -1, 1))
            errors[at - first] = (left[at] - book.decode(made[at]) * scale) / factor[at, at]
            left[at + 1 : end] -= np.outer(factor[at, at + 1 : end], errors[at - first])
        left[end:] -= factor[first:end, end:].T @ errors
    return made.T.copy()
