"""The update engine as a machine knows it."""

from gradloom.plugins import Named

from ...formats.adamw import GradientArgument
from ...shell.engines import EngineSpec, LoadPort, StorePort
from .commands import PackOperands, UpdateOpcode, UpdateOperands
from .parameters import UpdateParameters

__all__ = ["SPEC"]

SPEC = EngineSpec(
    name="update",
    opcodes=UpdateOpcode,
    default=UpdateOperands,
    operands={UpdateOpcode.PACK: PackOperands, UpdateOpcode.UNPACK: PackOperands},
    phases=("update",),
    loads=(
        LoadPort("directions", "gradients; in machines with ``records`` rows of codes too", GradientArgument),
        LoadPort("words", "adapter words that an update changes"),
        LoadPort("moments", "AdamW's moments: a beat has m for half a beat of words, then v for them"),
    ),
    stores=(
        StorePort("words", "updated adapter words"),
        StorePort("moments", "updated moments; stored before the words"),
    ),
    parameters=UpdateParameters,
    unit=Named("gradloom.rtl.engines.update.unit", "UpdateUnit"),
)
