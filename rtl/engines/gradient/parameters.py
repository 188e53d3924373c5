"""Parameters of the gradient engine."""

from dataclasses import dataclass

from ...shell.parameters import Resources, block_rams
from ..linear.parameters import LinearParameters

__all__ = ["SLOTS", "GradientParameters"]

#: Places of h: products write the first two; what comes back from memory may go to the others, while products go on.
SLOTS = 4


@dataclass(frozen=True, kw_only=True)
class GradientParameters(LinearParameters):
    """Sizes of the gradient engine: those of the linear engine's h.

    It has no size of its own.
    """

    def resources(self) -> Resources:
        """Two slices a word of a beat."""
        from ...formats.weights import linear

        h = block_rams(linear.WEIGHT.width, SLOTS * self.tokens << (self.rank // 2 - 1).bit_length())
        return Resources(dsp={"adapter gradients": 2 * self.beat_words}, block_rams={"h": 2 * h})
