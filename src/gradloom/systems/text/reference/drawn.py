"""The choice of a token by its logits."""

from dataclasses import dataclass

import numpy as np

__all__ = ["Draw"]


@dataclass
class Draw:
    """Chooses a token: the likeliest, or one of the ``top`` likeliest at random.

    Parameters
    ----------
    top : int
        1: the likeliest; of equals the lowest.
    temperature : float
        Divides the logits.
    seed : int
        A number is drawn for each token, so that tokens depend on logits and seed alone.
    """

    top: int = 1
    temperature: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def __call__(self, logits: np.ndarray) -> int:
        """A token by its natural logits."""
        if self.top == 1:
            return int(np.argmax(logits))
        likeliest = np.argsort(-logits, kind="stable")[: self.top]
        scores = logits[likeliest].astype(np.float64) / self.temperature
        sums = np.cumsum(np.exp(scores - scores.max()))
        return int(likeliest[np.searchsorted(sums, self.random.random() * sums[-1], side="right")])
