"""Optimisers of weights by name, as PyTorch's do them."""

from collections.abc import MutableMapping
from dataclasses import dataclass, field

import numpy as np

__all__ = ["FloatDescent", "Momentum"]


@dataclass
class Momentum:
    """``torch.optim.SGD`` with ``momentum``; 0 is plain descent."""

    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    moved: dict[str, np.ndarray] = field(default_factory=dict)

    def __call__(self, values: MutableMapping[str, np.ndarray], gradients: MutableMapping[str, np.ndarray]) -> None:
        """One step; changes ``values``."""
        for name, gradient in gradients.items():
            g = gradient + self.weight_decay * values[name] if self.weight_decay else gradient
            if self.momentum:
                g = self.moved[name] = self.momentum * self.moved[name] + g if name in self.moved else g
            values[name] = (values[name] - self.lr * g).astype(values[name].dtype)


@dataclass
class FloatDescent:
    """``torch.optim.AdamW``."""

    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    steps: int = 0
    moments: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def __call__(self, values: MutableMapping[str, np.ndarray], gradients: MutableMapping[str, np.ndarray]) -> None:
        """One step; changes ``values``."""
        self.steps += 1
        first, second = (1 - beta**self.steps for beta in self.betas)
        for name, g in gradients.items():
            x = values[name]
            m, v = self.moments.get(name, (np.zeros_like(x), np.zeros_like(x)))
            m, v = self.betas[0] * m + (1 - self.betas[0]) * g, self.betas[1] * v + (1 - self.betas[1]) * g * g
            self.moments[name] = m, v
            step = self.lr * (m / first) / (np.sqrt(v / second) + self.eps)
            values[name] = (x * (1 - self.lr * self.weight_decay) - step).astype(x.dtype)
