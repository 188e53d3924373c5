"""Forward caches: constant tensors of a text, in a machine's memory."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from gradloom.rtl.formats.weights.tiles import tile_rows

from ..operations.tensors import EDGE, Tensor
from ..program.layout import Layout
from .step import StepMachine

__all__ = ["Kept", "Places", "Text", "brought_back", "reserved"]

Text = tuple[int, ...]
#: Words and fraction bits of tensors by name.
Kept = Mapping[str, tuple[np.ndarray, int]]
#: Offsets in the window by text and tensor.
Places = dict[Text, dict[str, int]]


def reserved(
    layout: Layout, places: Places, texts: Iterable[Sequence[int]], cached: Callable[[Text], Iterable[Tensor]]
) -> set[str]:
    """Reserves room for the cached tensors of each text.

    The tensors ``cached`` of a text get room in ``layout``, and are noted in ``places``. Returns the layout's names of
    all.
    """
    names = set()
    for text in dict.fromkeys(tuple(each) for each in texts):
        at = places[text] = {}
        for tensor in cached(text):
            name = f"{tensor.name}@{len(places) - 1}"
            at[tensor.name] = layout.place(name, 4 * tensor.rows * tensor.features)
            names.add(name)
    return names


def brought_back(machine: StepMachine, cache: Mapping[Text, Kept], places: Places) -> None:
    """Writes caches that were kept to the machine's memory."""
    for text, kept in cache.items():
        for name, (words, _) in kept.items():
            machine.host.store(places[text][name], tile_rows(words, EDGE))
