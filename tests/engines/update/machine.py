"""A machine of the update engine alone, whose gradients are records."""

from dataclasses import dataclass
from typing import ClassVar

from gradloom.rtl.engines.update.parameters import UpdateParameters
from gradloom.rtl.engines.update.spec import SPEC
from gradloom.rtl.machines.fabric import Machine
from gradloom.rtl.shell.engines import Engines
from gradloom.rtl.shell.parameters import ShellParameters, parameter

__all__ = ["MACHINE", "RecordConfig"]

MACHINE = Machine(Engines(SPEC))


@dataclass(frozen=True, kw_only=True)
class RecordConfig(UpdateParameters, ShellParameters):
    """Its configuration."""

    home: ClassVar = f"{__name__}:MACHINE"

    edge: int = parameter(64, 64, 64)
    records: int = parameter(1, 0, 1)
