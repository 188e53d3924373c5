"""Configuration of the machine for language models."""

from dataclasses import dataclass
from typing import ClassVar

from ...engines.gradient.parameters import GradientParameters
from ...engines.update.parameters import UpdateParameters
from ...engines.vector.parameters import VectorParameters
from ...shell.parameters import ShellParameters, parameter

__all__ = ["LanguageConfig"]


@dataclass(frozen=True, kw_only=True)
class LanguageConfig(VectorParameters, UpdateParameters, GradientParameters, ShellParameters):
    """Configuration of the machine for language models."""

    home: ClassVar = "gradloom.rtl.machines.language:LANGUAGE_MACHINE"

    requests: int = parameter(1, 0, 1)

    @property
    def head_part(self) -> int:
        """Tiles of logits whose gradient is the input of a product.

        Two such inputs of 64 tokens are on chip. Beside panels of several tiles the bus is what counts, and sums of
        parts are on it: there the next input has an eighth of the room to begin in.
        """
        return max(16, self.depth // 128) if self.span == 1 else max(8, 7 * self.depth // 512)
