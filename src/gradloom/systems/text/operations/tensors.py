"""Tensors, slices and matrices that operations of a transformer name."""

from dataclasses import dataclass

import numpy as np

from gradloom.program import operations
from gradloom.rtl.formats.fixed import Fixed
from gradloom.rtl.formats.rounding import saturate
from gradloom.rtl.formats.vector import FACTOR_FRAC, TERM
from gradloom.rtl.formats.weights.linear import ACTIVATION, WEIGHT

from . import vector

__all__ = [
    "EDGE",
    "AdapterTensors",
    "Angles",
    "Codes",
    "Factors",
    "Gain",
    "HeadCodes",
    "MatrixRows",
    "HeadRows",
    "TensorSlice",
    "Tensor",
    "Words",
]

#: Features of a tile.
EDGE = 64


@dataclass(frozen=True)
class Tensor(operations.Tensor):
    """A tensor ``[rows, features]``, a row a token.

    ``wide``: words of 25 bits, which only the vector engine reads.
    """

    wide: bool = False

    def __post_init__(self) -> None:
        if self.features % EDGE:
            raise ValueError(f"{self.name}: features={self.features} must be a multiple of {EDGE}")

    @property
    def form(self) -> Fixed:
        """Of its words."""
        return TERM if self.wide else ACTIVATION

    @property
    def tiles(self) -> int:
        """Of :data:`EDGE` features."""
        return self.features // EDGE

    def all(self) -> "TensorSlice":
        """The whole tensor as a slice."""
        return TensorSlice(self, 0, self.tiles)

    def part(self, first: int, count: int = 1) -> "TensorSlice":
        """``count`` tiles from ``first`` on."""
        return TensorSlice(self, first, count)

    def some(self, row: int, height: int, first: int = 0, count: int = 1) -> "TensorSlice":
        """``height`` rows from ``row`` on, of ``count`` tiles from ``first`` on."""
        return TensorSlice(self, first, count, row, height)

    def stacked(self, first: int, count: int) -> "HeadRows":
        """``count`` tiles of the one row, from ``first`` on, as so many rows of a tile."""
        return HeadRows(self, first, 1, 0, count)


class Factors(Tensor):
    """``[1, features]``, words of 18 bits that features are multiplied by."""

    @property
    def form(self) -> Fixed:
        """Of its words."""
        return WEIGHT


@dataclass(frozen=True)
class Gain:
    """A positive constant as a word of 18 bits.

    ``name`` : of the memory that holds it.
    """

    name: str
    value: float

    @property
    def frac(self) -> int:
        """Fraction bits of :attr:`word`."""
        return vector.frac_of(self.value, WEIGHT)

    @property
    def word(self) -> int:
        """The nearest of the most fraction bits."""
        return round(self.value * 2.0**self.frac)


@dataclass(frozen=True)
class TensorSlice:
    """Some neighbouring tiles of a tensor.

    They have all their rows, or ``height`` from ``row`` on.
    """

    tensor: Tensor
    first: int
    count: int
    row: int = 0
    height: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.row < self.row + self.rows <= self.tensor.rows:
            raise ValueError(f"{self.tensor.name}: rows {self.row} to {self.row + self.rows - 1} of {self.tensor.rows}")
        if not 0 <= self.first < self.first + self.count <= self.tensor.tiles:
            raise ValueError(
                f"{self.tensor.name}: tiles {self.first} to {self.first + self.count - 1} of {self.tensor.tiles}"
            )

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def rows(self) -> int:
        return self.tensor.rows if self.height is None else self.height

    @property
    def whole(self) -> bool:
        """Whether it lies in memory without a gap."""
        return self.count == 1 or self.rows == self.tensor.rows

    @property
    def where(self) -> tuple[slice, slice]:
        """Rows and features of the tensor."""
        return slice(self.row, self.row + self.rows), slice(self.first * EDGE, (self.first + self.count) * EDGE)


@dataclass(frozen=True)
class HeadRows(TensorSlice):
    """Tiles of a tensor of one row as rows of a tile, which is the same in memory: ``height`` from ``first`` on."""

    def __post_init__(self) -> None:
        if self.tensor.rows != 1 or not 0 <= self.first < self.first + self.rows <= self.tensor.tiles:
            raise ValueError(
                f"{self.tensor.name}: tiles {self.first} to {self.first + self.rows - 1} of {self.tensor.tiles} as "
                f"rows, of {self.tensor.rows} rows"
            )

    @property
    def where(self) -> tuple[slice, slice]:
        """The row, and its features."""
        return slice(0, 1), slice(self.first * EDGE, (self.first + self.rows) * EDGE)


@dataclass(frozen=True)
class Codes:
    """A frozen linear ``[outputs, inputs]`` of 4-bit codes, whole."""

    name: str
    outputs: int
    inputs: int


@dataclass(frozen=True)
class HeadCodes(Codes):
    """Rows ``first`` to ``first + outputs`` of the head in 4-bit codes, in memory a linear of their own."""

    first: int


@dataclass(frozen=True)
class MatrixRows:
    """Rows ``first`` to ``first + outputs`` of a frozen 16-bit matrix."""

    name: str
    outputs: int
    inputs: int
    first: int = 0


@dataclass(frozen=True)
class Words:
    """A matrix of words that the step itself made.

    It is a slice of one tile each, in the order of their use: rows of a tile are tokens, and those that the tensor does
    not have are zero.
    """

    tiles: tuple[TensorSlice, ...]


@dataclass(frozen=True)
class AdapterTensors:
    """``B A`` beside a linear of the same name; its factor is in B.

    ``made``: the step makes B of a smaller matrix, which learns in place of A and B. ``held``: B alone learns.
    """

    name: str
    rank: int
    made: bool = False
    held: bool = False

    @property
    def graded(self) -> str:
        """Which of ``a`` and ``b`` have a gradient."""
        return "b" if self.made or self.held else "ab"


@dataclass(frozen=True)
class Angles:
    """Half a row of cosines, then of sines, a row a token.

    Each is multiplied by ``gain``. ``kind``: of layers (:meth:`LanguageModel.turns`). ``tiles``: of a head, each with
    angles of its own.
    """

    name: str
    rows: int
    gain: float
    kind: str = ""
    tiles: int = 1

    def turns(self, held: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines ``[rows, 32 tiles]``, multiplied: each ``[rows, tiles, 32]``."""
        cos, sin = (self.gain * each.reshape(len(each), self.tiles, -1) for each in held)
        return cos, sin

    def words(self, held: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """What lies in memory: ``[rows, 64 tiles]``, 16 fraction bits."""
        words = np.rint(np.concatenate(self.turns(held), axis=2) * 2.0**FACTOR_FRAC).astype(np.int64)
        return saturate(words.reshape(self.rows, -1), WEIGHT.lo, WEIGHT.hi)[0]
