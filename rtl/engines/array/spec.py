"""The array engine as a machine knows it."""
from amaranth.lib import data

from ...shell.engines import EngineSpec, LoadPort, StorePort
from .commands import RECORD_ARG, ArrayOpcode, ConvolveOperands, DenseOperands, PassOperands
from .unit import ArrayUnit

__all__ = ["SPEC"]

_WORD, _BEAT = (data.StructLayout({name: 32}) for name in ("word", "beat"))

SPEC = EngineSpec(
    name="array", opcodes=ArrayOpcode, default=PassOperands,
    operands={ArrayOpcode.CONVOLVE: ConvolveOperands, ArrayOpcode.DENSE: DenseOperands},
    phases=("convolution", "dense", "forward", "gradient"),
    loads=(
        LoadPort("weights", "frozen weights from a word on, two beats a word of 16 x int16, a column each", _WORD),
        LoadPort("biases", "biases from a word on, four beats a word of 16 x int32, a column each", _WORD),
        LoadPort("image", "pixels from a word on, four of int32 (Q8.16) a beat", _WORD),
        LoadPort("record", "a sample's cache record to a row: scales, codes, logits", RECORD_ARG),
        LoadPort("lanes", "A from a word on, two beats a word of 16 x int16, a column each", _WORD),
        LoadPort("books", "from a beat on: below 8 eight 16-bit levels of a codebook each, from 16 on a threshold",
                 _BEAT),
    ),
    stores=(
        StorePort("taps", "beats of encoded convolution inputs, in order"),
        StorePort("lanes", "A from a word on, two beats a word of 16 x int16, a column each", _WORD),
    ),
    unit=ArrayUnit)
