"""Emits products, and side work in their gaps, by a rough clock."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile
from math import inf

from gradloom.program.assembler import Instruction
from gradloom.program.lifetimes import extent
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.machines.language import GRADIENT, LINEAR, UPDATE, VECTOR
from gradloom.rtl.shell.engines import LOAD, STORE, Engine, PortNumber

from ..engines.inputs import FREE, READY, Input, Inputs, with_tokens
from ..engines.linear import product_command
from ..engines.side import SidePiece, load, store
from ..jobs import Transfer, panels
from ..sections import PAUSE
from .work import Main, Side, gap, range_of
from .writes import KEPT, Writes

__all__ = ["Weaver"]

#: Cycles from a load's last beat to the array, and from the array or an engine to memory, about.
_WAY = 110
#: Lazy work that is so many operations behind a product goes first: where other work fills the bus, all of it would be
#: left to the end.
_LATE = 100
#: Tiles of a product before the one whose inputs are made.
_AHEAD = 2
#: Results of side work that wait for STORE at most: its queue of 512 less what the engine spares.
_WAITING = 500
#: Cycles of a YIELD: what is under way ends, the program is fetched anew.
_PAUSE = 250
#: Share of a section that is planned: the clock is rough.
_PLANNED = 0.85
#: Share by which side work takes longer than planned, about, where no product hides what its commands wait for.
_ALONE = 0.5


class Weaver:
    """Emits the work of a program; :meth:`run` returns its steps.

    Parameters
    ----------
    config : LanguageConfig
    main : sequence of Main
        Products, in their order.
    side : iterable of Side
    every : int, optional
        Cycles between two YIELDs, at most.
    """

    def __init__(self, config: LanguageConfig, main: Sequence[Main], side: Iterable[Side], every: int | None) -> None:
        self.config, self.main, self.every = config, list(main), every and every * _PLANNED
        self.beat = config.data_bits // 8
        sides = [each for each in side if each.pieces]
        self.urgent = deque(each for each in sides if not each.lazy)
        self.lazy = deque(each for each in sides if each.lazy)
        #: Orders of urgent work and of products.
        self.hurried = {each.order for each in self.urgent}
        self.products = {each.order for each in self.main}
        self.made: list[Instruction] = []
        #: Of each STORE by its step, the load without which its first word cannot be.
        self.after: dict[int, int] = {}
        self.writes = Writes(
            [
                (*extent(step, self.beat), each.order)
                for each in sides
                for piece in each.pieces
                for step in (*piece.instructions, *piece.stores)
                if step.engine == STORE
            ]
            + [(*extent(step, self.beat), each.order) for each in self.main for step in each.stores(self.beat)]
            + [
                (*extent(_store(each.hidden, GRADIENT.store("hidden")), self.beat), each.order)
                for each in self.main
                if each.hidden
            ]
        )
        #: Which product writes a range.
        self.makers = {
            (*extent(step, self.beat), each.order): index
            for index, each in enumerate(self.main)
            for step in each.stores(self.beat)
        }
        # The clock: when the bus, STORE, the array, the reading of its sums, and engines have done what is emitted.
        self.bus = self.stored = self.array = self.sums = 0.0
        self.engines: dict[Engine, float] = {}
        self.waiting: deque[tuple[float, int]] = deque()
        #: STOREs of a product that are not emitted yet: when they begin, when they are done, the load that they need.
        self.due: list[tuple[float, float, Instruction, int]] = []
        self.tile_ends: deque[float] = deque([0.0, 0.0], maxlen=2)
        self.read: deque[float] = deque([0.0, 0.0], maxlen=2)
        self.ends: list[float] = []
        #: The product under way, and how many of its tiles are loaded.
        self.place = 0, 0
        self.placed = Inputs([each.job for each in self.main], config, self._same)
        #: Loads of each product, and the products that one of them waits for.
        self.inputs, self.awaited = with_tokens(
            self.placed.loads(index, gap(each.job.tokens, config)) for index, each in enumerate(self.main)
        )
        self.loads = [len(each) for each in self.inputs]
        self.kept = 0
        #: Loads of products that have not ended; when the section began; whether it ends behind this product; until
        #: when side work must end that begins, and the last product whose results it may want.
        self.ahead = 0
        self.section = 0.0
        self.last = False
        self.until = inf
        self.within = -1

    def run(self) -> list[Instruction]:
        for index in range(len(self.main)):
            self._force(index)
            self._pause(self._length(index))
            self._open(index)
            while self.inputs[index] and not self.inputs[index][0].words:
                self._bring(index)
            self._product(index)
            if self.last:
                self.last = False
                self._pause(inf)
        self._drain(inf)
        self.until = inf
        ended = self._now
        while self.urgent or self.lazy:
            heads = [queue[0] for queue in (self.lazy, self.urgent) if queue]
            late = _ALONE * (self._now - max(ended, self.section))
            self._pause(late + max((self._work(each.part(), each.pace) for each in heads if each.whole), default=0.0))
            both = [queue for queue in (self.lazy, self.urgent) if queue]
            if not both:
                break
            # Lazy work goes first where its engine is free, since other work is all that hides it now.
            self._piece(next((queue for queue in both if self._suits(queue[0], inf)), both[-1]))
        return self.made

    def _same(self, before: int, index: int) -> bool:
        """Whether a product finds on chip what one before it has read: nothing writes it, no request comes between."""
        orders = range(self.main[before].order, self.main[index].order)
        ranges = [(each.offset, each.offset + each.beats * self.beat) for each in self.main[index].job.operands]
        return self.every is None and not any(self.writes.within(*each, orders) for each in ranges)

    # ---- sections

    @property
    def _now(self) -> float:
        """When all is done that is emitted."""
        return max(self.bus, self.stored, self.array, self.sums, *self.engines.values(), 0.0)

    def _length(self, index: int) -> float:
        """Cycles of a product."""
        job = self.main[index].job
        span = self.config.tile_cycles(job.tokens)
        return sum(max(span, tile.beats) for tile in job.tiles) + 2 * _WAY

    @staticmethod
    def _work(pieces: Iterable[SidePiece], pace: int) -> float:
        """Cycles of side work."""
        return sum(max(pace * each.read, each.read + each.written) for each in pieces) + 2 * _WAY

    def _half(self) -> float:
        """Cycles of side work that is half done."""
        return sum(
            self._work(queue[0].part(), queue[0].pace)
            for queue in (self.urgent, self.lazy)
            if queue and not queue[0].whole
        )

    def _open(self, index: int) -> None:
        """Decides whether the section ends behind a product.

        It ends if the work up to the end of the next product is too long.
        """
        if self.every is None:
            return
        end, self.last = self._now + self._length(index), False
        if index + 1 < len(self.main):
            until = self.main[index + 1].order
            between = sum(self._work(each.pieces, each.pace) for each in self.urgent if each.order < until)
            self.last = end + between + self._length(index + 1) + _PAUSE - self.section > self.every
        self.until = end if self.last else self.section + self.every - _PAUSE
        self.within = index if self.last else index + 1

    def _pause(self, coming: float) -> None:
        """Ends the section, unless it has room or operands wait on chip.

        It has room if work of ``coming`` cycles still fits.
        """
        if self.every is None or self.ahead or not self.made or self.made[-1] == PAUSE:
            return
        if self._now + self._half() + coming + _PAUSE - self.section <= self.every:
            return
        self._drain(inf)
        half = [queue for queue in (self.urgent, self.lazy) if queue and not queue[0].whole]
        if not all(self._may_end(queue[0], -1) for queue in half):
            return
        for queue in half:
            while queue and not queue[0].whole:
                self._piece(queue)
        self.made.append(PAUSE)
        self.section = self.bus = self._now + _PAUSE

    # ---- products

    def _force(self, index: int) -> None:
        """Emits the side work that a product cannot begin without.

        If sections have a length, that is all that it waits for: work amid a product would not be counted.
        """
        order, job = self.main[index].order, self.main[index].job
        for tile in range(1 if self.every is None else len(job.tiles)):
            while queue := self._forced(self._reads(index, tile), order):
                if queue[0].whole:
                    self._pause(self._work(queue[0].part(), queue[0].pace))
                self._piece(queue)

    def _reads(self, index: int, tile: int) -> list[Transfer]:
        """What a product reads up to one of its tiles: inputs that are not loaded yet, and the tile."""
        job = self.main[index].job
        words = min(tile // min(self.config.span, job.outer) + 1, job.inner) * job.tokens
        loads = takewhile(lambda each: each.words - each.size < words, self.inputs[index])
        return [*(range_of(each.step) for each in loads), job.tiles[tile]]

    def _behind(self, reads: Iterable[Transfer], order: int) -> deque[Side] | None:
        """The side work that is next of what some work waits for, if side work makes what it misses."""
        missing = self._makers(reads, order)
        if not missing or not missing.isdisjoint(self.products):
            return None
        queue = self.lazy if missing.isdisjoint(self.hurried) else self.urgent
        return self._behind(queue[0].reads, queue[0].order) or queue

    def _forced(self, reads: Sequence[Transfer], order: int) -> deque[Side] | None:
        """The same of work that comes next: results of products that it reads are stored."""
        queue = self._behind(reads, order)
        if self.due and self._makers(reads if queue is None else queue[0].reads, order):
            self._drain(inf)
            queue = self._behind(reads, order)
        return queue

    def _makers(self, reads: Iterable[Transfer], order: int) -> set[int]:
        """Orders of the work that must write before others can read."""
        return {
            maker
            for each in reads
            for _, _, maker in self.writes.missing(each.offset, each.offset + each.beats * self.beat, order)
        }

    def _make(self, index: int, tile: int) -> None:
        """Emits the side work of a tile's inputs, others while it waits for its own operands."""
        while queue := self._forced(self._reads(index, tile), self.main[index].order):
            piece = queue[0].pieces[0]
            for each in queue[0].reads:
                self._await(index, self._ready(each, queue[0].order))
            if queue and queue[0].pieces and queue[0].pieces[0] is piece:
                self._piece(queue)

    def _prepare(self, index: int, tile: int) -> None:
        """The side work of the tiles behind one, as far as it finds its own operands."""
        for _ in range(_AHEAD):
            tile += 1
            if tile == len(self.main[index].job.tiles):
                index, tile = index + 1, 0
            if index == len(self.main):
                return
            while queue := self._behind(self._reads(index, tile), self.main[index].order):
                if not self._suits(queue[0], inf):
                    return
                self._piece(queue)

    def _await(self, index: int, time: float | None) -> None:
        """Lets others have the bus until something is in memory."""
        if time is not None and time > self.bus:
            self._fill(index, time)

    def _product(self, index: int) -> None:
        product, config = self.main[index], self.config
        job = product.job
        keeps = product.hidden is not None
        self.made.append(
            product_command(
                job,
                self.placed.bases(index),
                slot=product.slot,
                early=not self.placed.again(index),
                wait=(READY,) * bool(job.lanes) + (KEPT,) * (keeps and self.kept > 1),
                post=(FREE,) if index in self.awaited else (),
            )
        )
        self.kept += keeps
        if job.tables is not None:
            self._load(_load(job.tables, LINEAR.load("tables")))
        self.array = max(self.array, self.bus + _WAY)
        stores, self.place = deque(product.stores(self.beat)), (index, 0)
        span = config.tile_cycles(job.tokens)
        drain = job.tokens * config.edge // (config.dots if job.rank else config.outputs)
        first = count = 0
        for number, panel in enumerate(panels(job.outer, config.span)):
            # Sums of two panels of outputs are kept: the last but one must have been read.
            begun = self.read[0]
            for place, last in ((place, output == panel[-1]) for place in range(job.inner) for output in panel):
                words = (number * job.inner + place + 1) * job.tokens
                self._make(index, count)
                self._prepare(index, count)
                while self.inputs[index] and (each := self.inputs[index][0]).words - each.size < words:
                    self._await(index, self._written(each, index))
                    if self.inputs[index] and self.inputs[index][0] is each:
                        self._bring(index)
                tile = job.tiles[count]
                self._await(index, self._ready(tile, product.order))
                self.bus = max(self.bus, self.tile_ends[0], self._ready(tile, product.order) or 0.0)
                self._load(_load(tile, LINEAR.load("tiles")))
                count += 1
                self.place = index, count
                loaded = len(self.made) - 1
                self.array = max(self.array, begun, self.bus + _WAY) + span
                begun = 0.0
                self.tile_ends.append(self.array)
                if last and place == job.inner - 1:
                    self._drain(inf)
                    for _ in panel:
                        self.sums = max(self.sums, self.array) + drain
                        self.due.append((self.array, self.sums + _WAY, stores.popleft(), loaded))
                    self.read.append(self.sums)
                    first = first or loaded
                    if number == 1 or job.outer <= config.span:
                        self.due += self._keep(product, first)
                self._fill(index, self.tile_ends[0])
        self.ahead -= self.loads[index]
        self.ends.append(self.sums + _WAY)

    def _keep(self, product: Main, loaded: int) -> list[tuple[float, float, Instruction, int]]:
        """Stores h in memory, behind the second tile of outputs at the latest.

        h is complete before that tile is read, and needs the load of the step ``loaded`` at least.
        """
        if product.hidden is None:
            return []
        step = replace(_store(product.hidden, GRADIENT.store("hidden")), post=(KEPT,))
        return [(self.array, self.sums + _WAY, step, loaded)]

    def _drain(self, until: float) -> None:
        """Emits the STORE of the last tile of outputs, if it is complete.

        Its sums must be complete by ``until``. Before that, STORE has time for others; but the next tile's must not be
        emitted before.
        """
        while self.due and self.due[0][0] <= until:
            _, ready, step, needs = self.due.pop(0)
            self._store(step, ready, needs)

    def _bring(self, index: int) -> None:
        """The next load of a product's inputs."""
        each = self.inputs[index].popleft()
        assert each.behind <= self.place
        self.ahead += 1
        if each.step.wait:
            self.bus = max(self.bus, self.ends[each.freed - 1])
        written = self._written(each, index)
        assert written is not None
        self.bus = max(self.bus, written)
        self._load(each.step)

    def _written(self, each: Input, index: int) -> float | None:
        """Number of the write from which a load's words are in memory."""
        return self.writes.latest(*extent(each.step, self.beat), self.main[index].order)

    # ---- gaps

    def _fill(self, index: int, until: float) -> None:
        """Emits loads and stores until the array needs the next tile."""
        while True:
            self._drain(self.bus)
            # Words are counted in the order of products.
            end = len(self.main) if self.every is None else index + 1 if self.last else index + 2
            ahead = next((each for each in range(index, min(end, len(self.main))) if self.inputs[each]), None)
            if ahead is not None and self._may_load(ahead, until):
                self._bring(ahead)
                continue
            behind = bool(self.lazy) and self.lazy[0].place < self.main[index].order - _LATE
            for queue in (self.lazy, self.urgent) if behind else (self.urgent, self.lazy):
                if queue and self._suits(queue[0], until):
                    self._piece(queue)
                    break
            else:
                return

    def _may_load(self, index: int, until: float) -> bool:
        """Whether a product's next load can be emitted.

        It must find its words in memory and room on chip, and leave the bus in time.
        """
        each = self.inputs[index][0]
        if self.bus + 8 * each.size > until or each.freed > len(self.ends) or each.behind > self.place:
            return False
        if each.freed and self.ends[each.freed - 1] > self.bus:
            return False
        written = self._written(each, index)
        return written is not None and written <= self.bus

    def _suits(self, side: Side, until: float) -> bool:
        """Whether the next piece of side work can be emitted.

        It must find its operands, have room for its results, and leave the bus in time.
        """
        if side.lazy and side.engine in (UPDATE, VECTOR) and self.urgent and self.urgent[0].begun:
            return False
        if self.every is not None and side.whole and not self._fits(side):
            return False
        piece = side.pieces[0]
        while self.waiting and self.waiting[0][0] <= self.bus:
            self.waiting.popleft()
        if self.bus + piece.read > until or sum(beats for _, beats in self.waiting) + piece.written > _WAITING:
            return False
        if self.engines.get(side.engine, 0.0) > self.bus + 2 * _WAY:
            return False
        for step in piece.instructions:
            if step.engine == LOAD:
                start, end = extent(step, self.beat)
                time = self.writes.latest(start, end, side.order)
                if time is None or time > self.bus:
                    return False
        return True

    def _fits(self, side: Side) -> bool:
        """Whether side work that begins can end when the section ends."""
        return (self.bus + self._work(side.part(), side.pace) <= self.until) and self._may_end(side, self.within)

    def _may_end(self, side: Side, within: int) -> bool:
        """Whether the inputs of side work are emitted.

        Inputs may also be made by products up to ``within``.
        """
        return all(
            self.makers.get(missing, within + 1) <= within
            for piece in side.part()
            for step in piece.instructions
            if step.engine == LOAD
            for missing in self.writes.missing(*extent(step, self.beat), side.order)
        )

    # ---- what is emitted

    def _ready(self, transfer: Transfer, order: int) -> float | None:
        return self.writes.latest(transfer.offset, transfer.offset + transfer.beats * self.beat, order)

    def _piece(self, queue: deque[Side]) -> None:
        """The next piece of the first work of a queue."""
        side = queue[0]
        piece = side.pieces.popleft()
        side.begun = True
        begins = max(self.engines.get(side.engine, 0.0), self.bus)
        steps = (*piece.instructions, *piece.stores)
        loads = [len(self.made) + n for n, step in enumerate(steps) if step.engine == LOAD]
        needs = iter(piece.needs)
        before, behind = self.stored, False
        for step in steps:
            if step.engine == LOAD:
                self.bus = max(self.bus, self.writes.latest(*extent(step, self.beat), side.order) or 0.0)
                if behind and self.every is not None:
                    # Moments come as fast as others leave, behind the results of all engines that were emitted.
                    self.bus = max(self.bus, before)
                self._load(step)
            elif step.engine == STORE:
                behind = True
                self._store(step, max(begins + side.pace * piece.read, self.bus) + _WAY, loads[next(needs, 0)])
                self.waiting.append((self.stored, step.operands["beats"]))
            else:
                self.made.append(step)
        self.engines[side.engine] = max(begins + side.pace * piece.read, self.bus)
        if not side.pieces:
            queue.popleft()

    def _load(self, step: Instruction) -> None:
        self.made.append(step)
        self.bus += step.operands["beats"]

    def _store(self, step: Instruction, ready: float, needs: int) -> None:
        self.after[len(self.made)] = needs
        self.made.append(step)
        self.stored = max(self.stored, ready)
        self.writes.emitted(*extent(step, self.beat), self.stored)


def _load(transfer: Transfer, destination: PortNumber) -> Instruction:
    return load(transfer.offset, transfer.beats, destination, transfer.argument)


def _store(transfer: Transfer, source: PortNumber) -> Instruction:
    return store(transfer.offset, transfer.beats, source, transfer.argument)
