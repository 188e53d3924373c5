"""Interleaves side work with the tile loads of products.

The array then works at the same time as the other engines.

There is one LOAD and one STORE, both in order. A product leaves most of the bus idle: while the array works on a tile,
the next one is loaded in a fraction of that time. Into these gaps go *pieces* of side work, loads and the stores of
what they make, and the operands of the products that follow. What of a product's own is not there yet when it begins
comes between its first tiles. Every STORE comes behind the loads that it needs, so whatever the order of pieces, a
program is a valid sequence and cannot deadlock.

What goes where is decided with a rough clock of bus, array and engines: a wrong guess costs cycles, never words. What
keeps words right is exact: products and pieces are only emitted behind those that make their operands, and a load that
reads what a STORE wrote waits for it by a token.

With ``every``, the program yields at least as often, by the same clock: between two products, when no operand of the
next is on chip and no side work is half done. What ends in time may begin before, other side work waits.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from gradloom.program.assembler import Assembler, Instruction
from gradloom.program.lifetimes import extent
from gradloom.program.progress import check_progress
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.machines.language import GRADIENT, LANGUAGE, LINEAR, UPDATE, VECTOR
from gradloom.rtl.shell.engines import CONTROL, LOAD, STORE, Engine, PortNumber
from gradloom.rtl.shell.signature import ControlOpcode

from .inputs import FREE, READY, Input, Inputs, with_tokens
from .jobs import ProductJob, Transfer
from .linear import hidden
from .sections import PAUSE, apart, cut
from .side import Piece, append, load, store

__all__ = ["Main", "Move", "Side", "gap", "weave"]

#: Tokens besides those of inputs. h is in memory; STORE wrote what a load reads.
KEPT, STORED = 2, 3
#: Cycles from a load's last beat to the array, and from the array or an engine to memory, about.
_WAY = 80
#: Results of side work that wait for STORE at most: its queue of 512 less what the engine spares.
_WAITING = 500
#: Steps of a program after which a STORE is long done.
_LONG = 128
#: Cycles of a YIELD: what is under way ends, the program is fetched anew.
_PAUSE = 250
#: Share of a section that is planned: the clock is rough.
_PLANNED = 0.85
#: Share by which side work takes longer than planned, about, where no product hides what its commands wait for.
_ALONE = 0.5
#: So many times shorter than a section is a product at least.
_CUT = 4


#: Steps with other offsets, from steps and, of each STORE, the load that its first word needs.
Move = Callable[[Sequence[Instruction], Mapping[int, int]], Sequence[Instruction]]


@dataclass
class Side:
    """Side work in pieces.

    ``order`` is its place among all work, ``lazy`` work lets other side work pass. The engine works about ``pace``
    cycles on a beat that is loaded.
    """

    order: int
    engine: Engine
    pieces: deque[Piece]
    lazy: bool = False
    pace: int = 1
    begun: bool = False

    @property
    def whole(self) -> bool:
        """Whether no part of it is half done.

        It has not begun, or a gradient's other half or an update is next.
        """
        first = self.pieces[0].instructions[0]
        return (
            not self.begun
            or first.engine == UPDATE
            or (first.engine == LOAD and first.operands["dest"] == GRADIENT.load("hidden"))
        )

    def part(self) -> list[Piece]:
        """The next pieces that must not be parted."""
        rest = replace(self, pieces=deque(self.pieces), begun=True)
        made = [rest.pieces.popleft()]
        while rest.pieces and not rest.whole:
            made.append(rest.pieces.popleft())
        return made


@dataclass(frozen=True, kw_only=True)
class Main:
    """A product.

    One with an adapter leaves h under ``slot``; the two slots alternate. ``hidden``: where h goes to memory.
    """

    order: int
    job: ProductJob
    hidden: Transfer | None = None
    slot: int = 0


def gap(tokens: int, config: LanguageConfig, beats: int | None = None) -> int:
    """Beats that a product leaves on the bus during a tile.

    The array works meanwhile. The tile has ``beats`` beats, those of codes unless given; the result is at least a few.
    """
    tile = config.edge + 2 if beats is None else beats
    return max(config.subtiles * max(tokens, config.columns) - tile - 16, 64)


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
    if every is not None:
        main = _short(main, config, every)
    weaver = _Weaver(config, main, side, every)
    steps = _with_tokens(weaver.run(), config)
    append(program, apart(steps if move is None else move(steps, weaver.after)))
    program.add(CONTROL, ControlOpcode.END)
    check_progress(program.instructions, LANGUAGE, depth=config.queue_depth)
    return program


def _short(main: Sequence[Main], config: LanguageConfig, every: int) -> list[Main]:
    """Products cut so that a section has room for some."""
    made: list[Main] = []
    kept = 0
    for each in main:
        for job in cut(each.job, config, every / _CUT):
            slot = kept % 2
            h = each.hidden and hidden(each.hidden.offset, config, slot=slot, tokens=job.tokens, rank=job.rank)
            made.append(replace(each, job=job, hidden=h, slot=slot))
            kept += h is not None
    return made


class _Writes:
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


class _Weaver:
    def __init__(self, config: LanguageConfig, main: Sequence[Main], side: Iterable[Side], every: int | None) -> None:
        self.config, self.main, self.every = config, list(main), every and every * _PLANNED
        self.beat = config.data_bits // 8
        sides = [each for each in side if each.pieces]
        self.urgent = deque(each for each in sides if not each.lazy)
        self.lazy = deque(each for each in sides if each.lazy)
        self.made: list[Instruction] = []
        #: Of each STORE by its step, the load without which its first word cannot be.
        self.after: dict[int, int] = {}
        self.writes = _Writes(
            [
                (*extent(step, self.beat), each.order)
                for each in sides
                for piece in each.pieces
                for step in (*piece.instructions, *piece.stores)
                if step.engine == STORE
            ]
            + [(*extent(step, self.beat), each.order) for each in self.main for step in self._stores(each)]
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
            for step in self._stores(each)
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
        self.placed = Inputs([each.job for each in self.main], config)
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

    # ---- sections

    @property
    def _now(self) -> float:
        """When all is done that is emitted."""
        return max(self.bus, self.stored, self.array, self.sums, *self.engines.values(), 0.0)

    def _length(self, index: int) -> float:
        """Cycles of a product."""
        job = self.main[index].job
        span = self.config.subtiles * max(job.tokens, self.config.columns)
        return sum(max(span, tile.beats) for tile in job.tiles) + 2 * _WAY

    @staticmethod
    def _work(pieces: Iterable[Piece], pace: int) -> float:
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
        """Emits the side work that a product cannot do without."""
        product = self.main[index]
        reads = [product.job.operands, *product.job.lanes, *product.job.tiles]
        while any(self._ready(each, product.order) is None for each in reads):
            # In their order, side work needs no product that is not emitted.
            first = min((queue for queue in (self.urgent, self.lazy) if queue), key=lambda queue: queue[0].order)
            if first[0].order >= product.order:
                raise ValueError(f"product {product.order} reads what nothing before it writes")
            if first[0].whole:
                self._pause(self._work(first[0].part(), first[0].pace))
            self._piece(first)

    def _product(self, index: int) -> None:
        product, config = self.main[index], self.config
        job = product.job
        x_base, lane_base = self.placed.bases(index)
        keeps = product.hidden is not None
        waits = (READY,) * bool(job.lanes) + (KEPT,) * (keeps and self.kept > 1)
        self.made.append(
            Instruction(
                LINEAR,
                0,
                {
                    "inner": job.inner,
                    "outer": job.outer,
                    "tokens": job.tokens,
                    "rank": job.rank,
                    "by_column": job.backward,
                    "slot": product.slot,
                    "x_base": x_base,
                    "a_base": lane_base,
                    "b_base": lane_base + job.inner * job.rank,
                    "early": 1,
                    **job.shifts,
                },
                wait=waits,
                post=(FREE,) if index in self.awaited else (),
                phase="backward" if job.backward else "forward",
            )
        )
        self.kept += keeps
        if job.tables is not None:
            self._load(_load(job.tables, LINEAR.load("tables")))
        self.array = max(self.array, self.bus + _WAY)
        stores = deque(self._stores(product))
        span = config.subtiles * max(job.tokens, config.columns)
        drain = job.tokens * config.edge // (config.dots if job.rank else config.outputs)
        first = 0
        for number, tile in enumerate(job.tiles, start=1):
            while self.inputs[index] and self.inputs[index][0].words - self.inputs[index][0].size < number * job.tokens:
                self._bring(index)
            self.bus = max(self.bus, self.tile_ends[0])
            self._load(_load(tile, LINEAR.load("tiles")))
            loaded = len(self.made) - 1
            if (number - 1) % job.inner == 0:
                # Sums of two tiles of outputs are kept: the last but one must have been read.
                self.array = max(self.array, self.read[0])
            self.array = max(self.array, self.bus + _WAY) + span
            self.tile_ends.append(self.array)
            if number % job.inner == 0:
                self.sums = max(self.sums, self.array) + drain
                self.read.append(self.sums)
                self._drain(inf)
                self.due = [(self.array, self.sums + _WAY, stores.popleft(), loaded)]
                first = first or loaded
                if number == 2 * job.inner or job.outer == 1:
                    self.due += self._keep(product, first)
            self._fill(index, self.tile_ends[0])
        self._drain(inf)
        self.ahead -= self.loads[index]
        self.ends.append(self.sums + _WAY)

    def _stores(self, product: Main) -> list[Instruction]:
        """Of a product's outputs, a tile each."""
        job = product.job
        beats = job.result.beats // job.outer
        stride = job.stride or beats * self.beat
        return [
            _store(Transfer(job.result.offset + tile * stride, beats, 0), LINEAR.store("outputs"))
            for tile in range(job.outer)
        ]

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
            for queue in (self.urgent, self.lazy):
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
        if self.bus + 8 * each.size > until or each.freed > len(self.ends):
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


def _with_tokens(steps: Sequence[Instruction], config: LanguageConfig) -> list[Instruction]:
    """Lets each load wait for the last STORE that wrote its words.

    STOREs end in order and loads begin in order, so one token serves all: the n-th load that waits takes the token of
    the n-th STORE that posts.

    A load that waits also covers each STORE that stands :data:`_LONG` steps or more before it. So no more tokens than
    that are ever posted and not taken.
    """
    made, beat = list(steps), config.data_bits // 8
    stores = [place for place, step in enumerate(steps) if _settles(step)]
    writes = _Writes((*extent(step, beat), 0) for step in steps if step.engine == STORE)
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


def _load(transfer: Transfer, destination: PortNumber) -> Instruction:
    return load(transfer.offset, transfer.beats, destination, transfer.argument)


def _store(transfer: Transfer, source: PortNumber) -> Instruction:
    return store(transfer.offset, transfer.beats, source, transfer.argument)
