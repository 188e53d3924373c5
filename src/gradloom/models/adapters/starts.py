"""Starts of LoRA adapters that are made of a weight, as PEFT's are."""

from collections.abc import Mapping

import numpy as np

from .lora import Adapter

__all__ = ["STARTS", "largest_part", "relative"]

#: ``random``: A as PEFT draws it, B zero. ``pissa``: the largest part of a weight, which its frozen weight then lacks.
#: ``loftq``: the largest part of what the quantiser loses of it (one iteration of LoftQ), beside the same codes.
STARTS = ("random", "pissa", "loftq")


def largest_part(weight: np.ndarray, rank: int, scale: float) -> Adapter:
    """The adapter whose ``scale · B A`` is nearest to a matrix ``[outputs, inputs]``.

    With the singular values S, which ``scale`` divides, B is ``U √S`` and A ``√S Vᵀ``, float32: ``pissa_init`` of PEFT.
    """
    u, s, v = np.linalg.svd(np.asarray(weight, np.float32), full_matrices=False)
    root = np.sqrt(s[:rank] / np.float32(scale))
    return Adapter(root[:, None] * v[:rank], u[:, :rank] * root, scale)


def relative(learnt: Mapping[str, Adapter], start: Mapping[str, Adapter]) -> dict[str, Adapter]:
    """Adapters of twice the rank, whose addition is the change since the start.

    They belong to the weights as they were: PEFT's conversion of PiSSA to LoRA.
    """
    return {
        name: Adapter(
            np.concatenate([each.a, start[name].a]), np.concatenate([each.b, -start[name].b], axis=1), each.scale
        )
        for name, each in learnt.items()
    }
