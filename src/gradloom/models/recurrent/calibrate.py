"""Quantises recurrent networks after training, gate by gate, by data.

All scales are powers of two, so that products with the input and with the hidden state have one unit and each quantiser
becomes a shift. The bits of each kind of codes are those of :class:`Bits`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from .cells import GruCell, RnnCell, dense_cell
from .coding import ACTIVATIONS, Coding
from .front import Conv, Pool, Pooling
from .host import FloatDense, Function, picked
from .lstm import Gate, LstmCell
from .network import Dense, RecurrentNetwork
from .readers.native import FloatCell, FloatConv, FloatNetwork, load_native

__all__ = ["Bits", "float_logits", "float_states", "in_float", "quantized"]

#: Sequences that calibrate, at most; spread over all that are given.
_MOST = 256
#: Exponents of scales that are tried below the one that holds the largest value.
_TRIED = 6
_LEAST, _GREATEST = 2, 8


@dataclass(frozen=True, kw_only=True)
class Bits:
    """Widths of codes, from 2 to 8 bits.

    Attributes
    ----------
    weights, state : int
        ``state``: of what a cell remembers, which is an LSTM's cell state, and the hidden state of a GRU or RNN.
    activations : int
        Of all other codes but the network's input, and those below that are given.
    sums, tables, hidden, input : int, optional
        Of the gates' sums; of sigmoids and tanh; of an LSTM's hidden state; of the network's input, 8 unless given.
    """

    weights: int = 8
    activations: int = 6
    state: int = 8
    sums: int | None = None
    tables: int | None = None
    hidden: int | None = None
    input: int = 8

    #: Fields by letter; those behind the third may be missing.
    letters: ClassVar = dict(zip("WACGTHI", ("weights", "activations", "state", "sums", "tables", "hidden", "input")))

    @classmethod
    def of(cls, text: str) -> "Bits":
        """Bits of a text such as ``W8A6C8`` or ``W8A6C8G5T4H6I8``."""
        found = re.fullmatch(r"W(\d)A(\d)C(\d)(?:G(\d))?(?:T(\d))?(?:H(\d))?(?:I(\d))?", text)
        if found is None:
            raise ValueError(
                f"bits={text}: must be like W8A6C8: bits of weights, activations and what the cell remembers; behind "
                "them G, T, H, I where they differ: of gates' sums, their tables, hidden state, input"
            )
        given = {name: int(digit) for name, digit in zip(cls.letters.values(), found.groups()) if digit is not None}
        try:
            return cls(**given)
        except ValueError as error:
            raise ValueError(f"bits={text}: {error}") from None

    def __post_init__(self) -> None:
        for name in self.letters.values():
            value = getattr(self, name)
            if value is not None and not _LEAST <= value <= _GREATEST:
                raise ValueError(f"{name}={value}: must be from {_LEAST} to {_GREATEST} bits")

    def width(self, name: str) -> int:
        """Bits of ``sums``, ``tables`` or ``hidden``."""
        own: int | None = getattr(self, name)
        return self.activations if own is None else own


def quantized(source: FloatNetwork | Path | str, x: np.ndarray, bits: Bits | None = None) -> RecurrentNetwork:
    """A network in floating point, quantised.

    Parameters
    ----------
    source : FloatNetwork or path
        An ``.onnx`` file with a native LSTM, GRU or RNN.
    x : array of real numbers ``[n, steps, channels]``
        Sequences like those that it is to answer.
    bits : Bits, optional
    """
    network = source if isinstance(source, FloatNetwork) else load_native(source)
    bits = bits or Bits()
    x = np.asarray(x)
    if x.min() == x.max() and (x.size > 1 or not x.any()):
        raise ValueError(
            f"x is {x.flat[0]:g} everywhere: scales follow from its values; give sequences like those to be answered"
        )
    x = np.asarray(network.seen(x), np.float64)[np.arange(min(len(x), _MOST)) * len(x) // min(len(x), _MOST)]
    coding = _fitted(x, bits.input, name="input")
    value = x
    front: list[Any] = []
    fitted = coding
    for layer in network.front:
        if isinstance(layer, Pooling):
            front.append(layer.coded(fitted))
            value = layer.greatest(value, -np.inf)
            continue
        value = convolved(layer, value)
        codes, scale = _weights(layer.weight, bits.weights)
        low = 0 if layer.relu else None
        fitted = _fitted(value, bits.activations, low=low, name=layer.name)
        front.append(Conv(codes, scale, layer.bias, layer.stride, layer.pads, fitted, layer.name))
    reached, layers = fitted.scale, []
    for cell, backward in network.layers:
        directions = _directions(cell, backward, value)
        made, hidden = zip(*(_quantized_cell(each, part, bits, reached) for each, part in directions))
        layers.append((made[0], made[1] if backward is not None else None))
        value, reached = _side_by_side(hidden), made[0].hidden.scale
    *below, (top, back) = layers
    head, dense, tail, behind = None, network.head, list(network.tail), []
    if dense is not None and network.pick != "mean":
        value = picked(network.pick, value, network.cell.units)
        while len(tail) > 1 and isinstance(activation := tail[0], Function) and activation.op in ACTIVATIONS:
            if not isinstance(tail[1], FloatDense):
                break
            total = value @ dense.weight.T + dense.bias
            behind.append(_dense_cell(dense, activation, total, bits))
            value = ACTIVATIONS[activation.op](total)
            dense, tail = tail[1], tail[2:]
    if dense is not None:
        codes, scale = _weights(dense.weight, bits.weights)
        head = Dense(codes, scale, dense.bias, dense.name)
    result = RecurrentNetwork(
        network.name,
        coding,
        tuple(front),
        top,
        head,
        network.pick,
        below=tuple(below),
        backward=back,
        before=network.before,
        tail=tuple(tail),
        behind=tuple(behind),
    )
    result.integers.check()
    return result


def convolved(conv: FloatConv, x: np.ndarray) -> np.ndarray:
    """A convolution over time, ``[n, steps, channels]``, and its ReLU."""
    wide = np.pad(x, ((0, 0), conv.pads, (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, conv.weight.shape[2], axis=1)[:, :: conv.stride]
    value = np.einsum("ntck,ock->nto", windows, conv.weight) + conv.bias
    return np.maximum(value, 0) if conv.relu else value


def _dense_cell(dense: FloatDense, function: Function, total: np.ndarray, bits: Bits) -> RnnCell:
    """A dense layer with its activation; ``total``: its sums."""
    codes, scale = _weights(dense.weight, bits.weights)
    accumulator = None
    if function.op == "relu":
        output = _fitted(np.maximum(total, 0), min(bits.activations, 7), low=0, name=function.name)
    else:
        output = _unit(min(bits.width("tables"), 7), function.op == "tanh")
        half = 1 << bits.width("sums") - 1
        activation = ACTIVATIONS[function.op]
        unit = _best(total, -half, half - 1, lambda value, rounded: _square(activation(value), activation(rounded)))
        accumulator = Coding(unit, -half, half - 1, name=dense.name)
    return dense_cell(
        codes, scale, dense.bias, accumulator=accumulator, activation=function.op, output=output, name=dense.name
    )


def _layer_in_float(layer: Conv | Pool) -> FloatConv | Pooling:
    if isinstance(layer, Pool):
        return layer
    return FloatConv(
        weight=layer.weight * np.broadcast_to(layer.scale, len(layer.weight))[:, None, None],
        bias=layer.bias,
        stride=layer.stride,
        pads=layer.pads,
        relu=layer.coding.lo >= 0,
        name=layer.name,
    )


def in_float(network: RecurrentNetwork) -> FloatNetwork:
    """A quantised LSTM's weights in floating point."""
    cell = network.lstm
    front = tuple(_layer_in_float(layer) for layer in network.front)
    head = network.head
    return FloatNetwork(
        name=network.name,
        front=front,
        cell=FloatCell(
            kind="LSTM",
            w={name: gate.w * gate.w_scale[:, None] for name, gate in cell.gates.items()},
            u={name: gate.u * gate.u_scale[:, None] for name, gate in cell.gates.items()},
            bias={name: gate.bias for name, gate in cell.gates.items()},
            inner=np.zeros(cell.units),
            name=cell.name,
        ),
        head=None
        if head is None
        else FloatDense(
            weight=head.weight * np.broadcast_to(head.scale, len(head.weight))[:, None], bias=head.bias, name=head.name
        ),
        pick=network.pick,
        before=network.before,
        tail=network.tail,
    )


def float_states(network: FloatNetwork, x: np.ndarray) -> np.ndarray:
    """Hidden states of the last layer in float64, ``[n, steps, hidden]``.

    Those of both directions are side by side.
    """
    value = np.asarray(network.seen(x), np.float64)
    for layer in network.front:
        value = layer.greatest(value, -np.inf) if isinstance(layer, Pooling) else convolved(layer, value)
    for cell, backward in network.layers:
        value = _side_by_side([run(each, part, {}) for each, part in _directions(cell, backward, value)])
    return value


def float_logits(network: FloatNetwork, x: np.ndarray) -> np.ndarray:
    """Scores in float64, whose greatest is the label.

    They are ``[n, classes]``, or ``[n, steps, classes]``.
    """
    value = picked(network.pick, float_states(network, x), network.cell.units)
    if network.head is not None:
        value = value @ network.head.weight.T + network.head.bias
    return network.scores(value)


def _directions(cell: FloatCell, backward: FloatCell | None, x: np.ndarray) -> list[tuple[FloatCell, np.ndarray]]:
    """Cells of a layer, each with the steps in its order."""
    return [(cell, x)] if backward is None else [(cell, x), (backward, x[:, ::-1])]


def _side_by_side(hidden: Sequence[np.ndarray]) -> np.ndarray:
    """Hidden states of all directions, in the order of the steps."""
    return hidden[0] if len(hidden) == 1 else np.concatenate([hidden[0], hidden[1][:, ::-1]], axis=2)


def _quantized_cell(cell: FloatCell, x: np.ndarray, bits: Bits, reached: float) -> tuple[Any, np.ndarray]:
    """A cell, and its hidden states in float64.

    ``reached`` is the scale of its input.
    """
    seen: dict[str, list[np.ndarray]] = {}
    hidden = run(cell, x, seen)
    stacked = {name: np.stack(each) for name, each in seen.items()}
    state = _state(cell, x, hidden, bits) if cell.kind == "LSTM" else None
    return _CELLS[cell.kind](cell, stacked, bits, state, reached), hidden


def run(cell: FloatCell, x: np.ndarray, seen: dict[str, list[np.ndarray]], **more: Any) -> np.ndarray:
    """Hidden states ``[n, steps, hidden]`` in float64.

    ``seen`` gets what reaches each quantiser; ``keep``: a quantiser of an LSTM's cell state.
    """
    state: dict[str, Any] = more | {"h": np.zeros((len(x), cell.units)), "c": np.zeros((len(x), cell.units))}
    states = []
    for at in range(x.shape[1]):
        for name, value in _STEPS[cell.kind](cell, x[:, at], state).items():
            seen.setdefault(name, []).append(value)
        states.append(state["h"])
    return np.stack(states, axis=1)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # 1 / inf is the 0 that it should be
        return 1 / (1 + np.exp(-x))


def _unchanged(x: np.ndarray) -> np.ndarray:
    return x


def _sum(cell: FloatCell, gate: str, x: np.ndarray, h: np.ndarray) -> np.ndarray:
    return x @ cell.w[gate].T + h @ cell.u[gate].T + cell.bias[gate]


def _lstm(cell: FloatCell, x: np.ndarray, state: dict[str, Any]) -> dict[str, np.ndarray]:
    sums = {gate: _sum(cell, gate, x, state["h"]) for gate in cell.w}
    keep = state.get("keep", _unchanged)
    added = keep(_sigmoid(sums["input"]) * np.tanh(sums["cell"]))
    state["c"] = keep(keep(_sigmoid(sums["forget"]) * state["c"]) + added)
    state["h"] = _sigmoid(sums["output"]) * np.tanh(state["c"])
    return sums | {"state": state["c"]}


def _gru(cell: FloatCell, x: np.ndarray, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    h = state["h"]
    sums = {gate: _sum(cell, gate, x, h) for gate in ("update", "reset")}
    reset = _sigmoid(sums["reset"])
    inner = h @ cell.u["new"].T + cell.inner
    if cell.reset_first:
        sums["new"] = _sum(cell, "new", x, reset * h)
    else:
        sums["new"] = x @ cell.w["new"].T + cell.bias["new"] + reset * inner
    update = _sigmoid(sums["update"])
    state["h"] = update * h + (1 - update) * np.tanh(sums["new"])
    return sums | {"inner": inner}


def _rnn(cell: FloatCell, x: np.ndarray, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    total = _sum(cell, "new", x, state["h"])
    state["h"] = np.tanh(total)
    return {"new": total}


_STEPS: dict[str, Any] = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}


# Scales


def _best(values: np.ndarray, lo: int, hi: int, measure: Any) -> float:
    """The power of two that brings the least ``measure(values, rounded)``.

    Codes are ``lo..hi``.
    """
    most = float(np.abs(values).max(initial=0))
    top = int(np.ceil(np.log2(most / hi))) if most > 0 else 0
    scales = [2.0**exponent for exponent in range(top - _TRIED, top + 1)]
    errors = [measure(values, np.clip(np.rint(values / scale), lo, hi) * scale) for scale in scales]
    return scales[int(np.argmin(errors))]


def _square(value: np.ndarray, rounded: np.ndarray) -> float:
    return float(((value - rounded) ** 2).mean())


def _fitted(values: np.ndarray, bits: int, *, low: int | None = None, name: str = "") -> Coding:
    """Codes of values; ``low`` 0: they are never negative."""
    lo, hi = (0, (1 << bits) - 1) if low == 0 else (-(1 << bits - 1), (1 << bits - 1) - 1)
    return Coding(_best(values, lo, hi, _square), lo, hi, name=name)


def _weights(values: np.ndarray, bits: int, scale: float | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Codes, and a scale for each output: one power of two.

    It is the best one, or ``scale``.
    """
    most = (1 << bits - 1) - 1
    scale = scale or _best(values, -most, most, _square)
    return np.clip(np.rint(values / scale), -most, most).astype(np.int64), np.full(len(values), scale)


def _gate(
    cell: FloatCell,
    name: str,
    kind: str,
    sums: np.ndarray,
    bits: Bits,
    output: Coding,
    units: tuple[float, float] | None = None,
) -> Gate:
    """A gate; the scale of its sums changes its activation least.

    ``units``: scales of x and h; with them products with both add up in one sum of 8-bit weights.
    """
    function = np.tanh if kind == "tanh" else _sigmoid
    half = 1 << bits.width("sums") - 1
    lo, hi = -half, half - 1
    scale = _best(sums, lo, hi, lambda value, rounded: _square(function(value), function(rounded)))
    w, u = _weights(cell.w[name], bits.weights), _weights(cell.u[name], bits.weights)
    if units is not None:
        # The finer unit may be so much finer that the other side's weights in it are within 8 bits.
        own = [float(side[1][0]) * scale for side, scale in zip((w, u), units)]
        finest = max(own) * ((1 << bits.weights - 1) - 1) / 127
        finest = 2.0 ** np.ceil(np.log2(finest))
        w, u = (
            _weights(each[name], bits.weights, max(unit, finest) / scale)
            for each, unit, scale in zip((cell.w, cell.u), own, units)
        )
    accumulator = Coding(scale, lo, hi, name=f"{cell.name} {name}")
    return Gate(w[0], u[0], w[1], u[1], cell.bias[name], accumulator, kind, output, f"{cell.name} {name}")


def _unit(bits: int, signed: bool) -> Coding:
    """Codes of values from -1 or 0 to 1."""
    return (
        Coding(2.0 ** (1 - bits), -(1 << bits - 1), (1 << bits - 1) - 1)
        if signed
        else Coding(2.0**-bits, 0, (1 << bits) - 1)
    )


def _state(cell: FloatCell, x: np.ndarray, hidden: np.ndarray, bits: Bits) -> Coding:
    """The coding of a cell state that changes the hidden states least.

    Each step rounds by it. A fine scale clips, a coarse one loses what a step adds: a step alone shows neither.
    """
    most = (1 << bits.state - 1) - 1
    errors = {}
    for exponent in range(-bits.state, 5 - bits.state):
        scale = 2.0**exponent

        def keep(c: np.ndarray, scale: float = scale) -> np.ndarray:
            return np.clip(np.rint(c / scale), -most - 1, most) * scale

        errors[scale] = _square(hidden, run(cell, x, {}, keep=keep))
    return Coding(min(errors, key=errors.__getitem__), -most - 1, most, name=f"{cell.name} state")


def _lstm_cell(cell: FloatCell, seen: dict[str, np.ndarray], bits: Bits, state: Coding, x_scale: float) -> LstmCell:
    signed, unsigned = (_unit(bits.width("tables"), each) for each in (True, False))
    hidden = _unit(bits.width("hidden"), True)
    gates = {
        name: _gate(
            cell,
            name,
            *(("tanh", seen[name], bits, signed) if name == "cell" else ("sigmoid", seen[name], bits, unsigned)),
            (x_scale, hidden.scale),
        )
        for name in ("input", "forget", "cell", "output")
    }
    return LstmCell(gates, state, state, state, None, signed, hidden, cell.name)


def _gru_cell(cell: FloatCell, seen: dict[str, np.ndarray], bits: Bits, state: None, x_scale: float) -> GruCell:
    signed, unsigned = (_unit(bits.width("tables"), each) for each in (True, False))
    hidden = _unit(bits.state, True)
    units = x_scale, hidden.scale
    gates = {name: _gate(cell, name, "sigmoid", seen[name], bits, unsigned, units) for name in ("update", "reset")}
    passed = replace(hidden, name=f"{cell.name} passed") if cell.reset_first else None
    gates["new"] = _gate(cell, "new", "tanh", seen["new"], bits, signed, units if passed else None)
    inner = _fitted(seen["inner"], bits.state, name=f"{cell.name} inner")
    return GruCell(gates, inner, cell.inner, hidden, cell.name, passed)


def _rnn_cell(cell: FloatCell, seen: dict[str, np.ndarray], bits: Bits, state: None, x_scale: float) -> RnnCell:
    wide = Bits(weights=bits.weights, activations=bits.state, state=bits.state)
    hidden = _unit(bits.state, True)
    gate = _gate(cell, "new", "tanh", seen["new"], wide, hidden, (x_scale, hidden.scale))
    return RnnCell({"new": gate}, cell.name)


_CELLS: dict[str, Any] = {"LSTM": _lstm_cell, "GRU": _gru_cell, "RNN": _rnn_cell}
