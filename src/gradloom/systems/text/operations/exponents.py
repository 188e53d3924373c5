"""Fraction bits of every tensor of a step.

They follow from the largest values that the tensors reached.
"""

import re
from collections.abc import Iterable, Mapping

from gradloom.rtl.formats.weights.linear import ACTIVATION

from .base import Fracs, Operation
from .vector import frac_of

__all__ = ["HEADROOM", "choose", "of_any_text"]

#: Bits to spare where what a tensor reaches is a forecast, of the step before.
HEADROOM = 2


#: Gradients of the head's input by parts of the vocabulary, and their sums.
_PARTS = re.compile(r"(\d+\.(?:part|sum))\.\d+(?:@\d+)?")


def of_any_text(largest: Mapping[str, float]) -> dict[str, float]:
    """What tensors may reach on another text.

    Which part of the vocabulary has a large gradient depends on the tokens to foretell, so each part counts as the
    largest of all.
    """
    pools: dict[str, float] = {}
    for name, value in largest.items():
        if found := _PARTS.fullmatch(name):
            pools[found[1]] = max(pools.get(found[1], 0.0), value)
    return {name: pools[found[1]] if (found := _PARTS.fullmatch(name)) else value for name, value in largest.items()}


def choose(
    operations: Iterable[Operation], largest: Mapping[str, float], given: Fracs, *, headroom: int = HEADROOM
) -> dict[str, int]:
    """Fraction bits of all tensors: those ``given``, and a choice.

    ``given`` are those of matrices, norms' weights, adapters and the inputs of the step.

    A tensor that reaches ``largest`` gets as many fraction bits as fit with ``headroom`` bits to spare, within the
    shifts of the operations that make it. Raises :class:`ValueError` where no shift fits.
    """
    frac = dict(given)
    for operation in operations:
        forms = {part.name: part.tensor.form for part in operation.results}
        for name, (low, high) in operation.limits(frac).items():
            if name in frac:
                chosen = frac[name]
            else:
                form = forms.get(name)
                # Nothing at all counts as 1.
                bits = frac_of(largest[name] or 1.0, form or ACTIVATION)
                chosen = frac[name] = max(low, min(bits - headroom, high))
            if not low <= chosen <= high:
                raise ValueError(f"{name}: {chosen} fraction bits, its operation can make {low} to {high}")
    return frac
