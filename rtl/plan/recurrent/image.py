"""A quantised LSTM as the cell engine's words."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...engines.cell.parameters import CellParameters
from ...formats.cell import APART, CENTRED, CODES_A_BEAT, GATES, SINGLE, Quantizers, gate_sum
from ...formats.requantizer import Requantizer
from ...models.recurrent.network import GATES as GATE_NAMES
from ...models.recurrent.network import RecurrentNetwork

__all__ = ["CellImage"]

#: Bits of a multiplier, shifts that there are, bytes of a beat.
_MULTIPLIER, _SHIFTS, _BEAT = 26, 48, CODES_A_BEAT
_HALF = 1 << CENTRED - 1


@dataclass(frozen=True)
class _Affine:
    """``(n * multiplier + addend) >> shift``; arrays: one a channel.

    With ``even``, ties go to the even code.
    """

    multiplier: np.ndarray
    addend: np.ndarray
    shift: int
    even: bool
    lo: int
    hi: int

    @classmethod
    def of(cls, requantizer: Requantizer, what: str) -> "_Affine":
        if requantizer.kind == "table":
            raise ValueError(
                f"{what}: became a table of {requantizer.thresholds.size} thresholds: the cell engine multiplies, adds "
                "and shifts; run it with --engine reference"
            )
        half = 1 << requantizer.shift - 1 if requantizer.half_even else 0
        made = cls(
            requantizer.multiplier,
            requantizer.addend + half,
            requantizer.shift,
            requantizer.half_even,
            requantizer.lo,
            requantizer.hi,
        )
        if made.multiplier.max() >= 1 << _MULTIPLIER or made.shift >= _SHIFTS:
            raise ValueError(
                f"{what}: multiplies by {made.multiplier.max()} and shifts by {made.shift}: at most "
                f"{(1 << _MULTIPLIER) - 1} and {_SHIFTS - 1} fit the cell engine; run it with --engine reference"
            )
        if made.lo < -512 or made.hi > 511:
            raise ValueError(f"{what}: has codes {made.lo} to {made.hi}: must be within -512 and 511")
        return made


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
    hidden, inputs : int
        Operands of RUN.
    unsigned : bool
        Codes of x are 0 to 255.

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
                    f"{network.name}: has {key}={value}: the design has room for {most}; set {key}={value}"
                )
        self.hidden, self.inputs = (-(-value // config.parallel) for value in (units, inputs))
        source, out = network.cell_input, network.cell.hidden
        self.unsigned = source.hi > 127
        low, high = (0, 255) if self.unsigned else (-128, 127)
        for what, coding, lo, hi in (("input", source, low, high), ("hidden state", out, -128, 127)):
            if coding.lo < lo or coding.hi > hi:
                raise ValueError(
                    f"{network.name}: codes of the {what} are {coding.lo} to {coding.hi}: must be within {lo} and {hi}"
                )
        self.gates = tuple(name if name in self.cell.gates else "forget" for name in GATE_NAMES)
        self._check_state()

    def check(self) -> None:
        """Refuses what does not fit, once all words are made."""
        for part in (self.weights, self.rows, self.tables, self.quantizers):
            assert part

    @property
    def row(self) -> int:
        """Bytes of a row of x: a step of a sequence."""
        return -(-self.inputs * self.config.parallel // _BEAT) * _BEAT

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
        grouped = table.reshape(config.groups, p * GATES, size, p)
        made[:, :size] = grouped.transpose(0, 2, 3, 1)
        return made

    def _check_chains(self, lanes: np.ndarray) -> None:
        """Every sum of a lane stays within its bits, whatever the codes."""
        network, config = self.network, self.config
        low, high = np.zeros(lanes.shape[:1] + lanes.shape[2:], np.int64), 0
        for first, count, coding in (
            (0, config.groups, network.cell.hidden),
            (config.groups, config.chunks, network.cell_input),
        ):
            own = lanes[:, first : first + count]
            low = low + np.minimum(own * coding.lo, own * coding.hi).sum(axis=1)
            high = high + np.maximum(own * coding.lo, own * coding.hi).sum(axis=1)
        bound = 1 << (APART if config.products == 2 else SINGLE) - 1
        if low.min() < -bound or np.max(high) >= bound:
            reach = max(-int(low.min()), int(np.max(high)))
            remedy = "set products=1, or parallel larger" if config.products == 2 else "set parallel larger"
            raise ValueError(
                f"{network.name}: sums of a lane of products reach {reach}: with products={config.products} they must "
                f"stay below {bound}; {remedy}"
            )

    @cached_property
    def weights(self) -> bytes:
        """See the class."""
        config, lanes = self.config, self._lanes
        self._check_chains(lanes)
        if config.products == 2:
            lanes = lanes.copy()
            lanes[..., 1::2] -= lanes[..., 0::2] < 0
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
        words = np.zeros((config.hidden, GATES, 4), np.int64)
        limit = 1 << gate_sum(config.products, config.parallel)
        for gate, name in enumerate(self.gates):
            own = _Affine.of(self.cell.accumulators[name], f"{name} accumulator")
            multiplier, addend = (np.broadcast_to(each, units) for each in (own.multiplier, own.addend))
            offset = addend // multiplier
            rest = addend - offset * multiplier
            if max(-offset.min(), offset.max()) >= limit:
                raise ValueError(
                    f"{name} accumulator: its bias is {max(-offset.min(), offset.max())} units: must be below {limit}"
                )
            low, high = self.cell.reach[name]
            for beyond, end, side in (
                (low + offset < -_HALF, (-_HALF * multiplier + rest) >> own.shift > own.lo, "low"),
                (high + offset >= _HALF, ((_HALF - 1) * multiplier + rest) >> own.shift < own.hi, "high"),
            ):
                if (beyond & end).any():
                    raise ValueError(
                        f"{name} accumulator: sums reach {low} to {high}, beyond {CENTRED} bits, before the code is at "
                        f"its {side} end; run it with --engine reference"
                    )
            words[:units, gate, 0], words[:units, gate, 1], words[:units, gate, 2] = offset, multiplier, rest
        return words.astype("<i4").tobytes()

    @cached_property
    def tables(self) -> bytes:
        """See the class."""
        config, cell = self.config, self.cell
        words = np.zeros((max(256, 1 << config.state_bits), 8), np.int64)
        for gate, (wanted, name) in enumerate(zip(GATE_NAMES, self.gates)):
            table, first = cell.tables[name], cell.cell.gates[name].accumulator.lo
            if len(table) > 256:
                raise ValueError(f"{name} accumulator: has {len(table)} codes: at most 256 fit the cell engine")
            # The input gate is 1 minus the forget gate where it has no weights of its own.
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
        found: dict[Quantizers, tuple[_Affine, int]] = {}
        for which, name in zip((Quantizers(n) for n in range(GATES)), self.gates):
            found[which] = _Affine.of(cell.accumulators[name], f"{name} accumulator"), 0
        for which, own, what in (
            (Quantizers.KEPT, cell.kept, "forget gate * state"),
            (Quantizers.ADDED, cell.added, "input gate * cell gate"),
            (Quantizers.HIDDEN, cell.hidden, "output gate * tanh"),
        ):
            low, high = cell.reach[which.name.lower()]
            if low < -_HALF or high >= _HALF:
                raise ValueError(f"{what}: products reach {low} to {high}: must be within {CENTRED} bits")
            made = _Affine.of(own, what)
            found[which] = made, int(made.addend[0])
        raw = b""
        for which in Quantizers:
            if which == Quantizers.STATE:
                low, high = cell.state_range
                raw += _quantizer(0, 0, 0, False, low, high)
            else:
                made, addend = found[which]
                raw += _quantizer(int(made.multiplier[0]), addend, made.shift, made.even, made.lo, made.hi)
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
        """Beats of codes ``[sequences, steps, inputs]`` for port ``x``."""
        sequences, steps, inputs = codes.shape
        rows = np.zeros((steps, sequences, self.row), np.uint8)
        rows[..., :inputs] = codes.transpose(1, 0, 2) & 0xFF
        return rows.tobytes()

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


def _within(codes: np.ndarray, what: str, bound: int) -> np.ndarray:
    if codes.min() < -bound or codes.max() >= bound:
        raise ValueError(f"{what}: has codes {codes.min()} to {codes.max()}: must be within {-bound} and {bound - 1}")
    return codes


def _quantizer(multiplier: int, addend: int, shift: int, even: bool, lo: int, hi: int) -> bytes:
    """A QuantizerWord."""
    word = multiplier | (addend & (1 << 48) - 1) << 32 | shift << 80 | int(even) << 86
    word |= (lo & 0xFFFF) << 96 | (hi & 0xFFFF) << 112
    return word.to_bytes(16, "little")
