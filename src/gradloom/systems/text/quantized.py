"""A checkpoint with the weights that a board holds."""

from collections.abc import Mapping

import numpy as np

from gradloom.models.adapters.lora import Adapter
from gradloom.models.files.language.huggingface import HuggingFaceCheckpoint
from gradloom.models.language import Checkpoint, LanguageModel
from gradloom.models.pack import QuantizedLinear, coded_linear, keeps_groups, quantize_linear

from .order import order

__all__ = ["Quantized", "in_order"]


def order_of_codes(model: LanguageModel, name: str) -> np.ndarray | None:
    """The machine's order of a linear's rows where its codes must be made in it; None where they can be moved."""
    rows = order(model, name)
    return None if rows is None or keeps_groups(rows, model.hidden) else rows


def in_order(model: LanguageModel, name: str, values: np.ndarray, bits: int = 4) -> QuantizedLinear:
    """A linear in codes that the machine can have in its order."""
    return quantize_linear(values, bits, order_of_codes(model, name))


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
        taken, weight = self.without.get(name), f"{name}.weight"
        if taken is None:
            if order_of_codes(self.model, name) is None:
                return coded_linear(self.source, weight, self.bits)
            if isinstance(self.source, HuggingFaceCheckpoint) and self.source.nf4(weight) is not None:
                raise ValueError(
                    f"{self.path}: {name} is in NF4, whose groups of scales the order of heads of "
                    f"{self.model.head_dim} elements parts; give the model in 16 bits"
                )
            return in_order(self.model, name, self.source.tensor(weight), self.bits)
        # In float32 and in PEFT's order of products.
        part = (np.float32(taken.scale) * taken.b) @ taken.a
        return in_order(self.model, name, np.asarray(self.source.tensor(weight), np.float32) - part, self.bits)

    def tensor(self, name: str) -> np.ndarray:
        """See :class:`~gradloom.models.language.Checkpoint`."""
        if name in self._linears:
            return self.linear(name.removesuffix(".weight")).weight()
        return self.source.tensor(name)
