"""The head as a machine knows it."""

from gradloom.plugins import Named

from ...shell.engines import EngineSpec, LoadPort, Loop, StorePort
from .commands import LABELS_ARG, HeadOpcode, HeadOperands
from .parameters import HeadParameters

__all__ = ["SPEC"]


def _loop(config):
    """B has words of 16 classes; the machine keeps its own number of them."""
    return Loop(load="b", store="b", beats=8, bits=16, kept=config.classes, group=16)


SPEC = EngineSpec(
    name="head",
    opcodes=HeadOpcode,
    default=HeadOperands,
    phases=("loss",),
    loads=(
        LoadPort("b", "B from its start: two beats a rank index, 16 x int16, class 0 lowest"),
        LoadPort("labels", "labels, one byte a sample", LABELS_ARG),
    ),
    stores=(
        StorePort("b", "B from its start: two beats a rank index, 16 x int16, class 0 lowest"),
        StorePort("losses", "one beat a step: u64 sum of losses (16 fraction bits), u32 samples, u32 right answers"),
    ),
    parameters=HeadParameters,
    unit=Named("gradloom.rtl.engines.head.unit", "HeadUnit"),
    loop=_loop,
)
