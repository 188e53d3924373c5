"""The encode engine as a machine knows it."""

from gradloom.plugins import Named

from ...shell.engines import EngineSpec, StorePort
from .commands import EncodeOpcode, EncodeOperands
from .parameters import EncodeParameters

__all__ = ["SPEC"]

SPEC = EngineSpec(
    name="encode",
    opcodes=EncodeOpcode,
    default=EncodeOperands,
    phases=("encode",),
    stores=(
        StorePort("taps", "encoded inputs of dense layers, in the order of the commands"),
        StorePort("raw", "dense activations as int32, four a beat, in the order of the commands"),
    ),
    parameters=EncodeParameters,
    unit=Named("gradloom.rtl.engines.encode.unit", "EncodeUnit"),
)
