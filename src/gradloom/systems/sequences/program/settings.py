"""Requantisers as words of the cell engine."""

from dataclasses import dataclass, replace

import numpy as np

from gradloom.rtl.formats.cell import CENTRED
from gradloom.rtl.formats.requantizer import NEAR, NEAR_SHIFT, Requantizer

__all__ = ["HALF", "IDLE", "Affine", "Parts", "quantizer_word"]

#: Bits of a multiplier, shifts that there are.
_MULTIPLIER, _SHIFTS = 26, 48
#: What a centred sum stays below.
HALF = 1 << CENTRED - 1


@dataclass(frozen=True)
class Affine:
    """``(n * multiplier + addend) >> shift``; arrays: one a channel.

    With ``even``, ties go to the even code; with ``near``, a tie may have low bits, see
    :class:`~gradloom.rtl.formats.requantizer.Requantizer`.
    """

    multiplier: np.ndarray
    addend: np.ndarray
    shift: int
    even: bool
    lo: int
    hi: int
    near: int = 0

    @classmethod
    def of(cls, requantizer: Requantizer, what: str) -> "Affine":
        """Of one multiplier a channel; :class:`ValueError` names a ``requantizer`` that does not fit the engine."""
        made = cls._of(requantizer, what)
        if made.multiplier.max() >= 1 << _MULTIPLIER or made.shift >= _SHIFTS or made.near not in (0, NEAR):
            raise ValueError(
                f"{what}: multiplies by {made.multiplier.max()} and shifts by {made.shift}: at most "
                f"{(1 << _MULTIPLIER) - 1} and {_SHIFTS - 1} fit the cell engine; run it with --engine reference"
            )
        return made

    @classmethod
    def _of(cls, requantizer: Requantizer, what: str) -> "Affine":
        if requantizer.kind == "table":
            raise ValueError(
                f"{what}: became a table of {requantizer.thresholds.size} thresholds, which are on no line: the cell "
                "engine multiplies, adds and shifts; quantise with levels of one distance, or run it with --engine "
                "reference"
            )
        half = 1 << requantizer.shift - 1 if requantizer.half_even else 0
        made = cls(
            requantizer.multiplier,
            requantizer.addend + half,
            requantizer.shift,
            requantizer.half_even,
            requantizer.lo,
            requantizer.hi,
            requantizer.near,
        )
        if made.lo < -512 or made.hi > 511:
            raise ValueError(f"{what}: has codes {made.lo} to {made.hi}: must be within -512 and 511")
        return made

    @classmethod
    def parts(cls, requantizer: Requantizer, factors: tuple[int, int], reach: tuple[int, int], what: str) -> "Parts":
        """Of a requantiser of ``factors[0] * a + factors[1] * b``: multipliers of a and b, and the rest.

        ``reach``: greatest magnitudes of a and b. Where a product has too many bits, a smaller shift with rounded
        multipliers does, as long as each threshold stays where it is: checked with the greatest error of the rounding.
        """
        wide = cls._of(requantizer, what)
        exact = [wide.multiplier * factor for factor in factors]
        most = max(int(each.max()) for each in exact)
        fewer = max(most.bit_length() - _MULTIPLIER, 0)
        if not fewer and wide.near in (0, NEAR):
            return Parts(exact[0], exact[1], wide)
        half, error, near, middle = (1 << fewer) >> 1, (sum(reach) + 3) // 2, 0, 0
        if wide.near:
            near, middle = NEAR, (1 << NEAR - 1) - (1 << wide.near - 1 >> fewer)
        addend = (wide.addend + half >> fewer) + middle
        made = replace(wide, addend=addend, shift=wide.shift - fewer, near=near)
        if (
            near < NEAR
            and wide.even
            or made.shift < (NEAR_SHIFT if near else 0)
            or not made._keeps(wide, requantizer, error)
        ):
            raise ValueError(
                f"{what}: multiplies by {most}: at most {(1 << _MULTIPLIER) - 1} fits the cell engine; run it with "
                "--engine reference"
            )
        alone, other = (each + half >> fewer for each in exact)
        return Parts(alone, other, made)

    def _keeps(self, wide: "Affine", requantizer: Requantizer, error: int) -> bool:
        """Whether thresholds are those of ``wide``, which has a larger shift, whatever the errors up to ``error``."""
        codes, fewer = np.arange(self.lo + 1, self.hi + 1), wide.shift - self.shift
        at, below = (
            ((requantizer.thresholds - n) * wide.multiplier[:, None] >> fewer) + self.addend[:, None] for n in (0, 1)
        )
        return bool((self._codes(at - error) >= codes).all() and (self._codes(below + error) < codes).all())

    def rows(self, what: str, reach: tuple[int, int], count: int, bits: int) -> np.ndarray:
        """Offset, multiplier and addend ``[count, 3]`` of rows.

        Their sums have ``bits``.
        """
        limit = 1 << bits
        multiplier, addend = (np.broadcast_to(each, count) for each in (self.multiplier, self.addend))
        offset = addend // multiplier
        rest = addend - offset * multiplier
        if max(-offset.min(), offset.max()) >= limit:
            raise ValueError(f"{what}: its bias is {max(-offset.min(), offset.max())} units: must be below {limit}")
        low, high = reach
        for beyond, end, side in (
            (low + offset < -HALF, self._codes(-HALF * multiplier + rest) > self.lo, "low"),
            (high + offset >= HALF, self._codes((HALF - 1) * multiplier + rest) < self.hi, "high"),
        ):
            if (beyond & end).any():
                raise ValueError(
                    f"{what}: sums reach {low} to {high}, beyond {CENTRED} bits, before the code is at "
                    f"its {side} end; run it with --engine reference"
                )
        return np.stack([offset, multiplier, rest], axis=1)

    def _codes(self, value: np.ndarray) -> np.ndarray:
        """Codes of products with their addends, before they are clipped."""
        below = (value & (1 << self.shift) - 1) >> self.near
        return (value >> self.shift) & ~(below == 0).astype(np.int64) if self.even else value >> self.shift


@dataclass(frozen=True)
class Parts:
    """A requantiser of two parts, each with a multiplier of its own.

    ``rest``: addend, shift and codes.
    """

    first: np.ndarray
    second: np.ndarray
    rest: Affine


#: Of a network without a convolution.
IDLE = Affine(np.zeros(1, np.int64), np.zeros(1, np.int64), 0, False, 0, 0)


def quantizer_word(made: Affine, addend: int, one: int = 0) -> bytes:
    """A :class:`~...formats.cell.QuantizerWord` of one channel."""
    word = int(made.multiplier[0]) | bool(made.near) << 31 | (addend & (1 << 48) - 1) << 32
    word |= made.shift << 80 | int(made.even) << 86 | one << 87
    word |= (made.lo & 0xFFFF) << 96 | (made.hi & 0xFFFF) << 112
    return word.to_bytes(16, "little")
