"""Adapters as they are stored after a fine-tune, in floating point.

``int8`` and ``nf4`` are the codes of signed packages in 8 and 4 bits: blocks of 64 values of each tensor that learns.
``q8_0`` is a linear with its adapter merged, in GGUF's blocks of 32 weights. A fine-tune towards a grid computes losses
and gradients with the rounded values, and moves the values that are not rounded by these gradients.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradloom.delivery import codes
from gradloom.models.adapters.lora import Adapter, LearntModule
from gradloom.models.files.language.gguf_blocks import q8_0_values

from ..reference.llama import FloatLinears
from ..reference.mathematics import linear_backward

__all__ = ["MergedLinears", "rounded"]

#: Bits of a value in packages.
_BITS = {"int8": 8, "nf4": 4}
Array = np.ndarray


def rounded(adapters: Mapping[str, LearntModule], grid: str) -> Mapping[str, LearntModule]:
    """The adapters on a grid of their own values; as they are on others."""
    if grid not in _BITS:
        return adapters
    bits = _BITS[grid]

    def stored(values: Array) -> Array:
        coded = codes.encode(values, bits)
        return codes.decode(coded, values.size, bits).reshape(values.shape)

    return {
        name: each.taking({key: stored(part) for key, part in each.parts.items()}) for name, each in adapters.items()
    }


class MergedLinears(FloatLinears):
    """Linears into which an adapter is merged, on the grid ``q8_0``."""

    def _merged(self, name: str, adapter: Adapter) -> Array:
        return q8_0_values(self.weights[name] + np.float32(adapter.scale) * (adapter.b @ adapter.a))

    def forward(self, name: str, x: Array, adapter: Adapter | None) -> Array:
        """See :class:`FloatLinears`."""
        return super().forward(name, x, None) if adapter is None else x @ self._merged(name, adapter).T

    def backward(self, name: str, dy: Array, x: Array, adapter: Adapter | None) -> tuple[Array, Any]:
        """See :class:`FloatLinears`; rounding has the gradient 1."""
        if adapter is None:
            return super().backward(name, dy, x, None)
        _, gradients = linear_backward(dy, x, self.weights[name], adapter)
        return dy @ self._merged(name, adapter), gradients
