"""A checkpoint with the weights that a board holds."""

from collections.abc import Mapping

import numpy as np

from gradloom.models.adapters.lora import Adapter
from gradloom.models.language import Checkpoint, LanguageModel
from gradloom.models.pack import QuantizedLinear, coded_linear, quantize_linear

__all__ = ["Quantized"]


class Quantized:
    """A checkpoint whose linears have the values of quantised codes.

    A board holds such weights; head and embedding stay. Linears of ``without`` lack an adapter's addition: what is
    left of them is quantised.
    """

    def __init__(self, checkpoint: Checkpoint, *, bits: int = 4, without: Mapping[str, Adapter] | None = None) -> None:
        self.without = without or {}
        self.path, self.bits = checkpoint.path, bits
        self.source = checkpoint
        self._linears = {f"{linear.name}.weight" for linear in checkpoint.model.linears}

    @property
    def model(self) -> LanguageModel:
        """The model as the checkpoint describes it."""
        return self.source.model

    def linear(self, name: str) -> QuantizedLinear:
        """A linear by its name without ``.weight``."""
        taken = self.without.get(name)
        if taken is None:
            return coded_linear(self.source, f"{name}.weight", self.bits)
        # In float32 and in PEFT's order of products.
        part = (np.float32(taken.scale) * taken.b) @ taken.a
        return quantize_linear(np.asarray(self.source.tensor(f"{name}.weight"), np.float32) - part, self.bits)

    def tensor(self, name: str) -> np.ndarray:
        """See :class:`~gradloom.models.language.Checkpoint`."""
        if name in self._linears:
            return self.linear(name.removesuffix(".weight")).weight()
        return self.source.tensor(name)
