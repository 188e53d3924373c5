"""A checkpoint with the weights that a board holds."""

import numpy as np

from gradloom.models.language import Checkpoint, LanguageModel
from gradloom.models.pack import QuantizedLinear, coded_linear

__all__ = ["Quantized"]


class Quantized:
    """A checkpoint whose linears have the values of quantised codes.

    A board holds such weights; head and embedding stay.
    """

    def __init__(self, checkpoint: Checkpoint, *, bits: int = 4) -> None:
        self.path, self.bits = checkpoint.path, bits
        self.source = checkpoint
        self._linears = {f"{linear.name}.weight" for linear in checkpoint.model.linears}

    @property
    def model(self) -> LanguageModel:
        """The model as the checkpoint describes it."""
        return self.source.model

    def linear(self, name: str) -> QuantizedLinear:
        """A linear by its name without ``.weight``."""
        return coded_linear(self.source, f"{name}.weight", self.bits)

    def tensor(self, name: str) -> np.ndarray:
        """See :class:`~gradloom.models.language.Checkpoint`."""
        if name in self._linears:
            return self.linear(name.removesuffix(".weight")).weight()
        return self.source.tensor(name)
