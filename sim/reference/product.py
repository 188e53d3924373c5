"""Integer reference of the product engine, command by command."""

from collections.abc import Mapping

import numpy as np

from gradloom.rtl.formats.aligned import FRACTION
from gradloom.rtl.formats.product import BIAS_LIFT, ProductOpcode
from gradloom.rtl.formats.tile_codes import EDGE, NARROW, WIDE, ZERO

from .tile_ports import ResultSlots, TileSlots

__all__ = ["ProductModel"]

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
            words = self.sums[rows, columns]
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
            slots, lines, inside = _gathered(given, first)
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
        self._given = operands

    def __getattr__(self, name: str) -> int:
        return int(self._given.get(name, 0))


def _joined(one: int, other: int) -> int:
    return _NEVER if ZERO in (one, other) else one + other


def _gathered(given: _Operands, first: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Slots and lines of pixels, and which of them are in the image."""
    place = EDGE * given.row_tile + np.arange(given.rows + 1)
    mask = (1 << given.side) - 1
    x, y, image = place & mask, place >> given.side & mask, place >> 2 * given.side
    end = 1 << given.side << given.double
    tx, ty = (x << given.double) + given.dx, (y << given.double) + given.dy
    inside = (tx >= 0) & (tx < end) & (ty >= 0) & (ty < end)
    if given.even:
        inside &= (tx & 1 == 0) & (ty & 1 == 0)
    log = given.side + given.double - given.half
    source = (image << 2 * log) + ((ty >> given.half) << log) + (tx >> given.half)
    number = (source >> 6) - given.x_first
    if (inside & ((number < 0) | (number > given.reach))).any():
        raise ValueError(f"row tile {given.row_tile}: reads a row tile that is not held")
    number = np.where(inside, number, 0)
    return first + number * given.x_pitch, np.where(inside, source % EDGE, 0), inside
