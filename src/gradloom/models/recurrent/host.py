"""What the host computes around a recurrent network.

In front, numbers become what the network's quantiser takes; behind, hidden states or logits become the graph's answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Answering", "FloatDense", "Function", "HostStep", "picked", "seen"]

#: Functions that do not change which of several numbers is the greatest.
_ORDERLY = ("sigmoid", "tanh", "softmax", "log_softmax")
#: Those that take steps away.
_OVER_TIME = ("last", "mean", "max")


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatDense:
    """A dense layer: ``weight`` ``[outputs, inputs]`` and ``bias``."""

    weight: np.ndarray
    bias: np.ndarray
    name: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Function:
    """A function of a value ``[..., channels]``.

    ``op``: ``relu``, ``sigmoid``, ``tanh``, ``clip`` from ``lo`` to ``hi``, ``softmax`` or ``log_softmax`` over the
    channels; ``last``, ``mean`` or ``max`` over the steps of ``[n, steps, channels]``.
    """

    op: str
    name: str
    lo: float = -np.inf
    hi: float = np.inf


@dataclass(frozen=True, kw_only=True, eq=False)
class HostStep:
    """A step from given numbers to what a network sees, in float32.

    ``op``: ``Add``, ``Sub``, ``Mul`` or ``Div`` with ``value``, one or one a channel; ``Gather``: rows of ``value``
    for tokens.
    """

    op: str
    value: np.ndarray
    name: str


def seen(before: Sequence[HostStep], x: np.ndarray) -> np.ndarray:
    """What a network sees of ``x``, in an ONNX interpreter's float32."""
    for step in before:
        if step.op == "Gather":
            x = step.value[np.asarray(x, np.int64)]
        else:
            operation = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}[step.op]
            x = operation(np.asarray(x, np.float32), step.value.astype(np.float32))
    return x


def picked(pick: str, hidden: np.ndarray, units: int) -> np.ndarray:
    """Hidden states ``[n, steps, channels]`` that reach the answer.

    ``units``: channels of the forward direction.
    """
    if pick == "all":
        return hidden
    if pick == "mean":
        mean: np.ndarray = hidden.mean(axis=1)
        return mean
    if pick == "max":
        greatest: np.ndarray = hidden.max(axis=1)
        return greatest
    if pick == "ends":
        return np.concatenate([hidden[:, -1, :units], hidden[:, 0, units:]], axis=1)
    return hidden[:, -1]


def _softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(_log_softmax(x))


def _log_softmax(x: np.ndarray) -> np.ndarray:
    x = x - x.max(axis=-1, keepdims=True)
    made: np.ndarray = x - np.log(np.exp(x).sum(axis=-1, keepdims=True))
    return made


def _sigmoid(x: np.ndarray) -> np.ndarray:
    made: np.ndarray = np.exp(-np.logaddexp(0, -x))
    return made


_FUNCTIONS: dict[str, Any] = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "last": lambda x: x[:, -1],
    "mean": lambda x: x.mean(axis=1),
    "max": lambda x: x.max(axis=1),
}


def _applied(steps: Sequence[FloatDense | Function], value: np.ndarray) -> np.ndarray:
    for step in steps:
        if isinstance(step, FloatDense):
            value = value @ step.weight.T + step.bias
        elif step.op == "clip":
            value = np.clip(value, step.lo, step.hi)
        else:
            value = _FUNCTIONS[step.op](value)
    return value


class Answering:
    """What the host has to do for a network.

    It takes ``before``; what it makes of hidden states are ``pick``, then ``head``, then ``tail``.
    """

    name: str
    before: tuple[HostStep, ...]
    #: Hidden states that reach :attr:`head`, or else :attr:`tail`.
    pick: str
    #: Dense layer right behind them; it has ``bias``.
    head: Any
    #: What follows, in this order.
    tail: tuple[FloatDense | Function, ...]

    @property
    def tokens(self) -> int:
        """Rows of a table with which the network begins; 0: it takes numbers."""
        return len(self.before[0].value) if self.before and self.before[0].op == "Gather" else 0

    @property
    def answers(self) -> bool:
        """Whether there is an answer beside the states."""
        return self.head is not None or bool(self.tail) or self.pick in ("mean", "max", "ends")

    @property
    def classes(self) -> int | None:
        """Outputs of the last dense layer; None where there is none."""
        return None if self._last_dense is None else len(self._last_dense.bias)

    @property
    def one_logit(self) -> bool:
        """Whether it has one logit of its own; the other, the first, is 0."""
        last = self._last_dense
        return last is not None and len(last.bias) == 2 and not (np.any(last.weight[0]) or last.bias[0])

    @property
    def _last_dense(self) -> Any:
        return next((each for each in reversed(self.tail) if isinstance(each, FloatDense)), self.head)

    @property
    def _orderly(self) -> int:
        """Steps of the tail in front of functions that change no order."""
        count = len(self.tail)
        while count and isinstance(step := self.tail[count - 1], Function) and step.op in _ORDERLY:
            count -= 1
        return count

    @property
    def ending(self) -> tuple[FloatDense | Function, ...]:
        """Functions that make answers of scores."""
        return self.tail[self._orderly :]

    def scores(self, value: np.ndarray, *, every: bool = False) -> np.ndarray:
        """Numbers whose greatest is the label, of what reaches the tail.

        ``every``: steps stay, also where the network takes the last.
        """
        body = self.tail[: self._orderly]
        return _applied([each for each in body if not every or getattr(each, "op", "") != "last"], value)

    def answer(self, scores: np.ndarray) -> np.ndarray:
        """The graph's own answer."""
        return _applied(self.ending, scores)

    @property
    def waits(self) -> bool:
        """Whether the answer needs all steps at once."""
        over = {self.pick, *(each.op for each in self.tail if isinstance(each, Function))}
        return bool(over & {"mean", "max"})

    def check_logits(self, what: str) -> None:
        """Refuses other than logits of one dense layer, and a softmax."""
        for step in self.tail:
            what_is = step.op if isinstance(step, Function) else "dense layer"
            if what_is not in ("softmax", "log_softmax"):
                raise ValueError(
                    f"{self.name}: has a {what_is} ({step.name!r}) behind its dense layer: {what} a dense layer's "
                    "logits, which a softmax may follow; gradloom infer --engine reference runs it"
                )
