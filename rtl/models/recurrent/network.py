"""Quantised recurrent networks: real numbers and equal integers."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from gradloom.rtl.formats.requantizer import Requantizer, rounding_thresholds, step_thresholds

__all__ = [
    "GATES",
    "Coding",
    "Conv",
    "Dense",
    "Gate",
    "IntegerCell",
    "IntegerConv",
    "LstmCell",
    "Pool",
    "RecurrentNetwork",
    "lookup",
]

#: Gates in the order of all arrays: input, forget, cell, output.
GATES = ("input", "forget", "cell", "output")
#: Greatest factor that brings products with the input and with the hidden state to a common unit.
_MOST_FACTOR = 1024
#: Sums of products stay below it; multiply-add-shift has room for them in 64 bits.
_MOST_SUM = 1 << 31


@dataclass(frozen=True, eq=False)
class Coding:
    """A quantiser: makes a real number a code in ``lo..hi``.

    The code stands for ``code * scale``.

    Attributes
    ----------
    scale : float
        Value of a code's unit.
    lo, hi : int
    step : float
        Unit of the rounding, half to even; the scale itself but for odd models.
    levels : array ``[channels, hi - lo]``, optional
        In place of rounding: the code is ``lo`` and the number of levels that are at most the number.
    name : str
        Name of the node.
    """

    scale: float
    lo: int
    hi: int
    step: float = 0.0
    levels: np.ndarray | None = None
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", self.step or self.scale)

    def codes(self, values: np.ndarray) -> np.ndarray:
        """Codes of real numbers in float32; channels last.

        They are computed as an interpreter of ONNX computes them.
        """
        values = np.asarray(values, np.float32)
        if self.levels is None:
            return np.clip(np.rint(values / np.float32(self.step)), self.lo, self.hi).astype(np.int64)
        if len(self.levels) == 1:
            return self.lo + np.searchsorted(self.levels[0].astype(np.float32), values, side="right")
        return self.lo + (values[..., None] >= self.levels.astype(np.float32)).sum(axis=-1)

    def requantizer(self, scales: list[Fraction], offsets: list[Fraction]) -> Requantizer:
        """Requantizer of integers ``n`` that stand for ``n * scale + offset``.

        There is one scale and offset a channel, or one for all.
        """
        if self.levels is not None:
            most = max(len(self.levels), len(scales))
            scales, offsets = scales * (most // len(scales)), offsets * (most // len(offsets))
            return Requantizer.of(step_thresholds(self.levels, scales, offsets), self.lo, self.hi)
        if len({*zip(scales, offsets)}) == 1:
            scales, offsets = scales[:1], offsets[:1]
        thresholds = rounding_thresholds(Fraction(self.step), scales, offsets, self.lo, self.hi)
        step = Fraction(self.step)
        slopes, offsets = ([each / step for each in some] for some in (scales, offsets))
        return Requantizer.of(thresholds, self.lo, self.hi, slopes=slopes, offsets=offsets)


@dataclass(frozen=True, eq=False)
class Conv:
    """A convolution over time and its quantiser.

    A ReLU between them is the quantiser's ``lo`` of 0.

    Attributes
    ----------
    weight : array of int64 ``[outputs, inputs, kernel]``
    scale, bias : array ``[outputs]``
        The result is ``scale * (weight * code * scale of the input) + bias``.
    stride : int
    pads : tuple of int
        Zeros before and after.
    """

    weight: np.ndarray
    scale: np.ndarray
    bias: np.ndarray
    stride: int
    pads: tuple[int, int]
    coding: Coding
    name: str = ""

    @property
    def inputs(self) -> int:
        """Channels of the input."""
        return int(self.weight.shape[1])

    @property
    def outputs(self) -> int:
        """Channels of the result."""
        return len(self.weight)

    @property
    def kernel(self) -> int:
        """Time steps of a window."""
        return int(self.weight.shape[2])

    def steps(self, steps: int) -> int:
        """Time steps of the result, for the time steps of the input."""
        return (steps + sum(self.pads) - self.kernel) // self.stride + 1


@dataclass(frozen=True, eq=False)
class Pool:
    """Greatest codes of windows of time steps.

    Attributes
    ----------
    kernel, stride : int
    pads : tuple of int
        Steps before and after, which count as the least code.
    groups : array of int ``[outputs, n]``
        Channels of the input that each output is the greatest of.
    inputs : int
        Channels of the input.
    coding : Coding
        Of the input, and of the result.
    """

    kernel: int
    stride: int
    pads: tuple[int, int]
    groups: np.ndarray
    inputs: int
    coding: Coding
    name: str = ""

    @property
    def outputs(self) -> int:
        """Channels of the result."""
        return len(self.groups)

    def steps(self, steps: int) -> int:
        """Time steps of the result, for the time steps of the input."""
        return (steps + sum(self.pads) - self.kernel) // self.stride + 1

    def greatest(self, values: np.ndarray, least: float) -> np.ndarray:
        """Of values ``[n, steps, inputs]``; ``least``: what pads are."""
        wide = np.pad(values, ((0, 0), self.pads, (0, 0)), constant_values=least)
        windows = np.lib.stride_tricks.sliding_window_view(wide, self.kernel, axis=1)[:, :: self.stride]
        found: np.ndarray = windows.max(axis=3)[..., self.groups].max(axis=3)
        return found


@dataclass(frozen=True, eq=False)
class Gate:
    """A gate of a cell.

    It is ``output(activation(accumulator(W x + U h + bias)))``.

    Attributes
    ----------
    w, u : array of int64 ``[hidden, inputs]``, ``[hidden, hidden]``
    w_scale, u_scale, bias : array ``[hidden]``
    activation : str
        ``sigmoid`` or ``tanh``.
    """

    w: np.ndarray
    u: np.ndarray
    w_scale: np.ndarray
    u_scale: np.ndarray
    bias: np.ndarray
    accumulator: Coding
    activation: str
    output: Coding
    name: str = ""

    def table(self) -> np.ndarray:
        """Codes of the output for each code of the accumulator."""
        coded = self.accumulator
        return lookup((coded.lo, coded.hi, coded.scale), self.activation, self.output)


class Cell(Protocol):
    """A quantised cell of any kind."""

    @property
    def gates(self) -> dict[str, Gate]:
        """By name."""

    @property
    def hidden(self) -> Coding:
        """Of the hidden state."""

    @property
    def name(self) -> str:
        """Of the node."""

    @property
    def units(self) -> int:
        """Width of the hidden state."""

    @property
    def inputs(self) -> int:
        """Channels of the input."""

    def integers(self, source: Coding) -> Any:
        """The cell in integers; ``source``: coding of its input."""


class Gated:
    """Sizes of a cell, which all of its gates have."""

    gates: dict[str, Gate]

    @property
    def units(self) -> int:
        """Width of the hidden state."""
        return len(self._gate.w)

    @property
    def inputs(self) -> int:
        """Channels of the input."""
        return self._gate.w.shape[1]

    @property
    def _gate(self) -> Gate:
        return next(iter(self.gates.values()))


@dataclass(frozen=True, eq=False)
class LstmCell(Gated):
    """A quantised LSTM cell.

    Attributes
    ----------
    gates : mapping
        By name, those of :data:`GATES`. Without ``input`` or ``forget``, that gate is 1 minus the other.
    kept, added : Coding
        Of the products forget gate with state, and input gate with cell gate.
    state : Coding, optional
        Of their sum; without one the sum is the state.
    squashed_in : Coding, optional
        Before the tanh of the state.
    squashed : Coding
        Behind it.
    hidden : Coding
        Of the product with the output gate.
    one : int
        Code of the 1 that a gate is subtracted from; 0: that of exactly 1.
    """

    gates: dict[str, Gate]
    kept: Coding
    added: Coding
    state: Coding | None
    squashed_in: Coding | None
    squashed: Coding
    hidden: Coding
    name: str = ""
    one: int = 0

    def integers(self, source: Coding) -> "IntegerCell":
        """See :class:`Cell`."""
        return IntegerCell(self, source)


@dataclass(frozen=True, eq=False)
class Dense:
    """The layer of logits.

    Logits are ``scale * (weight * code * scale of the hidden state) + bias``; ``weight``: ``[classes, hidden]``.
    """

    weight: np.ndarray
    scale: np.ndarray
    bias: np.ndarray
    name: str = ""


@dataclass(frozen=True, eq=False)
class RecurrentNetwork:
    """Layers over time, a recurrent cell and a dense layer.

    Attributes
    ----------
    input : Coding
        Of the input.
    front : tuple of Conv or Pool
    cell : LstmCell, GruCell or RnnCell
    head : Dense, optional
    pick : str
        Hidden states that reach the head: ``last``, ``mean`` or ``all``; of two directions also ``ends``, those that
        each direction ends with.
    below : tuple
        Recurrent layers in front of ``cell``, each as forward and backward cell.
    backward : LstmCell, GruCell or RnnCell, optional
        Runs from the last step to the first, beside ``cell``.
    """

    name: str
    input: Coding
    front: tuple[Conv | Pool, ...]
    cell: Cell
    head: Dense | None = None
    pick: str = "last"
    below: tuple[tuple[Cell, Cell | None], ...] = ()
    backward: Cell | None = None

    @property
    def layers(self) -> tuple[tuple[Cell, Cell | None], ...]:
        """Recurrent layers, forward and backward, from the input on."""
        return (*self.below, (self.cell, self.backward))

    @property
    def channels(self) -> int:
        """Channels of a sample."""
        return self.front[0].inputs if self.front else self.layers[0][0].inputs

    @property
    def lstm(self) -> LstmCell:
        """The cell, which must be an LSTM, and the only one."""
        if self.below or self.backward is not None:
            count = sum(1 if backward is None else 2 for _, backward in self.layers)
            raise ValueError(
                f"{self.name}: has {count} recurrent cells, stacked or of two directions: must be one LSTM; run it "
                "with --engine reference"
            )
        if not isinstance(self.cell, LstmCell):
            kind = type(self.cell).__name__.removesuffix("Cell").upper()
            raise ValueError(f"{self.name}: its recurrent node is a {kind}: must be an LSTM")
        return self.cell

    @property
    def last_conv(self) -> Conv | None:
        """The convolution right in front of the cell, if there is one."""
        return self.front[-1] if self.front and isinstance(self.front[-1], Conv) else None

    @property
    def source(self) -> Coding:
        """Coding of what reaches :attr:`last_conv`, or the cell."""
        if self.last_conv is None:
            return self.cell_input
        return self.front[-2].coding if len(self.front) > 1 else self.input

    @property
    def cell_input(self) -> Coding:
        """Coding of what reaches the recurrent layers."""
        return self.front[-1].coding if self.front else self.input

    @cached_property
    def integers(self) -> "Integers":
        """All quantisers in integers."""
        return Integers(self)


def _reals(values: np.ndarray) -> list[Fraction]:
    return [Fraction(float(each)) for each in values]


def lookup(
    coding_in: tuple[int, int, float],
    function: str,
    coding: Coding,
    before: Requantizer | None = None,
    before_scale: float = 0.0,
) -> np.ndarray:
    """Codes of an activation for each code in ``lo..hi``.

    ``before``: a quantiser in front of it.
    """
    lo, hi, scale = coding_in
    codes = np.arange(lo, hi + 1)
    if before is not None:
        codes, scale = before(codes), before_scale
    real = (codes.astype(np.float32) * np.float32(scale)).astype(np.float64)
    value = np.tanh(real) if function == "tanh" else 1 / (1 + np.exp(-real))
    return coding.codes(value)


@dataclass(frozen=True, eq=False)
class IntegerConv:
    """A :class:`Conv` in integers.

    ``requantizer`` is that of the sum of products of codes.
    """

    conv: Conv
    requantizer: Requantizer
    reach: tuple[int, int]

    @classmethod
    def of(cls, conv: Conv, source: Coding) -> "IntegerConv":
        scales = [each * Fraction(source.scale) for each in _reals(conv.scale)]
        flat = conv.weight.reshape(len(conv.weight), -1)
        return cls(conv, conv.coding.requantizer(scales, _reals(conv.bias)), bounds_of((flat, 1, source.lo, source.hi)))


def narrowed(coding: Coding, table: np.ndarray) -> Coding:
    """A coding of the codes that a table holds: others cannot occur."""
    return Coding(coding.scale, int(table.min()), int(table.max()))


def bounds_of(*terms: tuple[np.ndarray, int, int, int]) -> tuple[int, int]:
    """Least and greatest of sums of products.

    A term: weights ``[rows, n]``, a factor, and the range of its codes.
    """
    low = sum(np.minimum(w * f * lo, w * f * hi).sum(axis=1) for w, f, lo, hi in terms)
    high = sum(np.maximum(w * f * lo, w * f * hi).sum(axis=1) for w, f, lo, hi in terms)
    # Padding and a start from zero: 0 is always possible.
    return min(int(np.min(low)), 0), max(int(np.max(high)), 0)


@dataclass(frozen=True)
class IntegerGate:
    """A :class:`Gate` in integers.

    Its code is ``table[accumulator(fx * W x + fh * U h)]``; ``factors`` are ``(fx, fh)``.
    """

    factors: tuple[int, int]
    accumulator: Requantizer
    table: np.ndarray
    reach: tuple[int, int]


def common_units(gate: Gate, x_units: list[Fraction], h_units: list[Fraction]) -> tuple[int, int, list[Fraction]]:
    """Factors that bring a gate's sums to one unit; the unit by channel."""
    ratios = {x / h for x, h in zip(x_units, h_units)}
    ratio = ratios.pop()
    if ratios or max(ratio.numerator, ratio.denominator) > _MOST_FACTOR:
        raise ValueError(
            f"node {gate.name!r}: products with the input have the unit {float(x_units[0]):.9g} and products with "
            f"the hidden state {float(h_units[0]):.9g}, whose ratio {float(x_units[0] / h_units[0]):.9g} is no "
            f"ratio of integers up to {_MOST_FACTOR}: quantise the input and the hidden state with one scale"
        )
    return ratio.numerator, ratio.denominator, [each / ratio.denominator for each in h_units]


def gate_integers(gate: Gate, source: Coding, hidden: Coding) -> IntegerGate:
    """A gate of sums of products with the input and the hidden state."""
    x_units = [each * Fraction(source.scale) for each in _reals(gate.w_scale)]
    h_units = [each * Fraction(hidden.scale) for each in _reals(gate.u_scale)]
    fx, fh, units = common_units(gate, x_units, h_units)
    return IntegerGate(
        (fx, fh),
        gate.accumulator.requantizer(units, _reals(gate.bias)),
        gate.table(),
        bounds_of((gate.w, fx, source.lo, source.hi), (gate.u, fh, hidden.lo, hidden.hi)),
    )


class IntegerCell:
    """An :class:`LstmCell` in integers.

    Attributes
    ----------
    w, u : array of int64 ``[4 * hidden, inputs]``, ``[4 * hidden, hidden]``
        Weights of the gates that there are, in the order of ``gates``.
    factors : mapping
        ``(of W x, of U h)`` by gate: integers that bring both sums to one unit.
    accumulators : mapping
        :class:`Requantizer` by gate.
    tables : mapping
        Codes of an activation by gate, and of ``squash``; the first is that of the least code.
    kept, added, state, hidden : Requantizer
    reach : mapping
        Least and greatest integer in front of each quantiser.
    """

    def __init__(self, cell: LstmCell, source: Coding) -> None:
        self.cell, self.source = cell, source
        self.gates = tuple(name for name in GATES if name in cell.gates)
        self.reach: dict[str, tuple[int, int]] = {}
        self.factors: dict[str, tuple[int, int]] = {}
        self.accumulators: dict[str, Requantizer] = {}
        self.tables: dict[str, np.ndarray] = {}
        for name in self.gates:
            self._gate(name, cell.gates[name])
        self.w = np.concatenate([cell.gates[name].w for name in self.gates])
        self.u = np.concatenate([cell.gates[name].u for name in self.gates])
        self._state()

    def _gate(self, name: str, gate: Gate) -> None:
        made = gate_integers(gate, self.source, self.cell.hidden)
        self.factors[name], self.accumulators[name] = made.factors, made.accumulator
        self.tables[name], self.reach[name] = made.table, made.reach

    def _state(self) -> None:
        cell = self.cell
        # Only codes that a table holds can occur.
        outputs = {name: narrowed(gate.output, self.tables[name]) for name, gate in cell.gates.items()}
        for missing, other in (("input", "forget"), ("forget", "input")):
            if missing in outputs:
                continue
            # 1 minus the other gate, in its unit
            own = outputs[other]
            one = cell.one or round(1 / own.scale)
            if not cell.one and one * Fraction(own.scale) != 1:
                raise ValueError(
                    f"node {cell.name!r}: the {missing} gate is 1 minus the {other} gate, whose scale "
                    f"{own.scale:.9g} must be one over an integer"
                )
            outputs[missing] = Coding(own.scale, one - own.hi, one - own.lo)
            self.one = one
        state = cell.state
        units = Fraction(cell.kept.scale), Fraction(cell.added.scale)
        ratio = units[0] / units[1]
        if max(ratio.numerator, ratio.denominator) > _MOST_FACTOR:
            raise ValueError(
                f"node {cell.name!r}: the two parts of the cell state have scales {cell.kept.scale:.9g} "
                f"and {cell.added.scale:.9g}, whose ratio must be one of integers up to {_MOST_FACTOR}"
            )
        self.sum_factors = ratio.numerator, ratio.denominator
        unit = units[1] / ratio.denominator
        low, high = (
            ratio.numerator * getattr(cell.kept, end) + ratio.denominator * getattr(cell.added, end)
            for end in ("lo", "hi")
        )
        self.reach["state"] = low, high
        if state is None:
            self.state = None
            self.state_range, self.state_scale = (low, high), unit
        else:
            self.state = state.requantizer([unit], [Fraction(0)])
            self.state_range, self.state_scale = (state.lo, state.hi), Fraction(state.scale)
        self.kept, self.added = (
            self._product(name, coding, a, b)
            for name, coding, a, b in (
                ("kept", cell.kept, outputs["forget"], None),
                ("added", cell.added, outputs["input"], outputs["cell"]),
            )
        )
        before = cell.squashed_in
        clip = before.requantizer([self.state_scale], [Fraction(0)]) if before is not None else None
        self.squashed_in = clip
        self.tables["squash"] = lookup(
            (*self.state_range, float(self.state_scale)),
            "tanh",
            cell.squashed,
            clip,
            before.scale if before is not None else 0.0,
        )
        squashed = narrowed(cell.squashed, self.tables["squash"])
        self.hidden = self._product("hidden", cell.hidden, outputs["output"], squashed)

    def _product(self, name: str, coding: Coding, a: Coding, b: Coding | None) -> Requantizer:
        b_lo, b_hi, b_unit = (*self.state_range, self.state_scale) if b is None else (b.lo, b.hi, Fraction(b.scale))
        ends = [x * y for x in (a.lo, a.hi) for y in (b_lo, b_hi)]
        self.reach[name] = min(ends), max(ends)
        return coding.requantizer([Fraction(a.scale) * b_unit], [Fraction(0)])

    def quantizers(self) -> Iterator[dict[str, object]]:
        """What each quantiser became, with its numbers."""
        cell = self
        for name in cell.gates:
            gate = cell.cell.gates[name]
            yield told_of(f"{name} accumulator", gate.accumulator.name, cell.accumulators[name], cell.reach[name])
        for name in cell.gates:
            gate = cell.cell.gates[name]
            yield looked_up(
                f"{gate.activation} of the {name} gate", gate.output, cell.tables[name], gate.accumulator.lo
            )
        yield told_of("forget gate * state", cell.cell.kept.name, cell.kept, cell.reach["kept"])
        yield told_of("input gate * cell gate", cell.cell.added.name, cell.added, cell.reach["added"])
        if cell.state is not None and cell.cell.state is not None:
            yield told_of("cell state", cell.cell.state.name, cell.state, cell.reach["state"])
        yield looked_up("tanh of the state", cell.cell.squashed, cell.tables["squash"], cell.state_range[0])
        yield told_of("output gate * tanh", cell.cell.hidden.name, cell.hidden, cell.reach["hidden"])


@dataclass
class Integers:
    """A network's quantisers in integers."""

    network: RecurrentNetwork
    front: tuple[IntegerConv | Pool, ...] = field(init=False)
    #: :class:`IntegerCell`, IntegerGru or IntegerRnn.
    cell: Any = field(init=False)
    #: Of all recurrent layers, forward and backward.
    layers: tuple[tuple[Any, Any], ...] = field(init=False)

    def __post_init__(self) -> None:
        network = self.network
        sources = [network.input, *(conv.coding for conv in network.front)]
        self.front = tuple(
            layer if isinstance(layer, Pool) else IntegerConv.of(layer, source)
            for layer, source in zip(network.front, sources)
        )
        source, layers = network.cell_input, []
        for cell, backward in network.layers:
            layers.append((cell.integers(source), None if backward is None else backward.integers(source)))
            source = cell.hidden
        self.layers = tuple(layers)
        self.cell = self.layers[-1][0]

    @property
    def cells(self) -> Iterator[Any]:
        """All cells, from the input on."""
        return (cell for layer in self.layers for cell in layer if cell is not None)

    def check(self) -> None:
        """Checks that every sum fits the machine's words, once they are made."""
        reaches = [(cell, what, ends) for cell in self.cells for what, ends in cell.reach.items()]
        for cell, what, (low, high) in reaches:
            if max(-low, high) >= _MOST_SUM:
                raise ValueError(
                    f"node {cell.cell.name!r}: its {what} sums reach {low} to {high}: at most "
                    f"{_MOST_SUM - 1}; use narrower codes, or fewer channels"
                )

    def quantizers(self) -> Iterator[dict[str, object]]:
        """The arithmetic of each quantiser, with its numbers."""
        for number, layer in enumerate(self.front):
            if isinstance(layer, IntegerConv):
                yield told_of(f"conv {number}", layer.conv.coding.name, layer.requantizer, layer.reach)
        for cell in self.cells:
            yield from cell.quantizers()


def told_of(what: str, node: str, requantizer: Requantizer, reach: tuple[int, int]) -> dict[str, object]:
    """What a quantiser became."""
    return {
        "quantizer": what,
        "node": node,
        **requantizer.describe(),
        "from": list(reach),
        "exact": "for every integer",
    }


def looked_up(what: str, coding: Coding, table: np.ndarray, first: int) -> dict[str, object]:
    """What an activation became."""
    return {
        "quantizer": what,
        "node": coding.name,
        "becomes": "table of codes",
        "lo": int(table.min()),
        "hi": int(table.max()),
        "channels": 1,
        "entries": len(table),
        "from": [first, first + len(table) - 1],
        "exact": "for every integer",
    }
