"""Products of parts of matrices, cut where tiles end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gradloom.program.tiles.drafts import Block, Term
from gradloom.program.tiles.layout import Tiles
from gradloom.rtl.formats.tiles.codes import EDGE

__all__ = ["Image", "Part", "cuts", "mixed", "scored", "split", "terms", "turns"]

At = tuple[int, int]
#: Tiles of either side that a tile of the result may read at once: half of the slots, beside which forwards fill
#: the others.
_HELD = 16


@dataclass(frozen=True)
class Image:
    """A product ``[rows, deep]`` by ``[deep, columns]`` of parts of matrices that begin at ``x`` and ``w``.

    Its result begins at ``o`` of another. ``numbers``: of the three matrices.
    """

    rows: int
    deep: int
    columns: int
    x: At = (0, 0)
    w: At = (0, 0)
    o: At = (0, 0)
    numbers: tuple[int, int, int] = (0, 0, 0)

    def parts(self) -> Iterator["Part"]:
        """Parts of one tile of each; of the sum, several tiles of which both begin at the same index of a tile."""
        aligned = (self.x[1] - self.w[0]) % EDGE == 0
        deep = [(0, self.deep)] if aligned else list(cuts(self.deep, self.x[1], self.w[0]))
        for row, rows in cuts(self.rows, self.x[0], self.o[0]):
            for column, columns in cuts(self.columns, self.w[1], self.o[1]):
                for k, count in deep:
                    x, w = (self.x[0] + row, self.x[1] + k), (self.w[0] + k, self.w[1] + column)
                    yield Part(rows, count, columns, x, w, (self.o[0] + row, self.o[1] + column), self.numbers)


@dataclass(frozen=True)
class Part(Image):
    """An image that lies in one row and one column of tiles of each matrix."""

    @property
    def tile(self) -> tuple[int, int, int]:
        """Column, row and number of the result's tile."""
        return self.o[1] // EDGE, self.o[0] // EDGE, self.numbers[2]

    @property
    def tiles(self) -> int:
        """Tiles of the sum."""
        return (self.x[1] % EDGE + self.deep - 1) // EDGE + 1

    def read(self) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
        """Row, column and number of each tile of both matrices."""
        (row, k), (k_w, column) = ((at[0] // EDGE, at[1] // EDGE) for at in (self.x, self.w))
        first, second, _ = self.numbers
        return [(row, k + n, first) for n in range(self.tiles)], [(k_w + n, column, second) for n in range(self.tiles)]

    def operands(self) -> dict[str, int]:
        """Of a PRODUCT."""
        return {
            "tiles": self.tiles - 1,
            "k_from": self.x[1] % EDGE,
            "k_to": (self.x[1] + self.deep - 1) % EDGE,
            "x_row": self.x[0] % EDGE,
            "rows": self.rows - 1,
            "columns": self.columns - 1,
            "o_row": self.o[0] % EDGE,
            "o_column": self.o[1] % EDGE,
            "w_row": (self.w[0] - self.x[1]) % EDGE,
            "w_column": self.w[1] % EDGE,
        }


def cuts(count: int, *starts: int) -> Iterator[At]:
    """Begin and count of each part of ``count`` indices, which lies in one tile of each matrix that it begins in."""
    begin = 0
    while begin < count:
        many = min(EDGE - (start + begin) % EDGE for start in starts)
        many = min(many, count - begin)
        yield begin, many
        begin += many


def terms(
    parts: Sequence[Part], x: Tiles, w: Tiles, *, x_turn: bool = False, w_turn: bool = False
) -> dict[tuple[int, int, int], list[Term]]:
    """Products by tile of their result, column by column; ``x_turn``, ``w_turn``: matrices lie transposed in memory."""
    found: dict[tuple[int, int, int], list[Term]] = {}
    turns = {name: 1 for name, turned in (("x_turn", x_turn), ("w_turn", w_turn)) if turned}
    for each in sorted(parts, key=lambda part: part.tile):
        one, other = each.read()
        blocks = Block.of(x, _turned(one) if x_turn else one), Block.of(w, _turned(other) if w_turn else other)
        found.setdefault(each.tile, []).append(Term(*blocks, each.operands() | turns))
    return found


def _turned(places: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    return [(column, row, number) for row, column, number in places]


def split(images: Sequence[Image]) -> list[list[Part]]:
    """Parts of images, in as many sums as hold the tiles that one of the result reads."""
    count, deep = 1, max((each.deep for each in images), default=0)
    while True:
        step = -(-deep // (EDGE * count)) * EDGE
        made = [
            [part for each in images if each.deep > start for part in _portion(each, start, step).parts()]
            for start in range(0, deep, step)
        ]
        if step == EDGE or all(_most(parts) <= _HELD for parts in made):
            return made
        count *= 2


def _portion(each: Image, start: int, step: int) -> Image:
    x, w = (each.x[0], each.x[1] + start), (each.w[0] + start, each.w[1])
    return replace(each, deep=min(step, each.deep - start), x=x, w=w)


def _most(parts: Sequence[Part]) -> int:
    """Tiles of either side that a tile of the result reads at most."""
    found: dict[tuple[int, int, int], tuple[set, set]] = {}
    for each in parts:
        for held, tiles in zip(found.setdefault(each.tile, (set(), set())), each.read()):
            held.update(tiles)
    return max((len(held) for both in found.values() for held in both), default=0)


def scored(count: int, heads: int, rows: int, keys: int, features: int) -> list[Image]:
    """Rows with rows of each image and head, features of heads side by side: ``[heads, rows of all, keys]``."""
    deep = features // heads
    return [
        Image(rows, deep, keys, (n * rows, head * deep), (head * deep, n * keys), (n * rows, 0), (0, 0, head))
        for head in range(heads)
        for n in range(count)
    ]


def mixed(
    count: int, heads: int, rows: int, keys: int, features: int, *, turned: bool = False, is_table: bool = False
) -> list[Image]:
    """Matrices ``[heads, rows of all, keys]`` with features of heads side by side; ``turned``: their columns.

    ``is_table``: all images have one matrix.
    """
    deep, made = features // heads, []
    for n in range(count):
        for head in range(heads):
            first, columns = 0 if is_table else n * rows, head * deep
            if turned:
                ends = (0, first), (n * rows, columns), (n * keys, columns)
                made.append(Image(keys, rows, deep, *ends, (head, 0, 0)))
            else:
                ends = (first, 0), (n * keys, columns), (n * rows, columns)
                made.append(Image(rows, keys, deep, *ends, (head, 0, 0)))
    return made


def turns(count: int, rows: int, features: int) -> list[Image]:
    """Rows of each image as columns: products of its columns with a tile that changes nothing."""
    return [
        Image(features, many, many, (0, n * rows + begin), (0, 0), (n * features, begin))
        for n in range(count)
        for begin, many in cuts(rows, n * rows, 0)
    ]
