"""The gradient engine as a machine knows it."""

from gradloom.plugins import Named

from ...shell.engines import EngineSpec, LoadPort, Loop, StorePort
from .commands import HIDDEN_ARG, GradientOpcode, GradientOperands
from .parameters import GradientParameters

__all__ = ["SPEC"]


def _loop(config):
    """h of rank 2 in slot 0."""
    words = 2 * config.tokens
    return Loop(
        load="hidden",
        store="hidden",
        beats=-(-words // config.beat_words),
        bits=32,
        kept=min(words, config.beat_words),
        group=config.beat_words,
        arg=HIDDEN_ARG.const({"slot": 0, "tokens": config.tokens, "rank": 2}).as_value().value,
    )


SPEC = EngineSpec(
    name="gradient",
    opcodes=GradientOpcode,
    default=GradientOperands,
    phases=("gradient",),
    loads=(LoadPort("x", "the streamed tensor, tile by tile"), LoadPort("hidden", "h, back from memory", HIDDEN_ARG)),
    stores=(
        StorePort("gradients", "tiles of features, rank indices within a tile"),
        StorePort("hidden", "h as the gradients see it: pairs of rank indices, tokens within", HIDDEN_ARG),
    ),
    parameters=GradientParameters,
    unit=Named("gradloom.rtl.engines.gradient.unit", "GradientUnit"),
    loop=_loop,
)
