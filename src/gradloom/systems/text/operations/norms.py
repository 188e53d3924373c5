"""Norms within a layer: of queries and keys, and of what attention and the feed-forward part take and give."""

from dataclasses import dataclass

from gradloom.models.language import HEAD_NORMS, LanguageModel

from .base import Operation
from .scaling import Norm, NormBackward
from .tensors import EDGE, Tensor, TensorSlice

__all__ = ["NormsOfLayers"]

#: Of a norm's place, the tensor in front of it and the one behind it.
_MADE = {"norm1": ("x", "attended"), "norm2": ("middle", "fed")}


@dataclass(frozen=True)
class NormsOfLayers:
    """Those of a model's layers."""

    model: LanguageModel

    # of queries and keys

    def plain(self, raw: Tensor) -> Tensor:
        """Queries or keys between norm and positions, or their gradient: ``raw`` itself where there is no norm."""
        return _behind(raw) if self.model.normed else raw

    def _together(self, *tensors: Tensor) -> list[tuple[TensorSlice, ...]]:
        """Parts that a norm takes together: each head, or all."""
        if not self.model.normed:
            return []
        tiles = tensors[0].tiles if self.model.joint_norms else self.model.head_dim // EDGE
        return [tuple(each.part(first, tiles) for each in tensors) for first in range(0, tensors[0].tiles, tiles)]

    def normed(self, layer: int, projection: str, raw: Tensor) -> list[Operation]:
        """Queries or keys behind their norms, if there are some."""
        weight, eps = f"{layer}.{HEAD_NORMS[projection]}", self.model.head_eps
        return [Norm(x, weight, y, eps) for x, y in self._together(raw, self.plain(raw))]

    def normed_back(self, layer: int, projection: str, raw: Tensor, dx: Tensor) -> list[Operation]:
        """Backward."""
        weight, eps = f"{layer}.{HEAD_NORMS[projection]}", self.model.head_eps
        return [NormBackward(x, dy, weight, d, eps) for x, dy, d in self._together(raw, self.plain(dx), dx)]

    # of the residual stream

    @property
    def wide(self) -> bool:
        """Whether that stream has wide words: no linear reads it."""
        return self.model.norms != "after"

    def behind(self, x: Tensor, place: str) -> Tensor:
        """What a layer's norm of a place makes of x: x itself where there is none."""
        if place not in self.model.layer_norms.values():
            return x
        if place not in _MADE:
            return _behind(x)
        before, after = _MADE[place]
        return Tensor(x.name.removesuffix(before) + after, x.rows, x.features)

    def placed(self, layer: int, place: str, x: Tensor) -> list[Operation]:
        """A layer's norm of a place, if there is one."""
        y = self.behind(x, place)
        return [] if y is x else [Norm(x.all(), f"{layer}.{place}", y.all(), self.model.norm_eps)]


def _behind(x: Tensor) -> Tensor:
    return Tensor(f"{x.name}.normed", x.rows, x.features)
