"""Places operands and adapter words of products on chip."""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from gradloom.program.assembler import Instruction, pack
from gradloom.rtl.engines.linear.commands import OPERAND_ARG
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.machines.language import LINEAR
from gradloom.rtl.shell.engines import PortNumber

from ..jobs import ProductJob, Transfer
from .side import load

__all__ = ["FREE", "Input", "Inputs", "READY", "passes", "with_tokens"]

#: Tiles of weights behind those that read a word of operands, until other operands may take its place: two are on
#: chip, one is about to be, operands of one are still on their way down the rows; and two to spare.
_BEHIND = 6
#: Tiles of inputs that operand memory must have room for, if some pass through.
_ROOM = _BEHIND + 3
#: Tokens: the adapter of a product is on chip; a product is done that a load waits for.
READY, FREE = 0, 1


@dataclass(frozen=True)
class Input:
    """A load of a product's operands.

    ``freed``: number of products that must be done before it begins. ``words``: words of the product's operands that
    are on chip behind it. ``behind``: a product and how many of its tiles of weights must be loaded before it.
    """

    step: Instruction
    freed: int
    words: int
    behind: tuple[int, int] = (-1, 0)

    @property
    def size(self) -> int:
        """Words that it brings."""
        return self.step.operands["beats"] // 8


def passes(tokens: int, rank: int, config: LanguageConfig) -> bool:
    """Whether operands of a product may pass through: h is complete behind a panel of outputs, and there is room."""
    return config.depth >= _ROOM * tokens and rank <= config.subtiles


def with_tokens(loads: Iterable[Iterable[Input]]) -> tuple[list[deque[Input]], set[int]]:
    """The loads of all products, and the products that post FREE.

    The loads follow each other in this order. A product posts FREE if a load waits for it.

    A load whose products are done when one before it begins need not wait. So each token is for one load, and only
    loads wait for it.
    """
    made: list[deque[Input]] = []
    ended: set[int] = set()
    freed = 0
    for of_one in loads:
        made.append(deque())
        for each in of_one:
            if each.freed > freed:
                freed = each.freed
                ended.add(freed - 1)
                each = replace(each, step=replace(each.step, wait=(FREE,)))
            made[-1].append(each)
    return made, ended


class Inputs:
    """Inputs of products that run one behind the other.

    Each product is an early command: it begins when its adapter is on chip.

    Both memories are rings: a product's words are behind those of the product before, so that they can be loaded as far
    as there is room while products before are under way. An adapter does not wrap around to the start.

    Operands of a product that has more than the memory *pass through* (:func:`passes`). Each is read for one panel of
    outputs, so others may follow as soon as the tiles behind that panel's are loaded.

    A product may use the operands of one before it again, which are on chip then: it is no early command.

    Parameters
    ----------
    same : callable, optional
        Whether the words in memory are the same for two products, by their numbers; without it, no operands are used
        again.
    """

    def __init__(
        self,
        jobs: Sequence[ProductJob],
        config: LanguageConfig,
        same: Callable[[int, int], bool] = lambda before, index: False,
    ) -> None:
        self.jobs, self.config = jobs, config
        #: Where the ring is when a product's operands come, and where they are.
        self.starts: list[int] = []
        self.places: list[int] = []
        self.lanes: list[int] = []
        #: Of each product, how many must be done before its operands may be overwritten.
        self.users: list[int] = []
        #: Of each product, the number of products up to the last that does not pass through before it.
        self.whole: list[int] = []
        brought: dict[tuple[Transfer, ...], int] = {}
        start = lane = whole = 0
        for index, job in enumerate(jobs):
            self.whole.append(whole)
            whole = whole if job.words > config.depth else index + 1
            size = (job.inner + job.outer) * job.rank
            if lane % config.lane_depth + size > config.lane_depth:
                lane += -lane % config.lane_depth
            self.starts.append(start)
            self.lanes.append(lane)
            self.users.append(index + 1)
            lane += size
            before = brought.get(job.operands)
            if before is not None and self._held(before, start) and same(before, index):
                self.places.append(self.places[before])
                # Those behind them are freed behind them.
                self.users[before:] = [index + 1] * (index + 1 - before)
            else:
                self.places.append(start)
                brought[job.operands] = index
                start += job.words

    def _held(self, before: int, start: int) -> bool:
        """Whether a product's operands are still on chip, and in one piece, when the ring is at ``start``.

        Half of the memory is left to others.
        """
        place, depth = self.places[before], self.config.depth
        return start - place <= depth // 2 and place % depth + self.jobs[before].words <= depth

    def again(self, index: int) -> bool:
        """Whether a product uses operands that are there."""
        return self.places[index] != self.starts[index]

    def bases(self, index: int) -> tuple[int, int]:
        """First words of a product's operands and of its adapter."""
        return self.places[index] % self.config.depth, self.lanes[index] % self.config.lane_depth

    def loads(self, index: int, most: int) -> list[Input]:
        """Adapter words, then operands in their order.

        The last adapter words post READY. Each load has ``most`` beats at most, or the 8 of a word.
        """
        job, config = self.jobs[index], self.config
        made, step = [], max(most // 8, 1)
        for transfer in job.lanes:
            start = self.lanes[index] + transfer.argument
            for word, words in _pieces(start, start + transfer.beats // 8, step, config.lane_depth):
                each = self._load(transfer.offset, word - start, words, LINEAR.load("lanes"), word % config.lane_depth)
                made.append(Input(each, bisect_left(self.lanes, word + words - config.lane_depth, hi=index), 0))
        start = self.starts[index]
        if made:
            made[-1] = replace(made[-1], step=replace(made[-1].step, post=(READY,)))
        first = start
        for transfer in () if self.again(index) else job.operands:
            for word, words in _pieces(start, start + transfer.beats // 8, step, config.depth):
                argument = pack(OPERAND_ARG, {"word": word % config.depth, "early": 1})
                each = self._load(transfer.offset, word - start, words, LINEAR.load("operands"), argument)
                freed, behind = self._left(index, word + words - config.depth)
                made.append(Input(each, freed, word + words - first, behind))
            start += transfer.beats // 8
        return made

    def _left(self, index: int, end: int) -> tuple[int, tuple[int, int]]:
        """What operands wait for that take the place of those up to word ``end``: :class:`Input`."""
        last = bisect_left(self.starts, end, hi=index + 1) - 1
        if last < 0 or self.jobs[last].words <= self.config.depth:
            return (self.users[last] if last >= 0 else 0), (-1, 0)
        job, freed = self.jobs[last], self.whole[last]
        tiles = -(-(end - self.starts[last]) // job.tokens) * job.outer + _BEHIND
        while last < index and tiles > len(self.jobs[last].tiles):
            tiles -= len(self.jobs[last].tiles)
            last += 1
        return freed, (last, tiles)

    def _load(self, offset: int, word: int, words: int, destination: PortNumber, argument: int) -> Instruction:
        return load(offset + word * self.config.data_bits, 8 * words, destination, argument)


def _pieces(start: int, end: int, step: int, ring: int) -> list[tuple[int, int]]:
    """``start`` to ``end`` in pieces of at most ``step``: first and size.

    No piece goes beyond a ring's end.
    """
    made = []
    while start < end:
        size = min(step, end - start, ring - start % ring)
        made.append((start, size))
        start += size
    return made
