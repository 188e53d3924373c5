"""Quantised GRU and plain cells: real numbers and equal integers.

They cannot be exported, and make no taps.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from gradloom.rtl.formats.requantizer import Requantizer

from .coding import Coding, bounds_of, looked_up, narrowed, told_of
from .lstm import MOST_FACTOR, Gate, GateSizes, common_units, gate_integers, quantised

__all__ = ["GruCell", "IntegerGru", "IntegerRnn", "RnnCell", "dense_cell"]


@dataclass(frozen=True, eq=False)
class RnnCell(GateSizes):
    """``h = output(tanh(accumulator(W x + U h + bias)))``.

    Attributes
    ----------
    gates : mapping
        ``new``, whose output is the hidden state.
    """

    gates: dict[str, Gate]
    name: str = ""

    @property
    def hidden(self) -> Coding:
        """Of the hidden state."""
        return self.gates["new"].output

    def integers(self, source: Coding) -> "IntegerRnn":
        """See :class:`~gradloom.models.recurrent.network.Cell`."""
        return IntegerRnn(self, source)


@dataclass(frozen=True, eq=False)
class GruCell(GateSizes):
    """A quantised GRU cell: ``h = hidden(z h + (1 - z) n)``.

    The new state is ``n = tanh(accumulator(W x + bias + r inner(U h + inner_bias)))``; with ``passed``, it is
    ``n = tanh(accumulator(W x + U passed(r h) + bias))``.

    Attributes
    ----------
    gates : mapping
        ``update`` (z), ``reset`` (r) and ``new`` (n).
    inner : Coding
    inner_bias : array ``[hidden]``
    hidden : Coding
    passed : Coding, optional
        The reset gate is in front of the product with the hidden state, and ``inner`` and its bias are not used.
    """

    gates: dict[str, Gate]
    inner: Coding
    inner_bias: np.ndarray
    hidden: Coding
    name: str = ""
    passed: Coding | None = None

    def integers(self, source: Coding) -> "IntegerGru":
        """See :class:`~gradloom.models.recurrent.network.Cell`."""
        return IntegerGru(self, source)


def dense_cell(
    codes: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray,
    *,
    accumulator: Coding | None,
    activation: str,
    output: Coding,
    name: str,
) -> RnnCell:
    """A dense layer with an activation, as a cell whose recurrent weights are 0.

    ``accumulator``: None where a ReLU's own quantiser is the only one: its codes are those of the sums from 0 on.
    """
    if accumulator is None:
        output = accumulator = replace(output, lo=max(output.lo, 0))
    none = np.zeros((len(codes), len(codes)), np.int64)
    gate = Gate(codes, none, scale, scale, bias, accumulator, activation, output, name)
    return RnnCell({"new": gate}, name)


class IntegerRnn:
    """An :class:`RnnCell` in integers.

    See :class:`~gradloom.models.recurrent.lstm.IntegerCell`.
    """

    gates = ("new",)

    def __init__(self, cell: RnnCell, source: Coding) -> None:
        self.cell, self.source = cell, source
        made = gate_integers(cell.gates["new"], source, cell.hidden)
        self.factors, self.accumulator, self.table = made.factors, made.accumulator, made.table
        self.reach = {"new": made.reach}
        self.w, self.u = cell.gates["new"].w, cell.gates["new"].u
        self.state_range = cell.hidden.lo, cell.hidden.hi

    def quantizers(self) -> Iterator[dict[str, object]]:
        """What each quantiser became."""
        gate = self.cell.gates["new"]
        yield told_of("new state's accumulator", gate.accumulator.name, self.accumulator, self.reach["new"])
        yield looked_up("tanh of the new state", gate.output, self.table, gate.accumulator.lo)


class IntegerGru:
    """A :class:`GruCell` in integers.

    See :class:`~gradloom.models.recurrent.lstm.IntegerCell`.

    Attributes
    ----------
    factors : mapping
        By gate, of ``W x`` and of ``U h``; of ``new``, of ``W x`` and of the product of the reset gate's code with the
        code of ``inner``, or of ``U`` with the codes of ``passed``.
    sum_factors : tuple of int
        Of ``z h`` and of ``(1 - z) n``.
    one : int
        Code of 1 of the update gate.
    """

    gates = ("update", "reset", "new")

    def __init__(self, cell: GruCell, source: Coding) -> None:
        self.cell, self.source = cell, source
        self.reach: dict[str, tuple[int, int]] = {}
        self.factors: dict[str, tuple[int, int]] = {}
        self.accumulators: dict[str, Requantizer] = {}
        self.tables: dict[str, np.ndarray] = {}
        for name in ("update", "reset"):
            self._gate(name, cell.hidden)
        if cell.passed is None:
            self._new()
        else:
            self._passed(cell.passed)
        self.w = np.concatenate([cell.gates[name].w for name in self.gates])
        self.u = np.concatenate([cell.gates[name].u for name in self.gates])
        self.state_range = cell.hidden.lo, cell.hidden.hi
        self._hidden()

    def _gate(self, name: str, hidden: Coding) -> None:
        made = gate_integers(self.cell.gates[name], self.source, hidden)
        self.factors[name], self.accumulators[name] = made.factors, made.accumulator
        self.tables[name], self.reach[name] = made.table, made.reach

    def _passed(self, coding: Coding) -> None:
        cell = self.cell
        hidden, reset = cell.hidden, narrowed(cell.gates["reset"].output, self.tables["reset"])
        self.inner = coding.requantizer([Fraction(reset.scale) * Fraction(hidden.scale)], [Fraction(0)])
        ends = [a * b for a in (reset.lo, reset.hi) for b in (hidden.lo, hidden.hi)]
        self.reach["inner"] = min(ends), max(ends)
        self._gate("new", coding)

    def _new(self) -> None:
        cell, gate = self.cell, self.cell.gates["new"]
        hidden, reset = cell.hidden, narrowed(cell.gates["reset"].output, self.tables["reset"])
        units = [Fraction(float(each)) * Fraction(hidden.scale) for each in gate.u_scale]
        self.inner = cell.inner.requantizer(units, [Fraction(float(each)) for each in cell.inner_bias])
        self.reach["inner"] = bounds_of((gate.u, 1, hidden.lo, hidden.hi))
        gated = Fraction(reset.scale) * Fraction(cell.inner.scale)
        x_units = [Fraction(float(each)) * Fraction(self.source.scale) for each in gate.w_scale]
        fx, fh, unit = common_units(gate, x_units, [gated] * len(x_units), self.source, cell.inner)
        self.factors["new"] = fx, fh
        bias = [Fraction(float(each)) for each in gate.bias]
        self.accumulators["new"] = gate.accumulator.requantizer(unit, bias)
        low, high = bounds_of((gate.w, fx, self.source.lo, self.source.hi))
        ends = [fh * a * b for a in (reset.lo, reset.hi) for b in (cell.inner.lo, cell.inner.hi)]
        self.reach["new"] = low + min(ends), high + max(ends)
        self.tables["new"] = gate.table()

    def _hidden(self) -> None:
        cell = self.cell
        update, new = (narrowed(cell.gates[name].output, self.tables[name]) for name in ("update", "new"))
        self.one = round(1 / update.scale)
        if self.one * Fraction(update.scale) != 1:
            raise ValueError(
                f"node {cell.name!r}: 1 minus the update gate, whose scale {update.scale:.9g} must be one over an "
                "integer"
            )
        ratio = Fraction(cell.hidden.scale) / Fraction(new.scale)
        if max(ratio.numerator, ratio.denominator) > MOST_FACTOR:
            output = cell.gates["new"].output
            raise ValueError(
                f"node {cell.name!r}: the hidden state{quantised(cell.hidden)} has scale {cell.hidden.scale:.9g} and "
                f"the new state{quantised(output)} {new.scale:.9g}, whose ratio must be one of integers up to "
                f"{MOST_FACTOR}: quantise both with one scale"
            )
        self.sum_factors = ratio.numerator, ratio.denominator
        unit = Fraction(update.scale) * Fraction(new.scale) / ratio.denominator
        self.hidden = cell.hidden.requantizer([unit], [Fraction(0)])
        kept = [ratio.numerator * a * b for a in (update.lo, update.hi) for b in (cell.hidden.lo, cell.hidden.hi)]
        rest = (self.one - update.hi, self.one - update.lo)
        added = [ratio.denominator * a * b for a in rest for b in (new.lo, new.hi)]
        self.reach["hidden"] = min(kept) + min(added), max(kept) + max(added)

    def quantizers(self) -> Iterator[dict[str, object]]:
        """What each quantiser became."""
        cell = self.cell
        for name in self.gates:
            yield told_of(
                f"{name} accumulator", cell.gates[name].accumulator.name, self.accumulators[name], self.reach[name]
            )
        what, coding = "product with the hidden state", cell.inner
        if cell.passed is not None:
            what, coding = "product of the reset gate and the hidden state", cell.passed
        yield told_of(what, coding.name, self.inner, self.reach["inner"])
        for name in self.gates:
            gate = cell.gates[name]
            yield looked_up(
                f"{gate.activation} of the {name} gate", gate.output, self.tables[name], gate.accumulator.lo
            )
        yield told_of("hidden state", cell.hidden.name, self.hidden, self.reach["hidden"])
