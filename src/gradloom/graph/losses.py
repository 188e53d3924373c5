"""What a network is taught to make small: values, and gradients of its result."""

from collections.abc import Callable, Sequence

import numpy as np

from .functions import sigmoid

__all__ = ["LOSSES", "cross_entropy", "logistic", "squares"]

Loss = tuple[float, np.ndarray]


def cross_entropy(
    logits: np.ndarray, labels: np.ndarray, *, smoothing: float = 0.0, weights: Sequence[float] | None = None
) -> Loss:
    """Cross-entropy of classes, as ``torch.nn.functional.cross_entropy`` has it.

    Parameters
    ----------
    logits : array ``[samples, ..., classes]``
    labels : integer array ``[samples, ...]``
    smoothing : float
        Share of the target that all classes have in equal parts.
    weights : sequence of float, optional
        A weight a class; the mean is over the weights of the labels.
    """
    shape, classes = logits.shape, logits.shape[-1]
    logits, labels = logits.reshape(-1, classes), np.asarray(labels).reshape(-1)
    if len(labels) != len(logits):
        raise ValueError(f"labels={len(labels)}: must be {len(logits)}, one for each row of classes")
    if labels.dtype.kind not in "iu" or labels.min(initial=0) < 0 or labels.max(initial=0) >= classes:
        raise ValueError(f"labels={labels.min(initial=0)}..{labels.max(initial=0)}: must be from 0 to {classes - 1}")
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing={smoothing}: must be at least 0 and below 1")
    scale = np.ones(classes) if weights is None else np.asarray(weights, np.float64)
    if scale.shape != (classes,):
        raise ValueError(f"weights={scale.size}: must be {classes}, one a class")
    shifted = logits - logits.max(1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    target = np.full(logits.shape, smoothing / classes)
    target[np.arange(len(labels)), labels] += 1 - smoothing
    target = target * scale / scale[labels].sum()
    loss = float(-(target * logs).sum(dtype=np.float64))
    gradient = np.exp(logs) * target.sum(1, keepdims=True) - target
    return loss, gradient.astype(logits.dtype).reshape(shape)


def logistic(logits: np.ndarray, targets: np.ndarray) -> Loss:
    """Binary cross-entropy of each logit with targets from 0 to 1, its mean."""
    targets = _targets(logits, targets)
    if targets.min(initial=0) < 0 or targets.max(initial=0) > 1:
        raise ValueError(f"targets={targets.min():g}..{targets.max():g}: must be from 0 to 1")
    losses = np.maximum(logits, 0) - logits * targets + np.log1p(np.exp(-np.abs(logits)))
    return float(losses.mean(dtype=np.float64)), (sigmoid(logits) - targets) / logits.dtype.type(logits.size)


def squares(values: np.ndarray, targets: np.ndarray) -> Loss:
    """Mean squared error."""
    error = values - _targets(values, targets)
    return float(np.square(error).mean(dtype=np.float64)), error * values.dtype.type(2 / error.size)


def _targets(values: np.ndarray, targets: np.ndarray) -> np.ndarray:
    targets = np.asarray(targets, values.dtype)
    if targets.size != values.size or len(targets) != len(values):
        raise ValueError(f"targets={list(targets.shape)}: must be {list(values.shape)}")
    return targets.reshape(values.shape)


#: By what the targets are.
LOSSES: dict[str, Callable[..., Loss]] = {"classes": cross_entropy, "labels": logistic, "values": squares}
