"""Matrices that make larger sides of smaller ones."""

from collections.abc import Callable

import numpy as np

from ..operations import Upsample

__all__ = ["sampling"]


def sampling(each: Upsample) -> list[np.ndarray]:
    """A matrix ``[side of the result, side]`` for each side."""
    return [_matrix(each, low, high) for low, high in zip(each.i[0].sides, each.o.sides)]


def repeats(each: Upsample) -> bool:
    """Whether every pixel of the result is one of the tensor's, whole times as many a side."""
    for made in sampling(each):
        high, low = made.shape
        if high % low or (made != np.eye(low).repeat(high // low, axis=0)).any():
            return False
    return True


_ROUNDED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
}


def _matrix(each: Upsample, low: int, high: int) -> np.ndarray:
    at = np.arange(high, dtype=np.float64)
    scale = high / low
    if each.places == "asymmetric":
        place = at / scale
    elif each.places == "align_corners":
        place = at * ((low - 1) / (high - 1)) if high > 1 else np.zeros(1)
    elif each.places == "pytorch_half_pixel" and high == 1:
        place = np.zeros(1)
    else:
        place = (at + 0.5) / scale - 0.5
    made = np.zeros((high, low))
    if each.mode == "nearest":
        rounded = _ROUNDED[each.rounding](place)
        made[np.arange(high), np.clip(rounded, 0, low - 1).astype(int)] = 1
        return made
    place = np.clip(place, 0, low - 1)
    first = np.floor(place).astype(int)
    share = place - first
    made[np.arange(high), first] += 1 - share
    made[np.arange(high), np.minimum(first + 1, low - 1)] += share
    return made
