"""Fine-tuning of a network in floating point: what never changes runs once a sample."""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from .base import Operation
from .dependence import dependent, kept
from .functions import sigmoid
from .losses import LOSSES
from .mathematics import FloatReading
from .methods import Learning
from .network import Network, Port
from .operations import Activation, Softmax

__all__ = ["FloatTraining", "before_loss", "ended", "without_end"]

Kept = dict[str, np.ndarray]


def before_loss(network: Network, loss: str) -> Network:
    """The network whose result the loss takes: without a softmax, or a sigmoid, at its end.

    :class:`ValueError` if the loss does not fit the last layer.
    """
    if loss not in LOSSES:
        raise ValueError(f"loss={loss}: must be one of {', '.join(LOSSES)}")
    port = network.result
    last = next((each for each in network.operations if each.o == port.tensor), None)
    is_end = (loss == "classes" and isinstance(last, Softmax)) or (
        loss == "labels" and isinstance(last, Activation) and last.kind == "sigmoid"
    )
    if isinstance(last, Softmax) and loss == "labels":
        raise ValueError("loss=labels: the network ends with a softmax; take loss=classes")
    if loss == "classes" and port.tensor.features < 2:
        raise ValueError("loss=classes: the last layer has one output; take loss=labels, or values")
    if last is None or not is_end:
        return network
    ended = replace(port, tensor=last.i[0])
    return network.with_operations([each for each in network.operations if each is not last], outputs=[ended])


def without_end(network: Network) -> tuple[Network, Operation | None]:
    """The network without a softmax or sigmoid at its end, and that."""
    (port,) = network.outputs
    last = next((each for each in network.operations if each.o == port.tensor), None)
    is_end = isinstance(last, Softmax) or (isinstance(last, Activation) and last.kind == "sigmoid")
    if last is None or not is_end or any(port.tensor in each.i for each in network.operations):
        return network, None
    rest = [each for each in network.operations if each is not last]
    return network.with_operations(rest, outputs=[replace(port, tensor=last.i[0])]), last


def ended(last: Operation | None, x: np.ndarray) -> np.ndarray:
    """What :func:`without_end` has left out, of results ``[..., features]``."""
    if isinstance(last, Softmax):
        shifted = x - x.max(-1, keepdims=True)
        logs: np.ndarray = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
        return logs if last.log else np.exp(logs)
    return x if last is None else sigmoid(x)


class FloatTraining:
    """Steps of an optimiser on what learns.

    Parameters
    ----------
    learning : Learning
        Of a network that :func:`before_loss` has made.
    loss : str
        A name of :data:`.losses.LOSSES`.
    optimizer : callable
        Changes values by gradients, see :mod:`.descent`.
    reading : callable
        Makes the reading of a network; :class:`.FloatReading` in float32 unless given.
    options : mapping
        Of the loss: ``smoothing``, ``weights``.
    """

    def __init__(
        self,
        learning: Learning,
        loss: str,
        optimizer: Callable[[MutableMapping[str, np.ndarray], MutableMapping[str, np.ndarray]], None],
        *,
        reading: Callable[[Network], FloatReading] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.learners, self.optimizer = set(learning.learners), optimizer
        self.loss = partial(LOSSES[loss], **(options or {}))
        self.reading = (reading or partial(FloatReading, dtype=np.float32))(learning.network)
        operations = learning.network.operations
        moving = dependent(operations, self.learners)
        self.port: Port = learning.network.outputs[0]
        if self.port.tensor.name not in moving:
            raise ValueError("nothing that learns reaches the result")
        self.kept = [t.name for t in kept(operations, self.learners)]
        self.frozen: Sequence[Operation] = [each for each in operations if each.o.name not in moving]
        self.learnt: Sequence[Operation] = [each for each in operations if each.o.name in moving]

    @property
    def values(self) -> dict[str, np.ndarray]:
        """What learns, as it is now."""
        return {name: self.reading.values[name] for name in sorted(self.learners)}

    def prepare(self, inputs: Mapping[str, np.ndarray] | np.ndarray, batch: int = 64) -> Kept:
        """What crosses from what never changes into what learns, of all samples."""
        given = self.reading.taken(inputs)
        count = len(next(iter(given.values())))
        parts: list[Kept] = []
        for at in range(0, count, batch):
            found = {name: x[at : at + batch] for name, x in given.items()}
            for each in self.frozen:
                self.reading.step(each, found)
            parts.append({name: found[name] for name in self.kept})
        return {
            name: parts[0][name] if len(parts[0][name]) == 1 < count else np.concatenate([each[name] for each in parts])
            for name in self.kept
        }

    def result(self, crossing: Kept) -> dict[str, np.ndarray]:
        """All tensors of the part that learns."""
        found = dict(crossing)
        for each in self.learnt:
            self.reading.step(each, found)
        return found

    def logits(self, crossing: Kept) -> np.ndarray:
        """The result, as the network has it."""
        return self.result(crossing)[self.port.tensor.name]

    def step(self, crossing: Kept, targets: np.ndarray) -> float:
        """One step on a batch; the loss before it."""
        found = self.result(crossing)
        loss, last = self.loss(found[self.port.tensor.name], targets)
        if not np.isfinite(loss):
            raise ValueError(f"loss={loss}: the step is too large or the data are not finite; lower the learning rate")
        gradients = self.reading.backward(found, {self.port.tensor.name: last}, self.learners)
        self.optimizer(self.reading.values, gradients)
        return loss

    def epoch(self, crossing: Kept, targets: np.ndarray, batch: int, order: Sequence[int] | np.ndarray) -> float:
        """Steps on all samples in an order; the mean loss."""
        losses = []
        for at in range(0, len(order), batch):
            some = np.asarray(order[at : at + batch])
            part = {name: x if len(x) == 1 < len(targets) else x[some] for name, x in crossing.items()}
            losses.append(self.step(part, targets[some]) * len(some))
        return sum(losses) / len(order)
