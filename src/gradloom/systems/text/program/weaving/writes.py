"""The ranges of memory that a program writes, and the loads that wait for them."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gradloom.program.assembler import Instruction
from gradloom.program.lifetimes import extent
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.machines.language import UPDATE
from gradloom.rtl.shell.engines import LOAD, STORE

__all__ = ["Writes", "with_stored"]

#: Tokens besides those of inputs. h is in memory; STORE wrote what a load reads.
KEPT, STORED = 2, 3
#: Steps of a program after which a STORE is long done.
_LONG = 128


class Writes:
    """Ranges that are written to memory, and the work that writes them.

    Each range is written by work of some orders, and has a number for each once it is emitted.

    Ranges may overlap: other work may change the words by pieces of other sizes. Work that writes the same range is
    emitted in the order of its orders.
    """

    def __init__(self, found: Iterable[tuple[int, int, int]]) -> None:
        orders: dict[tuple[int, int], list[int]] = {}
        for start, end, order in sorted(set(found)):
            orders.setdefault((start, end), []).append(order)
        self.places = {each: index for index, each in enumerate(orders)}
        self.starts, self.ends = [start for start, _ in orders], [end for _, end in orders]
        self.orders = list(orders.values())
        self.longest = max((end - start for start, end in orders), default=0)
        self.values: list[list[float]] = [[] for _ in orders]

    def over(self, start: int, end: int) -> Iterator[int]:
        """Ranges that have something of this one."""
        for index in range(bisect_right(self.starts, start - self.longest), bisect_right(self.starts, end - 1)):
            if self.ends[index] > start:
                yield index

    def latest(self, start: int, end: int, order: int) -> float | None:
        """The latest write to a range by work before ``order``, by number.

        It is -1 if no work writes there, and None if some is missing.
        """
        found = -1.0
        for index in self.over(start, end):
            count = bisect_left(self.orders[index], order)
            if count > len(self.values[index]):
                return None
            if count:
                found = max(found, self.values[index][count - 1])
        return found

    def within(self, start: int, end: int, orders: range) -> bool:
        """Whether work of some orders writes there."""
        return any(order in orders for index in self.over(start, end) for order in self.orders[index])

    def missing(self, start: int, end: int, order: int) -> Iterator[tuple[int, int, int]]:
        """The writes that make that None."""
        for index in self.over(start, end):
            for missing in self.orders[index][len(self.values[index]) : bisect_left(self.orders[index], order)]:
                yield self.starts[index], self.ends[index], missing

    def emitted(self, start: int, end: int, value: float) -> None:
        """The next work's of a range; the last one may write it more than once."""
        index = self.places[start, end]
        if len(self.values[index]) == len(self.orders[index]):
            self.values[index].pop()
        self.values[index].append(value)


def with_stored(steps: Sequence[Instruction], config: LanguageConfig) -> list[Instruction]:
    """Lets each load wait for the last STORE that wrote its words.

    STOREs end in order and loads begin in order, so one token serves all: the n-th load that waits takes the token of
    the n-th STORE that posts.

    A load that waits also covers each STORE that stands :data:`_LONG` steps or more before it. So no more tokens than
    that are ever posted and not taken.
    """
    made, beat = list(steps), config.data_bits // 8
    stores = [place for place, step in enumerate(steps) if _settles(step)]
    writes = Writes((*extent(step, beat), 0) for step in steps if step.engine == STORE)
    waited = -1
    for place, step in enumerate(steps):
        if _settles(step):
            writes.emitted(*extent(step, beat), place)
        elif step.engine == LOAD:
            start, end = extent(step, beat)
            # What is not written yet is what a later STORE changes in place.
            last = max((int(value) for index in writes.over(start, end) for value in writes.values[index]), default=-1)
            if last > waited:
                early = bisect_right(stores, place - _LONG)
                last = max(last, stores[early - 1] if early else -1)
                made[last] = replace(made[last], post=(*made[last].post, STORED))
                made[place] = replace(made[place], wait=(*step.wait, STORED))
                waited = last
    return made


def _settles(step: Instruction) -> bool:
    """Whether a load may wait for it.

    Moments leave while they come, by commands that stand in that order.
    """
    return step.engine == STORE and step.operands["source"] != UPDATE.store("moments")
