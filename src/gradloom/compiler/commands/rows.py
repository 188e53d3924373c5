"""Rows that move, and rows that become columns."""

from collections.abc import Iterator, Sequence

import numpy as np

from gradloom.graph.operations import Pad, Pool, Rearrange, Slice
from gradloom.program.tiles.drafts import Block, DraftValue
from gradloom.rtl.formats.tiles.codes import EDGE, WIDE
from gradloom.rtl.formats.tiles.element import ElementOpcode

from .attentions import Attentions
from .elements import tiles_of
from .images import turns

__all__ = ["Rows", "adjoint", "order_of_rows", "padding", "passes", "slicing", "turning"]

#: Tiles from which a tile of moved rows comes at once.
_SOURCES = 4


class Rows(Attentions):
    """Writes operations that move values."""

    def _rearrange(self, each: Rearrange) -> None:
        (x,) = self.given(each)
        if each.is_label:
            self.found[each.o.name] = x
        elif (order := order_of_rows(each)) is not None:
            self._taken(self.made(each), x, [order])
        elif (count := turning(each)) is not None:
            self._turned(self.made(each), x, self.samples * count)
        else:
            raise ValueError(f"{each.o.name}: values in another order have no command; rows move, or become columns")

    def _rearrange_back(self, each: Rearrange, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        if each.is_label:
            return [dy]
        made, order, count = self.part(each.i[0]), order_of_rows(each), turning(each)
        if order is not None:
            self._taken(made, dy, adjoint(order, each.i[0].rows))
        elif count is not None:
            self._turned(made, dy, self.samples * count)
        return [made]

    def _pad(self, each: Pad) -> None:
        (x,) = self.given(each)
        if each.mode == "constant" and each.value:
            raise ValueError(f"{each.o.name}: pads of {each.value:g} have no command; 0, edge and reflect have")
        self._taken(self.made(each), x, [padding(each)])

    def _pad_back(self, each: Pad, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        made = self.part(each.i[0])
        self._taken(made, dy, adjoint(padding(each), each.i[0].rows))
        return [made]

    def _slice(self, each: Slice) -> None:
        (x,) = self.given(each)
        self._taken(self.made(each), x, [slicing(each)])

    def _slice_back(self, each: Slice, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        made = self.part(each.i[0])
        self._taken(made, dy, adjoint(slicing(each), each.i[0].rows))
        return [made]

    def _pool(self, each: Pool) -> None:
        raise ValueError(f"{each.o.name}: a maximum of windows that read pads with a dilation has no command")

    def _turned(self, made: DraftValue, x: DraftValue, count: int) -> None:
        """Rows of each of ``count`` images as columns."""
        self.within(made, turns(count, x.rows // count, x.features), x, self.same, x_turn=True)

    def _taken(self, made: DraftValue, x: DraftValue, indices: Sequence[np.ndarray]) -> None:
        """Each row is the sum of rows of each sample of another tensor; of -1 none."""
        steps, total = passes(indices, self.samples, x.rows // self.samples), None
        for number, rows in enumerate(steps):
            own = made
            if number < len(steps) - 1:
                own = self.tiler.value(f"{made.name}.rows{number}", made.rows, x.features)
            for i, j in tiles_of(own):
                some = rows[EDGE * i : EDGE * (i + 1)]
                tiles = np.unique(some[some >= 0] // EDGE)
                block = Block.of(self.tiler.read(x, WIDE), [(int(tile), j) for tile in tiles])
                nothing = Block.of(self.zeros, [(0, 0)])
                before = nothing if total is None else self.wide(total, i, j)
                places = {int(tile): skip for skip, tile in enumerate(tiles)}
                if (some < 0).any():
                    block = Block(block.offsets + nothing.offsets, block.records + nothing.records)
                parts = [
                    {"rows": count - 1, "a_row": at, "o_row": at, "b_row": max(first, 0) % EDGE}
                    | {"b_skip": places.get(first // EDGE, len(places))}
                    for at, first, count in _runs(some)
                ]
                self.tiler.element(own, (i, j), ElementOpcode.ADD, {"a": before, "b": block}, parts)
            total = own


def _runs(rows: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Neighbours: first row, its source, count."""
    begin = 0
    for at in range(1, len(rows) + 1):
        first = int(rows[begin])
        following = -1 if first < 0 else first + at - begin
        goes_on = at < len(rows) and rows[at] == following and following // EDGE == first // EDGE
        if not goes_on:
            yield begin, first, at - begin
            begin = at


def passes(indices: Sequence[np.ndarray], samples: int, rows: int) -> list[np.ndarray]:
    """Rows of all samples that are added one after another, such that a tile comes from few tiles at once.

    ``indices``: rows of a sample, of which it has ``rows``; -1 for none.
    """
    made = []
    for index in indices:
        whole = (np.where(index < 0, -1, index) + rows * np.arange(samples)[:, None] * (index >= 0)).reshape(-1)
        turn = np.full(len(whole), -1)
        for start in range(0, len(whole), EDGE):
            some = whole[start : start + EDGE]
            tiles = np.unique(some[some >= 0] // EDGE)
            turn[start : start + EDGE] = np.where(some < 0, -1, np.searchsorted(tiles, some // EDGE) // _SOURCES)
        made += [np.where(turn == number, whole, -1) for number in range(max(int(turn.max()), 0) + 1)]
    return made


def adjoint(index: np.ndarray, rows: int) -> list[np.ndarray]:
    """Rows of the result that come from each of ``rows`` rows: the first of each, the second, and so on."""
    order = np.argsort(index, kind="stable")
    order = order[index[order] >= 0]
    source = index[order]
    number = np.arange(len(source)) - np.searchsorted(source, source)
    made = []
    for n in range(int(number.max(initial=0)) + 1):
        own = np.full(rows, -1)
        own[source[number == n]] = order[number == n]
        made.append(own)
    return made


def padding(each: Pad) -> np.ndarray:
    """Which row each row of the result is; -1 is one of zeros."""
    numbers = np.arange(each.i[0].rows).reshape(each.i[0].sides)
    given = {"constant_values": -1} if each.mode == "constant" else {}
    made: np.ndarray = np.pad(numbers, each.pads, mode=each.mode, **given).reshape(-1)  # type: ignore[call-overload]
    return made


def slicing(each: Slice) -> np.ndarray:
    """Which row each row of the result is."""
    numbers = np.arange(each.i[0].rows).reshape(each.i[0].sides)
    places = each.start + each.step * np.arange(each.o.sides[each.axis])
    made: np.ndarray = numbers.take(places, each.axis).reshape(-1)
    return made


def order_of_rows(each: Rearrange) -> np.ndarray | None:
    """Which row each row of the result is, where rows stay whole."""
    features = each.o.features
    if each.i[0].features != features:
        return None
    count = each.o.rows * features
    order = np.arange(count).reshape(each.sizes).transpose(each.order).reshape(-1, features)
    rows: np.ndarray = order[:, 0] // features
    return rows if (order == rows[:, None] * features + np.arange(features)).all() else None


def turning(each: Rearrange) -> int | None:
    """How many images of a sample have their rows as columns; None where it is another order."""
    rows, features = each.o.features, each.i[0].features
    count = each.o.rows * rows
    if count % (rows * features):
        return None
    order = np.arange(count).reshape(each.sizes).transpose(each.order).reshape(-1)
    turned = np.arange(count).reshape(-1, rows, features).swapaxes(1, 2).reshape(-1)
    return count // (rows * features) if (order == turned).all() else None
