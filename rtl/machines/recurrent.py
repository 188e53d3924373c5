"""The machine for quantised recurrent networks: its engine."""

from ..engines.cell.spec import SPEC as _CELL
from ..shell.engines import Engines
from .machine import Machine

__all__ = ["CELL", "RECURRENT", "RECURRENT_MACHINE"]

RECURRENT = Engines(_CELL)
(CELL,) = RECURRENT.own
RECURRENT_MACHINE = Machine(RECURRENT)
