"""Recurrent cells of all kinds as the arithmetic of the cell engine.

The engine has four gates an element, of sums, a shift and a table each, and three requantisers behind them:
``kept`` of the forget gate and the state, ``added`` of the input gate and the cell gate, ``hidden`` of the output gate
and the tanh of the state. An LSTM is all of these. A plain cell is an output gate, times 1. A GRU takes the way of
:class:`~gradloom.rtl.engines.cell.gru.GruStages`, one that resets in front of the product in two passes.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gradloom.models.recurrent.cells import IntegerGru, IntegerRnn
from gradloom.models.recurrent.coding import bounds_of
from gradloom.models.recurrent.lstm import GATES as GATE_NAMES
from gradloom.rtl.formats.cell import CENTRED

from .settings import HALF, IDLE, Affine, Parts

__all__ = ["Behind", "GateSlot", "behind_of", "passes_of", "slots_of"]

_OTHER = {"input": "forget", "forget": "input"}


@dataclass(frozen=True, kw_only=True)
class GateSlot:
    """One of the four gates.

    Attributes
    ----------
    name : str
    w, u : array of int ``[units, n]``, optional
        Weights in one unit; None: zeros.
    accumulator : Affine, optional
        None: the gate is 0.
    reach : tuple of int
    first, table : int, array of int
        Codes for the codes from ``first`` on.
    gated : array of int, optional
        Of the new state of a GRU: see :data:`~gradloom.rtl.formats.cell.GateWord`. No sum may be clipped then.
    """

    name: str
    w: np.ndarray | None = None
    u: np.ndarray | None = None
    accumulator: Affine | None = None
    reach: tuple[int, int] = (0, 0)
    first: int = 0
    table: np.ndarray
    gated: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True)
class Behind:
    """The requantisers behind the gates, each with its addend.

    ``state``: its range. ``first``, ``squash``: codes for the codes of the state. ``one``: what a GRU's update gate is
    subtracted from.
    """

    kept: tuple[Affine, int]
    added: tuple[Affine, int]
    hidden: tuple[Affine, int]
    state: tuple[int, int]
    first: int
    squash: np.ndarray
    one: int = 0


#: A gate that there is not, and one that is 1.
_ABSENT, _OPEN = (GateSlot(name="", table=np.full(1, code, np.int64)) for code in (0, 1))


def passes_of(cell: Any) -> int:
    """Passes of a step: two where the product with the hidden state waits for the reset gate."""
    return 2 if isinstance(cell, IntegerGru) and cell.cell.passed is not None else 1


def slots_of(cell: Any, at: int = 0) -> tuple[GateSlot, ...]:
    """The four gates of pass ``at`` of an integer cell; :class:`ValueError` names what does not fit."""
    if passes_of(cell) == 2:
        return _of_pass(cell, at)
    if isinstance(cell, IntegerRnn):
        new = _slot(cell, "new", cell.factors, cell.accumulator, cell.table, cell.w, cell.u)
        return _ABSENT, _ABSENT, _ABSENT, new
    units = cell.cell.units
    found: dict[str, GateSlot] = {}
    for number, name in enumerate(cell.gates):
        own = slice(number * units, (number + 1) * units)
        if name == "new":
            found |= _new_state(cell, own)
            continue
        args = cell.factors[name], cell.accumulators[name], cell.tables[name], cell.w[own], cell.u[own]
        found[name] = _slot(cell, name, *args)
    if isinstance(cell, IntegerGru):
        return tuple(found[name] for name in ("update", "reset", "new", "inner"))
    # A gate without weights of its own is 1 minus the other.
    for name, other in _OTHER.items():
        if name not in found:
            found[name] = replace(found[other], table=cell.one - found[other].table)
    return tuple(found[name] for name in GATE_NAMES)


def behind_of(cell: Any, at: int = 0) -> Behind:
    """The requantisers behind the gates of pass ``at`` of an integer cell."""
    if isinstance(cell, IntegerRnn):
        same = _unchanged(*cell.state_range)
        return Behind(
            kept=(IDLE, 0), added=(IDLE, 0), hidden=(same, 0), state=(0, 0), first=0, squash=np.ones(1, np.int64)
        )
    if at < passes_of(cell) - 1:
        return _behind_reset(cell)
    if isinstance(cell, IntegerGru):
        return _behind_gru(cell)
    made = []
    for which, own, what in (
        ("kept", cell.kept, "forget gate * state"),
        ("added", cell.added, "input gate * cell gate"),
        ("hidden", cell.hidden, "output gate * tanh"),
    ):
        _within_half(what, *cell.reach[which])
        quantizer = Affine.of(own, what)
        made.append((quantizer, int(quantizer.addend[0])))
    kept, added, hidden = made
    first = cell.state_range[0]
    squash = cell.tables["squash"]
    return Behind(kept=kept, added=added, hidden=hidden, state=cell.state_range, first=first, squash=squash)


def _slot(
    cell: Any, name: str, factors: tuple[int, int], accumulator: Any, table: np.ndarray, w: np.ndarray, u: np.ndarray
) -> GateSlot:
    matrices = []
    for matrix, factor in zip((w, u), factors):
        scaled = matrix * factor
        if scaled.min() < -128 or scaled.max() > 127:
            raise ValueError(
                f"{name} gate: weights reach {scaled.min()} to {scaled.max()} in the unit of the gate's sum: must "
                "be within -128 and 127; quantise input and hidden state with one scale"
            )
        matrices.append(scaled)
    return GateSlot(
        name=name,
        w=matrices[0],
        u=matrices[1],
        accumulator=Affine.of(accumulator, f"{name} accumulator"),
        reach=cell.reach[name],
        first=cell.cell.gates[name].accumulator.lo,
        table=table,
    )


def _unchanged(lo: int, hi: int) -> Affine:
    """Codes as they are."""
    return Affine(np.ones(1, np.int64), np.zeros(1, np.int64), 0, False, lo, hi)


def _of_pass(cell: IntegerGru, at: int) -> tuple[GateSlot, ...]:
    """Of a GRU that resets in front of the product: update and reset gate; then the new state of what was passed."""
    units, found = cell.cell.units, []
    for number, name in enumerate(cell.gates):
        own = slice(number * units, (number + 1) * units)
        args = cell.factors[name], cell.accumulators[name], cell.tables[name], cell.w[own], cell.u[own]
        found.append(_slot(cell, name, *args))
    update, reset, new = found
    if at == 0:
        return update, reset, _ABSENT, _OPEN
    return _ABSENT, _ABSENT, replace(new, first=0, table=np.zeros(1, np.int64)), _ABSENT


def _behind_reset(cell: IntegerGru) -> Behind:
    """What a reset gate passes of the hidden state, which is the state."""
    what = "reset gate * hidden state"
    _within_half(what, *cell.reach["inner"])
    kept, passed = Affine.of(cell.inner, what), cell.cell.passed
    assert passed is not None
    codes = np.arange(passed.lo, passed.hi + 1)
    return Behind(
        kept=(kept, int(kept.addend[0])),
        added=(IDLE, 0),
        hidden=(_unchanged(passed.lo, passed.hi), 0),
        state=(passed.lo, passed.hi),
        first=passed.lo,
        squash=codes,
    )


def _new_state(cell: IntegerGru, own: slice) -> dict[str, GateSlot]:
    """The two parts of a GRU's new state: of the input, and of the hidden state."""
    made = _of_new(cell)
    w = cell.w[own]
    reach = bounds_of((w, 1, cell.source.lo, cell.source.hi))
    _within_half("reset gate * product with the hidden state", *_gated_reach(cell))
    inner = cell.cell.inner
    codes = np.arange(inner.lo, inner.hi + 1)
    return {
        "new": GateSlot(
            name="new",
            w=w,
            accumulator=replace(made.rest, multiplier=made.first),
            reach=reach,
            table=np.zeros(1, np.int64),
            gated=made.second,
        ),
        "inner": GateSlot(
            name="inner",
            u=cell.u[own],
            accumulator=Affine.of(cell.inner, "product with the hidden state"),
            reach=cell.reach["inner"],
            first=inner.lo,
            table=codes,
        ),
    }


def _gated_reach(cell: IntegerGru) -> tuple[int, int]:
    """Ends of reset gate times hidden state's part."""
    reset, inner = cell.tables["reset"], cell.cell.inner
    products = [int(a) * b for a in (reset.min(), reset.max()) for b in (inner.lo, inner.hi)]
    return min(products), max(products)


def _of_new(cell: IntegerGru) -> Parts:
    """The quantiser of a GRU's new state: each part has a multiplier of its own, which brings both to one unit."""
    what, quantizer = "new accumulator", cell.accumulators["new"]
    if cell.cell.passed is not None:
        made = Affine.of(quantizer, what)
        return Parts(made.multiplier, made.multiplier, made)
    w = cell.w[cell.gates.index("new") * cell.cell.units :]
    of_x, of_h = bounds_of((w, 1, cell.source.lo, cell.source.hi)), _gated_reach(cell)
    reach = max(map(abs, of_x)), max(map(abs, of_h))
    return Affine.parts(quantizer, cell.factors["new"], reach, what)


def _behind_gru(cell: IntegerGru) -> Behind:
    update, new = cell.tables["update"], cell.tables["new"]
    hidden = cell.cell.hidden
    rest = cell.one - update
    reach = []
    for what, a, lo, hi in (
        ("update gate * hidden state", update, hidden.lo, hidden.hi),
        ("1 minus the update gate * new state", rest, int(new.min()), int(new.max())),
    ):
        product = [int(x) * y for x in (a.min(), a.max()) for y in (lo, hi)]
        _within_half(what, min(product), max(product))
        reach.append(max(map(abs, product)))
    if not 0 <= cell.one < 512 or rest.min() < -256 or rest.max() > 255:
        raise ValueError(
            f"1 minus the update gate: has codes {rest.min()} to {rest.max()}: must be within -256 and 255; quantise "
            "the gate with fewer bits"
        )
    parts = Affine.parts(cell.hidden, cell.sum_factors, (reach[0], reach[1]), "hidden state")
    accumulator = _of_new(cell).rest
    one, zero = np.ones(1, np.int64), np.zeros(1, np.int64)
    kept = replace(accumulator, multiplier=one, addend=zero)
    # What is added to the state's code is 0: its product alone counts.
    added = Affine(parts.first, zero, 0, False, 0, 0)
    made = replace(parts.rest, multiplier=parts.second, addend=zero)
    return Behind(
        kept=(kept, 0),
        added=(added, int(parts.rest.addend[0])),
        hidden=(made, 0),
        state=(accumulator.lo, accumulator.hi),
        first=cell.cell.gates["new"].accumulator.lo,
        squash=new,
        one=cell.one,
    )


def _within_half(what: str, low: int, high: int) -> None:
    if low < -HALF or high >= HALF:
        raise ValueError(f"{what}: products reach {low} to {high}: must be within {CENTRED} bits")
