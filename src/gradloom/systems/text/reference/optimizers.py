"""Optimisers in floating point, as torch has them."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

__all__ = ["FloatAdamW", "Optimizer", "Sgd"]

Arrays = Mapping[str, np.ndarray]
Factor = float | Mapping[str, float]


def _of(factor: Factor, name: str) -> float:
    return factor if isinstance(factor, float | int) else factor[name]


class Optimizer(Protocol):
    """Changes parameters in place."""

    def step(self, parameters: Arrays, gradients: Arrays, factor: Factor = 1.0) -> None:
        """One update; both have the same names and shapes, from call to call.

        ``factor``: of the learning rate, in this update; of all parameters, or by name.
        """


class Sgd:
    """``w -= lr · g``."""

    def __init__(self, *, lr: float) -> None:
        self.lr = lr

    def step(self, parameters: Arrays, gradients: Arrays, factor: Factor = 1.0) -> None:
        """See :class:`Optimizer`."""
        for name, w in parameters.items():
            w -= w.dtype.type(self.lr * _of(factor, name)) * gradients[name]


class FloatAdamW:
    """``torch.optim.AdamW`` with its defaults.

    The weight decay is an exception: it is 0 unless given.

    Attributes
    ----------
    steps : int
    first, second : dict of str to array
        Moments, of the parameters' own types.
    """

    def __init__(
        self, *, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0
    ) -> None:
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        self.steps = 0
        self.first: dict[str, np.ndarray] = {}
        self.second: dict[str, np.ndarray] = {}

    def step(self, parameters: Arrays, gradients: Arrays, factor: Factor = 1.0) -> None:
        """See :class:`Optimizer`."""
        self.steps += 1
        short, long = self.betas
        # Both moments begin at zero; dividing by these makes them means of what there was.
        first, root = 1 - short**self.steps, (1 - long**self.steps) ** 0.5
        for name, w in parameters.items():
            lr = self.lr * _of(factor, name)
            of, g = w.dtype.type, gradients[name]
            m = self.first.setdefault(name, np.zeros_like(w))
            v = self.second.setdefault(name, np.zeros_like(w))
            m += of(1 - short) * (g - m)
            v *= of(long)
            v += of(1 - long) * np.square(g)
            w *= of(1 - lr * self.weight_decay)
            w -= of(lr / first) * m / (np.sqrt(v) / of(root) + of(self.eps))


class FloatLion(FloatAdamW):
    """Lion: a step of the rate by the sign of a mean of the momentum and the gradient."""

    def __init__(self, *, lr: float, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0) -> None:
        super().__init__(lr=lr, betas=betas, weight_decay=weight_decay)

    def step(self, parameters: Arrays, gradients: Arrays, factor: Factor = 1.0) -> None:
        """See :class:`Optimizer`."""
        self.steps += 1
        now, kept = self.betas
        for name, w in parameters.items():
            lr, of, g = self.lr * _of(factor, name), w.dtype.type, gradients[name]
            m = self.first.setdefault(name, np.zeros_like(w))
            w *= of(1 - lr * self.weight_decay)
            w -= of(lr) * np.sign(of(now) * m + of(1 - now) * g)
            m += of(1 - kept) * (g - m)


def optimizer_state(optimizer: object) -> dict[str, object]:
    """The state of an optimiser that persists from step to step."""
    return (
        {"steps": optimizer.steps, "first": optimizer.first, "second": optimizer.second}
        if isinstance(optimizer, FloatAdamW)
        else {}
    )


def restore_optimizer(optimizer: object, state: Mapping[str, Any]) -> None:
    """Goes on from such a state."""
    for name, value in state.items():
        setattr(optimizer, name, value)
