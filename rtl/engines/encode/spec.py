"""The encode engine as a machine knows it."""
from ...shell.engines import EngineSpec
from .commands import EncodeOpcode, EncodeOperands

__all__ = ["SPEC"]

SPEC = EngineSpec(name="encode", opcodes=EncodeOpcode, default=EncodeOperands, phases=("encode",))
