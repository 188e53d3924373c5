"""Where commands stand in a program: by the cycles in which they start.

The sequencer hands out commands as they stand in the program, and stops at the first whose engine has a full queue. So
a LOAD that could start early should stand in front of commands that start late. Cycles here are estimates: they decide
about nothing but this order. Each queue keeps its own, and a command stands behind those whose tokens it waits for.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ...formats.element import ElementOpcode
from ...formats.norm import NormOpcode
from ...formats.product import ProductOpcode

__all__ = ["Command", "cycles", "paced"]

#: Cycles from a command's end to a start that waits for it; of LOAD and STORE besides beats.
_LATENCY, _LOAD, _STORE = 20, 2, 16
#: Readings of a tile by commands that have more than one.
_READINGS: dict[tuple[str, int], int] = {
    ("norm", NormOpcode.SOFTMAX): 3,
    ("norm", NormOpcode.SOFTMAX_BACK): 2,
    ("element", ElementOpcode.SQUARES): 4,
    ("element", ElementOpcode.WORDS): 2,
}


@dataclass(eq=False)
class Command:
    """A command of a program.

    ``queue``: ``load``, ``store`` or an engine. ``add`` writes it. ``follows``: it starts no sooner than this one.
    """

    queue: str
    cycles: int
    add: Callable[[], None]
    wait: Sequence[int] = ()
    post: Sequence[int] = ()
    follows: "Command | None" = None
    start: int = -1


def paced(commands: Sequence[Command]) -> list[Command]:
    """Commands by their starts, where each queue has them in order."""
    queues: dict[str, list[Command]] = defaultdict(list)
    for each in commands:
        queues[each.queue].append(each)
    posts: dict[int, list[int]] = defaultdict(list)
    waits: dict[int, int] = defaultdict(int)
    done, free = dict.fromkeys(queues, 0), dict.fromkeys(queues, 0)
    before = -1
    while before != (before := sum(done.values())):
        for name, queue in queues.items():
            while done[name] < len(queue) and _able(queue[done[name]], posts, waits):
                each = queue[done[name]]
                done[name] += 1
                each.start = max(free[name], each.follows.start if each.follows else 0)
                for token in each.wait:
                    each.start = max(each.start, posts[token][waits[token]])
                    waits[token] += 1
                free[name] = each.start + each.cycles
                for token in each.post:
                    posts[token].append(free[name] + _LATENCY)
    if before != len(commands):
        raise RuntimeError(f"{len(commands) - before} commands wait for one another")
    return sorted(commands, key=lambda each: each.start)


def _able(each: Command, posts: Mapping[int, list[int]], waits: Mapping[int, int]) -> bool:
    if each.follows is not None and each.follows.start < 0:
        return False
    return all(waits[token] < len(posts[token]) for token in each.wait)


def cycles(queue: str, opcode: int = 0, operands: Mapping[str, int] = MappingProxyType({}), beats: int = 0) -> int:
    """Cycles of a command, about; ``beats`` of a LOAD or STORE."""
    if queue in ("load", "store"):
        return beats + (_LOAD if queue == "load" else _STORE)
    if queue == "update":
        return 4 * operands["beats"]
    rows, tiles = operands.get("rows", 0) + 1, operands.get("tiles", 0) + 1
    if queue != "product":
        return tiles * rows * -(-(operands["features"] + 1) // 8) * _READINGS.get((queue, opcode), 1) + _LATENCY
    if opcode == ProductOpcode.SCAN:
        return tiles * (operands.get("reach", 0) + 1)
    if opcode == ProductOpcode.BIAS:
        return rows
    # Of a square array of half a tile's columns.
    return tiles * max(rows, 64) * -(-(operands["columns"] + 1) // 32)
