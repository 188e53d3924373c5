"""The machine for recurrent networks that learn: the cell beside the engines of the image machine."""

from dataclasses import dataclass
from typing import ClassVar

from ..engines.cell.parameters import CellParameters
from ..engines.cell.spec import SPEC as _CELL
from ..shell.engines import Engines
from .images import IMAGE_WIRES, IMAGES, ImageConfig
from .machine import Machine

__all__ = ["SEQUENCE", "SEQUENCE_MACHINE", "SequenceConfig"]

#: Numbers of the engines that learn are those of the image machine.
SEQUENCE = Engines(*(each.spec for each in IMAGES.own), _CELL)
SEQUENCE_MACHINE = Machine(SEQUENCE, wires=IMAGE_WIRES)


@dataclass(frozen=True, kw_only=True)
class SequenceConfig(CellParameters, ImageConfig):
    """Configuration of the machine for recurrent networks that learn.

    The cell engine makes taps, from which the engines of the image machine learn an adapter.
    """

    home: ClassVar = "gradloom.rtl.machines.sequence:SEQUENCE_MACHINE"
