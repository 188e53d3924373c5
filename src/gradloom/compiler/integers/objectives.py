"""Losses of the machine, and their gradients of the result in integers."""

from collections.abc import Callable

import numpy as np

from gradloom.graph.losses import logistic
from gradloom.rtl.formats.tiles.codes import WIDE, coded
from gradloom.rtl.formats.tiles.functions import LOGISTIC
from gradloom.sim.reference.tiles import vector

from .held import Held

__all__ = ["LOSSES", "TARGET", "WEIGHT", "cross_entropy", "falling", "weights_of_rows"]

#: What the host writes beside a network's inputs: the result that is wanted, and the weight of each of its rows.
TARGET, WEIGHT = "target", "weight"
#: Losses that have a gradient in the machine; ``weighted``: classes, whose rows of targets have other sums than 1.
LOSSES = ("classes", "labels", "values", "weighted")


def weights_of_rows(target: np.ndarray) -> np.ndarray:
    """The sum of each row of targets, at each of its places."""
    made: np.ndarray = target.sum(-1, keepdims=True).repeat(target.shape[-1], axis=-1)
    return made


def cross_entropy(logits: np.ndarray, wanted: np.ndarray) -> float:
    """Mean cross-entropy of rows, in nats."""
    shifted = logits - logits.max(1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return float(-(wanted * logs).sum() / len(logits))


def falling(
    loss: str, result: Held, target: np.ndarray, held: Callable[[np.ndarray], Held], soft: Callable[[np.ndarray], Held]
) -> tuple[float, Held]:
    """A loss, and its gradient of the result; ``held`` makes tensors, ``soft`` shares of rows."""
    target = np.asarray(target, np.float64).reshape(result.exact.shape)
    wanted = coded(target, WIDE).values
    if loss == "values":
        error = held(vector.add(result.values, wanted, subtract=True))
        return float(np.mean(np.square(error.values))), held(vector.scaled(error.values, 2 / wanted.size))
    if loss == "labels":
        value, count = logistic(result.values, wanted)[0], wanted.size
        shares = held(vector.function(result.values, LOGISTIC.value))
    else:
        value, count = cross_entropy(result.values, wanted), len(wanted)
        shares = soft(result.values)
    if loss == "weighted":
        shares = held(vector.multiply(shares.values, coded(weights_of_rows(target), WIDE).values))
    error = held(vector.add(shares.values, wanted, subtract=True))
    return value, held(vector.scaled(error.values, 1 / count))
