"""Fine-tunes a language model's adapters on one text, in floating point."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gradloom.rtl.models.language import Checkpoint, LanguageModel
from gradloom.rtl.models.lora import Adapter
from gradloom.rtl.models.pack import quantize_linear

from .reference.descent import Optimizer
from .reference.llama import Llama

__all__ = ["Quantized", "fine_tune"]


class Quantized:
    """A checkpoint whose linears have gone through codes and back, as a board holds them; head and embedding stay."""

    def __init__(self, checkpoint: Checkpoint, *, bits: int = 4) -> None:
        self.path, self.bits = checkpoint.path, bits
        self.source = checkpoint
        self._linears = {f"{linear.name}.weight" for linear in checkpoint.model.linears}

    @property
    def model(self) -> LanguageModel:
        """What the checkpoint says of itself."""
        return self.source.model

    def tensor(self, name: str) -> np.ndarray:
        """See :class:`~gradloom.rtl.models.language.Checkpoint`."""
        values = self.source.tensor(name)
        return quantize_linear(values, self.bits).weight() if name in self._linears else values


def fine_tune(llama: Llama, tokens: Sequence[int], adapters: Mapping[str, Adapter], optimizer: Optimizer, steps: int,
              progress: Callable[[int, int, str], None] | None = None) -> list[float]:
    """``steps`` updates of the adapters, in place; returns the loss before each."""
    parameters = {f"{name}.{which}": getattr(adapter, which) for name, adapter in adapters.items() for which in "ab"}
    losses = []
    for step in range(steps):
        if progress is not None:
            progress(step, steps, "fine-tuning")
        loss, pairs = llama.gradients(tokens, adapters)
        gradients = {f"{name}.{which}": g for name, pair in pairs.items() for which, g in zip("ab", pair)}
        optimizer.step(parameters, gradients)
        losses.append(loss)
    return losses
