"""Quantisers of recurrent networks, and what they become."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from gradloom.rtl.formats.requantizer import Requantizer, rounding_thresholds, step_thresholds

__all__ = ["ACTIVATIONS", "Coding", "bounds_of", "check_one_row", "looked_up", "lookup", "narrowed", "reals", "told_of"]


@dataclass(frozen=True, eq=False)
class Coding:
    """A quantiser: makes a real number a code in ``lo..hi``.

    The code stands for ``code * scale``.

    Attributes
    ----------
    scale : float
        Value of a code's unit.
    lo, hi : int
    step : float
        Unit of the rounding, half to even; the scale itself but for odd models.
    levels : array ``[channels, hi - lo]``, optional
        In place of rounding: the code is ``lo`` and the number of levels that are at most the number.
    name : str
        Name of the node.
    """

    scale: float
    lo: int
    hi: int
    step: float = 0.0
    levels: np.ndarray | None = None
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", self.step or self.scale)

    def codes(self, values: np.ndarray) -> np.ndarray:
        """Codes of real numbers in float32; channels last.

        They are computed as an interpreter of ONNX computes them.
        """
        values = np.asarray(values, np.float32)
        if self.levels is None:
            return np.clip(np.rint(values / np.float32(self.step)), self.lo, self.hi).astype(np.int64)
        if len(self.levels) == 1:
            return self.lo + np.searchsorted(self.levels[0].astype(np.float32), values, side="right")
        return self.lo + (values[..., None] >= self.levels.astype(np.float32)).sum(axis=-1)

    def requantizer(self, scales: list[Fraction], offsets: list[Fraction]) -> Requantizer:
        """Requantizer of integers ``n`` that stand for ``n * scale + offset``.

        There is one scale and offset a channel, or one for all.
        """
        if self.levels is not None:
            most = max(len(self.levels), len(scales))
            scales, offsets = scales * (most // len(scales)), offsets * (most // len(offsets))
            return Requantizer.of(step_thresholds(self.levels, scales, offsets), self.lo, self.hi)
        if len({*zip(scales, offsets)}) == 1:
            scales, offsets = scales[:1], offsets[:1]
        thresholds = rounding_thresholds(Fraction(self.step), scales, offsets, self.lo, self.hi)
        step = Fraction(self.step)
        slopes, offsets = ([each / step for each in some] for some in (scales, offsets))
        return Requantizer.of(thresholds, self.lo, self.hi, slopes=slopes, offsets=offsets)


#: Activations by name, of real numbers.
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
}


def reals(values: np.ndarray) -> list[Fraction]:
    """Real numbers as they are."""
    return [Fraction(float(each)) for each in values]


def lookup(
    coding_in: tuple[int, int, float],
    function: str,
    coding: Coding,
    before: Requantizer | None = None,
    before_scale: float = 0.0,
) -> np.ndarray:
    """Codes of an activation for each code in ``lo..hi``.

    ``before``: a quantiser in front of it.
    """
    check_one_row(coding, f"behind a {function}")
    lo, hi, scale = coding_in
    codes = np.arange(lo, hi + 1)
    if before is not None:
        codes, scale = before(codes), before_scale
    real = (codes.astype(np.float32) * np.float32(scale)).astype(np.float64)
    return coding.codes(ACTIVATIONS[function](real))


def check_one_row(coding: Coding, where: str) -> None:
    """Refuses thresholds of each channel where one table is made for all."""
    if coding.levels is not None and len(coding.levels) > 1:
        raise ValueError(
            f"node {coding.name!r}: it has {len(coding.levels)} rows of thresholds {where}, of which one table is made "
            "for all channels: give it one row"
        )


def narrowed(coding: Coding, table: np.ndarray) -> Coding:
    """A coding of the codes that a table holds: others cannot occur."""
    return Coding(coding.scale, int(table.min()), int(table.max()))


def bounds_of(*terms: tuple[np.ndarray, int, int, int]) -> tuple[int, int]:
    """Least and greatest of sums of products.

    A term: weights ``[rows, n]``, a factor, and the range of its codes.
    """
    low = sum(np.minimum(w * f * lo, w * f * hi).sum(axis=1) for w, f, lo, hi in terms)
    high = sum(np.maximum(w * f * lo, w * f * hi).sum(axis=1) for w, f, lo, hi in terms)
    # Padding and a start from zero: 0 is always possible.
    return min(int(np.min(low)), 0), max(int(np.max(high)), 0)


def told_of(what: str, node: str, requantizer: Requantizer, reach: tuple[int, int]) -> dict[str, object]:
    """What a quantiser became."""
    return {
        "quantizer": what,
        "node": node,
        **requantizer.describe(),
        "from": list(reach),
        "exact": "for every integer",
    }


def looked_up(what: str, coding: Coding, table: np.ndarray, first: int) -> dict[str, object]:
    """What an activation became."""
    return {
        "quantizer": what,
        "node": coding.name,
        "becomes": "table of codes",
        "lo": int(table.min()),
        "hi": int(table.max()),
        "channels": 1,
        "entries": len(table),
        "from": [first, first + len(table) - 1],
        "exact": "for every integer",
    }
