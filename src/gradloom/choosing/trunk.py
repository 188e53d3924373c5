"""A frozen model whose lower layers run once a text."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from gradloom.models.adapters.lora import LearntModule, lowest_layer
from gradloom.systems.text.reference.llama import FloatModel

__all__ = ["FloatTrunk"]


class FloatTrunk:
    """A float model that keeps the inputs of some layers.

    Parameters
    ----------
    llama : FloatModel
    """

    def __init__(self, llama: FloatModel) -> None:
        self.llama, self.model = llama, llama.model
        self._held: dict[tuple[int, ...], dict[int, np.ndarray]] = {}

    def keep(self, tokens: Sequence[int], layers: Iterable[int]) -> None:
        """Computes what enters ``layers``, each from the one before."""
        held: dict[int, np.ndarray] = {}
        start = None
        for layer in sorted(set(layers) - {0}):
            held[layer] = self.llama.entering(layer, tokens, start)
            start = layer, held[layer]
        self._held[tuple(tokens)] = held

    def entering(self, layer: int, tokens: Sequence[int], start: tuple[int, np.ndarray] | None = None) -> np.ndarray:
        """Input of a layer, kept or computed."""
        known = self._held.get(tuple(tokens), {}).get(layer)
        return self.llama.entering(layer, tokens, start) if known is None else known

    def loss(
        self, tokens: Sequence[int], adapters: Mapping[str, LearntModule] | None = None, entry: np.ndarray | None = None
    ) -> float:
        """Mean cross-entropy of the text, in nats a token."""
        if adapters and entry is None and (lowest := lowest_layer(adapters)):
            entry = self.entering(lowest, tokens)
        return self.llama.loss(tokens, adapters, entry)

    def gradients(
        self, tokens: Sequence[int], adapters: Mapping[str, LearntModule], entry: np.ndarray | None = None
    ) -> tuple[float, dict[str, tuple[np.ndarray, ...]]]:
        """The loss, and the gradients of all parts of every adapter."""
        return self.llama.gradients(tokens, adapters, entry)
