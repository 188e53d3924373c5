"""How a file of a family has what LLaMA's decoder has.

Factors of tensors are folded into the tensors, so that nothing behind a reader knows of them; a writer takes them out.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from ...language import EMBEDDING, FUSED, HEAD, LanguageModel

__all__ = ["Folded"]


@dataclass(frozen=True, kw_only=True)
class Folded:
    """A model as LLaMA's decoder, and what makes it of a file's tensors.

    ``embedding`` and ``head`` multiply those tensors. ``shift`` is added to the weights of norms. ``tied``: the file's
    head is its embedding, which the model's need not be.
    """

    model: LanguageModel
    tied: bool
    embedding: float = 1.0
    head: float = 1.0
    shift: float = 0.0

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every tensor of the file."""
        made: dict[str, tuple[int, ...]] = {}
        for name, shape in replace(self.model, tied=self.tied).tensors.items():
            own, rows = self.place(name)
            if rows is not None:
                shape = rows.stop, *shape[1:]
            # The last part of a tensor ends where the tensor does.
            made[own] = shape
        return made

    def place(self, name: str) -> tuple[str, slice | None]:
        """The file's tensor that has one of the model's, and in which rows, if it has several."""
        if name == HEAD and self.tied:
            return EMBEDDING, None
        before, _, last = name.removesuffix(".weight").rpartition(".")
        parts = next((item for item in FUSED.items() if last in item[1]), None)
        if not self.model.fused or parts is None:
            return name, None
        fused, each = parts
        first = sum(self.model.shape(one)[0] for one in each[: each.index(last)])
        return f"{before}.{fused}.weight", slice(first, first + self.model.shape(last)[0])

    def of_file(self, name: str, values: np.ndarray) -> np.ndarray:
        """A tensor of the model from the file's values."""
        factor, shift = self._factor(name), self._shift(name)
        if factor != 1:
            return values * np.float32(factor)
        return values + np.float32(shift) if shift else values

    def in_file(self, tensor: Callable[[str], np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
        """All tensors of the file, float32, from those of the model by name."""
        parts: list[np.ndarray] = []
        names = list(replace(self.model, tied=self.tied).tensors)
        for name, after in zip(names, [*names[1:], ""]):
            own, _ = self.place(name)
            values = np.asarray(tensor(name), np.float32)
            parts.append(values / np.float32(self._factor(name)) - np.float32(self._shift(name)))
            if not after or self.place(after)[0] != own:
                yield own, np.ascontiguousarray(np.concatenate(parts))
                parts = []

    def _factor(self, name: str) -> float:
        return {EMBEDDING: self.embedding, HEAD: self.head}.get(name, 1.0)

    def _shift(self, name: str) -> float:
        return self.shift if name.endswith("norm.weight") else 0.0
