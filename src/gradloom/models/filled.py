"""Language models whose shapes are filled with zeros to whole tiles of a machine.

A filled model is a model like any other. Its linears have rows and columns of zeros, so that what stands at the new
places is exactly 0; gradients there are 0 too, and what learns stays 0. New elements of a head stand behind the others,
and positions do not turn them. A mean over all places is smaller than one over those of the source: norms therefore
have weights that are smaller by the root of that share, and an epsilon that is smaller by the share.
"""

import dataclasses
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from gradloom.rtl.formats.weights.weight_stream import TILE

from .language import EMBEDDING, HEAD, HEAD_NORMS, Checkpoint, LanguageModel

__all__ = ["Filled", "FilledModel", "cut", "fill", "filled", "filled_shapes", "filled_tensor", "shapes_of", "source_of"]

#: Shapes that are filled.
_FILLED = ("hidden", "inter", "head_dim")
#: Of a linear, the shape that its outputs, and its inputs, are multiples of.
_OUTPUTS = dict.fromkeys(("q_proj", "k_proj", "v_proj"), "head_dim") | {
    "o_proj": "hidden",
    "gate_proj": "inter",
    "up_proj": "inter",
    "down_proj": "hidden",
}
_INPUTS = dict.fromkeys(_OUTPUTS, "hidden") | {"o_proj": "head_dim", "down_proj": "inter"}


@dataclass(frozen=True, kw_only=True)
class FilledModel(LanguageModel):
    """A model with shapes in multiples of 64.

    Parameters
    ----------
    source : LanguageModel
        The model as files have it.
    """

    source: LanguageModel

    @property
    def counted(self) -> int:
        """See :class:`~.language.LanguageModel`."""
        return self.source.hidden

    @property
    def head_eps(self) -> float:
        """See :class:`~.language.LanguageModel`."""
        return self.source.norm_eps * self.source.head_dim / self.head_dim


def filled(model: LanguageModel) -> LanguageModel:
    """A model with shapes in multiples of 64: itself, if its own are."""
    return _made(model) if any(getattr(model, name) % TILE for name in _FILLED) else model


@lru_cache(maxsize=256)
def _made(model: LanguageModel) -> FilledModel:
    wanted = {name: -(-getattr(model, name) // TILE) * TILE for name in _FILLED}
    held = {each.name: getattr(model, each.name) for each in dataclasses.fields(model)} | wanted
    held |= {
        "turned": model.head_dim if model.turned is None else model.turned,
        "score": model.score_factor,
        "norm_eps": model.norm_eps * model.hidden / wanted["hidden"],
    }
    return FilledModel(**held, source=model)


def source_of(model: LanguageModel) -> LanguageModel:
    """A model as files have it."""
    return model.source if isinstance(model, FilledModel) else model


def shapes_of(module: str) -> tuple[str, str]:
    """Shapes that a module's outputs and inputs are multiples of."""
    last = module.rpartition(".")[2]
    return _OUTPUTS.get(last, "hidden"), _INPUTS.get(last, "hidden")


def filled_shapes(model: LanguageModel) -> dict[str, list[int]]:
    """Shapes that are filled by name: of the files, and filled."""
    own, whole = source_of(model), filled(model)
    return {
        name: [getattr(own, name), getattr(whole, name)]
        for name in _FILLED
        if getattr(own, name) != getattr(whole, name)
    }


def fill(model: LanguageModel, values: np.ndarray, *shapes: str | None) -> np.ndarray:
    """``values`` of files with zeros at the new places of a filled ``model``.

    ``shapes``: of each axis the shape of which it is a multiple, or None.
    """
    for axis, old, new in _changed(model, shapes):
        before, after = values.shape[:axis], values.shape[axis + 1 :]
        parts = values.reshape(*before, -1, old, *after)
        gap = [(0, 0)] * parts.ndim
        gap[axis + 1] = 0, new - old
        values = np.pad(parts, gap).reshape(*before, parts.shape[axis] * new, *after)
    return values


def cut(model: LanguageModel, values: np.ndarray, *shapes: str | None) -> np.ndarray:
    """Values of a filled ``model`` without its new places."""
    for axis, old, new in _changed(model, shapes):
        before, after = values.shape[:axis], values.shape[axis + 1 :]
        parts = values.reshape(*before, -1, new, *after)
        kept = parts[(slice(None),) * (axis + 1) + (slice(old),)]
        values = kept.reshape(*before, parts.shape[axis] * old, *after)
    return values


def _changed(model: LanguageModel, shapes: tuple[str | None, ...]) -> list[tuple[int, int, int]]:
    """Axes that are filled, with their shapes in files and filled."""
    found = filled_shapes(model)
    held = [(axis, found[name]) for axis, name in enumerate(shapes) if name is not None and name in found]
    return [(axis, old, new) for axis, (old, new) in held]


def filled_tensor(model: LanguageModel, name: str, values: np.ndarray) -> np.ndarray:
    """A tensor of ``model`` as the filled one has it."""
    whole, module = filled(model), name.rpartition(".")[0]
    last = module.rpartition(".")[2]
    if name in (EMBEDDING, HEAD):
        return fill(whole, values, None, "hidden")
    if last in _OUTPUTS:
        return fill(whole, values, *shapes_of(module)[: values.ndim])
    shape = "head_dim" if last in HEAD_NORMS.values() else "hidden"
    old, new = getattr(model, shape), getattr(whole, shape)
    return values if old == new else fill(whole, values, shape) * (old / new) ** 0.5


class Filled:
    """A checkpoint whose model is filled."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.source = checkpoint

    @property
    def model(self) -> LanguageModel:
        """See :class:`~.language.Checkpoint`."""
        return filled(self.source.model)

    @property
    def path(self) -> Path:
        """See :class:`~.language.Checkpoint`."""
        return self.source.path

    def tensor(self, name: str) -> np.ndarray:
        """See :class:`~.language.Checkpoint`."""
        return filled_tensor(self.source.model, name, self.source.tensor(name))
