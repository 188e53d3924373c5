"""The array engine as a machine knows it."""

from gradloom.plugins import Named

from ...shell.engines import EngineSpec, LoadPort, StorePort
from .commands import BOOKS_ARG, RECORD_ARG, WORD_ARG, ArrayOpcode, ConvolveOperands, DenseOperands, PassOperands
from .parameters import ArrayParameters

__all__ = ["SPEC"]

SPEC = EngineSpec(
    name="array",
    opcodes=ArrayOpcode,
    default=PassOperands,
    operands={ArrayOpcode.CONVOLVE: ConvolveOperands, ArrayOpcode.DENSE: DenseOperands},
    phases=("convolution", "dense", "forward", "gradient"),
    loads=(
        LoadPort("weights", "frozen weights: two beats a word, 16 x int16, one for each column", WORD_ARG),
        LoadPort("biases", "biases: four beats a word, 16 x int32, one for each column", WORD_ARG),
        LoadPort("image", "pixels: int32 (Q8.16), four a beat", WORD_ARG),
        LoadPort("record", "the cache record of one sample: scales, codes, base logits", RECORD_ARG),
        LoadPort("lanes", "A: two beats a word, 16 x int16, one for each column", WORD_ARG),
        LoadPort("books", "codebooks (8 levels a beat) and the encoder's thresholds (1 a beat)", BOOKS_ARG),
    ),
    stores=(
        StorePort("taps", "encoded inputs of convolutions, in the order of the commands"),
        StorePort("lanes", "A: two beats a word, 16 x int16, one for each column", WORD_ARG),
    ),
    parameters=ArrayParameters,
    unit=Named("gradloom.rtl.engines.array.unit", "ArrayUnit"),
)
