"""The head as a machine knows it."""
from ...shell.engines import EngineSpec
from .commands import HeadOpcode, HeadOperands

__all__ = ["SPEC"]

SPEC = EngineSpec(name="head", opcodes=HeadOpcode, default=HeadOperands, phases=("loss",))
