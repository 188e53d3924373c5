"""Splits a program into sections between YIELDs.

No token connects two sections, and each product fits into one.

Everything before a YIELD is done when it is passed, and no token survives it. So what a wait behind it would take from
before it is known here: that wait is left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gradloom.program.assembler import Instruction
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.shell.engines import CONTROL
from gradloom.rtl.shell.signature import TOKENS, ControlOpcode

from ..operations.elements import Loss
from ..operations.tensors import TensorSlice
from .jobs import ProductJob, Transfer

__all__ = ["PAUSE", "apart", "by_rows", "cut", "is_pause", "outputs_of", "rows_of"]

PAUSE = Instruction(CONTROL, ControlOpcode.YIELD, {})


def is_pause(step: Instruction) -> bool:
    """Whether it is a YIELD."""
    return (step.engine, step.opcode) == (CONTROL, ControlOpcode.YIELD)


def apart(steps: Sequence[Instruction]) -> list[Instruction]:
    """The program without waits for tokens from before a YIELD.

    A YIELD would remove these tokens. The waits are the first ones behind it: for each token as many as were posted and
    not taken.
    """
    held, owed = [0] * TOKENS, [0] * TOKENS
    made = []
    for step in steps:
        if is_pause(step):
            # What is owed is done too.
            owed, held = [old + new for old, new in zip(owed, held)], [0] * TOKENS
        waits = []
        for token in step.wait:
            if owed[token]:
                owed[token] -= 1
            else:
                waits.append(token)
                held[token] -= 1
        for token in step.post:
            held[token] += 1
        if len(waits) != len(step.wait):
            if not waits and not step.post and (step.engine, step.opcode) == (CONTROL, ControlOpcode.LOOKUP):
                continue  # it did nothing but wait
            step = replace(step, wait=tuple(waits))
        made.append(step)
    return made


def cut(job: ProductJob, config: LanguageConfig, cycles: float = 1 << 62) -> Iterator[ProductJob]:
    """Products of fewer tiles of outputs, of about ``cycles`` each at most, or of a panel if operands pass through.

    They run one behind the other. Each makes h again, with the same words.
    """
    # With few tokens, the bus takes longer for a tile than the array.
    column = job.inner * max(config.tile_cycles(job.tokens), job.tiles[0].beats)
    # h is complete behind so many panels of outputs.
    least, whole = 1 if job.rank <= config.subtiles else 2, -(-job.outer // config.span)
    parts = min(max(-(-job.outer * column // max(int(cycles), 1)), 1), max(whole // least, 1))
    if job.words > config.depth:
        parts = whole
    bounds = [min(whole * part // parts * config.span, job.outer) for part in range(parts + 1)]
    for first, end in zip(bounds, bounds[1:]):
        yield outputs_of(job, range(first, end), config)


def outputs_of(job: ProductJob, outputs: range, config: LanguageConfig) -> ProductJob:
    """The product of some neighbouring tiles of outputs: whole panels, or the last. It makes h again."""
    first, end = outputs.start, outputs.stop
    return replace(
        job,
        outer=end - first,
        tiles=job.tiles[first * job.inner : end * job.inner],
        result=_piece(job.result, first, end, job.outer, config, job.stride),
        lanes=(job.lanes[0], _piece(job.lanes[1], first, end, job.outer, config)) if job.lanes else (),
    )


#: Passes of a loss over its logits, as the weaver counts beats: two that read and one that writes.
_PASSES = 3
#: Share of a section that a part of a loss takes, by that count.
_SHARE = 0.75


def by_rows(loss: Loss, cycles: float, row: int) -> list[Loss]:
    """Losses of fewer tokens each, for sections of ``cycles``.

    ``row``: beats of a token's row in a tile.

    A token is not parted, since nothing keeps its sums over a YIELD. Targets and losses of the part from token n on are
    called ``NAME@n``.
    """
    rows = max(int(_SHARE * cycles // (_PASSES * row * loss.logits.count)), 1)
    if rows >= loss.logits.rows:
        return [loss]
    names = [each.partition("@") for each in (loss.targets, loss.loss)]
    (targets, _, start), (total, _, _) = names
    return [
        replace(
            loss,
            logits=_rows(loss.logits, first, rows),
            d=_rows(loss.d, first, rows),
            targets=f"{targets}@{int(start or 0) + first}",
            loss=f"{total}@{int(start or 0) + first}",
        )
        for first in range(0, loss.logits.rows, rows)
    ]


def _rows(whole: TensorSlice, first: int, rows: int) -> TensorSlice:
    return replace(whole, row=first, height=min(rows, whole.rows - first))


def rows_of(name: str, whole: str) -> int | None:
    """First token of the part ``whole`` or ``whole@n``; of others None."""
    start, _, first = name.partition("@")
    return int(first or 0) if start == whole else None


def _piece(
    whole: Transfer, first: int, end: int, of: int, config: LanguageConfig, stride: int | None = None
) -> Transfer:
    beats = whole.beats // of
    offset = whole.offset + first * (stride or beats * config.data_bits // 8)
    return replace(whole, offset=offset, beats=(end - first) * beats)
