"""Weights of layers as matrices, one for each tap of a kernel."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any, TypeVar

import numpy as np

from gradloom.graph.base import Operation
from gradloom.graph.operations import Convolution
from gradloom.rtl.formats.tiles.codes import EDGE, NARROW, TileCoded, coded

__all__ = [
    "HALF",
    "HELD",
    "ROWS",
    "TapRows",
    "among",
    "blocks",
    "depths",
    "levels",
    "matrices",
    "parted",
    "pitch",
    "portions",
    "rest_of",
    "stacked",
    "tiles_of_taps",
    "together",
    "used_rows",
    "weights_of",
]

_Made = TypeVar("_Made")
_Sum = TypeVar("_Sum")
#: Columns of half a tile, which a pass of the array makes.
HALF = 32
#: Tiles of either side of a sum that are held at once; a longer sum is one of parts of half as many.
HELD = 32
#: Tiles of a part of a sum over rows: more would drive out what other jobs read, and come when that is forgotten.
ROWS = 4


def matrices(each: Operation, name: str, value: np.ndarray) -> np.ndarray:
    """Weights ``[outputs, inputs]``, of a kernel ``[taps, outputs, inputs]``.

    Channels in groups are matrices with zeros outside their groups. What makes the result of a transposed convolution
    is its outputs here, too.
    """
    value = np.asarray(value, np.float64)
    if value.ndim == 2:
        return value
    taps = value.reshape(*value.shape[:2], -1).transpose(2, 0, 1)
    if isinstance(each, Convolution) and name == f"{each.layer}.weight":
        if each.groups > 1:
            taps = _spread(taps, each.groups)
        if each.transposed:
            taps = taps.swapaxes(1, 2)
    return taps[0] if len(taps) == 1 else taps


def rest_of(values: np.ndarray, codes: TileCoded | None = None) -> np.ndarray:
    """What codes of 8 bits leave of a matrix; ``codes``: those that it has."""
    made: np.ndarray = values - (coded(values, NARROW) if codes is None else codes).values
    return made


def blocks(taps: np.ndarray) -> np.ndarray:
    """Which parts of 32 by 32 of matrices ``[taps, inputs, outputs]`` are not zeros."""
    count, inputs, outputs = taps.shape
    padded = np.pad(taps != 0, ((0, 0), (0, -inputs % HALF), (0, -outputs % HALF)))
    found = padded.reshape(count, -1, HALF, padded.shape[2] // HALF, HALF).any((2, 4))
    return np.asarray(found)


def tiles_of_taps(some: np.ndarray, back: bool, deep: range) -> list[int]:
    """Tiles of each tap that a tile of the result takes at most, of :func:`blocks`.

    ``back``: of the gradient; ``deep``: tiles of what is summed over that count.
    """
    own = slice(2 * deep.start, 2 * deep.stop)
    some = some[:, :, own] if back else some[:, own]
    high, wide = some.shape[1:]
    whole = np.pad(some, ((0, 0), (0, high % 2), (0, wide % 2)))
    tiles = whole.reshape(len(some), -1, 2, whole.shape[2] // 2, 2).any((2, 4))
    return [int(count) for count in tiles.sum(2 if back else 1).max(1)]


def portions(counts: Sequence[int], most: int | None = None) -> list[slice]:
    """Parts of a sum that are summed by themselves, of products with so many tiles each.

    ``most``: tiles of a part; without, all that are held at once, or half as many where there are several.
    """
    if most is None:
        most = HELD if sum(counts) <= HELD else HELD // 2
    ends, total = [0], 0
    for number, count in enumerate(counts):
        if total and total + count > most:
            ends.append(number)
            total = 0
        total += count
    return [slice(*pair) for pair in zip(ends, [*ends[1:], len(counts)])]


def depths(wide: int, alone: int, reach: int, counts: Sequence[int]) -> list[range]:
    """Parts of the ``wide`` tiles that products by address are summed over.

    There are several where the rows that are read are of more tiles than are held at once, or where a part of the sum
    has one tap alone: by depth, rows that neighbours in a column have read are still there, and come once for all
    taps. ``alone``: tiles of rows that a tap reads for a tile of the result, ``reach``: all taps; ``counts``: tiles of
    each tap.
    """
    half, total = HELD // 2, sum(counts)
    if max(total, reach * wide) <= HELD or (HELD < total <= half // 2 * len(counts) and alone * wide <= HELD):
        return [range(wide)]
    count = -(-wide // max(min(half // reach, half // len(counts)), 1))
    step = -(-wide // count)
    return [range(first, min(first + step, wide)) for first in range(0, wide, step)]


def parted(counts: Sequence[Sequence[int]], streamed: int) -> list[slice]:
    """Parts of a sum of summands, of each tap of which a tile of the result takes so many tiles.

    All of it where that and ``streamed`` tiles of tensors are held at once, or else :func:`portions` of each summand.
    """
    if max(streamed, sum(map(sum, counts))) <= HELD:
        return [slice(0, sum(map(len, counts)))]
    begins = accumulate(map(len, counts), initial=0)
    return [slice(at + part.start, at + part.stop) for at, own in zip(begins, counts) for part in portions(own)]


def among(wide: int, deep: range | None) -> range:
    """Those of ``wide`` tiles that a part has; None: all."""
    return range(wide) if deep is None else range(min(deep.start, wide), min(deep.stop, wide))


def together(
    parts: Sequence[_Made | _Sum], kind: type[_Sum], tiles: Callable[[_Sum], tuple[int, int]]
) -> list[_Made | list[_Sum]]:
    """Parts of a sum, where those of a ``kind`` are one with their neighbours of it, at the place of the first.

    They are as long as their ``tiles`` of either side are held at once.
    """
    made: list[_Made | list[_Sum]] = []
    group, held = list[_Sum](), (0, 0)
    each: Any
    for each in parts:
        if not isinstance(each, kind):
            made.append(each)
            continue
        one, other = tiles(each)
        held = held[0] + one, held[1] + other
        if not group or max(held) > HELD:
            group, held = [], (one, other)
            made.append(group)
        group.append(each)
    return made


def levels(rows: int, results: int) -> list[int]:
    """How many rows each sum takes, where sums of ``rows`` rows are sums of sums: those of a tile are held at once."""
    made = []
    while rows * min(results, EDGE) > HELD * EDGE:
        part = max(each for each in range(1, HELD + 1) if rows % each == 0)
        if part == 1:
            break
        made.append(part)
        rows //= part
    return [*made, rows]


def pitch(taps: int, outputs: int) -> int:
    """Rows of a tap where matrices of taps lie behind one another: a tile has whole taps, or a tap whole tiles."""
    if taps == 1:
        return outputs
    return 1 << (outputs - 1).bit_length() if outputs <= EDGE else -(-outputs // EDGE) * EDGE


@dataclass(frozen=True)
class TapRows:
    """Rows of matrices of taps that lie behind one another, so that none is in parts of two tiles.

    Of each tap: ``counts`` outputs from ``firsts`` on lie from row ``begins`` on, of ``total`` rows. Outputs that no
    input reaches have no row but to fill up a power of two. ``line``: taps of one line of the kernel, where all lines
    are alike and lie behind one another.
    """

    begins: tuple[int, ...]
    firsts: tuple[int, ...]
    counts: tuple[int, ...]
    total: int
    line: "TapRows | None" = None

    @classmethod
    def of(cls, used: np.ndarray) -> "TapRows":
        """``used``: outputs ``[taps, outputs]`` that are there; the most first."""
        taps, outputs = used.shape
        whole = pitch(taps, outputs)
        firsts, counts = [], []
        for own in used:
            at = np.flatnonzero(own) if outputs <= EDGE and taps > 1 else np.arange(outputs)
            count = min(pitch(taps, int(at[-1] - at[0]) + 1), whole) if len(at) else 0
            firsts.append(min(int(at[0]), whole - count) if count else 0)
            counts.append(count)
        order = sorted(range(taps), key=lambda tap: -counts[tap])
        begins = dict(zip(order, accumulate((counts[tap] for tap in order), initial=0)))
        return cls(tuple(begins[tap] for tap in range(taps)), tuple(firsts), tuple(counts), sum(counts))

    @classmethod
    def of_lines(cls, used: np.ndarray) -> "TapRows":
        """The same of ``[lines, taps, outputs]``, line by line."""
        lines, line = len(used), cls.of(np.asarray(used.any(axis=0)))
        step = pitch(lines, line.total)
        begins = tuple(step * n + begin for n in range(lines) for begin in line.begins)
        return cls(begins, lines * line.firsts, lines * line.counts, lines * step, line)

    @property
    def lines(self) -> "TapRows":
        """Whole lines as taps."""
        assert self.line is not None
        count = len(self.counts) // len(self.line.counts)
        step = self.total // count
        return TapRows(tuple(range(0, self.total, step)), count * (0,), count * (step,), self.total)

    @property
    def passes(self) -> int:
        """Passes of the array that put features of taps there, a row."""
        if self.line is not None:
            return self.line.passes + self.lines.passes
        return sum(-(-count // HALF) for count in self.counts)

    def within(self, features: int) -> bool:
        """Whether taps have none but so many features of one tile."""
        own = self if self.line is None else self.line
        return features <= EDGE and all(first + count <= features for _, first, count in own)

    def taken(self, made: np.ndarray, outputs: int) -> np.ndarray:
        """Matrices ``[taps, outputs, inputs]`` back from :func:`stacked` ones."""
        found = np.zeros((len(self.counts), outputs, made.shape[-1]), made.dtype)
        for own, (begin, first, count) in zip(found, self):
            some = own[first : first + count]
            some[:] = made[begin : begin + len(some)]
        return found

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return iter(zip(self.begins, self.firsts, self.counts))


def used_rows(taps: np.ndarray, kernel: Sequence[int] = (), *, tied: bool = False) -> TapRows:
    """Rows of matrices ``[taps, outputs, inputs]``, or of one.

    ``kernel``: its sides, if rows may lie line by line: they do where that takes fewer passes, and no more tiles.
    ``tied``: of indices, -1 where nothing learns.
    """
    whole = taps if taps.ndim > 2 else taps[None]
    used = np.asarray((whole >= 0).any(axis=2)) if tied else np.ones(whole.shape[:2], bool)
    alone = TapRows.of(used)
    if len(kernel) != 2:
        return alone
    lines = TapRows.of_lines(used.reshape(*kernel, -1))
    is_worth = lines.passes < alone.passes and -(-lines.total // EDGE) <= -(-alone.total // EDGE)
    return lines if is_worth else alone


def stacked(taps: np.ndarray, rows: TapRows | None = None) -> np.ndarray:
    """Matrices ``[taps, outputs, inputs]`` behind one another, with zeros up to the next."""
    if taps.ndim == 2:
        return taps
    rows = rows or used_rows(taps)
    made = np.zeros((rows.total, taps.shape[-1]), taps.dtype)
    for own, (begin, first, count) in zip(taps, rows):
        some = own[first : first + count]
        made[begin : begin + len(some)] = some
    return made


def weights_of(each: Operation, name: str, made: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Weights of ``shape`` back from :func:`matrices`, of a layer without groups."""
    if len(shape) <= 2:
        return made.reshape(shape)
    turned = isinstance(each, Convolution) and each.transposed and name == f"{each.layer}.weight"
    found = made.reshape(prod(shape[2:]), -1, made.shape[-1])
    if turned:
        found = found.swapaxes(1, 2)
    return found.transpose(1, 2, 0).reshape(shape)


def _spread(taps: np.ndarray, groups: int) -> np.ndarray:
    """``[taps, a, b / groups]`` as ``[taps, a, b]``."""
    count, first, second = taps.shape
    made = np.zeros((count, groups, first // groups, groups, second))
    at = np.arange(groups)
    made[:, at, :, at] = taps.reshape(count, groups, first // groups, second).swapaxes(0, 1)
    return made.reshape(count, first, groups * second)
