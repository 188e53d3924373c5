"""Tensors, slices and matrices that operations of a transformer name."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    "PlacedTiles",
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

    def at(self, places: Sequence[int], stack: int = 1) -> "PlacedTiles":
        """Tiles at ``places``, in this order; each has the rows of ``stack`` neighbours, one's behind another's."""
        return PlacedTiles(self, places[0], len(places), 0, stack * self.rows, tuple(places), stack)


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

    #: Neighbours that are one tile.
    stack = 1

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
    def order(self) -> Sequence[int]:
        """Its tiles by their places in the tensor."""
        return range(self.first, self.first + self.count)

    @property
    def runs(self) -> list[tuple[int, int]]:
        """Tiles that lie in memory without a gap: the place of the first, and how many."""
        made: list[tuple[int, int]] = []
        for place in self.order:
            if made and self.rows == self.stack * self.tensor.rows and place == made[-1][0] + self.stack * made[-1][1]:
                made[-1] = made[-1][0], made[-1][1] + 1
            else:
                made.append((place, 1))
        return made

    @property
    def whole(self) -> bool:
        """Whether it lies in memory without a gap."""
        return len(self.runs) == 1

    @property
    def step(self) -> int:
        """Places from a tile to the next."""
        steps = {after - before for before, after in zip(self.order, self.order[1:])}
        if len(steps) > 1:
            raise ValueError(f"{self.tensor.name}: its tiles are not at equal steps")
        return steps.pop() if steps else 1

    def part(self, first: int, count: int) -> "TensorSlice":
        """``count`` of its tiles."""
        return replace(self, first=self.first + first, count=count)

    def every(self, first: int, step: int) -> "TensorSlice":
        """Each ``step``-th of its tiles from ``first`` on."""
        order = self.order[first::step]
        return PlacedTiles(self.tensor, order[0], len(order), self.row, self.rows, tuple(order))

    @property
    def where(self) -> tuple[slice, slice]:
        """Rows and features of the tensor."""
        return slice(self.row, self.row + self.rows), slice(self.first * EDGE, (self.first + self.count) * EDGE)

    def of(self, held: np.ndarray) -> np.ndarray:
        """Its words ``[rows, features]`` of those of the tensor."""
        return held[self.where]

    def put(self, held: np.ndarray, words: np.ndarray) -> None:
        """Changes them."""
        held[self.where] = words


@dataclass(frozen=True)
class PlacedTiles(TensorSlice):
    """Tiles in any order, each of the rows of ``stack`` neighbours: see :meth:`Tensor.at`."""

    places: tuple[int, ...] = ()
    stack: int = 1

    def __post_init__(self) -> None:
        if not 0 <= min(self.places) <= max(self.places) + self.stack - 1 < self.tensor.tiles:
            raise ValueError(
                f"{self.tensor.name}: tiles at {self.places}, {self.stack} as one, of {self.tensor.tiles} tiles"
            )

    @property
    def order(self) -> Sequence[int]:
        return self.places

    def part(self, first: int, count: int) -> TensorSlice:
        places = self.places[first : first + count]
        return replace(self, first=places[0], count=count, places=places)

    def _tiles(self, held: np.ndarray) -> np.ndarray:
        """A view of the tensor by tile, row and feature."""
        return held.reshape(len(held), -1, EDGE).swapaxes(0, 1)

    @property
    def _rows(self) -> slice:
        return slice(self.row, self.row + self.rows // self.stack)

    def of(self, held: np.ndarray) -> np.ndarray:
        tiles = self._tiles(held)
        stacks = [tiles[place : place + self.stack, self._rows].reshape(-1, EDGE) for place in self.places]
        return np.concatenate(stacks, axis=1)

    def put(self, held: np.ndarray, words: np.ndarray) -> None:
        tiles = self._tiles(held)
        for number, place in enumerate(self.places):
            rows = words[:, number * EDGE : (number + 1) * EDGE]
            tiles[place : place + self.stack, self._rows] = rows.reshape(self.stack, -1, EDGE)


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
