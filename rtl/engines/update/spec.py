"""The update engine as a machine knows it."""
from ...shell.engines import EngineSpec, LoadPort, StorePort
from .commands import PackOperands, UpdateOpcode, UpdateOperands
from .unit import UpdateUnit

__all__ = ["SPEC"]

SPEC = EngineSpec(
    name="update", opcodes=UpdateOpcode, default=UpdateOperands,
    operands={UpdateOpcode.PACK: PackOperands, UpdateOpcode.UNPACK: PackOperands}, phases=("update",),
    loads=(
        LoadPort("directions", "gradients"),
        LoadPort("words", "the words that they change"),
        LoadPort("moments", "AdamW's moments: a beat has m of half a beat of words, then their v"),
    ),
    stores=(StorePort("words", "new words"), StorePort("moments", "new moments; stored before the words")),
    unit=UpdateUnit)
