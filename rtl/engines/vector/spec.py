"""The vector engine as a machine knows it."""
from ...formats.vector import VectorOpcode, VectorOperands
from ...shell.engines import EngineSpec

__all__ = ["SPEC"]

SPEC = EngineSpec(name="vector", opcodes=VectorOpcode, default=VectorOperands, phases=("vector",))
