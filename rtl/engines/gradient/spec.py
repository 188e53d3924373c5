"""The gradient engine as a machine knows it."""
from ...shell.engines import EngineSpec
from .commands import GradientOpcode, GradientOperands

__all__ = ["SPEC"]

SPEC = EngineSpec(name="gradient", opcodes=GradientOpcode, default=GradientOperands, phases=("gradient",))
