"""Lifetimes of areas of memory, and common places of those that do not overlap.

A program is planned with a place for each tensor. Its loads and stores then tell when each lives: from the load behind
which its first STORE may begin to its last access. Tensors whose lives do not meet may have one place. LOAD and STORE
work in order and side by side, so a STORE may begin before a load that stands before it has ended, unless its words
are made of that load or of a later one. ``after`` names that load for each STORE.

Nothing but offsets changes, so the order of commands, and what they wait for, stay as they are. :func:`check` walks the
moved program and finds each word that another tensor overwrote.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gradloom.rtl.shell.engines import LOAD, STORE

from .assembler import Instruction

__all__ = ["Life", "assigned", "check", "extent", "lives", "moved"]

#: Bytes of which a place is a multiple.
ALIGN = 64


@dataclass(frozen=True)
class Life:
    """A tensor's range in memory, and the steps that need it there.

    They are the first and the last step of the program that do. ``read``: whether the program reads it before it writes
    it.
    """

    name: str
    offset: int
    size: int
    begin: int
    end: int
    read: bool


def lives(
    steps: Sequence[Instruction], after: Mapping[int, int], tensors: Mapping[str, tuple[int, int]], beat: int
) -> list[Life]:
    """Lives of ``tensors`` that a program of ``steps`` reads or writes.

    ``tensors``: offset and size by name. ``after``: of each STORE, the step of the load that its first word needs;
    ``beat``: bytes.
    """
    names = sorted(tensors, key=lambda name: tensors[name][0])
    starts = [tensors[name][0] for name in names]
    begin: dict[str, int] = {}
    end: dict[str, int] = {}
    read: set[str] = set()
    for place, step in enumerate(steps):
        if step.engine not in (LOAD, STORE):
            continue
        start, stop = extent(step, beat)
        index = bisect_right(starts, start) - 1
        if index < 0 or start >= starts[index] + -(-tensors[names[index]][1] // ALIGN) * ALIGN:
            continue
        name = names[index]
        if stop > starts[index] + -(-tensors[name][1] // ALIGN) * ALIGN:
            raise ValueError(f"{name}: a transfer reaches beyond its place")
        if name not in begin:
            begin[name] = place if step.engine == LOAD else after[place]
            if step.engine == LOAD:
                read.add(name)
        end[name] = place
    return [Life(name, *tensors[name], begin[name], end[name], name in read) for name in names if name in begin]


def assigned(found: Iterable[Life], same: Collection[tuple[str, str]] = ()) -> tuple[dict[str, int], int]:
    """Places from 0 on, by name, and their end.

    The largest tensors come first, each as low as possible. Two of ``same``, one made of the other beat by beat, have
    one place.
    """
    by_name = {each.name: each for each in found}
    groups: dict[str, list[Life]] = {name: [each] for name, each in by_name.items()}
    for first, second in same:
        if first in groups and second in groups and by_name[first].size == by_name[second].size:
            groups[first] += groups.pop(second)
    spans = sorted(
        (
            (max(each.size for each in group), min(each.begin for each in group), max(each.end for each in group), name)
            for name, group in groups.items()
        ),
        key=lambda span: (-span[0], span[1], span[3]),
    )
    begins, ends, starts, stops = (np.zeros(len(spans), np.int64) for _ in range(4))
    places: dict[str, int] = {}
    for count, (size, begin, end, name) in enumerate(spans):
        size = -(-size // ALIGN) * ALIGN
        meets = np.flatnonzero((begins[:count] <= end) & (ends[:count] >= begin))
        offset = 0
        for other in meets[np.argsort(starts[meets], kind="stable")]:
            if starts[other] - offset >= size:
                break
            offset = max(offset, int(stops[other]))
        begins[count], ends[count], starts[count], stops[count] = begin, end, offset, offset + size
        for each in groups[name]:
            places[each.name] = offset
    return places, int(stops.max(initial=0))


def moved(steps: Sequence[Instruction], ranges: Iterable[tuple[int, int, int]], beat: int) -> list[Instruction]:
    """The program with each transfer within ``ranges`` at its new place.

    ``ranges`` : offset, size and new offset.
    """
    ordered = sorted(ranges)
    starts = [start for start, _, _ in ordered]
    made = []
    for step in steps:
        if step.engine in (LOAD, STORE):
            start, _ = extent(step, beat)
            index = bisect_right(starts, start) - 1
            if index >= 0 and start < starts[index] + -(-ordered[index][1] // ALIGN) * ALIGN:
                offset = start - starts[index] + ordered[index][2]
                step = replace(step, operands={**step.operands, "offset": offset})
        made.append(step)
    return made


def check(planned: Sequence[Instruction], after: Mapping[int, int], steps: Sequence[Instruction], beat: int) -> None:
    """Refuses a moved program whose loads could find other words.

    It refuses a load that finds another word than in the planned program, and a STORE that may overwrite a word before
    a load has read it; :class:`ValueError` names the step.
    """
    accesses = [(place, *extent(step, beat)) for place, step in enumerate(steps) if step.engine in (LOAD, STORE)]
    low = min((start for _, start, _ in accesses), default=0) // beat
    size = max((stop for _, _, stop in accesses), default=0) // beat - low
    # Of each beat of memory: where the word that it holds was planned to lie, and the last load that read it.
    source, last = np.full(size, -1, np.int64), np.full(size, -1, np.int64)
    for place, start, stop in accesses:
        here = slice(start // beat - low, -(-stop // beat) - low)
        origin = np.arange(here.stop - here.start) + planned[place].operands["offset"] // beat
        if steps[place].engine == LOAD:
            held = source[here]
            if not ((held == origin) | (held < 0)).all():
                raise ValueError(f"step {place}: it reads what another tensor overwrote")
            # What no STORE wrote was there before.
            source[here], last[here] = origin, place
            continue
        needs = after[place]
        # In place, a beat that is read is written behind it.
        same = steps[needs].operands["offset"] == start
        if (last[here] > needs).any() or (not same and (last[here] == needs).any()):
            other = source[here] != origin
            if (other & (last[here] >= needs)).any():
                raise ValueError(f"step {place}: it may overwrite what step {int(last[here].max())} still reads")
        source[here] = origin


def extent(step: Instruction, beat: int) -> tuple[int, int]:
    """Start and end in the window of a LOAD or STORE; ``beat``: bytes."""
    start = step.operands["offset"]
    return start, start + step.operands["beats"] * beat
