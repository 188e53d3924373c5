"""Quantised LSTM cells: real numbers and equal integers."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from gradloom.rtl.formats.requantizer import Requantizer

from .coding import Coding, bounds_of, check_one_row, looked_up, lookup, narrowed, reals, told_of

__all__ = [
    "GATES",
    "MOST_FACTOR",
    "Gate",
    "GateSizes",
    "IntegerCell",
    "IntegerGate",
    "LstmCell",
    "common_units",
    "gate_integers",
    "quantised",
]

#: Gates in the order of all arrays: input, forget, cell, output.
GATES = ("input", "forget", "cell", "output")
#: Greatest factor that brings products with the input and with the hidden state to a common unit.
MOST_FACTOR = 1024


@dataclass(frozen=True, eq=False)
class Gate:
    """A gate of a cell.

    It is ``output(activation(accumulator(W x + U h + bias)))``.

    Attributes
    ----------
    w, u : array of int64 ``[hidden, inputs]``, ``[hidden, hidden]``
    w_scale, u_scale, bias : array ``[hidden]``
    activation : str
        Of :data:`~.coding.ACTIVATIONS`.
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


class GateSizes:
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
class LstmCell(GateSizes):
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


@dataclass(frozen=True)
class IntegerGate:
    """A :class:`Gate` in integers.

    Its code is ``table[accumulator(fx * W x + fh * U h)]``; ``factors`` are ``(fx, fh)``.
    """

    factors: tuple[int, int]
    accumulator: Requantizer
    table: np.ndarray
    reach: tuple[int, int]


def common_units(
    gate: Gate, x_units: list[Fraction], h_units: list[Fraction], source: Coding, hidden: Coding
) -> tuple[int, int, list[Fraction]]:
    """Factors that bring a gate's sums to one unit; the unit by channel.

    ``source``, ``hidden``: codings of its input and hidden state, for a message.
    """
    ratio, *others = sorted({x / h for x, h in zip(x_units, h_units)})
    if others:
        raise ValueError(
            f"node {gate.name!r}: the unit of products with the input is from {float(ratio):.9g} to "
            f"{float(others[-1]):.9g} times that of products with the hidden state: must be the same for all outputs: "
            "let the scales of both weights have one ratio"
        )
    if max(ratio.numerator, ratio.denominator) > MOST_FACTOR:
        raise ValueError(
            f"node {gate.name!r}: products with the input{quantised(source)} have the unit {float(x_units[0]):.9g} "
            f"and products with the hidden state{quantised(hidden)} {float(h_units[0]):.9g}, whose ratio "
            f"{float(x_units[0] / h_units[0]):.9g} is no ratio of integers up to {MOST_FACTOR}: quantise the input "
            "and the hidden state with one scale"
        )
    return ratio.numerator, ratio.denominator, [each / ratio.denominator for each in h_units]


def quantised(coding: Coding) -> str:
    """The node that quantises, for a message."""
    return f", quantised by {coding.name!r}," if coding.name else ""


def gate_integers(gate: Gate, source: Coding, hidden: Coding) -> IntegerGate:
    """A gate of sums of products with the input and the hidden state."""
    x_units = [each * Fraction(source.scale) for each in reals(gate.w_scale)]
    # Recurrent weights of 0 have any unit.
    h_units = [each * Fraction(hidden.scale) for each in reals(gate.u_scale)] if gate.u.any() else x_units
    fx, fh, units = common_units(gate, x_units, h_units, source, hidden)
    return IntegerGate(
        (fx, fh),
        gate.accumulator.requantizer(units, reals(gate.bias)),
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
        if max(ratio.numerator, ratio.denominator) > MOST_FACTOR:
            raise ValueError(
                f"node {cell.name!r}: the two parts of the cell state have scales {cell.kept.scale:.9g} "
                f"and {cell.added.scale:.9g}, whose ratio must be one of integers up to {MOST_FACTOR}"
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
        if before is not None:
            check_one_row(before, "in front of a tanh")
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
