"""Bytes of a step's own tensors at once, counted from its operations.

Laying out the program of a long text takes minutes. Tensors live from the operation that first makes a part of them to
the last that makes or reads one; the places of a program differ from this count by what its order adds.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from gradloom.program.memory import rounded

from ..operations.base import Fracs, Operation
from ..operations.elements import Loss
from ..operations.learnt.again import again
from ..operations.products import Gradient, Product
from ..operations.tensors import EDGE

__all__ = ["peak_bytes"]


def peak_bytes(operations: Sequence[Operation], frac: Fracs, without: Collection[str]) -> int:
    """Of tensors that are not ``without``, whose memory is their own."""
    operations, _ = again(operations, frac)
    sizes: dict[str, int] = {}
    begin: dict[str, int] = {}
    end: dict[str, int] = {}
    for place, each in enumerate(operations):
        found = {part.name: 4 * part.tensor.rows * part.tensor.features for part in each.results}
        if isinstance(each, Product) and each.adapter is not None:
            found[each.hidden] = 4 * each.x.tensor.rows * each.adapter.rank
        if isinstance(each, Gradient):
            size = 4 * each.adapter.rank * EDGE
            found |= {each.made(which): size * part.count for which, (_, part) in each.sources.items()}
        if isinstance(each, Loss):
            # It lies where its logits were.
            found = {each.d.name: 0}
            sizes[each.logits.name] = 4 * each.logits.tensor.rows * each.logits.tensor.features
        sizes |= found
        for name in found:
            begin.setdefault(name, place)
        for name in (*found, *each.reads):
            end[name] = place
    for each in operations:
        if isinstance(each, Loss) and each.d.name in end:
            end[each.logits.name] = max(end[each.logits.name], end[each.d.name])
    change: Counter[int] = Counter()
    for name in begin.keys() - set(without):
        change[begin[name]] += rounded(sizes[name])
        change[end[name] + 1] -= rounded(sizes[name])
    held = most = 0
    for place in sorted(change):
        held += change[place]
        most = max(most, held)
    return most
