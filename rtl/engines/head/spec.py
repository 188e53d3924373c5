"""The head as a machine knows it."""
from amaranth.lib import data

from ...shell.engines import EngineSpec, LoadPort, Loop, StorePort
from .commands import HeadOpcode, HeadOperands
from .unit import HeadUnit

__all__ = ["SPEC"]


def _loop(config):
    """B: words of 16 classes, of which there are fewer."""
    return Loop(load="b", store="b", beats=8, bits=16, kept=config.classes, group=16)


SPEC = EngineSpec(
    name="head", opcodes=HeadOpcode, default=HeadOperands, phases=("loss",),
    loads=(
        LoadPort("b", "B from its start, two beats a rank index of 16 x int16, class 0 lowest"),
        LoadPort("labels", "a byte a sample; which half", data.StructLayout({"half": 32})),
    ),
    stores=(
        StorePort("b", "B from its start, two beats a rank index of 16 x int16, class 0 lowest"),
        StorePort("losses", "a beat a step: u64 sum of losses with 16 fraction bits, u32 samples, u32 right answers"),
    ),
    unit=HeadUnit, loop=_loop)
