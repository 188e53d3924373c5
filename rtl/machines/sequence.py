"""The machine for recurrent networks that learn."""

from ..engines.cell.spec import SPEC as _CELL
from ..shell.engines import Engines
from .images import IMAGE_WIRES, IMAGES
from .machine import Machine

__all__ = ["SEQUENCE", "SEQUENCE_MACHINE"]

#: The cell beside the engines of the image machine. Numbers of the engines that learn are those of the image machine.
SEQUENCE = Engines(*(each.spec for each in IMAGES.own), _CELL)
SEQUENCE_MACHINE = Machine(SEQUENCE, wires=IMAGE_WIRES)
