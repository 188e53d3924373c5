"""A quantised LSTM as the cell engine's words."""

from functools import cached_property

import numpy as np

from gradloom.models.recurrent.coding import Coding
from gradloom.models.recurrent.front import Conv, IntegerConv
from gradloom.models.recurrent.lstm import GATES as GATE_NAMES
from gradloom.models.recurrent.network import RecurrentNetwork
from gradloom.models.recurrent.taps import own_samples, tap_channels
from gradloom.rtl.engines.cell.parameters import SUM_GROUPS, CellParameters
from gradloom.rtl.formats.cell import CENTRED, CODES_A_BEAT, PAIR, SINGLE, TAP_QUARTERS, TAP_WORD, Quantizers, gate_sum
from gradloom.rtl.formats.gates import GATES
from gradloom.words import some

from .settings import HALF, IDLE, Affine, quantizer_word

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
    weights, rows, tables, quantizers : bytes
        For the load ports of these names.
    hidden, inputs, window, filters, classes : int
        Operands of RUN.
    unsigned, window_unsigned : bool
        Codes of the cell's input, and of windows, are 0 to 255.
    conv : IntegerConv or None
        The last convolution in front, which the engine computes; others are the host's.
    channels, own : int
        Operands of RUN for taps; see :meth:`check_taps`.

    Raises
    ------
    ValueError
        The network does not fit the design: quantiser or size, its bound, and what to change.
    """

    def __init__(self, network: RecurrentNetwork, config: CellParameters) -> None:
        self.network, self.config = network, config
        self.cell = network.integers.cell
        cell = network.lstm  # refuses other kinds
        units, inputs = cell.units, cell.inputs
        for key, value, most in (("hidden", units, config.hidden), ("inputs", inputs, config.inputs)):
            if value > most:
                raise ValueError(
                    f"{network.name}: has {key}={value}: the design has room for {most}; set {key}={_power(value)}"
                )
        self.hidden, self.inputs = (-(-value // config.parallel) for value in (units, inputs))
        last = network.integers.front[-1] if network.front else None
        self.conv = last if isinstance(last, IntegerConv) else None
        self.source = network.source
        self._lay_windows()
        self._check_sizes()
        self.unsigned, self.window_unsigned = network.cell_input.hi > 127, self.source.hi > 127
        for what, coding, unsigned in (
            ("input", network.cell_input, self.unsigned),
            ("window", self.source, self.window_unsigned),
            ("hidden state", network.cell.hidden, False),
        ):
            lo, hi = (0, 255) if unsigned else (-128, 127)
            if coding.lo < lo or coding.hi > hi:
                raise ValueError(
                    f"{network.name}: codes of the {what} are {coding.lo} to {coding.hi}: must be within {lo} and {hi}"
                )
        other = {"input": "forget", "forget": "input"}
        self.gates = tuple(name if name in self.cell.gates else other[name] for name in GATE_NAMES)
        self._check_state()

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

    def check_taps(self, steps: int) -> None:
        """Refuses sequences of ``steps`` whose taps the design cannot make."""
        network, config, channels = self.network, self.config, tap_channels(self.network)
        if channels > config.tap_channels:
            raise ValueError(
                f"{network.name}: has {channels} channels to add up: the design has room for {config.tap_channels}; "
                f"set tap_channels={channels}"
            )
        if network.cell.units % config.parallel:
            raise ValueError(
                f"{network.name}: has hidden={network.cell.units}: the taps of a design with parallel="
                f"{config.parallel} need a multiple of {config.parallel}; set parallel=1"
            )
        if not TAP_QUARTERS <= steps < 1 << 16:
            raise ValueError(
                f"{network.name}: sequences have {some(steps, 'step')} at the cell: taps need {TAP_QUARTERS}, "
                f"one a quarter, "
                f"to {(1 << 16) - 1}"
            )
        most = max(-self.source.lo, self.source.hi) * self.own * (-(-steps // TAP_QUARTERS) + 1)
        if most >= 1 << TAP_WORD - 1:
            raise ValueError(
                f"{network.name}: sums of the input of {some(steps, 'step')} reach {most}: must be below "
                f"{1 << TAP_WORD - 1}; "
                "give shorter sequences"
            )

    def _check_sizes(self) -> None:
        """Sizes of the layers around the cell, in chunks and groups."""
        network, config = self.network, self.config
        rows = GATES * config.parallel
        self.window = self.filters = self.classes = 0
        if self.conv is not None:
            size = self.order.size
            if size > config.window:
                raise ValueError(
                    f"{network.name}: {self.conv.conv.name!r} has windows of {size} codes: the design has room for "
                    f"{config.window}; set window={_power(size)}"
                )
            self.window = -(-size // config.parallel)
            self.filters = -(-len(self.conv.conv.weight) // rows)
            if self.filters > config.groups:
                raise ValueError(
                    f"{network.name}: {self.conv.conv.name!r} has {len(self.conv.conv.weight)} outputs: the design has "
                    f"room for {config.groups * rows}; set hidden larger"
                )
        if network.head is not None:
            self.classes = -(-len(network.head.bias) // rows)
        most = min(SUM_GROUPS, config.groups - self.filters)
        if network.head is not None and self.classes > most:
            raise ValueError(
                f"{network.name}: has {len(network.head.bias)} classes: the design has room for {max(most, 0) * rows}; "
                "set hidden larger"
            )

    def front(self, steps: int) -> int:
        """Group of a convolution's first results, for a command of ``steps``.

        Behind the sums of a step they leave groups that are busy no more; of a single step they leave the first.
        """
        last = self.hidden - self.filters
        return last if steps > 1 and last >= self.filters else 0

    def check(self) -> None:
        """Refuses what does not fit, once all words are made."""
        for part in (self.weights, self.rows, self.tables, self.quantizers):
            assert part

    @property
    def row(self) -> int:
        """Bytes of a row of x: a step of a sequence."""
        return -(-(self.window or self.inputs) * self.config.parallel // _BEAT) * _BEAT

    @property
    def result(self) -> int:
        """Bytes of a row of h."""
        return -(-self.hidden * self.config.parallel // _BEAT) * _BEAT

    @cached_property
    def _matrices(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights of W and U ``[hidden, gates, n]`` in one unit a gate."""
        cell, units = self.cell, self.network.cell.units
        found: tuple[list[np.ndarray], list[np.ndarray]] = [], []
        for name in self.gates:
            own = cell.gates.index(name)
            for parts, matrix, factor in zip(found, (cell.w, cell.u), cell.factors[name]):
                part = matrix[own * units : (own + 1) * units] * factor
                if part.min() < -128 or part.max() > 127:
                    raise ValueError(
                        f"{name} gate: weights reach {part.min()} to {part.max()} in the unit of the gate's sum: must "
                        "be within -128 and 127; quantise input and hidden state with one scale"
                    )
                parts.append(part)
        return np.stack(found[0], axis=1), np.stack(found[1], axis=1)

    @cached_property
    def _lanes(self) -> np.ndarray:
        """Weights ``[group, place, lane, row]``, zeros where there are none."""
        config, p = self.config, self.config.parallel
        wx, uh = self._matrices
        size = config.groups + config.chunks
        table = np.zeros((config.hidden, GATES, size * p), np.int64)
        table[: len(uh), :, : uh.shape[2]] = uh
        table[: len(wx), :, config.hidden : config.hidden + wx.shape[2]] = wx
        made = np.zeros((config.groups, config.places, p, GATES * p), np.int64)
        _put(made, table.reshape(GATES * config.hidden, size * p))
        if self.conv is not None:
            natural = self.conv.conv.weight.transpose(0, 2, 1).reshape(len(self.conv.conv.weight), -1)
            flat = np.where(self.order < 0, 0, natural[:, self.order])
            for first in {self.front(1), self.front(2)}:
                _put(made[first:, config.window_place :], flat)
        if self.network.head is not None:
            _put(made[:, config.class_place :], self.network.head.weight)
        return made

    def _check_chains(self, lanes: np.ndarray) -> None:
        """Every sum of a lane stays within its bits, whatever the codes."""
        network, config = self.network, self.config
        hidden = network.cell.hidden
        rows: dict[str, tuple[tuple[int, int, Coding], ...]] = {
            "the cell": ((0, config.groups, hidden), (config.input_place, config.chunks, network.cell_input)),
            "the convolution": ((config.window_place, config.window_chunks, self.source),),
            "the dense layer": ((config.class_place, config.groups, hidden),),
        }
        bound = PAIR.bound if config.products == 2 else 1 << SINGLE - 1
        for what, parts in rows.items():
            own = [(lanes[:, first : first + count], coding) for first, count, coding in parts]
            low = sum(np.minimum(each * coding.lo, each * coding.hi).sum(axis=1) for each, coding in own)
            high = sum(np.maximum(each * coding.lo, each * coding.hi).sum(axis=1) for each, coding in own)
            # An upper sum of -bound would be read as +bound where the lower one is negative.
            if np.min(low) <= -bound or np.max(high) >= bound:
                reach = max(-int(np.min(low)), int(np.max(high)))
                remedy = "set products=1, or parallel larger" if config.products == 2 else "set parallel larger"
                raise ValueError(
                    f"{network.name}: sums of a lane of products of {what} reach {reach}: with "
                    f"products={config.products} they must stay below {bound}; {remedy}"
                )

    @cached_property
    def weights(self) -> bytes:
        """See the class."""
        config, lanes = self.config, self._lanes
        self._check_chains(lanes)
        if config.products == 2:
            lanes = lanes.copy()
            _, lanes[..., 1::2] = PAIR.stored(lanes[..., 0::2], lanes[..., 1::2])
            if lanes.min() < -128:
                raise ValueError(
                    f"{self.network.name}: a weight of -128 shares a slice with a negative one, which does not fit its "
                    "27 bits: quantise weights to -127 to 127, or set products=1"
                )
        raw = lanes.astype(np.int8).reshape(config.groups, config.places, -1)
        beside = max(_BEAT // raw.shape[2], 1)
        # A beat: words of groups side by side, or a part of a word; beats of one kind lie one behind another.
        blocks = raw.reshape(-1, beside, config.places, raw.shape[2]).transpose(0, 2, 1, 3)
        beats = blocks.reshape(len(blocks), config.places, -1, _BEAT).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(beats).tobytes()

    @cached_property
    def rows(self) -> bytes:
        """See the class."""
        config, units = self.config, self.network.cell.units
        words = np.zeros((2 * config.hidden, GATES, 4), np.int64)
        bits = gate_sum(config.products, config.parallel)
        for gate, name in enumerate(self.gates):
            own = Affine.of(self.cell.accumulators[name], f"{name} accumulator")
            words[:units, gate, :3] = own.rows(f"{name} accumulator", self.cell.reach[name], units, bits)
        if self.conv is not None:
            count = len(self.conv.conv.weight)
            own = Affine.of(self.conv.requantizer, self._conv_name)
            outputs = words[config.hidden :].reshape(-1, 4)
            outputs[:count, :3] = own.rows(self._conv_name, self.conv.reach, count, bits)
        return words.astype("<i4").tobytes()

    @property
    def _conv_name(self) -> str:
        return f"conv {len(self.network.front) - 1}"

    @cached_property
    def tables(self) -> bytes:
        """See the class."""
        config, cell = self.config, self.cell
        words = np.zeros((max(256, 1 << config.state_bits), 8), np.int64)
        for gate, (wanted, name) in enumerate(zip(GATE_NAMES, self.gates)):
            table, first = cell.tables[name], cell.cell.gates[name].accumulator.lo
            if len(table) > 256:
                raise ValueError(f"{name} accumulator: has {len(table)} codes: at most 256 fit the cell engine")
            # A gate without weights of its own is 1 minus the other.
            codes = table if wanted == name else cell.one - table
            words[(first + np.arange(len(table))) & 0xFF, gate] = _within(codes, f"{name} gate", 256)
        low, high = cell.state_range
        if low < -(1 << config.state_bits - 1) or high >= 1 << config.state_bits - 1:
            bits = max((-low - 1).bit_length(), high.bit_length()) + 1
            raise ValueError(
                f"{self.network.name}: codes of the cell state are {low} to {high}: the design has "
                f"state_bits={config.state_bits}; set state_bits={bits}"
            )
        places = np.arange(low, high + 1) & (1 << config.state_bits) - 1
        words[places, GATES] = _within(cell.tables["squash"], "tanh of the state", 256)
        return words.astype("<i2").tobytes()

    @cached_property
    def quantizers(self) -> bytes:
        """See the class."""
        cell = self.cell
        found: dict[Quantizers, tuple[Affine, int]] = {}
        for which, name in zip((Quantizers(n) for n in range(GATES)), self.gates):
            found[which] = Affine.of(cell.accumulators[name], f"{name} accumulator"), 0
        for which, own, what in (
            (Quantizers.KEPT, cell.kept, "forget gate * state"),
            (Quantizers.ADDED, cell.added, "input gate * cell gate"),
            (Quantizers.HIDDEN, cell.hidden, "output gate * tanh"),
        ):
            low, high = cell.reach[which.name.lower()]
            if low < -HALF or high >= HALF:
                raise ValueError(f"{what}: products reach {low} to {high}: must be within {CENTRED} bits")
            made = Affine.of(own, what)
            found[which] = made, int(made.addend[0])
        if self.conv is not None:
            found[Quantizers.WINDOW] = Affine.of(self.conv.requantizer, self._conv_name), 0
        raw = b""
        for which in Quantizers:
            if which == Quantizers.STATE:
                low, high = cell.state_range
                raw += quantizer_word(0, 0, 0, False, low, high)
            else:
                made, addend = found.get(which, (IDLE, 0))
                raw += quantizer_word(int(made.multiplier[0]), addend, made.shift, made.even, made.lo, made.hi)
        return raw

    def _check_state(self) -> None:
        cell = self.cell
        if cell.sum_factors != (1, 1):
            raise ValueError(
                f"{self.network.name}: the two parts of the cell state have scales whose ratio is "
                f"{cell.sum_factors[0]}/{cell.sum_factors[1]}: must be 1 in the cell engine; quantise both with one "
                "scale, or run it with --engine reference"
            )
        if cell.state is not None and cell.state.kind != "nothing":
            raise ValueError(
                f"{self.network.name}: the cell state's quantiser became a {cell.state.kind}: must be a clip in the "
                "cell engine; quantise the state and its parts with one scale, or run it with --engine reference"
            )

    def input_rows(self, codes: np.ndarray) -> bytes:
        """Beats for port ``x`` of rows ``[sequences, steps, codes]``."""
        sequences, steps, inputs = codes.shape
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
        """Sums ``[sequences, rows, classes]`` from beats of port ``logits``."""
        head = self.network.head
        assert head is not None
        rows = np.frombuffer(raw, "<i4").reshape(-1, sequences, self.classes * GATES * self.config.parallel)
        return rows.transpose(1, 0, 2)[..., : len(head.bias)].astype(np.int64)

    def hidden_codes(self, raw: bytes, sequences: int) -> np.ndarray:
        """Codes ``[sequences, rows, hidden]`` from beats of port ``h``."""
        rows = np.frombuffer(raw, np.int8).reshape(-1, sequences, self.result)
        return rows.transpose(1, 0, 2)[..., : self.network.cell.units].astype(np.int64)

    def state_codes(self, raw: bytes, sequences: int) -> np.ndarray:
        """Codes ``[2, sequences, hidden]`` from all beats of ``state``."""
        config = self.config
        words = np.frombuffer(raw, "<i2").reshape(2, config.sequences, config.groups, 8)[..., : config.parallel]
        flat = words.reshape(2, config.sequences, config.hidden)
        return flat[:, :sequences, : self.network.cell.units].astype(np.int64)


def _power(value: int) -> int:
    """The least power of two that is not below ``value``."""
    return 1 << (value - 1).bit_length()


def windows_of(conv: Conv, codes: np.ndarray) -> np.ndarray:
    """Windows ``[sequences, steps, kernel * channels]`` of a convolution."""
    codes = np.pad(codes, ((0, 0), conv.pads, (0, 0)))
    found = np.lib.stride_tricks.sliding_window_view(codes, conv.weight.shape[2], axis=1)[:, :: conv.stride]
    return found.swapaxes(2, 3).reshape(*found.shape[:2], -1)


def _put(groups: np.ndarray, weights: np.ndarray) -> None:
    """Weights ``[rows, n]`` to ``[group, place, lane, row]``."""
    _, _, lanes, rows = groups.shape
    count, places = -(-len(weights) // rows), -(-weights.shape[1] // lanes)
    padded = np.zeros((count * rows, places * lanes), np.int64)
    padded[: len(weights), : weights.shape[1]] = weights
    groups[:count, :places] = padded.reshape(count, rows, places, lanes).transpose(0, 2, 3, 1)


def _within(codes: np.ndarray, what: str, bound: int) -> np.ndarray:
    if codes.min() < -bound or codes.max() >= bound:
        raise ValueError(f"{what}: has codes {codes.min()} to {codes.max()}: must be within {-bound} and {bound - 1}")
    return codes
