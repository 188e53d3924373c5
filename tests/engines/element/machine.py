"""A machine of the element engine alone."""

from dataclasses import dataclass
from typing import ClassVar

from gradloom.rtl.engines.element.parameters import ElementParameters
from gradloom.rtl.engines.element.spec import SPEC
from gradloom.rtl.machines.fabric import Machine
from gradloom.rtl.shell.engines import Engines
from gradloom.rtl.shell.parameters import ShellParameters

__all__ = ["MACHINE", "ElementConfig"]

MACHINE = Machine(Engines(SPEC))


@dataclass(frozen=True, kw_only=True)
class ElementConfig(ElementParameters, ShellParameters):
    """Its configuration."""

    home: ClassVar = f"{__name__}:MACHINE"
