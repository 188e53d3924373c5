"""How far a recurrent network in float32 may be from its mathematics."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from gradloom.models.recurrent.calibrate import convolved
from gradloom.models.recurrent.front import Pooling
from gradloom.models.recurrent.host import FloatDense, picked

__all__ = ["bounded"]

_HALF = 2.0**-24
#: Error of an exponential function of float32, absolute or of values below 1: some last places.
_SQUASH = 16 * _HALF


def bounded(network: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Answer in float64, and how far float32 may take it: the error of each operation, carried on by its slope."""
    value = np.asarray(network.seen(x), np.float64)
    error = np.abs(value) * 4 * _HALF
    if network.before and network.before[0].op != "Gather":
        scale = max((float(np.abs(step.value).max()) for step in network.before), default=1)
        error = error + 4 * _HALF * (1 + scale) * (1 + np.abs(x).max())
    for layer in network.front:
        if isinstance(layer, Pooling):
            value, error = layer.greatest(value, -np.inf), layer.greatest(error, 0)
            continue
        bare = _Bare(np.abs(layer.weight), np.abs(layer.bias), layer.stride, layer.pads)
        error = convolved(bare.without_bias, error) + (layer.weight[0].size + 3) * _HALF * convolved(
            bare, np.abs(value)
        )
        value = convolved(layer, value)
    for cell, backward in network.layers:
        made = [_cell(cell, value, error)]
        if backward is not None:
            made.append(tuple(each[:, ::-1] for each in _cell(backward, value[:, ::-1], error[:, ::-1])))
        value, error = (np.concatenate(each, axis=2) for each in zip(*made))
    value, error = (picked(network.pick, each, network.cell.units) for each in (value, error))
    for step in (*([] if network.head is None else [network.head]), *network.tail):
        if isinstance(step, FloatDense):
            error = _dense_error(step.weight, step.bias, value, error)
            value = value @ step.weight.T + step.bias
            continue
        value, error = _function(step, value, error)
    return value, error


@dataclass
class _Bare:
    weight: np.ndarray
    bias: np.ndarray
    stride: int
    pads: tuple[int, int]
    relu: bool = False

    @property
    def without_bias(self) -> "_Bare":
        return _Bare(self.weight, 0 * self.bias, self.stride, self.pads)


def _dense_error(weight: np.ndarray, bias: np.ndarray, value: np.ndarray, error: np.ndarray) -> np.ndarray:
    own = np.abs(value) @ np.abs(weight).T + np.abs(bias)
    return error @ np.abs(weight).T + (weight.shape[1] + 3) * _HALF * own


def _function(step: Any, value: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    kind = step.op
    if kind == "last":
        return value[:, -1], error[:, -1]
    if kind == "mean":
        return value.mean(axis=1), error.mean(axis=1) + (value.shape[1] + 1) * _HALF * np.abs(value).mean(axis=1)
    if kind == "max":
        return value.max(axis=1), error.max(axis=1)
    if kind == "relu":
        return np.maximum(value, 0), error
    if kind == "clip":
        return np.clip(value, step.lo, step.hi), error
    if kind in ("sigmoid", "tanh"):
        made = np.tanh(value) if kind == "tanh" else 1 / (1 + np.exp(-value))
        return made, error / (1 if kind == "tanh" else 4) + _SQUASH
    top = error.max(axis=-1, keepdims=True)
    log = value - value.max(axis=-1, keepdims=True)
    log = log - np.log(np.exp(log).sum(axis=-1, keepdims=True))
    error = 2 * top + _SQUASH * (1 + np.abs(log))
    return (log, error) if kind == "log_softmax" else (np.exp(log), error)


def _cell(cell: Any, x: np.ndarray, x_error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    h = h_error = np.zeros((len(x), cell.units))
    c = c_error = h
    values, errors = [], []

    def summed(gate: str, at: int, *states: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        parts = [(cell.w[gate], x[:, at], x_error[:, at]), *((cell.u[gate], *each) for each in states)]
        size = sum(np.abs(v) @ np.abs(w).T for w, v, _ in parts) + np.abs(cell.bias[gate])
        error = sum(e @ np.abs(w).T for w, _, e in parts) + (sum(w.shape[1] for w, *_ in parts) + 4) * _HALF * size
        return sum(v @ w.T for w, v, _ in parts) + cell.bias[gate], error

    def squashed(kind: str, value: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        made = np.tanh(value) if kind == "tanh" else 1 / (1 + np.exp(-value))
        return made, np.minimum(error / (1 if kind == "tanh" else 4), 2) + _SQUASH

    def product(a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        made = a[0] * b[0]
        return made, np.abs(a[0]) * b[1] + np.abs(b[0]) * a[1] + a[1] * b[1] + _HALF * np.abs(made)

    def total(a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        return a[0] + b[0], a[1] + b[1] + _HALF * np.abs(a[0] + b[0])

    for at in range(x.shape[1]):
        state = h, h_error
        if cell.kind == "LSTM":
            gates = {gate: squashed("tanh" if gate == "cell" else "", *summed(gate, at, state)) for gate in cell.w}
            c, c_error = total(product(gates["forget"], (c, c_error)), product(gates["input"], gates["cell"]))
            h, h_error = product(gates["output"], squashed("tanh", c, c_error))
        elif cell.kind == "GRU":
            update, reset = (squashed("", *summed(gate, at, state)) for gate in ("update", "reset"))
            if cell.reset_first:
                sums = summed("new", at, product(reset, state))
            else:
                inner = h @ cell.u["new"].T + cell.inner, _dense_error(cell.u["new"], cell.inner, h, h_error)
                sums = total(summed("new", at), product(reset, inner))
            new = squashed("tanh", *sums)
            h, h_error = total(product(update, state), product((1 - update[0], update[1]), new))
        else:
            h, h_error = squashed("tanh", *summed("new", at, state))
        values.append(h)
        errors.append(h_error)
    return np.stack(values, axis=1), np.stack(errors, axis=1)
