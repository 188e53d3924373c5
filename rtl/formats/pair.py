"""Two codes of 8 bits in the wide operand of one DSP slice."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from amaranth.hdl import Cat, Value

__all__ = ["Pair"]


@dataclass(frozen=True)
class Pair:
    """Two codes side by side, which share the other operand of a slice.

    ::

        (high * 2**apart + low) * x  =  (high * x) * 2**apart + low * x

    A sum of such products, a *chain*, holds two sums as long as that of the low codes stays within ``apart`` bits. With
    codes and operands of 8 bits that is so for :attr:`rows` products, whatever the codes.

    A pair is stored as 16 bits: the low code, and the high code less 1 where the low one is negative, so that the wide
    operand is wires. Codes are -127 to 127: the high code -128 has no such word.

    Parameters
    ----------
    apart : :class:`int`
        Bits between both codes: 19 in the 27 bits of a DSP48E2, 17 in the 25 of a DSP48E1.
    """

    apart: int = 19

    #: Bits of a code; of both as they are stored.
    CODE: ClassVar[int] = 8
    WORD: ClassVar[int] = 16
    #: Largest magnitude of a code.
    MOST: ClassVar[int] = 127
    #: Bits between both codes in a family's slice; others take one code each.
    APART: ClassVar[dict[str, int]] = {"xcup": 19, "xc7": 17}

    def __post_init__(self) -> None:
        if not 15 <= self.apart <= 19:
            raise ValueError(f"apart={self.apart}: must be from 15, a product's bits, to 19 in a slice of 27 bits")

    @property
    def width(self) -> int:
        """Bits of the wide operand."""
        return self.apart + self.CODE

    @property
    def bound(self) -> int:
        """What the magnitude of the low codes' sum stays below."""
        return 1 << self.apart - 1

    @property
    def rows(self) -> int:
        """Longest chain of any codes with any operands of 8 bits."""
        return (self.bound - 1) // (self.MOST << self.CODE - 1)

    def check(self, rows: int, *, most: int = 1 << 7) -> None:
        """Refuses a chain of so many rows: sum of magnitudes times ``most``.

        ``most``: largest magnitude of the other operand.
        """
        if rows * self.MOST * most >= self.bound:
            raise ValueError(
                f"rows={rows}: a chain of pairs {self.apart} bits apart is at most "
                f"{(self.bound - 1) // (self.MOST * most)} products of codes up to {self.MOST} and {most}: "
                f"{rows * self.MOST * most} would reach {self.bound}"
            )

    # ---- numbers

    def stored(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both codes as they are stored."""
        return low, high - (low < 0)

    # ---- hardware

    def word(self, low: Any, high: Any) -> Value:
        """The stored word of two codes."""
        return Cat(low, (high - low[-1])[: self.CODE])

    def wide(self, word: Any) -> Value:
        """The wide operand of a stored word: wires."""
        return Cat(
            word[: self.CODE], word[self.CODE - 1].replicate(self.apart - self.CODE), word[self.CODE :]
        ).as_signed()

    def lanes(self, total: Any) -> tuple[Value, Value]:
        """The sums of the low and of the high codes.

        A negative one below borrows from the one above.
        """
        low, high = total[: self.apart].as_signed(), total[self.apart :].as_signed()
        return low, high + low[-1]

    def biased_lanes(self, total: Any) -> tuple[Value, Value]:
        """The same where the chain began with :attr:`bound`.

        The low sum is then never negative in its bits, and nothing borrows: both lanes are wires but for an inverter.
        """
        return Cat(total[: self.apart - 1], ~total[self.apart - 1]).as_signed(), total[self.apart :].as_signed()
