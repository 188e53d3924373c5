"""What every operation of a network is made of."""

from dataclasses import dataclass, field
from math import prod

from gradloom.program.operations import TensorFunction, Weight

__all__ = ["Operation", "Tensor", "Weight"]


@dataclass(frozen=True)
class Tensor:
    """A tensor ``[rows, features]`` of every sample.

    ``sides`` says what the rows are, the last side fastest: height and width of an image, steps of a series, tokens.
    Without sides it is one row.
    """

    name: str
    sides: tuple[int, ...]
    features: int

    @property
    def rows(self) -> int:
        """How many rows."""
        return prod(self.sides)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sides and features."""
        return (*self.sides, self.features)


@dataclass(frozen=True)
class Operation(TensorFunction[Tensor]):
    """Makes ``o`` of the tensors ``i``; it knows no values.

    ``positive``: values below 0 become 0, as by a ReLU behind it.
    """

    positive: bool = field(default=False, kw_only=True)
