"""A machine of a small product engine alone."""

from dataclasses import dataclass
from typing import ClassVar

from gradloom.rtl.engines.product.parameters import ProductParameters
from gradloom.rtl.engines.product.spec import SPEC
from gradloom.rtl.machines.fabric import Machine
from gradloom.rtl.shell.engines import Engines
from gradloom.rtl.shell.parameters import ShellParameters

__all__ = ["MACHINE", "ProductConfig"]

MACHINE = Machine(Engines(SPEC))


@dataclass(frozen=True, kw_only=True)
class ProductConfig(ProductParameters, ShellParameters):
    """Its configuration."""

    home: ClassVar = f"{__name__}:MACHINE"
