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
        LoadPort("b", "B from its start, words of one parameter a class; two beats a word"),
        LoadPort("labels", "a byte a sample; which half", data.StructLayout({"half": 32})),
    ),
    stores=(
        StorePort("b", "B from its start, words of one parameter a class; two beats a word"),
        StorePort("losses", "a beat a step, in order"),
    ),
    unit=HeadUnit, loop=_loop)
