"""The machine for language models: engines and wires."""

from ..engines.gradient.spec import SPEC as _GRADIENT
from ..engines.linear.spec import SPEC as _LINEAR
from ..engines.update.spec import SPEC as _UPDATE
from ..engines.vector.spec import SPEC as _VECTOR
from ..shell.engines import Engines
from .machine import Machine, Wire

__all__ = ["GRADIENT", "LANGUAGE", "LANGUAGE_MACHINE", "LINEAR", "UPDATE", "VECTOR"]

LANGUAGE = Engines(_LINEAR, _GRADIENT, _UPDATE, _VECTOR)
LINEAR, GRADIENT, UPDATE, VECTOR = LANGUAGE.own
LANGUAGE_MACHINE = Machine(LANGUAGE, wires=(Wire("linear.hidden", "gradient.hidden"),))
