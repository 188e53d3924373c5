"""The program of a part of a diffusion model, with the tensors that it reads and makes in memory."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradloom.compiler.integers.descent import rules_of
from gradloom.compiler.lowering import TileStep, lower
from gradloom.compiler.passes.arranging import arranged
from gradloom.graph.base import Operation
from gradloom.graph.dependence import dependent
from gradloom.graph.operations import Attention
from gradloom.program.descent import AdamW
from gradloom.program.progress import StuckError, check_progress
from gradloom.rtl.formats.tiles.codes import EDGE

from ..unet import learners_of, network, part_named

__all__ = ["part_step"]

#: Tiles of scores of an attention, at most: a program has some 40 jobs for each.
_SCORES = 4096


def part_step(config: Any, listed: Sequence[Operation], name: str, batch: int, lr: float) -> TileStep:
    """The step of a part: forward, and back where something in it or in front of it learns.

    The gradient comes to its last result, as of a loss of it. Weights are the same everywhere: the program is that of
    any without zeros.
    """
    some = part_named(listed, name)
    for each in some:
        if isinstance(each, Attention):
            q, k = (each.i[n].rows for n in (0, 1))
            tiles = each.heads * -(-batch * q // EDGE) * -(-k // EDGE)
            if tiles > _SCORES:
                raise ValueError(
                    f"only={name}: {each.o.name} has {tiles:,} tiles of scores of {q:,} rows by {k:,} keys in "
                    f"{each.heads} heads, must be {_SCORES:,} at most; name a part without it"
                )
    learners = learners_of(some)
    made = {each.o.name for each in some}
    moving = dependent(listed, learners_of(listed))
    values = {weight.name: np.broadcast_to(np.float32(0.125), weight.shape) for each in some for weight in each.weights}
    shown = [t for each in listed if each.o.name not in made for t in each.i if t.name in made]
    wanted = {t.name for each in some for t in each.i if t.name not in made and t.name in moving}
    ready = arranged(network(some, values, shown), learners).network
    rules = rules_of(AdamW(lr=lr), {each: np.asarray(values[each]) for each in learners})
    loss = "values" if some[-1].o.name in moving else None
    step = lower(config, ready, samples=batch, loss=loss, rules=rules, wanted=sorted(wanted) if loss else ())
    try:
        check_progress(step.program.instructions, config.machine.engines, depth=config.queue_depth)
    except StuckError as error:
        raise ValueError(f"only={name}: its program would not end: {error}; name a smaller part") from None
    return step
