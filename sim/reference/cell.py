"""Bit-exact quantised recurrent networks: convolutions, cell, head.

All sequences are computed together.
"""

from dataclasses import dataclass

import numpy as np

from gradloom.models.recurrent.cells import IntegerGru, IntegerRnn
from gradloom.models.recurrent.front import IntegerConv, Pool
from gradloom.models.recurrent.lstm import IntegerCell
from gradloom.models.recurrent.network import RecurrentNetwork

__all__ = ["CellState", "Trace", "convolve", "logits", "real_logits", "run", "start", "step", "sums"]


Integers = IntegerCell | IntegerGru | IntegerRnn


@dataclass
class CellState:
    """Codes of the hidden and the cell state, ``[n, hidden]`` each.

    Of a GRU or RNN, ``c`` is empty, ``[n, 0]``.
    """

    h: np.ndarray
    c: np.ndarray


@dataclass
class Trace:
    """Codes in a network of sequences.

    ``u`` ``[n, steps, inputs]`` reaches the cell, ``h`` ``[n, steps, hidden]`` are all hidden states, ``state`` is the
    last. ``source`` ``[n, steps, channels]`` reaches the last convolution; without one, the first recurrent layer.
    ``cells``: of each layer by direction, hidden states in the direction's own order of steps, and the last states.
    """

    u: np.ndarray
    h: np.ndarray
    state: CellState
    source: np.ndarray
    cells: "tuple[tuple[tuple[np.ndarray, CellState], ...], ...]" = ()


def start(cell: Integers, count: int) -> CellState:
    """States of ``count`` sequences before their first step."""
    remembered = cell.cell.units if isinstance(cell, IntegerCell) else 0
    return CellState(np.zeros((count, cell.cell.units), np.int64), np.zeros((count, remembered), np.int64))


def convolve(layer: IntegerConv, x: np.ndarray) -> np.ndarray:
    """Codes ``[n, steps, channels]`` behind a convolution of codes."""
    conv = layer.conv
    x = np.pad(x, ((0, 0), conv.pads, (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(x, conv.weight.shape[2], axis=1)[:, :: conv.stride]
    return layer.requantizer(
        _product(windows.reshape(*windows.shape[:2], -1), conv.weight.reshape(len(conv.weight), -1))
    )


def step(cell: Integers, x: np.ndarray, state: CellState) -> CellState:
    """One step: codes ``[n, inputs]`` of the input and the states before it."""
    wx, uh = _product(x, cell.w), _product(state.h, cell.u)
    if isinstance(cell, IntegerGru):
        return _gru(cell, wx, uh, state)
    if isinstance(cell, IntegerRnn):
        of_x, of_h = cell.factors
        code = cell.accumulator(of_x * wx + of_h * uh)
        return CellState(cell.table[code - cell.cell.gates["new"].accumulator.lo], state.c)
    return _lstm(cell, wx, uh, state)


def _lstm(cell: IntegerCell, wx: np.ndarray, uh: np.ndarray, state: CellState) -> CellState:
    units, gates = cell.cell.units, {}
    for number, name in enumerate(cell.gates):
        own = slice(number * units, (number + 1) * units)
        of_x, of_h = cell.factors[name]
        code = cell.accumulators[name](of_x * wx[:, own] + of_h * uh[:, own])
        gates[name] = cell.tables[name][code - cell.cell.gates[name].accumulator.lo]
    enter = gates["input"] if "input" in gates else cell.one - gates["forget"]
    forget = gates["forget"] if "forget" in gates else cell.one - gates["input"]
    of_kept, of_added = cell.sum_factors
    c = of_kept * cell.kept(forget * state.c) + of_added * cell.added(enter * gates["cell"])
    if cell.state is not None:
        c = cell.state(c)
    squashed = cell.tables["squash"][c - cell.state_range[0]]
    return CellState(cell.hidden(gates["output"] * squashed), c)


def _gru(cell: IntegerGru, wx: np.ndarray, uh: np.ndarray, state: CellState) -> CellState:
    units = cell.cell.units
    gates: dict[str, np.ndarray] = {}
    for number, name in enumerate(cell.gates):
        own = slice(number * units, (number + 1) * units)
        of_x, of_h = cell.factors[name]
        inner = uh[:, own]
        # The reset gate, which comes before, multiplies what reaches the new state, or the hidden state in front of it.
        if name == "new" and cell.cell.passed is None:
            inner = gates["reset"] * cell.inner(inner)
        elif name == "new":
            inner = _product(cell.inner(gates["reset"] * state.h), cell.u[own])
        code = cell.accumulators[name](of_x * wx[:, own] + of_h * inner)
        gates[name] = cell.tables[name][code - cell.cell.gates[name].accumulator.lo]
    of_kept, of_new = cell.sum_factors
    total = of_kept * gates["update"] * state.h + of_new * (cell.one - gates["update"]) * gates["new"]
    return CellState(cell.hidden(total), state.c)


def run(network: RecurrentNetwork, x: np.ndarray, state: CellState | None = None) -> Trace:
    """Runs a network on codes ``[n, steps, channels]``.

    It starts from ``state``, which is zero by default.
    """
    integers, source = network.integers, x
    for layer in integers.front:
        source, x = x, layer.greatest(x, layer.coding.lo) if isinstance(layer, Pool) else convolve(layer, x)
    source = source if network.last_conv is not None else x
    cells, u = [], x
    for number, (cell, backward) in enumerate(integers.layers):
        begin = state if number == len(integers.layers) - 1 else None
        cells.append(_directions(cell, backward, u := x, begin))
        x = np.concatenate([cells[-1][0][0], *(hidden[:, ::-1] for hidden, _ in cells[-1][1:])], axis=2)
    h, c = (np.concatenate([getattr(ended, name) for _, ended in cells[-1]], axis=1) for name in ("h", "c"))
    return Trace(u, x, CellState(h, c), source, tuple(cells))


def _directions(
    cell: Integers, backward: Integers | None, x: np.ndarray, state: CellState | None
) -> tuple[tuple[np.ndarray, CellState], ...]:
    """Hidden states of all steps, and the last states, of each direction."""
    made = _steps(cell, x, start(cell, len(x)) if state is None else state)
    if backward is None:
        return (made,)
    return made, _steps(backward, x[:, ::-1], start(backward, len(x)))


def _steps(cell: Integers, x: np.ndarray, state: CellState) -> tuple[np.ndarray, CellState]:
    hidden = []
    for at in range(x.shape[1]):
        state = step(cell, x[:, at], state)
        hidden.append(state.h)
    return np.stack(hidden, axis=1), state


def sums(network: RecurrentNetwork, h: np.ndarray) -> np.ndarray:
    """Sums of the last dense layer for codes of hidden states that reach those in front of it.

    ``[..., classes]`` for ``[..., hidden]``.
    """
    if network.head is None:
        raise ValueError("the network has no dense layer behind its recurrent node")
    for cell in network.integers.behind:
        flat = h.reshape(-1, h.shape[-1])
        h = step(cell, flat, start(cell, len(flat))).h.reshape(*h.shape[:-1], -1)
    return _product(h, network.head.weight)


def logits(network: RecurrentNetwork, trace: Trace, *, every: bool = False) -> np.ndarray:
    """Real logits, ``[n, classes]``.

    They are ``[n, steps, classes]`` where all states reach the head, or ``every`` is given.
    """
    pick = "all" if every else network.pick
    hidden = {"last": trace.h[:, -1], "ends": trace.state.h, "all": trace.h, "mean": trace.h.sum(axis=1)}[pick]
    return real_logits(network, sums(network, hidden), trace.h.shape[1] if pick == "mean" else 1)


def real_logits(network: RecurrentNetwork, found: np.ndarray, count: int = 1) -> np.ndarray:
    """Real numbers of sums of ``count`` hidden states."""
    head = network.head
    assert head is not None
    return found * (head.scale * network.reached.scale / count) + head.bias


def _product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """``x @ w.T``; in float64, which is exact below 2**53 and fast."""
    return np.rint(x.astype(np.float64) @ w.T.astype(np.float64)).astype(np.int64)
