"""Masks of scores: constants so far below all others that a softmax gives nothing there."""

import numpy as np

from ..network import Network
from ..operations import Activation, Add, Attention, Parameter, Rearrange, Slice, Softmax

__all__ = ["FAR", "MASKED", "check_masks", "finite"]

#: What stands for minus infinity, also in float32.
MASKED = -1e30
#: Tables with less have masks.
FAR = -1e3


def finite(value: np.ndarray) -> np.ndarray:
    """A mask with finite values; :class:`ValueError` where a row has nothing else."""
    gone = np.isneginf(value)
    if gone.any() and gone.all(-1).any():
        raise ValueError("is a mask that leaves nothing in a row: a softmax of it is not a number")
    made: np.ndarray = np.where(gone, MASKED, value)
    return made


def check_masks(network: Network) -> None:
    """Refuses minus infinity that is not added to what a softmax takes."""
    held = {
        each.o.name
        for each in network.operations
        if isinstance(each, Parameter) and (network.values[each.name] <= MASKED).any()
    }
    for each in network.operations:
        found = held & {t.name for t in each.i}
        if not found or isinstance(each, Softmax | Attention):
            continue
        if not isinstance(each, Add | Rearrange | Slice) and not (
            isinstance(each, Activation) and each.kind == "affine"
        ):
            raise ValueError(f"{each.o.name}: reads {min(found)!r}, which has minus infinity: only a softmax takes it")
        held.add(each.o.name)
    for port in network.outputs:
        if port.tensor.name in held:
            raise ValueError(f"result {port.name!r} has minus infinity: only a softmax takes it")
