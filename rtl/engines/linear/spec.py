"""The linear engine as a machine knows it."""
from ...shell.engines import EngineSpec
from .commands import LinearOpcode, LinearOperands

__all__ = ["SPEC"]

SPEC = EngineSpec(name="linear", opcodes=LinearOpcode, default=LinearOperands, phases=("forward", "backward"))
