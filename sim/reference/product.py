"""Integer reference of the product engine, command by command."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gradloom.rtl.formats.tiles.aligned import FRACTION
from gradloom.rtl.formats.tiles.codes import EDGE, NARROW, WIDE, ZERO
from gradloom.rtl.formats.tiles.product import BIAS_LIFT, SOURCE, ProductOpcode

from .tiles.ports import ResultSlots, TileSlots

__all__ = ["ProductModel", "gathered"]

#: Exponent of a tile of zeros.
_NEVER = -(1 << 9)


class ProductModel:
    """The engine's commands on its slots, word for word.

    ``lost``: products of tiles other than zero that were too far below their unit.
    """

    def __init__(self, config: object) -> None:
        slots = {name: getattr(config, f"{name}_slots") for name in "xw"}
        self.tiles = {name: TileSlots(count, NARROW) for name, count in slots.items()}
        self.bias = TileSlots(32, WIDE)
        self.top = _NEVER
        self.sums = np.zeros((EDGE, EDGE), np.int64)
        self.results = ResultSlots(4)
        self.lost = 0
        #: The last SCAN that said the shape of images.
        self.images: Mapping[str, int] = {}

    @property
    def saturated(self) -> int:
        """Codes that STORE limited."""
        return self.results.saturated

    @property
    def underflowed(self) -> int:
        """Codes that STORE made 0."""
        return self.results.underflowed

    def load(self, port: str, arg: int, content: bytes) -> None:
        """Records of a LOAD."""
        (self.bias if port == "bias" else self.tiles[port]).load(port, arg, content)

    def store(self, port: str, arg: int, beats: int) -> bytes:
        """The record of a STORE."""
        return self.results.store(port, arg, beats)

    def run(self, opcode: int, operands: Mapping[str, int]) -> None:
        """A command."""
        given = _Operands(operands)
        if given.fresh:
            self.top = _NEVER
            self.results.clear(given.o)
        if opcode == ProductOpcode.SCAN or (opcode == ProductOpcode.PRODUCT and given.fresh):
            self._scan(given, of_bias=opcode == ProductOpcode.SCAN and bool(given.last))
        if opcode == ProductOpcode.SCAN:
            if given.gather:
                self.images = operands
            return
        rows = slice(given.o_row, given.o_row + given.rows + 1)
        columns = slice(given.o_column, given.o_column + given.columns + 1)
        if given.start:
            self.sums[rows, columns] = 0
        if opcode == ProductOpcode.BIAS:
            own = int(self.bias.at[given.bias])
            codes = self.bias.codes[given.bias, 0, columns] << BIAS_LIFT
            addend = np.broadcast_to(codes, self.sums[rows, columns].shape)
            self._add(rows, columns, addend, np.full(len(addend), _NEVER if own == ZERO else own - BIAS_LIFT))
        else:
            for tile in range(given.tiles + 1):
                self._product(given, tile, rows, columns)
        if given.last:
            words = np.maximum(self.sums[rows, columns], 0) if given.positive else self.sums[rows, columns]
            self.results.write(given.o, given.o_row, given.o_column, words, self.top - FRACTION)

    def _scan(self, given: "_Operands", *, of_bias: bool) -> None:
        found = [self.top]
        if of_bias:
            found.append(_joined(int(self.bias.at[given.bias]), -BIAS_LIFT))
        else:
            for tile in range(given.tiles + 1):
                kept = int(self.tiles["w"].at[given.w + tile * given.w_step])
                for row in range(given.reach + 1 if given.gather else 1):
                    slot = given.x + tile * given.x_step + row * given.x_pitch
                    found.append(_joined(int(self.tiles["x"].at[slot]), kept))
        self.top = max(found)

    def _product(self, given: "_Operands", tile: int, rows: slice, columns: slice) -> None:
        first = given.x + tile * given.x_step
        stream, kept = self.tiles["x"], self.tiles["w"]
        count = given.rows + 1
        if given.gather:
            slots, lines, inside = gathered(given.all, self.images, first)
            x, own = stream.codes[slots, lines] * inside[:, None], stream.at[slots]
            own = np.where(inside, own, ZERO)
        else:
            whole = stream.codes[first].T if given.x_turn else stream.codes[first]
            x = whole[(given.x_row + np.arange(count)) % EDGE]
            own = np.full(count, stream.at[first])
        place = given.w + tile * given.w_step
        w = kept.codes[place].T if given.w_turn else kept.codes[place]
        index = np.arange(EDGE)
        n = np.arange(given.columns + 1)
        w = w[np.ix_((index + given.w_row) % EDGE, (n + given.w_column) % EDGE)].copy()
        if tile == 0:
            w[: given.k_from] = 0
        if tile == given.tiles:
            w[given.k_to + 1 :] = 0
        scale = int(kept.at[place])
        own = np.where((own == ZERO) | (scale == ZERO), _NEVER, own + scale)
        self._add(rows, columns, x @ w, own)

    def _add(self, rows: slice, columns: slice, addend: np.ndarray, own: np.ndarray) -> None:
        drop = self.top - own
        near = (own > _NEVER) & (drop <= FRACTION)
        shift = np.clip(FRACTION - drop, 0, FRACTION)[:, None]
        self.lost += int((~near[:, None] & (addend != 0)).sum())
        self.sums[rows, columns] += np.where(near[:, None], addend << shift, 0)


class _Operands:
    """A command's operands by name; those that are missing are 0."""

    def __init__(self, operands: Mapping[str, int]) -> None:
        self.all = operands

    def __getattr__(self, name: str) -> int:
        return int(self.all.get(name, 0))


def _joined(one: int, other: int) -> int:
    return _NEVER if ZERO in (one, other) else one + other


@dataclass
class _Side:
    """A counter of pixels, and the place that it reads."""

    last: int
    end: int
    stride: int
    divide: int
    rest: int
    by: int
    at: int

    def __post_init__(self) -> None:
        self.limit = self.stride - 1 if self.divide else 0
        self.step = 1 if self.divide else self.stride
        self.begin = self.by % (self.limit + 1)
        self.left = (self.at + self.by) % (self.limit + 1)
        self.place = self.at * self.step + self.by
        self.carry = int(self.rest + self.begin > self.limit)

    @property
    def over(self) -> bool:
        """It is the last pixel."""
        return self.at == self.last

    @property
    def turns(self) -> bool:
        """The next place is of the next pixel of the source."""
        return self.left == self.limit

    def go(self) -> None:
        """The next pixel; after the last the first."""
        if self.over:
            self.at, self.left, self.place = 0, self.begin, self.by
        else:
            self.at, self.left, self.place = self.at + 1, 0 if self.turns else self.left + 1, self.place + self.step


def gathered(
    operands: Mapping[str, int], scan: Mapping[str, int], first: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Slots and lines of a PRODUCT's pixels, and which of them are in the image.

    ``scan``: operands of the SCAN that said the images' shape. ``first``: the first slot.
    """
    given, images = _Operands(operands), _Operands(scan)
    x = _Side(images.width, images.end_x, images.stride_x + 1, images.divide, images.rest_x, given.dx, given.column)
    y = _Side(images.height, images.end_y, images.stride_y + 1, images.divide, images.rest_y, given.dy, given.line)
    source, slots, lines, inside = given.source, [], [], []
    for row in range(given.rows + 1):
        there = 0 <= x.place <= x.end and 0 <= y.place <= y.end and not (images.every and (x.left or y.left))
        near = source // EDGE if there else 0
        if near > given.reach:
            raise ValueError(f"row {row}: reads a row tile that is not held")
        slots.append(first + near * given.x_pitch)
        lines.append(source % EDGE if there else 0)
        inside.append(there)
        if not x.over:
            source += x.step if x.turns else 0
        elif not y.over:
            source += (images.below if y.turns else images.same) - x.carry
        else:
            source += images.image - (images.below - images.same) * y.carry - x.carry
        source %= 1 << SOURCE
        if x.over:
            y.go()
        x.go()
    return np.array(slots), np.array(lines), np.array(inside)
