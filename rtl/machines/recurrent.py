"""The machine for quantised recurrent networks: its engine, its configuration."""

from dataclasses import dataclass
from typing import ClassVar

from ..engines.cell.parameters import CellParameters
from ..engines.cell.spec import SPEC as _CELL
from ..shell.engines import Engines
from ..shell.parameters import ShellParameters
from .machine import Machine

__all__ = ["CELL", "RECURRENT", "RECURRENT_MACHINE", "RecurrentConfig"]

RECURRENT = Engines(_CELL)
(CELL,) = RECURRENT.own
RECURRENT_MACHINE = Machine(RECURRENT)


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(CellParameters, ShellParameters):
    """Configuration of the machine for quantised recurrent networks."""

    home: ClassVar = "gradloom.rtl.machines.recurrent:RECURRENT_MACHINE"
