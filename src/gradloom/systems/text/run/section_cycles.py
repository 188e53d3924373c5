"""Cycles between the YIELDs of a program, kept within a bound."""

from collections.abc import Callable

import numpy as np

from gradloom.program.assembler import Assembler
from gradloom.rtl.shell.parameters import ShellParameters
from gradloom.sim.time.forecast import USUAL, MemoryTime, forecast

from ..program.sections import is_pause

__all__ = ["kept_spacing", "section_cycles"]

#: Programs that are tried for a bound.
_TRIES = 6
#: The next spacing by the last: of that in proportion to the excess, and at most after the first try.
_MARGIN, _FASTER = 0.97, 0.75


def section_cycles(program: Assembler, config: ShellParameters, *, memory: MemoryTime = USUAL) -> list[int]:
    """Cycles of each section, by the forecast."""
    told = forecast(program, config=config, memory=memory)
    ends = [
        times[1] for step, times in zip(program.instructions, told.commands, strict=True) if times and is_pause(step)
    ]
    return [int(each) for each in np.diff([0, *ends, told.total])]


def kept_spacing(
    lowered: Callable[[int], Assembler], bound: int, config: ShellParameters, *, memory: MemoryTime = USUAL
) -> tuple[int, list[int]]:
    """The ``yield_every`` with which all sections keep ``bound``.

    The weaver plans with a simple clock. Where a section that it makes is longer by the forecast, it is asked for
    sections shorter by as much. Returns the cycles of each section too. :class:`ValueError` names the least bound that
    could be kept if ``bound`` cannot.

    Parameters
    ----------
    lowered : callable
        The program by ``yield_every``; see :func:`~gradloom.systems.text.program.step.lower`.
    """
    every, least = bound, 0
    for number in range(_TRIES):
        cycles = section_cycles(lowered(every), config, memory=memory)
        longest = max(cycles)
        if longest <= bound:
            return every, cycles
        least = min(least, longest) if least else longest
        share = _MARGIN * bound / longest
        every = max(int(every * (min(share, _FASTER) if number else share)), 1)
    raise ValueError(f"bound={bound}: the shortest sections of this step take {least} cycles; must be at least {least}")
