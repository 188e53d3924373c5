"""A quantised recurrent network as the cell engine's words."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from gradloom.models.recurrent.cells import IntegerGru
from gradloom.models.recurrent.coding import Coding
from gradloom.models.recurrent.front import Conv, IntegerConv
from gradloom.models.recurrent.network import RecurrentNetwork
from gradloom.models.recurrent.taps import own_samples, tap_channels
from gradloom.output import some
from gradloom.rtl.engines.cell.parameters import SUM_GROUPS, CellParameters
from gradloom.rtl.formats.cell import CODES_A_BEAT, TAP_QUARTERS, TAP_WORD
from gradloom.rtl.formats.gates import GATES

from .layers import CellLayer
from .room import Room
from .slots import passes_of
from .words import CellWords, Window, state_range

__all__ = ["CellImage"]

#: Bytes of a beat.
_BEAT = CODES_A_BEAT


class CellImage:
    """Words and sizes of a network for the cell engine.

    Parameters
    ----------
    network : RecurrentNetwork
    config : CellParameters

    Attributes
    ----------
    layers : tuple of Layer
    weights, rows, tables, quantizers : bytes
        For the load ports of these names.
    conv : IntegerConv or None
        The last convolution in front, which the engine computes; others are the host's.
    hidden, inputs, window, filters, classes : int
        Operands of RUN of a network of one cell.
    channels, own : int
        Operands of RUN for taps; see :meth:`check_taps`.

    Raises
    ------
    ValueError
        The network does not fit the design: quantiser or size, its bound, and what to change.
    """

    def __init__(self, network: RecurrentNetwork, config: CellParameters) -> None:
        self.network, self.config = network, config
        last = network.integers.front[-1] if network.front else None
        self.conv = last if isinstance(last, IntegerConv) else None
        self.source = network.source
        self._lay_windows()
        self._check_room()
        self.layers = tuple(self._layers())
        for layer in self.layers:
            self._check_codes(layer)
        first = self.layers[0]
        self.unsigned, self.window_unsigned, self.row = first.unsigned, first.window_unsigned, first.row
        self.front = first.front
        #: The last recurrent layer.
        self.top = top = self.layers[len(network.layers) - 1]
        self.hidden, self.classes, self.result, self.directions = (
            top.hidden,
            self.layers[-1].classes,
            top.result,
            top.directions,
        )
        operands = first.operands(1)
        self.inputs, self.window, self.filters = (operands[name] for name in ("inputs", "window", "filters"))
        for cell in network.integers.cells:
            self._check_state(cell)

    def _lay_windows(self) -> None:
        """Order of the codes of a window, -1 for a zero.

        In a design with taps those of the step's own samples come first, in whole chunks.
        """
        parallel, channels = self.config.parallel, tap_channels(self.network)
        first, self.own = own_samples(self.network)
        self.channels = -(-channels // parallel)
        size = 0 if self.conv is None else self.conv.conv.weight[0].size
        natural = np.arange(size)
        self.order = natural
        if size and self.config.tap_channels:
            own = natural[first * channels :][: self.own * channels].reshape(self.own, channels)
            padded = np.full((self.own, self.channels * parallel), -1)
            padded[:, :channels] = own
            self.order = np.concatenate([padded.ravel(), np.setdiff1d(natural, own)])

    def _check_room(self) -> None:
        """Refuses a network that is too large, with all parameters that are too small."""
        network, config, cells = self.network, self.config, list(self.network.integers.cells)
        room, parallel = Room(network.name, config), config.parallel
        units = max(cell.cell.units for cell in cells)
        room.need("hidden", units, f"{units} elements of a hidden state")
        inputs = max(size for size, _ in self._columns())
        room.need("inputs", inputs, f"{inputs} of an input")
        count = self._numbers()[-1] + self._cells_of(-1)
        passes = max(map(passes_of, cells))
        what = f"{count} layers and directions" if passes == 1 else f"{count} layers, directions and passes"
        room.need("cells", count, what)
        ways = max(len(self._directions(n)) for n in range(len(self._pairs)))
        room.need("sequences", ways, f"{ways} directions")
        if any(isinstance(cell, IntegerGru) for cell in cells):
            room.need("gru", passes, "a GRU" if passes == 1 else "a GRU that resets in front of its product")
        near = next((each for each in network.integers.quantizers() if "near" in each), None)
        if near is not None:
            room.need("ties", 1, f"ties of the {near['quantizer']}, the ratio of whose scales has an odd denominator")
        size = self.order.size
        room.need("window", size, f"windows of {size} codes")
        outputs = 0 if self.conv is None else len(self.conv.conv.weight)
        classes = 0 if network.head is None else len(network.head.bias)
        room.need("parallel", -(-classes // (GATES * SUM_GROUPS)), f"{classes} classes")
        groups = sum(-(-rows // (GATES * parallel)) for rows in (outputs, classes))
        room.need("hidden", groups * parallel, f"{outputs} outputs of a convolution and {classes} classes")
        for cell in cells:
            low, high = state_range(cell)
            room.need("state_bits", max((-low - 1).bit_length(), high.bit_length()) + 1, f"states {low} to {high}")
        room.check()

    @property
    def _pairs(self) -> tuple[tuple[Any, Any], ...]:
        """Forward and backward cell of each layer, dense layers with activations too."""
        return (*self.network.layers, *((cell, None) for cell in self.network.behind))

    @property
    def _integers(self) -> tuple[tuple[Any, Any], ...]:
        """The same in integers."""
        integers = self.network.integers
        return (*integers.layers, *((cell, None) for cell in integers.behind))

    def _directions(self, layer: int) -> list[int]:
        return [number for number, cell in enumerate(self._pairs[layer]) if cell is not None]

    def _cells_of(self, layer: int) -> int:
        """The engine's cells of a layer: one a pass and direction."""
        own = self._integers[layer]
        return sum(passes_of(cell) for cell in own if cell is not None)

    def _numbers(self) -> list[int]:
        """Of each layer's first cell in the engine, a multiple of how many it has."""
        numbers, free = [], 0
        for layer in range(len(self._pairs)):
            count = self._cells_of(layer)
            numbers.append(free + -free % count)
            free = numbers[-1] + count
        return numbers

    def _columns(self) -> Iterator[tuple[int, np.ndarray]]:
        """Of each layer, elements of a row of its input, and the place of each channel."""
        count = self.network.layers[0][0].inputs
        yield count, np.arange(count)
        for forward, backward in self._pairs[:-1]:
            own = np.arange(forward.units)
            if backward is None:
                yield forward.units, own
                continue
            chunks = -(-forward.units // self.config.parallel) * self.config.parallel
            beats = -(-chunks // _BEAT) * _BEAT
            yield beats + forward.units, np.concatenate([own, beats + own])

    def _layers(self) -> Iterator[CellLayer]:
        network, config, source = self.network, self.config, self.network.cell_input
        top = len(self._pairs) - 1
        for at, (number, (inputs, columns)) in enumerate(zip(self._numbers(), self._columns())):
            cells = [cell for cell in self._integers[at] if cell is not None]
            units, passes = cells[0].cell.units, max(map(passes_of, cells))
            window = self._window(units) if at == 0 and self.conv is not None else None
            heads: list[np.ndarray | None] = [None] * len(cells)
            if at == top and network.head is not None:
                heads = [network.head.weight[:, n * units : (n + 1) * units] for n in range(len(cells))]
            yield CellLayer(
                words=tuple(
                    CellWords(
                        name=network.name,
                        cell=cell,
                        at=pass_,
                        source=source,
                        columns=columns,
                        window=window,
                        # Sums of other passes are not taken.
                        head=head if pass_ == passes - 1 else None,
                        config=config,
                    )
                    for pass_ in range(passes)
                    for cell, head in zip(cells, heads)
                ),
                number=number,
                config=config,
                gru=isinstance(cells[0], IntegerGru),
                inputs=inputs,
                window=0 if window is None else self.order.size,
                unsigned=source.hi > 127,
                window_unsigned=self.source.hi > 127,
                passes=passes,
                pick=network.pick if at == len(network.layers) else "all",
            )
            source = cells[0].cell.hidden

    def _window(self, units: int) -> Window:
        """The convolution in front, which must fit."""
        network, config, conv = self.network, self.config, self.conv
        assert conv is not None
        filters = -(-len(conv.conv.weight) // (GATES * config.parallel))
        last = -(-units // config.parallel) - filters
        fronts = frozenset({0, last if last >= filters else 0})
        name = f"conv {len(network.front) - 1}"
        return Window(conv=conv, order=self.order, source=self.source, fronts=fronts, name=name)

    def _check_codes(self, layer: CellLayer) -> None:
        """Codes of a layer are those that its operands take."""
        codings: list[tuple[str, Coding, bool]] = [("input", layer.words[0].source, layer.unsigned)]
        if layer.window:
            codings.append(("window", self.source, layer.window_unsigned))
        cells = [each.cell.cell for each in layer.words]
        codings += [("hidden state", cell.hidden, False) for cell in cells]
        codings += [
            ("hidden state that the reset gate passes", cell.passed, False) for cell in cells[layer.directions :]
        ]
        for what, coding, unsigned in codings:
            lo, hi = (0, 255) if unsigned else (-128, 127)
            if coding.lo < lo or coding.hi > hi:
                raise ValueError(
                    f"{self.network.name}: codes of the {what} are {coding.lo} to {coding.hi}: must be within {lo} "
                    f"and {hi}"
                )

    @property
    def most_steps(self) -> int:
        """Steps of a sequence that a command holds."""
        return ((1 << 16) - 1) // max(layer.passes for layer in self.layers)

    def check_tap_room(self) -> None:
        """Refuses a network with more channels to add up than the design has room for."""
        room, channels = Room(self.network.name, self.config), tap_channels(self.network)
        room.need("tap_channels", channels, f"{channels} channels of the input to add up")
        room.check()

    def check_taps(self, steps: int) -> None:
        """Refuses sequences of ``steps`` whose taps the design cannot make."""
        network, config = self.network, self.config
        self.check_tap_room()
        odd = next((each.cell.units for each in network.integers.cells if each.cell.units % config.parallel), None)
        if odd is not None:
            raise ValueError(
                f"{network.name}: has hidden={odd}: the taps of a design with parallel="
                f"{config.parallel} need a multiple of {config.parallel}; set parallel=1"
            )
        if not TAP_QUARTERS <= steps <= self.most_steps:
            raise ValueError(
                f"{network.name}: sequences have {some(steps, 'step')} at the cell: taps need {TAP_QUARTERS}, "
                f"one a quarter, to {self.most_steps}"
            )
        most = max(-self.source.lo, self.source.hi) * self.own * (-(-steps // TAP_QUARTERS) + 1)
        if most >= 1 << TAP_WORD - 1:
            raise ValueError(
                f"{network.name}: sums of the input of {some(steps, 'step')} reach {most}: must be below "
                f"{1 << TAP_WORD - 1}; "
                "give shorter sequences"
            )

    def each(self, every: bool = False) -> bool:
        """Whether the dense layer follows each step, whose sums the host adds up or picks from.

        ``every``: an answer is wanted after each.
        """
        if not self.classes:
            return False
        picked = ("last", "ends") if self.directions == 1 or self.network.behind else ("ends",)
        return every or self.network.pick not in picked

    def check(self) -> None:
        """Refuses what does not fit, once all words are made."""
        for part in (self.weights, self.rows, self.tables, self.quantizers):
            assert part

    @property
    def _cells(self) -> list[CellWords | None]:
        """Words by the number of the engine's cell."""
        found: list[CellWords | None] = [None] * self.config.cells
        for layer in self.layers:
            for number, words in enumerate(layer.words, layer.number):
                found[number] = words
        return found

    @cached_property
    def weights(self) -> bytes:
        """See the class."""
        config = self.config
        made = [None if words is None else words.weights for words in self._cells]
        empty = np.zeros_like(next(each for each in made if each is not None))
        raw = np.concatenate([empty if each is None else each for each in made], axis=1)
        beside = max(_BEAT // raw.shape[2], 1)
        # A beat: words of groups side by side, or a part of a word; beats of one kind lie one behind another.
        places = config.cells * config.places
        blocks = raw.reshape(-1, beside, places, raw.shape[2]).transpose(0, 2, 1, 3)
        beats = blocks.reshape(len(blocks), places, -1, _BEAT).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(beats).tobytes()

    def _joined(self, name: str) -> bytes:
        made = [b"" if words is None else getattr(words, name) for words in self._cells]
        size = max(map(len, made))
        return b"".join(each.ljust(size, b"\0") for each in made)

    @cached_property
    def rows(self) -> bytes:
        """See the class."""
        return self._joined("rows")

    @cached_property
    def tables(self) -> bytes:
        """See the class."""
        return self._joined("tables")

    @cached_property
    def quantizers(self) -> bytes:
        """See the class."""
        return self._joined("quantizers")

    def _check_state(self, cell: object) -> None:
        factors, state = getattr(cell, "sum_factors", (1, 1)), getattr(cell, "state", None)
        if factors != (1, 1) and not isinstance(cell, IntegerGru):
            raise ValueError(
                f"{self.network.name}: the two parts of the cell state have scales whose ratio is "
                f"{factors[0]}/{factors[1]}: must be 1 in the cell engine; quantise both with one "
                "scale, or run it with --engine reference"
            )
        if state is not None and state.kind != "nothing":
            raise ValueError(
                f"{self.network.name}: the cell state's quantiser became a {state.kind}: must be a clip in the "
                "cell engine; quantise the state and its parts with one scale, or run it with --engine reference"
            )

    def input_rows(self, codes: np.ndarray) -> bytes:
        """Beats for port ``x`` of rows ``[sequences, steps, codes]``.

        Of two directions each sequence is two of the engine's.
        """
        sequences, steps, inputs = (codes := self.layers[0].taken(codes)).shape
        rows = np.zeros((steps, sequences, self.row), np.uint8)
        rows[..., :inputs] = codes.transpose(1, 0, 2) & 0xFF
        return rows.tobytes()

    def windows(self, codes: np.ndarray) -> np.ndarray:
        """Rows of x for codes ``[sequences, steps, channels]``.

        They are the codes, or the windows of the convolution.
        """
        if self.conv is None:
            return codes
        return np.where(self.order < 0, 0, windows_of(self.conv.conv, codes)[..., self.order])

    def sums(self, raw: bytes, sequences: int) -> np.ndarray:
        """Sums ``[sequences, rows, classes]`` from beats of port ``logits``.

        Of two directions they are those of both, of a time step or of the ends.
        """
        top, head = self.layers[-1], self.network.head
        assert head is not None
        size = self.classes * GATES * self.config.parallel
        rows = np.frombuffer(raw, "<i4").reshape(-1, sequences * top.directions, size)
        return top.told(rows.transpose(1, 0, 2)[..., : len(head.bias)].astype(np.int64)).sum(axis=1)

    def hidden_codes(self, raw: bytes, sequences: int) -> np.ndarray:
        """Codes ``[sequences, rows, hidden]`` from beats of port ``h``.

        Those of two directions are side by side.
        """
        top = self.top
        rows = np.frombuffer(raw, np.int8).reshape(-1, sequences * top.directions, self.result)
        return np.concatenate(
            [*top.told(rows.transpose(1, 0, 2)[..., : top.units].astype(np.int64)).swapaxes(0, 1)], -1
        )

    def state_codes(self, raw: bytes, sequences: int) -> np.ndarray:
        """Codes ``[2, sequences, hidden]`` from all beats of ``state``.

        They are those of the last layer, of two directions side by side; only an LSTM has a cell state, the first.
        """
        config, top = self.config, self.top
        words = np.frombuffer(raw, "<i2").reshape(2, config.cells, config.sequences, config.groups, 8)
        flat = words[..., : config.parallel].reshape(2, config.cells, config.sequences, config.hidden)
        own = [
            flat[:, top.number + n, n : sequences * top.directions : top.directions, : top.units]
            for n in range(top.directions)
        ]
        return np.concatenate(own, axis=-1).astype(np.int64)


def windows_of(conv: Conv, codes: np.ndarray) -> np.ndarray:
    """Windows ``[sequences, steps, kernel * channels]`` of a convolution."""
    codes = np.pad(codes, ((0, 0), conv.pads, (0, 0)))
    found = np.lib.stride_tricks.sliding_window_view(codes, conv.weight.shape[2], axis=1)[:, :: conv.stride]
    return found.swapaxes(2, 3).reshape(*found.shape[:2], -1)
