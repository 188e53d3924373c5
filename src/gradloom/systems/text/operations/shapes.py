"""Bounds of a model's shapes that all machines have."""

from collections.abc import Iterator

from gradloom.models.language import LanguageModel
from gradloom.rtl.formats.weights.blocks import GROUP

from .tensors import EDGE

__all__ = ["odd_shapes"]

#: Elements of a head.
_MOST_ELEMENTS = 256


def odd_shapes(model: LanguageModel) -> Iterator[tuple[str, int, str]]:
    """Fields of a model that fail the bounds of every machine.

    Yields field, value and bound.
    """
    for field in ("hidden", "inter"):
        if getattr(model, field) % EDGE:
            yield field, getattr(model, field), f"must be a multiple of {EDGE}"
    if model.head_dim % EDGE or model.head_dim > _MOST_ELEMENTS:
        yield "head_dim", model.head_dim, f"must be a multiple of {EDGE}, at most {_MOST_ELEMENTS}"
    elif model.head_dim > EDGE and model.hidden % EDGE == 0:
        # A tile of queries has the halves of pairs: rows of codes move by 32, and with them whole groups of scales.
        row = model.hidden // EDGE
        if EDGE // 2 * row % GROUP and GROUP % (model.head_dim * row):
            yield "hidden", model.hidden, f"must be a multiple of 512 with heads of {model.head_dim} elements"
