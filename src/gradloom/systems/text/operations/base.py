"""Base of the operations of a transformer's training step.

An operation names its tensors; it knows neither values nor where they lie. Three things are made of the same list:
the mathematics, the integer reference and the program (``reference/mathematics.py``, ``reference/integers.py``,
``program/step.py``). What an integer of a tensor stands for, ``n * 2**-frac``, is in a mapping from names to fraction
bits, and :meth:`shifts` of an operation turns it into the operands of commands.
"""

from collections.abc import Mapping

from gradloom.program import operations
from gradloom.rtl.formats.weights.linear import ACTIVATION, MASTER, WEIGHT

from .tensors import TensorSlice

__all__ = ["Fracs", "Operation", "checked_shifts", "sums", "within"]

#: Fraction bits by the name of a tensor, of a matrix, of an adapter's ``.a`` and ``.b``.
Fracs = Mapping[str, int]
#: Fraction bits that a word loses on its way to being a weight.
DROP = ACTIVATION.width - WEIGHT.width
#: Fraction bits that an adapter's word in memory has more than the one in the array.
SPARE = MASTER.width - WEIGHT.width


class Operation(operations.Operation):
    """An operation of a step, on slices of tensors."""

    @property
    def results(self) -> "tuple[TensorSlice, ...]":
        """Slices that it makes, without gradients of adapters and losses."""
        return super().results

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        """The least and the most fraction bits of each result."""
        return {}


def within(top: int) -> tuple[int, int]:
    """Fraction bits of a result whose sum has ``top`` of them."""
    return top - 63, top


def sums(a: int, b: int) -> tuple[int, int]:
    """Fraction bits of a sum, from those of its terms."""
    return max(a, b) - 56, min(a, b) + 7


def checked_shifts(name: str, **shifts: int) -> dict[str, int]:
    """The shifts of a command, each from 0 to 63; another is refused by ``name``, that of the result."""
    for field, value in shifts.items():
        if not 0 <= value < 64:
            raise ValueError(f"{name}: {field}={value}: the exponents lie too far apart, must be 0 to 63")
    return shifts
