"""A fine-tune of a diffusion model in float, as a baseline: LoRA whose products are of codes with a scale a tensor."""

import numpy as np

from gradloom.graph.mathematics import FloatReading

__all__ = ["TensorReading"]

_MOST = 127


class TensorReading(FloatReading):
    """Products take codes of 8 bits, a scale a tensor.

    The scale brings the largest magnitude to 127, and values are rounded to the nearest code: the symmetric INT8 of
    CDM-QTA (ISCAS 2025). All other arithmetic is float.
    """

    def operand(self, x: np.ndarray, *, over_rows: bool = False) -> np.ndarray:
        """See :class:`FloatReading`."""
        scale = np.abs(x).max() / _MOST
        made: np.ndarray = x if scale == 0 else np.rint(x / scale) * scale
        return made

    def weight(self, name: str, *, back: bool = False) -> np.ndarray:
        """See :class:`FloatReading`."""
        return self.operand(self.values[name])
