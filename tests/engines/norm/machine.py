"""A machine of the norm engine alone."""

from dataclasses import dataclass
from typing import ClassVar

from gradloom.rtl.engines.norm.parameters import NormParameters
from gradloom.rtl.engines.norm.spec import SPEC
from gradloom.rtl.machines.fabric import Machine
from gradloom.rtl.shell.engines import Engines
from gradloom.rtl.shell.parameters import ShellParameters

__all__ = ["MACHINE", "NormConfig"]

MACHINE = Machine(Engines(SPEC))


@dataclass(frozen=True, kw_only=True)
class NormConfig(NormParameters, ShellParameters):
    """Its configuration."""

    home: ClassVar = f"{__name__}:MACHINE"
