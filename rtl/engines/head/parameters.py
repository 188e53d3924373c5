"""Parameters of the head."""

from dataclasses import dataclass

from ...shell.parameters import Resources, parameter
from ..array.parameters import ArrayParameters

__all__ = ["HeadParameters"]


@dataclass(frozen=True, kw_only=True)
class HeadParameters(ArrayParameters):
    """The head works on streams of the array, whose sizes are its own.

    Parameters
    ----------
    classes : int
        Largest number of logits.
    """

    classes: int = parameter(10, 2, 16, known=True)

    def resources(self) -> Resources:
        """Three slices a class, seven for softmax and loss."""
        return Resources(dsp={"head": 3 * self.classes + 7})
