"""Configuration of the machine for quantised recurrent networks."""

from dataclasses import dataclass
from typing import ClassVar

from ...engines.cell.parameters import CellParameters
from ...shell.parameters import ShellParameters

__all__ = ["RecurrentConfig"]


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(CellParameters, ShellParameters):
    """Configuration of the machine for quantised recurrent networks."""

    home: ClassVar = "gradloom.rtl.machines.recurrent:RECURRENT_MACHINE"
