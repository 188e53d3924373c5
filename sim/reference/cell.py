"""Bit-exact quantised LSTM: convolutions, cell and head.

All sequences are computed together.
"""

from dataclasses import dataclass

import numpy as np

from gradloom.rtl.models.recurrent.network import IntegerCell, IntegerConv, RecurrentNetwork

__all__ = ["State", "Trace", "convolve", "logits", "run", "start", "step"]


@dataclass
class State:
    """Codes of the hidden and the cell state, ``[n, hidden]`` each."""

    h: np.ndarray
    c: np.ndarray


@dataclass
class Trace:
    """Codes in a network of sequences.

    ``u`` ``[n, steps, inputs]`` reaches the cell, ``h`` ``[n, steps, hidden]`` are all hidden states, ``state`` is the
    last.
    """

    u: np.ndarray
    h: np.ndarray
    state: State


def start(cell: IntegerCell, count: int) -> State:
    """States of ``count`` sequences before their first step."""
    shape = count, cell.cell.units
    return State(np.zeros(shape, np.int64), np.zeros(shape, np.int64))


def convolve(layer: IntegerConv, x: np.ndarray) -> np.ndarray:
    """Codes ``[n, steps, channels]`` behind a convolution of codes."""
    conv = layer.conv
    x = np.pad(x, ((0, 0), conv.pads, (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(x, conv.weight.shape[2], axis=1)[:, :: conv.stride]
    return layer.requantizer(
        _product(windows.reshape(*windows.shape[:2], -1), conv.weight.reshape(len(conv.weight), -1))
    )


def step(cell: IntegerCell, x: np.ndarray, state: State) -> State:
    """One step: codes ``[n, inputs]`` of the input and the states before it."""
    wx, uh = _product(x, cell.w), _product(state.h, cell.u)
    units, gates = cell.cell.units, {}
    for number, name in enumerate(cell.gates):
        own = slice(number * units, (number + 1) * units)
        of_x, of_h = cell.factors[name]
        code = cell.accumulators[name](of_x * wx[:, own] + of_h * uh[:, own])
        gates[name] = cell.tables[name][code - cell.cell.gates[name].accumulator.lo]
    enter = gates["input"] if "input" in gates else cell.one - gates["forget"]
    of_kept, of_added = cell.sum_factors
    c = of_kept * cell.kept(gates["forget"] * state.c) + of_added * cell.added(enter * gates["cell"])
    if cell.state is not None:
        c = cell.state(c)
    squashed = cell.tables["squash"][c - cell.state_range[0]]
    return State(cell.hidden(gates["output"] * squashed), c)


def run(network: RecurrentNetwork, x: np.ndarray, state: State | None = None) -> Trace:
    """Runs a network on codes ``[n, steps, channels]``.

    It starts from ``state``, which is zero by default.
    """
    integers = network.integers
    for layer in integers.front:
        x = convolve(layer, x)
    state = start(integers.cell, len(x)) if state is None else state
    hidden = []
    for at in range(x.shape[1]):
        state = step(integers.cell, x[:, at], state)
        hidden.append(state.h)
    return Trace(x, np.stack(hidden, axis=1), state)


def logits(network: RecurrentNetwork, trace: Trace, *, every: bool = False) -> np.ndarray:
    """Real logits, ``[n, classes]``.

    They are ``[n, steps, classes]`` where all states reach the head, or ``every`` is given.
    """
    head = network.head
    if head is None:
        raise ValueError("the network has no dense layer behind its recurrent node")
    pick = "all" if every else network.pick
    hidden = {"last": trace.state.h, "all": trace.h, "mean": trace.h.sum(axis=1)}[pick]
    count = trace.h.shape[1] if pick == "mean" else 1
    return _product(hidden, head.weight) * (head.scale * network.cell.hidden.scale / count) + head.bias


def _product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """``x @ w.T``; in float64, which is exact below 2**53 and fast."""
    return np.rint(x.astype(np.float64) @ w.T.astype(np.float64)).astype(np.int64)
