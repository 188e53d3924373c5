"""The machine for language models: its engines in order, their wires, its configuration."""

from dataclasses import dataclass
from typing import ClassVar

from ..engines.gradient.parameters import GradientParameters
from ..engines.gradient.spec import SPEC as _GRADIENT
from ..engines.linear.spec import SPEC as _LINEAR
from ..engines.update.parameters import UpdateParameters
from ..engines.update.spec import SPEC as _UPDATE
from ..engines.vector.parameters import VectorParameters
from ..engines.vector.spec import SPEC as _VECTOR
from ..shell.engines import Engines
from ..shell.parameters import ShellParameters, parameter
from .machine import Machine, Wire

__all__ = ["GRADIENT", "LANGUAGE", "LANGUAGE_MACHINE", "LINEAR", "LanguageConfig", "UPDATE", "VECTOR"]

LANGUAGE = Engines(_LINEAR, _GRADIENT, _UPDATE, _VECTOR)
LINEAR, GRADIENT, UPDATE, VECTOR = LANGUAGE.own
LANGUAGE_MACHINE = Machine(LANGUAGE, wires=(Wire("linear.hidden", "gradient.hidden"),))


@dataclass(frozen=True, kw_only=True)
class LanguageConfig(VectorParameters, UpdateParameters, GradientParameters, ShellParameters):
    """Configuration of the machine for language models."""

    home: ClassVar = "gradloom.rtl.machines.language:LANGUAGE_MACHINE"

    requests: int = parameter(1, 0, 1)
