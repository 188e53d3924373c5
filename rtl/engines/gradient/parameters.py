"""Parameters of the gradient engine."""

from dataclasses import dataclass

from ...shell.parameters import Resources
from ..linear.parameters import LinearParameters

__all__ = ["GradientParameters"]


@dataclass(frozen=True, kw_only=True)
class GradientParameters(LinearParameters):
    """The gradient engine works on h of the linear engine, whose sizes are its own."""

    def resources(self) -> Resources:
        """Two slices a word of a beat."""
        return Resources(dsp={"adapter gradients": 2 * self.beat_words})
