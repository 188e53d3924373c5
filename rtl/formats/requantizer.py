"""Integers to codes of fewer bits, exact for every integer."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np

__all__ = ["NEAR", "NEAR_SHIFT", "Requantizer", "rounding_thresholds", "step_thresholds"]

#: Largest shift that is looked for, and bound of products in 64 bits.
_MOST_SHIFT, _MOST = 40, 1 << 62
#: Low bits that a tie may have: how far a rounded multiplier may move it; of one multiplier, and where it takes more.
#: The least shift with them, of whole bytes.
NEAR, _FAR, NEAR_SHIFT = 16, 22, 24


@dataclass(frozen=True, eq=False)
class Requantizer:
    """A non-decreasing step function from integers to codes.

    The arithmetic is the cheapest that equals it.

    ``kind`` names the arithmetic; each result is clipped to ``lo..hi``:

    =========== ==========================================================================
    nothing     ``n``
    shift       ``(n + addend) >> shift``
    multiply    ``(n * multiplier + addend) >> shift``
    table       ``lo`` and the number of thresholds that are at most ``n``
    =========== ==========================================================================

    With ``half_even``, a shift rounds ``(n * multiplier + addend) / 2**shift`` to the nearest integer, ties to the even
    one, in place of rounding down. A tie is where the ``shift`` bits below the result, with half a unit, are 0; the
    lowest ``near`` of them do not count. So ties of a slope with an odd denominator, which no binary multiplier is, are
    ties too.

    Parameters
    ----------
    thresholds : array of int64 ``[channels, hi - lo]``
        Ascending. Threshold ``k`` is the least integer whose code is at least ``lo + 1 + k``. One channel: for all.
    lo, hi : int
        Least and greatest code.
    """

    thresholds: np.ndarray
    lo: int
    hi: int
    kind: str
    multiplier: np.ndarray
    addend: np.ndarray
    shift: int
    half_even: bool
    near: int = 0

    @classmethod
    def of(
        cls,
        thresholds: np.ndarray,
        lo: int,
        hi: int,
        *,
        slopes: Sequence[Fraction] = (),
        offsets: Sequence[Fraction] = (),
    ) -> "Requantizer":
        """The cheapest arithmetic for ``thresholds``.

        ``slopes`` and ``offsets``, one a channel: the thresholds are those of rounding ``n * slope + offset`` half to
        even.
        """
        channels = len(thresholds)
        codes = np.arange(lo + 1, hi + 1)
        one, zero = np.ones(channels, np.int64), np.zeros(channels, np.int64)
        if (thresholds == codes).all():
            return cls(thresholds, lo, hi, "nothing", one, zero, 0, False)
        found = _affine(thresholds, codes)
        half_even, near, more = False, 0, 0
        if found is None and slopes:
            found, half_even = _rounded(thresholds, codes, slopes, offsets), True
        for more in (NEAR, _FAR) if found is None and slopes else ():
            if found is None:
                found, near = _nearly(thresholds, codes, slopes, offsets, more), more
        if found is None:
            return cls(thresholds, lo, hi, "table", one, zero, 0, False)
        multiplier, addend, shift = found
        kind = "shift" if (multiplier == 1).all() else "multiply"
        return cls(thresholds, lo, hi, kind, multiplier, addend, shift, half_even, near)

    def __call__(self, n: np.ndarray) -> np.ndarray:
        """Codes of integers.

        The last axis is that of the channels where there are several.
        """
        n = np.asarray(n, np.int64)
        if self.kind == "table":
            return self.by_thresholds(n)
        value = (
            n * self.multiplier + self.addend if len(self.thresholds) > 1 else (n * self.multiplier[0] + self.addend[0])
        )
        return np.clip(_shifted(value, self.shift, self.half_even, self.near), self.lo, self.hi)

    def by_thresholds(self, n: np.ndarray) -> np.ndarray:
        """Codes by counting thresholds, for every kind: the definition."""
        n = np.asarray(n, np.int64)
        if len(self.thresholds) == 1:
            return self.lo + np.searchsorted(self.thresholds[0], n, side="right")
        columns = [np.searchsorted(row, n[..., c], side="right") for c, row in enumerate(self.thresholds)]
        return self.lo + np.stack(columns, axis=-1)

    def describe(self) -> dict[str, object]:
        """The arithmetic in numbers."""
        told: dict[str, object] = {"becomes": self.kind, "lo": self.lo, "hi": self.hi, "channels": len(self.thresholds)}
        if self.kind in ("shift", "multiply"):
            told["shift"] = self.shift
            told["rounding"] = "half to even" if self.half_even else "down"
            told |= {"near": self.near} if self.near else {}
            told["addend"] = [int(self.addend.min()), int(self.addend.max())]
        if self.kind == "multiply":
            told["multiplier"] = [int(self.multiplier.min()), int(self.multiplier.max())]
        if self.kind == "table":
            told["thresholds"] = self.thresholds.size
        return told


def rounding_thresholds(
    step: Fraction, scales: Sequence[Fraction], offsets: Sequence[Fraction], lo: int, hi: int
) -> np.ndarray:
    """Thresholds of rounding to multiples of ``step``, a row a channel.

    The rounding is ``(n * scale + offset) / step``, half to even.
    """
    rows = []
    for scale, offset in zip(scales, offsets):
        common = lcm(step.denominator, scale.denominator, offset.denominator)
        a, b, d = int(step * common), int(offset * common), 2 * int(scale * common)
        row = []
        for code in range(lo + 1, hi + 1):
            whole, rest = divmod((2 * code - 1) * a - 2 * b, d)
            # A tie goes to the even code, so an odd one begins an integer later.
            row.append(whole + (rest != 0 or code & 1))
        rows.append(row)
    return np.array(rows, np.int64)


def step_thresholds(levels: np.ndarray, scales: Sequence[Fraction], offsets: Sequence[Fraction]) -> np.ndarray:
    """Least integers ``n`` with ``n * scale + offset >= level``.

    There is one row a channel.

    ``levels``: ``[channels, steps]``.
    """
    rows = []
    for number, (scale, offset) in enumerate(zip(scales, offsets)):
        own = levels[number if len(levels) > 1 else 0]
        rows.append([-((offset - Fraction(float(level))) / scale).__floor__() for level in own])
    return np.array(rows, np.int64)


def _shifted(value: np.ndarray, shift: int, half_even: bool, near: int = 0) -> np.ndarray:
    if not half_even:
        return value >> shift
    value = value + (1 << shift - 1)
    tie = (value & (1 << shift) - 1) >> near == 0
    return (value >> shift) & ~tie.astype(np.int64)


def _affine(thresholds: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, int] | None:
    """``(multiplier, addend, shift)`` whose floor has these thresholds.

    Multiplier and addend are by channel; the shift is the least possible.

    The function does not decrease. So it is right for every integer if it is right at each threshold and at the integer
    below.
    """
    low, high = _slopes(thresholds, codes)
    if (low >= high).any():
        return None
    shared = low.max() < high.min()
    if shared:  # one multiplier for all channels
        low, high = np.full_like(low, low.max()), np.full_like(high, high.min())
    for shift in range(_MOST_SHIFT + 1):
        first, last = np.floor(low * (1 << shift)) + 1, np.ceil(high * (1 << shift)) - 1
        if (first > last).any():
            continue
        for guess in (first, np.floor((first + last) / 2), last):
            multiplier = guess.astype(np.int64)
            addend = _addends(thresholds, codes, multiplier, shift)
            if addend is not None:
                return multiplier, addend, shift
    return None


def _slopes(thresholds: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds, by channel, on the slope of a line.

    The floor of the line has the thresholds.
    """
    low, high = np.zeros(len(thresholds)), np.full(len(thresholds), np.inf)
    rows = thresholds.astype(np.float64)
    for apart in range(1, len(codes)):
        between = rows[:, apart:] - rows[:, :-apart]
        low = np.maximum(low, (apart / (between + 1)).max(axis=1))
        inner = between - 1
        high = np.minimum(high, np.where(inner > 0, apart / np.where(inner > 0, inner, 1), np.inf).min(axis=1))
    return low, np.where(np.isinf(high), np.maximum(2, 2 * low + 1), high)


def _addends(thresholds: np.ndarray, codes: np.ndarray, multiplier: np.ndarray, shift: int) -> np.ndarray | None:
    unit, slope = codes.astype(np.int64) << shift, multiplier[:, None]
    least = (unit - thresholds * slope).max(axis=1)
    greatest = (unit - 1 - (thresholds - 1) * slope).min(axis=1)
    return None if (least > greatest).any() else least + (greatest - least) // 2


def _rounded(
    thresholds: np.ndarray, codes: np.ndarray, slopes: Sequence[Fraction], offsets: Sequence[Fraction]
) -> tuple[np.ndarray, np.ndarray, int] | None:
    """``(multiplier, addend, shift)`` of rounding half to even.

    Slopes and offsets must be multiples of a power of two.
    """
    common = lcm(*(each.denominator for each in (*slopes, *offsets)))
    shift = common.bit_length() - 1
    if common != 1 << shift or not 1 <= shift <= _MOST_SHIFT:
        return None
    exact = [(int(slope * common), int(offset * common)) for slope, offset in zip(slopes, offsets, strict=True)]
    reach = int(max(abs(thresholds.min()), abs(thresholds.max()))) + 1
    if max(abs(slope) * reach + abs(offset) for slope, offset in exact) >= _MOST:
        return None
    multiplier, addend = np.array(exact, np.int64).T
    return (multiplier, addend, shift) if _even(thresholds, codes, multiplier, addend, shift) else None


def _nearly(
    thresholds: np.ndarray, codes: np.ndarray, slopes: Sequence[Fraction], offsets: Sequence[Fraction], near: int
) -> tuple[np.ndarray, np.ndarray, int] | None:
    """The same of any slopes, by multipliers that are near them: ties end within ``near`` bits.

    Results do not decrease, since ties of one code are neighbours: right at each threshold and at the integer below is
    right for every integer.
    """
    reach = int(max(abs(thresholds.min()), abs(thresholds.max()))) + 1
    # The cheapest; of one that is split into parts, the most exact.
    shifts = range(NEAR_SHIFT, 2 * NEAR_SHIFT)
    for shift in shifts if near == NEAR else reversed(shifts):
        exact = [(round(slope * (1 << shift)), round(offset * (1 << shift))) for slope, offset in zip(slopes, offsets)]
        if max(abs(slope) * reach + abs(offset) for slope, offset in exact) >= _MOST:
            continue
        multiplier, addend = np.array(exact, np.int64).T
        # A tie may move down as well as up.
        for middle in (1 << near - 1, 1 << near - 2, 3 << near - 2):
            if (multiplier > 0).all() and _even(thresholds, codes, multiplier, addend + middle, shift, near):
                return multiplier, addend + middle, shift
    return None


def _even(
    thresholds: np.ndarray, codes: np.ndarray, multiplier: np.ndarray, addend: np.ndarray, shift: int, near: int = 0
) -> bool:
    """Whether rounding half to even has the thresholds."""
    at, below = (
        _shifted(n * multiplier[:, None] + addend[:, None], shift, True, near) for n in (thresholds, thresholds - 1)
    )
    return bool((at >= codes).all() and (below < codes).all())
