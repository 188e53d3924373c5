"""Networks of several cells and of all kinds with random weights, for tests and measurements."""

from dataclasses import replace
from typing import Any

import numpy as np

from .cells import GruCell, RnnCell, dense_cell
from .coding import Coding
from .example import example_lstm
from .lstm import Gate
from .network import Cell, Dense, RecurrentNetwork

__all__ = ["example_cell", "example_dense", "example_layers", "example_odd"]


def example_cell(kind: str, seed: int, units: int, inputs: int, *, powers: bool = True) -> Cell:
    """A cell of a kind.

    ``kind``: ``LSTM``, ``CIFG`` (an LSTM whose input gate is 1 minus the forget gate), ``GRU``, ``GRU0`` (a GRU whose
    reset gate is in front of the product) or ``RNN``.

    Its input and hidden state have codes of 6 bits and the scale of :func:`~.example.example_lstm`. ``powers``: scales
    are powers of two.
    """
    if kind in ("LSTM", "CIFG"):
        return example_lstm(seed, units, inputs, powers=powers, coupled=kind == "CIFG").cell
    rng = np.random.default_rng(seed)
    # What a GRU remembers is often just between two codes: float32 would decide there, had the scale more bits.
    scale = 2.0**-5 if powers or kind != "RNN" else 0.0271
    hidden = Coding(scale, -32, 31)
    accumulator = Coding(2.0**-3 if powers else 0.19, -32, 31)

    def gate(name: str, output: Coding, *, alone: bool = False) -> Gate:
        w, u = (np.clip(rng.normal(0, 32, (units, width)), -127, 127).astype(np.int64) for width in (inputs, units))
        w_scale = np.full(units, 2.0**-7) if powers else rng.uniform(0.003, 0.02, units)
        if alone:
            # Sums of the input and what the reset gate has passed must have units of a ratio of integers.
            w_scale = np.full(units, 2.0**-7)
        bias = rng.integers(-64, 65, units) * w_scale * scale if powers else rng.uniform(-1, 1, units)
        u_scale = rng.uniform(0.003, 0.02, units) if alone and not powers else w_scale
        function = "tanh" if name == "new" else "sigmoid"
        return Gate(w, u, w_scale, u_scale, bias, accumulator, function, output, f"{name} gate")

    if kind == "RNN":
        return RnnCell({"new": gate("new", hidden)}, name="cell")
    if kind not in ("GRU", "GRU0"):
        raise ValueError(f"kind={kind}: must be LSTM, CIFG, GRU, GRU0 or RNN")
    opened, inner = Coding(2.0**-6, 0, 64), Coding(2 * scale, -64, 63)
    gates = {
        "update": gate("update", opened),
        "reset": gate("reset", opened),
        "new": gate("new", Coding(scale, -32, 31), alone=kind == "GRU"),
    }
    bias = rng.integers(-64, 65, units) * gates["new"].u_scale * scale if powers else rng.uniform(-1, 1, units)
    return GruCell(gates, inner, bias, hidden, name="cell", passed=hidden if kind == "GRU0" else None)


def example_dense(network: RecurrentNetwork, seed: int, *layers: tuple[int, str]) -> RecurrentNetwork:
    """A network with further dense layers between its hidden states and its head.

    ``layers``: outputs of each, and its activation.
    """
    rng, source, wide, behind = np.random.default_rng(seed), network.cell.hidden, network.units, []
    for units, function in layers:
        w = np.clip(rng.normal(0, 32, (units, wide)), -127, 127).astype(np.int64)
        output = {"relu": Coding(2.0**-4, 0, 63), "tanh": Coding(2.0**-5, -32, 31), "sigmoid": Coding(2.0**-6, 0, 63)}
        coding = output[function]
        scale = np.full(units, 2.0**-4)
        bias = rng.integers(-64, 65, units) * scale * source.scale
        accumulator = None if function == "relu" else Coding(2.0**-3, -32, 31)
        made = dense_cell(w, scale, bias, accumulator=accumulator, activation=function, output=coding, name="dense")
        behind.append(made)
        source, wide = coding, units
    head = network.head
    assert head is not None
    dense = np.clip(rng.normal(0, 40, (len(head.bias), wide)), -127, 127).astype(np.int64)
    return replace(network, behind=tuple(behind), head=replace(head, weight=dense))


def example_layers(
    kind: str, seed: int, units: int, inputs: int, *, layers: int = 1, both: bool = False, **more: Any
) -> RecurrentNetwork:
    """Layers of cells of a kind, of one direction or of both.

    ``more``: ``powers``, and ``classes`` of a dense layer with ``pick``.
    """
    powers, classes, pick = more.get("powers", True), more.get("classes", 0), more.get("pick", "last")
    wide, made = inputs, []
    for layer in range(layers):
        own = [example_cell(kind, seed + 10 * layer + n, units, wide, powers=powers) for n in range(1 + both)]
        made.append((own[0], own[1] if both else None))
        wide = units * len(own)
    source = made[0][0].hidden
    network = RecurrentNetwork("example", source, (), made[-1][0], below=tuple(made[:-1]), backward=made[-1][1])
    if not classes:
        return network
    rng = np.random.default_rng(seed + 1000)
    dense = np.clip(rng.normal(0, 40, (classes, wide)), -127, 127).astype(np.int64)
    head = Dense(dense, rng.uniform(0.001, 0.01, classes), rng.normal(0, 1, classes), "dense")
    return replace(network, head=head, pick=pick)


def example_odd(network: RecurrentNetwork, seed: int) -> RecurrentNetwork:
    """A network whose scales are powers of two, each times 3/8 to 13/8.

    So the ratios of scales have odd denominators, and quantisers have ties. Inputs of layers and all hidden states
    share one factor, the parts of a cell state another. Gates that are subtracted from 1 stay.
    """
    rng = np.random.default_rng(seed)

    def factor() -> float:
        return float(rng.choice([3, 5, 7, 9, 11, 13])) / 8

    def scaled(coding: Coding, by: float) -> Coding:
        return Coding(coding.scale * by, coding.lo, coding.hi)

    common = factor()

    def odd_conv(conv: Any) -> Any:
        by = factor()
        return replace(conv, scale=conv.scale * by, bias=conv.bias * by, coding=scaled(conv.coding, common))

    def odd(cell: Any) -> Any:
        gates = {}
        for name, gate in cell.gates.items():
            by = factor()
            fixed = name in ("update", "forget") or isinstance(cell, RnnCell)
            gates[name] = replace(
                gate,
                w_scale=gate.w_scale * by,
                u_scale=gate.u_scale * by,
                bias=gate.bias * by * common,
                accumulator=scaled(gate.accumulator, factor()),
                output=scaled(gate.output, common if isinstance(cell, RnnCell) else 1 if fixed else factor()),
            )
        if isinstance(cell, RnnCell):
            return replace(cell, gates=gates)
        hidden = scaled(cell.hidden, common)
        if isinstance(cell, GruCell):
            bias = cell.inner_bias * gates["new"].u_scale / cell.gates["new"].u_scale * common
            passed = cell.passed and scaled(cell.passed, common)
            inner = scaled(cell.inner, factor())
            return replace(cell, gates=gates, hidden=hidden, inner=inner, inner_bias=bias, passed=passed)
        state = scaled(cell.kept, factor())
        squashed = scaled(cell.squashed, factor())
        return replace(cell, gates=gates, hidden=hidden, kept=state, added=state, state=state, squashed=squashed)

    layers = tuple((odd(forward), backward and odd(backward)) for forward, backward in network.layers)
    front, source = tuple(map(odd_conv, network.front)), scaled(network.input, factor() if network.front else common)
    return replace(network, input=source, front=front, cell=layers[-1][0], backward=layers[-1][1], below=layers[:-1])
