"""The update engine as a machine knows it."""
from ...shell.engines import EngineSpec
from .commands import PackOperands, UpdateOpcode, UpdateOperands

__all__ = ["SPEC"]

SPEC = EngineSpec(
    name="update", opcodes=UpdateOpcode, default=UpdateOperands,
    operands={UpdateOpcode.PACK: PackOperands, UpdateOpcode.UNPACK: PackOperands}, phases=("update",))
