"""Configuration of the machine for recurrent networks that learn."""

from dataclasses import dataclass
from typing import ClassVar

from ...engines.cell.parameters import CellParameters
from .images import ImageConfig

__all__ = ["SequenceConfig"]


@dataclass(frozen=True, kw_only=True)
class SequenceConfig(CellParameters, ImageConfig):
    """Configuration of the machine for recurrent networks that learn.

    The cell engine makes taps, from which the engines of the image machine learn an adapter.
    """

    home: ClassVar = "gradloom.rtl.machines.sequence:SEQUENCE_MACHINE"
