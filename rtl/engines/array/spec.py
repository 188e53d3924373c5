"""The array engine as a machine knows it."""
from ...shell.engines import EngineSpec
from .commands import ArrayOpcode, ConvolveOperands, DenseOperands, PassOperands

__all__ = ["SPEC"]

SPEC = EngineSpec(
    name="array", opcodes=ArrayOpcode, default=PassOperands,
    operands={ArrayOpcode.CONVOLVE: ConvolveOperands, ArrayOpcode.DENSE: DenseOperands},
    phases=("convolution", "dense", "forward", "gradient"))
