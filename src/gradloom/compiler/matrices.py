"""Weights of layers as matrices, one for each tap of a kernel."""

import numpy as np

from gradloom.graph.base import Operation
from gradloom.graph.operations import Convolution

__all__ = ["HALF", "blocks", "matrices", "weights_of"]

#: Columns of half a tile, which a pass of the array makes.
HALF = 32


def matrices(each: Operation, name: str, value: np.ndarray) -> np.ndarray:
    """Weights ``[outputs, inputs]``, of a kernel ``[taps, outputs, inputs]``.

    Channels in groups are matrices with zeros outside their groups. What makes the result of a transposed convolution
    is its outputs here, too.
    """
    value = np.asarray(value, np.float64)
    if value.ndim == 2:
        return value
    taps = value.reshape(*value.shape[:2], -1).transpose(2, 0, 1)
    if isinstance(each, Convolution) and name == f"{each.layer}.weight":
        if each.groups > 1:
            taps = _spread(taps, each.groups)
        if each.transposed:
            taps = taps.swapaxes(1, 2)
    return taps[0] if len(taps) == 1 else taps


def blocks(taps: np.ndarray) -> np.ndarray:
    """Which parts of 32 by 32 of matrices ``[taps, inputs, outputs]`` are not zeros."""
    count, inputs, outputs = taps.shape
    padded = np.pad(taps != 0, ((0, 0), (0, -inputs % HALF), (0, -outputs % HALF)))
    found: np.ndarray = padded.reshape(count, -1, HALF, padded.shape[2] // HALF, HALF).any((2, 4))
    return found


def weights_of(each: Operation, name: str, made: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Weights of ``shape`` back from :func:`matrices`, of a layer without groups."""
    if len(shape) <= 2:
        return made.reshape(shape)
    taps = made.reshape(-1, *made.shape[-2:])
    if isinstance(each, Convolution) and each.transposed and name == f"{each.layer}.weight":
        taps = taps.swapaxes(1, 2)
    return taps.transpose(1, 2, 0).reshape(shape)


def _spread(taps: np.ndarray, groups: int) -> np.ndarray:
    """``[taps, a, b / groups]`` as ``[taps, a, b]``."""
    count, first, second = taps.shape
    made = np.zeros((count, groups, first // groups, groups, second))
    at = np.arange(groups)
    made[:, at, :, at] = taps.reshape(count, groups, first // groups, second).swapaxes(0, 1)
    return made.reshape(count, first, groups * second)
