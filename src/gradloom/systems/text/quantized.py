"""A checkpoint with the weights that a board holds."""

from collections.abc import Mapping

import numpy as np

from gradloom.models.adapters.lora import Adapter
from gradloom.models.files.language.huggingface import HuggingFaceCheckpoint
from gradloom.models.filled import cut, fill, filled, filled_shapes, shapes_of
from gradloom.models.language import Checkpoint, LanguageModel
from gradloom.models.pack import QuantizedLinear, coded_linear, keeps_groups, quantize_linear

from .order import order

__all__ = ["Quantized", "in_order"]


def order_of_codes(model: LanguageModel, name: str) -> np.ndarray | None:
    """The machine's order of a linear's rows where its codes must be made in it; None where they can be moved."""
    rows = order(model, name)
    return None if rows is None or keeps_groups(rows, filled(model).hidden) else rows


def in_order(model: LanguageModel, name: str, values: np.ndarray, bits: int = 4) -> QuantizedLinear:
    """A linear in codes that the machine can have in its order, filled to whole tiles."""
    return quantize_linear(fill(filled(model), values, *shapes_of(name)), bits, order_of_codes(model, name))


class Quantized:
    """A checkpoint whose linears have the values of quantised codes.

    A board holds such weights; head and embedding stay. Linears of ``without`` lack an adapter's addition: what is
    left of them is quantised. Codes are those of filled linears, values those of the model as files have it.
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
        """A linear by its name without ``.weight``, filled to whole tiles.

        :class:`ValueError` of NF4 whose codes the machine cannot have.
        """
        taken, weight = self.without.get(name), f"{name}.weight"
        if taken is None:
            parting = self._parting(name)
            if parting is None:
                return coded_linear(self.source, weight, self.bits)
            if self._coded(name):
                raise ValueError(
                    f"{self.path}: {name} is in NF4, whose groups of scales {parting} parts; give the model in 16 bits"
                )
            return in_order(self.model, name, self.source.tensor(weight), self.bits)
        # In float32 and in PEFT's order of products.
        part = (np.float32(taken.scale) * taken.b) @ taken.a
        return in_order(self.model, name, np.asarray(self.source.tensor(weight), np.float32) - part, self.bits)

    def tensor(self, name: str) -> np.ndarray:
        """See :class:`~gradloom.models.language.Checkpoint`."""
        linear = name.removesuffix(".weight")
        if name not in self._linears or (linear not in self.without and self._parting(linear) and self._coded(linear)):
            return self.source.tensor(name)
        return cut(filled(self.model), self.linear(linear).weight(), *shapes_of(linear))

    def _coded(self, name: str) -> bool:
        """Whether a linear is in NF4 already."""
        return isinstance(self.source, HuggingFaceCheckpoint) and self.source.nf4(f"{name}.weight") is not None

    def _parting(self, name: str) -> str | None:
        """Why codes of a linear as files have it cannot be the machine's, if they cannot."""
        shapes = filled_shapes(self.model)
        for shape in shapes_of(name):
            if shape in shapes:
                old, new = shapes[shape]
                return f"the fill of {shape} from {old} to {new}"
        if order_of_codes(self.model, name) is not None:
            return f"the order of heads of {self.model.head_dim} elements"
        return None
