"""Interleaves side work with the tile loads of products.

The array then works at the same time as the other engines.

There is one LOAD and one STORE, both in order. A product leaves most of the bus idle: while the array works on a tile,
the next one is loaded in a fraction of that time. Into these gaps go *pieces* of side work, loads and the stores of
what they make, and the operands of the products that follow. What of a product's own is not there yet when it begins,
or not even made, comes between its first tiles: side work that makes it goes a few tiles ahead, others while it waits.
Every STORE comes behind the loads that it needs, so whatever the order of pieces, a program is a valid sequence and
cannot deadlock.

What goes where is decided with a rough clock of bus, array and engines: a wrong guess costs cycles, never words. What
keeps words right is exact: products and pieces are only emitted behind those that make their operands, and a load that
reads what a STORE wrote waits for it by a token.

With ``every``, the program yields at least as often, by the same clock: between two products, when no operand of the
next is on chip and no side work is half done. What ends in time may begin before, other side work waits.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from gradloom.program.assembler import Assembler, Instruction
from gradloom.program.progress import check_progress
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.machines.language import LANGUAGE
from gradloom.rtl.shell.engines import CONTROL
from gradloom.rtl.shell.signature import ControlOpcode

from ..engines.linear import hidden, joined
from ..engines.side import append
from ..sections import apart, cut
from .weaver import Weaver
from .work import Main, Side
from .writes import with_stored

__all__ = ["Move", "weave"]

#: So many times shorter than a section is a product at least.
_CUT = 4
#: Steps with other offsets, from steps and, of each STORE, the load that its first word needs.
Move = Callable[[Sequence[Instruction], Mapping[int, int]], Sequence[Instruction]]


def weave(
    main: Sequence[Main],
    side: Iterable[Side],
    config: LanguageConfig,
    *,
    every: int | None = None,
    move: Move | None = None,
) -> Assembler:
    """Weaves products and side work into one program, END included.

    They could follow each other one by one in the order of their ``order``; products stay in theirs. The program yields
    about every ``every`` cycles at least, if this is given; but a piece of side work that cannot be divided may take
    longer. ``move`` may change the offsets of all transfers.
    """
    program = Assembler()
    weaver = Weaver(config, _short(main, config, every), side, every)
    steps = with_stored(weaver.run(), config)
    append(program, [*joined(apart(steps if move is None else move(steps, weaver.after)), config)])
    program.add(CONTROL, ControlOpcode.END)
    check_progress(program.instructions, LANGUAGE, depth=config.queue_depth)
    return program


def _short(main: Sequence[Main], config: LanguageConfig, every: int | None) -> list[Main]:
    """Products cut so that a section has room for some, and operand memory for their operands."""
    made: list[Main] = []
    kept = 0
    for each in main:
        for job in cut(each.job, config) if every is None else cut(each.job, config, every / _CUT):
            slot = kept % 2
            h = each.hidden and hidden(each.hidden.offset, config, slot=slot, tokens=job.tokens, rank=job.rank)
            made.append(replace(each, job=job, hidden=h, slot=slot))
            kept += h is not None
    return made
