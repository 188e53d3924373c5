"""The vector engine as a machine knows it."""

from gradloom.plugins import Named

from ...formats.vector import VectorOpcode, VectorOperands
from ...shell.engines import EngineSpec, LoadPort, StorePort
from .parameters import VectorParameters

__all__ = ["SPEC"]

SPEC = EngineSpec(
    name="vector",
    opcodes=VectorOpcode,
    default=VectorOperands,
    phases=("vector",),
    loads=(LoadPort("a", "the first operand"), LoadPort("b", "the second operand"), LoadPort("c", "the third operand")),
    stores=(StorePort("o", "results o"), StorePort("q", "results q")),
    parameters=VectorParameters,
    unit=Named("gradloom.rtl.engines.vector.unit", "VectorUnit"),
)
