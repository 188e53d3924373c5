"""The step of a diffusion model, or of a part of it, as pieces with tensors in memory between them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradloom.compiler.integers.descent import rules_of
from gradloom.compiler.lowering import TileStep, pieced
from gradloom.compiler.passes.arranging import arranged
from gradloom.graph.base import Operation
from gradloom.graph.dependence import dependent
from gradloom.program.descent import AdamW
from gradloom.program.operations import needed
from gradloom.program.progress import StuckError, check_progress
from gradloom.program.tiles.pieces import StepPiece

from ..unet import learners_of, network

__all__ = ["step_pieces"]


def step_pieces(
    config: Any,
    listed: Sequence[Operation],
    some: Sequence[Operation],
    *,
    batch: int,
    lr: float,
    tell: Callable[[StepPiece, int], None],
    memory: int | None = None,
) -> TileStep:
    """The step of operations ``some`` of a list: forward, and back where something in or in front of them learns.

    The gradient comes to the last result, as of a loss of it. Weights are the same everywhere, and are not made: the
    programs are those of any without zeros. ``tell`` gets each piece, and their number; ``memory``: bytes that there
    are; see :func:`~gradloom.compiler.lowering.pieced`.

    :class:`ValueError` where a program would not end, the last result does not need all operations, or memory is short.
    """
    needs = {each.o.name for each in needed(some, [some[-1].o.name])}
    if beside := [each.o.name for each in some if each.o.name not in needs]:
        raise ValueError(f"{beside[0]} does not lead to {some[-1].o.name}; name a part with all between")
    learners = learners_of(some)
    made = {each.o.name for each in some}
    moving = dependent(listed, learners_of(listed))
    values = {weight.name: np.broadcast_to(np.float32(0.125), weight.shape) for each in some for weight in each.weights}
    shown = [t for each in listed if each.o.name not in made for t in each.i if t.name in made]
    wanted = {t.name for each in some for t in each.i if t.name not in made and t.name in moving}
    ready = arranged(network(some, values, shown), learners).network
    rules = rules_of(AdamW(lr=lr), {each: np.asarray(values[each]) for each in learners})
    loss = "values" if some[-1].o.name in moving else None

    def checked(piece: StepPiece, count: int) -> None:
        if piece.offsets is piece.first:
            try:
                check_progress(piece.program.instructions, config.machine.engines, depth=config.queue_depth)
            except StuckError as error:
                raise ValueError(f"{some[0].o.name}: a program of its step would not end: {error}") from None
        tell(piece, count)

    return pieced(
        config,
        ready,
        samples=batch,
        loss=loss,
        rules=rules,
        wanted=sorted(wanted) if loss else (),
        tell=checked,
        filled=False,
        memory=memory,
    )
