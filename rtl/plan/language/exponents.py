"""Fraction bits of every tensor of a step.

They follow from the largest values that the tensors reached.
"""

from collections.abc import Iterable, Mapping

from ...formats.linear import ACTIVATION
from .operations import Fracs, Operation, results
from .vector import frac_of

__all__ = ["HEADROOM", "choose"]

#: Bits to spare where what a tensor reaches is a forecast, of the step before.
HEADROOM = 2


def choose(
    operations: Iterable[Operation], largest: Mapping[str, float], given: Fracs, *, headroom: int = HEADROOM
) -> dict[str, int]:
    """``given`` (of matrices, norms' weights, adapters and what the step starts from) and a choice for all else.

    A tensor that reaches ``largest`` gets as many fraction bits as fit with ``headroom`` bits to spare, within what the
    shifts of the operations that make it can do. Raises :class:`ValueError` where they can do nothing.
    """
    frac = dict(given)
    for operation in operations:
        forms = {part.name: part.tensor.form for part in results(operation)}
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
