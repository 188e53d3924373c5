"""One recurrent cell, of a layer and a direction, as the cell engine's words."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gradloom.models.recurrent.cells import IntegerGru
from gradloom.models.recurrent.coding import Coding
from gradloom.models.recurrent.front import IntegerConv
from gradloom.rtl.engines.cell.parameters import CellParameters
from gradloom.rtl.formats.cell import CENTRED, CODE, PAIR, QUANTIZERS_A_CELL, SINGLE, Quantizers, gate_sum
from gradloom.rtl.formats.gates import GATES

from .room import RoomError
from .settings import HALF, IDLE, Affine, quantizer_word
from .slots import behind_of, passes_of, slots_of

__all__ = ["CellWords", "Window", "state_range"]

#: Codes of a table of a gate.
_TABLE = 256


@dataclass(frozen=True, kw_only=True)
class Window:
    """The convolution in front of a cell.

    ``order``: of the codes of a window, -1 for a zero. ``source``: their coding. ``fronts``: groups that its sums may
    begin with. ``name``: of its quantiser.
    """

    conv: IntegerConv
    order: np.ndarray
    source: Coding
    fronts: frozenset[int]
    name: str


@dataclass(frozen=True, kw_only=True, eq=False)
class CellWords:
    """Words of a cell, for its part of the engine's memories.

    Parameters
    ----------
    name : str
        Of the network.
    cell : IntegerCell, IntegerGru or IntegerRnn
    at : int
        Pass of a step.
    source : Coding
        Of its input.
    columns : array of int ``[inputs]``
        Place of each channel in a row of x.
    window : Window, optional
    head : array of int ``[classes, units]``, optional
        Its part of the dense layer.
    config : CellParameters
    """

    name: str
    cell: Any
    at: int
    source: Coding
    columns: np.ndarray
    window: Window | None
    head: np.ndarray | None
    config: CellParameters

    @cached_property
    def slots(self) -> Any:
        """The engine's four gates."""
        return slots_of(self.cell, self.at)

    @cached_property
    def behind(self) -> Any:
        """The engine's requantisers behind them."""
        return behind_of(self.cell, self.at)

    @cached_property
    def lanes(self) -> np.ndarray:
        """Weights ``[group, place, lane, row]``, zeros where there are none.

        As an operand meets them; see :meth:`weights`.
        """
        config, p, units = self.config, self.config.parallel, self.cell.cell.units
        size = config.groups + config.chunks
        table = np.zeros((config.hidden, GATES, size * p), np.int64)
        for gate, slot in enumerate(self.slots):
            if slot.u is not None:
                table[:units, gate, : slot.u.shape[1]] = slot.u
            if slot.w is not None:
                table[:units, gate, config.hidden + self.columns] = slot.w
        made = np.zeros((config.groups, config.places, p, GATES * p), np.int64)
        _put(made, table.reshape(GATES * config.hidden, size * p))
        if self.window is not None:
            weight, order = self.window.conv.conv.weight, self.window.order
            natural = weight.transpose(0, 2, 1).reshape(len(weight), -1)
            flat = np.where(order < 0, 0, natural[:, order])
            for first in self.window.fronts:
                _put(made[first:, config.window_place :], flat)
        if self.head is not None:
            _put(made[:, config.class_place :], self.head)
        return made

    def _check_chains(self) -> None:
        """Every sum of a lane stays within its bits, whatever the codes."""
        config, lanes, hidden = self.config, self.lanes, self.cell.cell.hidden
        seen = self.cell.cell.passed if self.at else hidden
        rows: dict[str, tuple[tuple[int, int, Coding], ...]] = {
            "the cell": ((0, config.groups, seen), (config.input_place, config.chunks, self.source)),
            "the dense layer": ((config.class_place, config.groups, hidden),),
        }
        if self.window is not None:
            rows["the convolution"] = ((config.window_place, config.window_chunks, self.window.source),)
        bound = PAIR.bound if config.products == 2 else 1 << SINGLE - 1
        for what, parts in rows.items():
            own = [(lanes[:, first : first + count], coding) for first, count, coding in parts]
            low = sum(np.minimum(each * coding.lo, each * coding.hi).sum(axis=1) for each, coding in own)
            high = sum(np.maximum(each * coding.lo, each * coding.hi).sum(axis=1) for each, coding in own)
            # An upper sum of -bound would be read as +bound where the lower one is negative.
            if np.min(low) <= -bound or np.max(high) >= bound:
                reach = max(-int(np.min(low)), int(np.max(high)))
                remedy = "set products=1, or parallel larger" if config.products == 2 else "set parallel larger"
                wider = config.smallest("parallel", 2 * config.parallel)
                raise RoomError(
                    f"{self.name}: sums of a lane of products of {what} reach {reach}: with "
                    f"products={config.products} they must stay below {bound}; {remedy}",
                    {} if wider is None else {"parallel": (wider, f"sums of {what}")},
                )

    @cached_property
    def weights(self) -> np.ndarray:
        """Bytes ``[group, place, n]``."""
        config, lanes = self.config, self.lanes
        self._check_chains()
        if config.products == 2:
            lanes = lanes.copy()
            _, lanes[..., 1::2] = PAIR.stored(lanes[..., 0::2], lanes[..., 1::2])
            if lanes.min() < -128:
                raise ValueError(
                    f"{self.name}: a weight of -128 shares a slice with a negative one, which does not fit its "
                    "27 bits: quantise weights to -127 to 127, or set products=1"
                )
        return lanes.astype(np.int8).reshape(config.groups, config.places, -1)

    @cached_property
    def rows(self) -> bytes:
        """Beats of port ``rows``."""
        config, units = self.config, self.cell.cell.units
        words = np.zeros((2 * config.hidden, GATES, 4), np.int64)
        bits = gate_sum(config.products, config.parallel)
        for gate, slot in enumerate(self.slots):
            if slot.accumulator is None:
                continue
            what = f"{slot.name} accumulator"
            words[:units, gate, :3] = own = slot.accumulator.rows(what, slot.reach, units, bits)
            if slot.gated is None:
                continue
            low, high = (end + own[:, 0] for end in slot.reach)
            if low.min() < -HALF or high.max() >= HALF:
                raise ValueError(
                    f"{what}: sums of the input reach {low.min()} to {high.max()}: must be within {CENTRED} bits; run "
                    "it with --engine reference"
                )
            words[:units, gate, 3] = slot.gated
        if self.window is not None:
            conv, name = self.window.conv, self.window.name
            outputs = words[config.hidden :].reshape(-1, 4)
            count = len(conv.conv.weight)
            outputs[:count, :3] = Affine.of(conv.requantizer, name).rows(name, conv.reach, count, bits)
        return words.astype("<i4").tobytes()

    @cached_property
    def tables(self) -> bytes:
        """Beats of port ``tables``."""
        bits = self.config.state_bits
        words = np.zeros((max(_TABLE, 1 << bits), 8), np.int64)
        for gate, slot in enumerate(self.slots):
            if len(slot.table) > _TABLE:
                raise ValueError(
                    f"{slot.name} accumulator: has {len(slot.table)} codes: at most {_TABLE} fit the cell engine"
                )
            places = (slot.first + np.arange(len(slot.table))) & _TABLE - 1
            words[places, gate] = _within(slot.table, f"{slot.name} gate")
        behind = self.behind
        places = (behind.first + np.arange(len(behind.squash))) & (1 << bits) - 1
        words[places, GATES] = _within(behind.squash, "tanh of the state")
        return words.astype("<i2").tobytes()

    @cached_property
    def quantizers(self) -> bytes:
        """Beats of port ``quantizers``; in a design with several cells up to the next cell's."""
        behind = self.behind
        found = {
            Quantizers(gate): (slot.accumulator, 0)
            for gate, slot in enumerate(self.slots)
            if slot.accumulator is not None
        }
        found |= {Quantizers.KEPT: behind.kept, Quantizers.ADDED: behind.added, Quantizers.HIDDEN: behind.hidden}
        if self.window is not None:
            found[Quantizers.WINDOW] = Affine.of(self.window.conv.requantizer, self.window.name), 0
        raw = b""
        for which in Quantizers:
            if which == Quantizers.STATE:
                lo, hi = behind.state
                raw += quantizer_word(replace(IDLE, lo=lo, hi=hi), 0)
                continue
            made, addend = found.get(which, (IDLE, 0))
            raw += quantizer_word(made, addend, behind.one if which == Quantizers.HIDDEN else 0)
        return raw.ljust(16 * QUANTIZERS_A_CELL, b"\0") if self.config.cells > 1 else raw


def state_range(cell: Any) -> tuple[int, int]:
    """Codes that the registers and the memory of a cell's state hold."""
    ranges = [behind_of(cell, at).state for at in range(passes_of(cell))]
    if isinstance(cell, IntegerGru):
        ranges.append((cell.cell.hidden.lo, cell.cell.hidden.hi))
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _put(groups: np.ndarray, weights: np.ndarray) -> None:
    """Weights ``[rows, n]`` to ``[group, place, lane, row]``."""
    _, _, lanes, rows = groups.shape
    count, places = -(-len(weights) // rows), -(-weights.shape[1] // lanes)
    padded = np.zeros((count * rows, places * lanes), np.int64)
    padded[: len(weights), : weights.shape[1]] = weights
    groups[:count, :places] = padded.reshape(count, rows, places, lanes).transpose(0, 2, 3, 1)


def _within(codes: np.ndarray, what: str) -> np.ndarray:
    bound = 1 << CODE - 1
    if codes.min() < -bound or codes.max() >= bound:
        raise ValueError(f"{what}: has codes {codes.min()} to {codes.max()}: must be within {-bound} and {bound - 1}")
    return codes
