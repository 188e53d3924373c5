"""Forecast of the machine for quantised linear layers: cycles of a program, and how many of them its array works.

Nothing here is fitted. Each formula follows one unit of the RTL; times are cycles since the bell, and a command
starts in the cycle in which its engine takes it.
"""
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amaranth.utils import ceil_log2

from gradloom.rtl.config import LinearConfig
from gradloom.rtl.control.signature import ControlOpcode, Engine
from gradloom.rtl.linear.adamw import AdamLane
from gradloom.rtl.linear.core import LinearArray
from gradloom.rtl.linear.feet import HiddenFoot
from gradloom.rtl.linear.machine import Destination, Source
from gradloom.rtl.linear.parts import PartSequencer
from gradloom.rtl.linear.update import Descent, UpdateEngine, UpdateOpcode
from gradloom.rtl.linear.weights import TILE_ARG, Dequantizer, TileBuffer, TileKind
from gradloom.rtl.linear.words import Requantize
from gradloom.rtl.plan.assembler import Assembler, Instruction
from gradloom.rtl.plan.linear import ProductJob, chain

from .perf_memory import FIFO, OneAtATime, Queue, Transfer
from .perf_shell import ShellMachine, Timing

__all__ = ["PHASES", "LinearForecast", "forecast_linear", "forecast_products"]

#: Names of the phase counters of such a program. Nothing counts as the empty one; UPDATE counts as no engine's.
PHASES = ("wait", "load", "forward", "backward", "", "update", "gradient", "store")


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearForecast(Timing):
    """What a program is expected to take.

    ``array_cycles``: in so many the array works on products of the base, as its parts take max(tokens, columns).
    ``read_beats``, ``write_beats``: over the bus, with those of the program.
    """

    array_cycles: int
    read_beats: int
    write_beats: int

    @property
    def array_busy(self) -> float:
        """Share of all cycles."""
        return self.array_cycles / self.total


class _Output(Queue):
    """Results of an engine in the FIFO before STORE: a beat takes ``steps`` steps, one a cycle while there is room.

    Room is a register: a step is made in a cycle if a cycle earlier fewer than ``limit`` beats were in the FIFO.
    A beat is written ``delay`` cycles after its last step.
    """

    machine: "_Machine"

    def __init__(self, machine: "_Machine", engine: Engine, *, steps: int, limit: int, delay: int) -> None:
        super().__init__(machine)
        self.engine = engine
        self.steps, self.limit, self.delay = steps, limit, delay
        self.issued = 0                         # beats whose last step is known
        self.taken = 0
        self.ends: deque[tuple[int, int]] = deque()     # beat with which a command ends, command
        self.level = 0                          # in the FIFO before ...
        self.writes: deque[int] = deque()       # ... these
        self.reads: deque[int] = deque()
        self.left = 0                           # beats of the job that are to be issued
        self.partial = 0                        # steps of the next of them that were made
        self.finish: Callable[[int], None] | None = None
        self.on_room: Callable[[int], None] | None = None

    # room

    def sure(self) -> int:
        """Beats that may be made without a look at the room."""
        # What was taken in this cycle and the one before does not show yet.
        return self.limit - 2 - (self.issued - self.taken)

    def roomy(self, cycle: int) -> bool:
        """Whether a step may be made in ``cycle``."""
        for times, sign in ((self.writes, 1), (self.reads, -1)):
            while times and times[0] < cycle - 1:
                times.popleft()
                self.level += sign
        return self.level < self.limit

    def issue(self, lasts: Sequence[int]) -> None:
        """Beats by their last steps."""
        writes = [last + self.delay for last in lasts]
        self.issued += len(writes)
        self.writes.extend(writes)
        self.add([write + FIFO for write in writes])

    def expect(self, beats: int, command: int) -> None:
        """``command`` makes so many beats, behind those of the commands before."""
        self.ends.append(((self.ends[-1][0] if self.ends else self.taken) + beats, command))

    def take(self, cycle: int) -> None:
        self.times.popleft()
        self.taken += 1
        self.machine.write_beats += 1
        self.reads.append(cycle)
        if self.ends and self.ends[0][0] == self.taken:
            self.end(self.ends.popleft()[1], cycle)
        if self.on_room is not None:
            waiting, self.on_room = self.on_room, None
            self.machine.agenda.decide(cycle + 2, waiting)

    def end(self, command: int, cycle: int) -> None:
        """STORE takes the last beat of ``command`` in ``cycle``."""
        self.machine.scheduler.done(self.engine, command, cycle + 1)

    def wait(self, cycle: int, action: Callable[[int], None]) -> None:
        """There is no room in ``cycle``: ``action`` is due when there may be some."""
        if self.reads:
            self.machine.agenda.decide(cycle + 1, action)
        else:
            self.on_room = action

    # jobs

    def produce(self, cycle: int, beats: int, finish: Callable[[int], None]) -> None:
        """Makes ``beats`` beats, their first step in ``cycle`` at the earliest; ``finish`` is told the last step."""
        self.left, self.finish = beats, finish
        self._step(cycle)

    def _step(self, cycle: int) -> None:
        count = min(self.sure(), self.left)
        if count > 0:
            first = cycle + self.steps - self.partial - 1
            self.partial = 0
            self.left -= count
            lasts = range(first, first + count * self.steps, self.steps)
            self.issue(lasts)
            cycle = lasts[-1]
        elif not self.roomy(cycle):
            self.wait(cycle, self._step)
            return
        else:
            self.partial += 1
            if self.partial == self.steps:
                self.partial = 0
                self.left -= 1
                self.issue([cycle])
        if self.left:
            self.machine.agenda.decide(cycle + 1, self._step)
        else:
            assert self.finish is not None
            self.finish(cycle)


# -- LINEAR -----------------------------------------------------------------------------------------------------------


class _Weights:
    """Tables and tiles on their way to the tile buffer."""

    def __init__(self, machine: "_Machine") -> None:
        self.machine = machine
        config = machine.config
        self.edge = config.edge
        self.words = config.beat_words
        self.left = 0                           # beats of the tile that were not taken yet ...
        self.fill = 0                           # ... and rows that complete it
        self.began = 0                          # tiles
        self.tables_at = self.tiles_at = 0      # from when on the next beat of each may be taken
        #: From when on a tile after the first two may begin; from when on a tile may be used.
        self.free: list[int] = []
        self.full: list[int] = []

    def tables(self, at: int, count: int, transfer: Transfer) -> Sequence[int]:
        """A word a cycle, four stages deep."""
        at = max(at, self.tables_at)
        times = range(at, at + count * (self.words + 1), self.words + 1)
        self.tables_at = times[-1] + self.words + 1
        self.tiles_at = max(self.tiles_at, times[-1] + self.words + 5)
        return times

    def tiles(self, at: int, count: int, transfer: Transfer) -> Sequence[int]:
        """A beat a cycle; a tile begins when half of the buffer is about to be free."""
        times: list[int] = []
        at = max(at, self.tiles_at)
        while len(times) < count:
            if not self.left:
                if self.began >= 2:
                    if self.began - 2 >= len(self.free):
                        break
                    at = max(at, self.free[self.began - 2])
                self.began += 1
                self._begin(transfer, transfer.taken + len(times))
            step = min(self.left, count - len(times))
            times.extend(range(at, at + step))
            at += step
            self.left -= step
            if not self.left:
                at += self.fill
                self.full.append(at - 1 + Dequantizer.latency + 1)
                self.machine.linear.wake(self.machine.now)
        if times:
            self.tiles_at = max(self.tiles_at, at)
        return times

    def _begin(self, transfer: Transfer, taken: int) -> None:
        """A tile begins behind ``taken`` beats of its command."""
        kind = TileKind(TILE_ARG.from_bits(transfer.operands["arg"]).kind)
        if kind == TileKind.CODES:
            self.left, self.fill = self.edge + 2, 0
            return
        self.left = min(self.edge * kind.row_beats, transfer.beats - taken)
        self.fill = self.edge - self.left // kind.row_beats


class _Taken:
    """Cycles in which something else uses a memory."""

    def __init__(self) -> None:
        self.spans: deque[tuple[int, int]] = deque()            # first and last

    def add(self, first: int, last: int) -> None:
        self.spans.append((first, last))

    def end(self, cycle: int, count: int) -> int:
        """The last of ``count`` cycles from ``cycle`` on that are free."""
        for first, last in self.spans:
            if last < cycle:
                continue
            if first >= cycle + count:
                break
            count -= max(first - cycle, 0)
            cycle = last + 1
        return cycle + count - 1

    def forget(self, cycle: int) -> None:
        """What was up to ``cycle`` is asked for no more."""
        while self.spans and self.spans[0][1] <= cycle:
            self.spans.popleft()


class _Stager:
    """Adapter rows for the next tile of outputs: a word a cycle, but for those in which adapter words are written."""

    def __init__(self, linear: "_Linear") -> None:
        self.linear = linear
        self.agenda = linear.machine.agenda
        self.writes = _Taken()
        self.jobs: deque[tuple[int, int]] = deque()             # visible from, words
        self.free_at = 0
        self.running = False

    def lanes(self, at: int, count: int, transfer: Transfer) -> Sequence[int]:
        """Adapter words that are written."""
        self.writes.add(at + 2, at + 1 + count)
        return range(at, at + count)

    def push(self, cycle: int, words: int) -> None:
        self.jobs.append((cycle, words))
        if not self.running:
            self._begin()

    def _begin(self) -> None:
        if not self.jobs:
            return
        self.running = True
        since, words = self.jobs.popleft()
        self._go(max(since, self.free_at), words)

    def _go(self, cycle: int, words: int) -> None:
        """Comes back when the words would be read if nothing more is written."""
        self.agenda.decide(self.writes.end(cycle, words), lambda now: self._check(now, cycle, words))

    def _check(self, cycle: int, since: int, words: int) -> None:
        end = self.writes.end(since, words)
        if end > cycle:
            self.agenda.decide(end, lambda now: self._check(now, since, words))
            return
        self.writes.forget(cycle)
        self.free_at = cycle + 1
        self.running = False
        self.agenda.visible(cycle + LinearArray.peek_latency + 2, self.linear.staged_one)
        self._begin()


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reading of a tile of outputs."""

    since: int              # the job is visible
    first: bool
    rank: int
    tokens: int


class _Linear(OneAtATime):
    """The engine LINEAR."""

    def __init__(self, machine: "_Machine") -> None:
        self.machine: _Machine = machine
        self.agenda = machine.agenda
        self.offered = None
        self.command = None
        self.free_at = 0
        config = self.config = machine.config
        behind = TileBuffer.latency(config) - 1
        #: From the start of a tile's last part, and the tokens after it, until its sums are known to be complete.
        self.completing = behind + LinearArray.latency(config) + config.columns + HiddenFoot.latency + 1 + 1
        part, wait = PartSequencer.reuse_delay(config)
        self.early = config.subtiles - 1 - part, wait
        self.weights = _Weights(machine)
        self.stager = _Stager(self)
        steps = config.beat_words // config.outputs
        self.output = _Output(machine, Engine.ARRAY, steps=steps, limit=64 - (40 // steps + 2),
                              delay=config.rank + 2 + 3 + Requantize.latency + 1)
        self.tiles = 0                          # begun
        self.next_part = 0                      # the array takes the next part
        self.waking = -1
        self.cycles = 0
        # Registers, as they are visible.
        self.pending = self.finished = self.staged = 0
        self.readings: deque[_Reading] = deque()
        self.reading = False

    def _begin(self, command: int, at: int) -> None:
        operands = self.machine.commands[command].operands
        self.operands = operands
        self.inner = self.outer = 0
        self.running_at = at + 4
        beats = operands["outer"] * operands["tokens"] * self.config.edge // self.config.beat_words
        self.output.expect(beats, command)
        self.wake(self.machine.now)

    # parts

    def wake(self, cycle: int) -> None:
        """Something that the start of a tile may wait for is visible from ``cycle`` on."""
        if self.waking != cycle:
            self.waking = cycle
            self.agenda.decide(cycle, self._consider)

    def _consider(self, cycle: int) -> None:
        if self.waking == cycle:
            self.waking = -1
        if self.command is None or self.tiles >= len(self.weights.full):
            return
        at = max(self.running_at, self.next_part, self.weights.full[self.tiles])
        if at > cycle:
            self.wake(at)
            return
        rank = self.operands.get("rank", 0)
        if not self.inner and self.pending == 2:
            return
        if self.inner == self.operands["inner"] - 1 and not self.outer and rank:
            if self.pending > (1 if self.inner else 0):
                return
        self._tile(cycle, rank)

    def _tile(self, cycle: int, rank: int) -> None:
        """A tile begins in ``cycle``; nothing stops its parts."""
        config, operands, command = self.config, self.operands, self.command
        assert command is not None
        tokens = operands["tokens"]
        part = max(tokens, config.columns)
        last = cycle + (config.subtiles - 1) * part
        self.tiles += 1
        self.next_part = last + part
        self.cycles += config.subtiles * part
        parts, wait = self.early
        self.weights.free.append((last - parts * part + wait if tokens <= config.columns else last) + 2)
        if self.inner == operands["inner"] - 1:
            for start in range(cycle, last + 1, part)[:max(rank - self.outer * config.subtiles, 0)]:
                self.machine.kept.made.add(start + self.completing, start + self.completing + tokens - 1)
        if not self.inner:
            self.agenda.visible(cycle + 1, self._begun)
            self.readings.append(_Reading(cycle + FIFO, not self.outer, rank, tokens))
            if rank:
                self.stager.push(cycle + FIFO, config.edge * rank)
        self.inner += 1
        if self.inner == operands["inner"]:
            self.inner = 0
            self.outer += 1
            self.agenda.visible(last + tokens + self.completing, self._completed)
            if self.outer == operands["outer"]:
                self.command = None
                self.free_at = last + 1
                self._start(cycle)
        self.machine.bus.pump()
        if self.command is not None:
            self.wake(max(cycle, self.next_part))

    # reading

    def _begun(self, cycle: int) -> None:
        self.pending += 1

    def _completed(self, cycle: int) -> None:
        self.finished += 1
        self._read_at(cycle)

    def staged_one(self, cycle: int) -> None:
        """Rows of a tile are there."""
        self.staged += 1
        self._read_at(cycle)

    def _read_at(self, cycle: int) -> None:
        self.agenda.decide(cycle, self._read)

    def _read(self, cycle: int) -> None:
        if self.reading or not self.readings:
            return
        job = self.readings[0]
        late = job.first and job.rank > self.config.subtiles and self.finished < 2
        if cycle < job.since or not self.finished or (job.rank and not self.staged) or late:
            return
        self.reading = True
        self.readings.popleft()
        beats = job.tokens * self.config.edge // self.config.beat_words

        def over(last: int) -> None:
            self.agenda.visible(last + 1, lambda now: self._was_read(now, job))
        self.output.produce(cycle, beats, over)

    def _was_read(self, cycle: int, job: _Reading) -> None:
        self.reading = False
        self.pending -= 1
        self.finished -= 1
        if job.rank:
            self.staged -= 1
        self._read_at(cycle)
        self.wake(cycle)


# -- GRADIENT ---------------------------------------------------------------------------------------------------------


class _Gradient(OneAtATime):
    """The engine GRADIENT: takes a beat in ``rank / 2`` cycles, then reads the results of a tile."""

    def __init__(self, machine: "_Machine") -> None:
        self.machine: _Machine = machine
        self.offered = None
        self.command = None
        self.free_at = 0
        config = self.config = machine.config
        self.parts = config.edge // config.beat_words
        words = config.beat_words
        self.output = _Output(machine, Engine.HEAD, steps=words, limit=16 - (12 // words + 2),
                              delay=1 + Requantize.latency + 1)
        self.open_at: int | None = None         # takes beats from then on
        self.left = 0                           # beats of the tile

    def _begin(self, command: int, at: int) -> None:
        operands = self.operands = self.machine.commands[command].operands
        self.tiles = operands["tiles"]
        self.output.expect(self.tiles * operands["rank"] * self.parts, command)
        self._open(at + 2)

    def _open(self, cycle: int) -> None:
        self.open_at = cycle
        self.left = self.operands["tokens"] * self.parts
        self.machine.bus.pump()

    def take(self, at: int, count: int, transfer: Transfer) -> Sequence[int]:
        if self.open_at is None:
            return ()
        pairs = self.operands["rank"] // 2
        count = min(count, self.left)
        first = max(at, self.open_at) + pairs - 1
        times = range(first, first + count * pairs, pairs)
        self.machine.kept.busy.add(first - pairs + 1, times[-1])
        self.left -= count
        if not self.left:
            self.open_at = None
            # Eight cycles until all sums are in.
            beats = self.operands["rank"] * self.parts
            self.machine.agenda.decide(times[-1] + 9, lambda now: self.output.produce(now, beats, self._was_read))
        return times

    def _was_read(self, last: int) -> None:
        self.tiles -= 1
        if self.tiles:
            self._open(last + 1)
        else:
            self.command = None
            self.free_at = last + 1
            self._start(last + 1)


class _Kept(_Output):
    """h to memory and back: a beat in ``edge / 16`` cycles in which nothing else uses its memory."""

    def __init__(self, machine: "_Machine") -> None:
        super().__init__(machine, Engine.HEAD, steps=machine.config.beat_words // 2, limit=4, delay=2)
        self.busy = _Taken()                    # by the gradient engine
        self.made = _Taken()                    # words of a product are written
        self.free_at = 0                        # takes a request
        self.back_at = 0                        # takes a beat back

    def ready(self, cycle: int) -> int:
        return max(cycle, self.free_at)

    def begin(self, cycle: int, beats: int) -> None:
        self.machine.agenda.decide(cycle + 1, lambda now: self.produce(now, beats, self._sent))

    def _sent(self, last: int) -> None:
        self.free_at = last + 1

    def _step(self, cycle: int) -> None:
        """Step by step, for gradients are read in between."""
        free = self.busy.end(cycle, 1)
        if free > cycle:
            self.machine.agenda.decide(free, self._step)
            return
        self.busy.forget(cycle)
        super()._step(cycle)

    def sure(self) -> int:
        return 0

    def restore(self, at: int, count: int, transfer: Transfer) -> Sequence[int]:
        """Beats of h that come back, one at a time, for the words of products that may come."""
        at = max(at, self.back_at)
        if at > self.machine.now:
            self.machine.agenda.decide(at, self._pump)
            return ()
        self.made.forget(at)
        self.back_at = self.made.end(at + 1, self.steps)
        if count > 1:
            self.machine.agenda.decide(self.back_at, self._pump)
        return (at,)

    def _pump(self, cycle: int) -> None:
        self.machine.bus.pump()


# -- UPDATE -----------------------------------------------------------------------------------------------------------


class _Pairs:
    """Beats of gradients and of words that wait for each other, as :class:`PairQueue` reads them: by turns."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.put: tuple[list[int], list[int]] = ([], [])        # when each was written, for both streams
        self.got: tuple[list[int], list[int]] = ([], [])        # ... and read
        self.turn = 0
        self.moved: int | None = -1             # the beat that was read last left the memory's output, if it has
        self.taken = -1                         # the last pair
        self.ready: int | None = None           # the next pair is there

    def write(self, stream: int, at: int, count: int) -> list[int]:
        """Beats that are there from ``at`` on, as far as there is known to be room."""
        put, got = self.put[stream], self.got[stream]
        times: list[int] = []
        while len(times) < count:
            room = len(put) - self.depth
            if room >= 0:
                if room >= len(got):
                    break
                at = max(at, got[room] + 1)
            put.append(at)
            times.append(at)
            at += 1
            self.read()
        return times

    def read(self) -> None:
        """Reads what can be."""
        while self.ready is None:
            put, got = self.put[self.turn], self.got[self.turn]
            if self.moved is not None:
                if len(got) == len(put):
                    return
                got.append(max(self.moved, put[len(got)] + 1))
            self.moved = max(got[-1] + 1, self.taken)
            self.turn ^= 1
            if not self.turn:
                self.ready = self.moved + 1

    def take(self, cycle: int) -> None:
        """Takes the pair that is ready."""
        self.taken, self.ready = cycle, None
        self.read()


class _NewWords(_Output):
    """New words: the last of a command of AdamW waits for its last moments."""

    def __init__(self, machine: "_Machine", *, limit: int) -> None:
        super().__init__(machine, Engine.ENCODE, steps=1, limit=limit, delay=1 + 1 + Descent.latency + 1)
        self.gates: deque[int] = deque()        # beats that wait
        self.opened: deque[int] = deque()       # from when on they do not

    def next(self) -> int | None:
        time = super().next()
        if time is None or not self.gates or self.gates[0] != self.taken:
            return time
        return max(time, self.opened[0]) if self.opened else None

    def take(self, cycle: int) -> None:
        if self.gates and self.gates[0] == self.taken:
            self.gates.popleft()
            self.opened.popleft()
        super().take(cycle)


class _NewMoments(_Output):
    """New moments."""

    def __init__(self, machine: "_Machine", words: _NewWords, *, limit: int) -> None:
        super().__init__(machine, Engine.ENCODE, steps=1, limit=limit, delay=1 + 1 + AdamLane.m_latency + 1)
        self.words = words

    def end(self, command: int, cycle: int) -> None:
        self.words.opened.append(cycle + 1)


class _Update(OneAtATime):
    """The engine UPDATE: a beat of words in ``parts`` cycles, by SGD in half as many."""

    def __init__(self, machine: "_Machine") -> None:
        self.machine: _Machine = machine
        self.offered = None
        self.command = None
        self.free_at = 0
        self.parts = machine.config.beat_words // max(machine.config.beat_words // 4, 1)
        self.slack = AdamLane.latency + 5 + Requantize.latency + 4
        deep = 2 * (AdamLane.m_latency + 5) // self.parts + 4
        self.pairs = _Pairs(2 * UpdateEngine.depth)
        self.words = _NewWords(machine, limit=512 - self.slack)
        self.moments = _NewMoments(machine, self.words, limit=(1 << ceil_log2(deep + 8)) - deep)
        self.adam = False
        self.next = 0                           # the next half may enter
        self.second = False                     # ... and is the second of its beat
        self.left = 0                           # beats
        self.waking = -1

    def _begin(self, command: int, at: int) -> None:
        what = self.machine.commands[command]
        self.left = what.operands["beats"]
        self.adam = what.opcode == UpdateOpcode.ADAMW
        self.words.expect(self.left, command)
        if self.adam:
            self.words.gates.append(self.words.ends[-1][0] - 1)
            self.moments.expect(2 * self.left, command)
        self.next = at + 2
        self._wake(self.machine.now)

    # sinks

    def take_gradients(self, at: int, count: int, transfer: Transfer) -> Sequence[int]:
        """Beats of gradients."""
        return self._put(0, at, count)

    def take_words(self, at: int, count: int, transfer: Transfer) -> Sequence[int]:
        """Beats of words."""
        return self._put(1, at, count)

    def _put(self, stream: int, at: int, count: int) -> Sequence[int]:
        times = self.pairs.write(stream, at, count)
        self._wake(self.machine.now)
        return times

    def take_moments(self, at: int, count: int, transfer: Transfer) -> Sequence[int]:
        """One at a time: a beat of words begins with moments for its first half, and needs more for its second."""
        if not self.adam:
            return ()
        if self.second:
            cycle = max(at, self.next)
            self._half(cycle)
        else:
            begun = self._may_begin(at)
            if begun is None:
                return ()
            cycle = begun
            self.pairs.take(cycle)
            self._half(cycle)
        self._wake(self.next)
        return (cycle,)

    # beats

    def _may_begin(self, at: int) -> int | None:
        """This cycle, if the next beat begins in it; otherwise comes back."""
        if not self.left or self.pairs.ready is None:
            return None
        now = self.machine.now
        cycle = max(at, self.next, self.pairs.ready)
        if cycle > now:
            self._wake(cycle)
            return None
        # Both, for each keeps its account of time.
        full = [output for output in (self.words, self.moments) if not output.roomy(now)]
        if full:
            full[0].wait(now, self._wake)
            return None
        return now

    def _half(self, cycle: int) -> None:
        """Half a beat by AdamW, the first part of it in ``cycle``."""
        last = cycle + self.parts // 2 - 1
        self.moments.issue([last])
        self.next = last + 1
        if self.second:
            self._leave(last)
        self.second = not self.second

    def _leave(self, last: int) -> None:
        """A beat's last part enters in ``last``."""
        self.words.issue([last + AdamLane.latency * self.adam])
        self.left -= 1
        if not self.left:
            self.command = None
            # Two cycles until what is under way is counted, and one until it is known to have ended.
            self.free_at = last + 2 + self.slack - (0 if self.adam else AdamLane.latency) + 1
            self.adam = False
            self._start(self.machine.now)

    def _wake(self, cycle: int) -> None:
        """Something that a beat may wait for is there from ``cycle`` on."""
        if self.waking != cycle:
            self.waking = cycle
            self.machine.agenda.decide(cycle, self._go)

    def _go(self, cycle: int) -> None:
        if self.waking == cycle:
            self.waking = -1
        if not self.adam:
            while self._may_begin(0) is not None:
                self.pairs.take(cycle)
                self.next = cycle + self.parts // 2
                self._leave(cycle + self.parts // 2 - 1)
        # What waits on the bus may be moments, or find room.
        self.machine.bus.pump()


# -- machine ----------------------------------------------------------------------------------------------------------


class _Machine(ShellMachine):
    """All of it."""

    def __init__(self, commands: Sequence[Instruction], config: LinearConfig, program_offset: int, read_latency: int,
                 write_latency: int) -> None:
        super().__init__(commands, config.shell, program_offset, read_latency, write_latency)
        self.config = config
        self.write_beats = 0
        self.kept = _Kept(self)
        self.linear = _Linear(self)
        self.gradient = _Gradient(self)
        self.update = _Update(self)
        self.engines |= {Engine.ARRAY: self.linear, Engine.HEAD: self.gradient, Engine.ENCODE: self.update}
        self.queues = {Source.OUTPUTS: self.linear.output, Source.GRADIENTS: self.gradient.output,
                       Source.WORDS: self.update.words, Source.MOMENTS: self.update.moments,
                       Source.HIDDEN: self.kept}
        self.sinks = {
            Destination.TABLES: self.linear.weights.tables, Destination.TILES: self.linear.weights.tiles,
            Destination.LANES: self.linear.stager.lanes, Destination.GRADIENT: self.gradient.take,
            Destination.DIRECTIONS: self.update.take_gradients, Destination.WORDS: self.update.take_words,
            Destination.MOMENTS: self.update.take_moments, Destination.HIDDEN: self.kept.restore}


def forecast_linear(program: Assembler | Sequence[Instruction], *, config: LinearConfig | None = None,
                    program_offset: int = 0, read_latency: int = 40, write_latency: int = 10) -> LinearForecast:
    """Forecasts a program.

    ``read_latency``, ``write_latency``: as the simulated memory has them: a first datum comes ``read_latency + 1``
    cycles after its address, a response ``write_latency + 1`` cycles after a burst's last datum.
    """
    commands = program.instructions if isinstance(program, Assembler) else program
    config = config or LinearConfig()
    machine = _Machine(commands, config, program_offset, read_latency, write_latency)
    total = machine.run()
    return LinearForecast(
        total=total, phases=dict(zip(PHASES, machine.phase_cycles)), commands=machine.command_times(),
        clock_mhz=config.clock_mhz, instructions=commands, array_cycles=machine.linear.cycles,
        read_beats=machine.bus.read_beats, write_beats=machine.write_beats)


def forecast_products(jobs: Sequence[ProductJob], *, config: LinearConfig | None = None, read_latency: int = 40,
                      write_latency: int = 10) -> LinearForecast:
    """Forecasts products back to back, as a program of their own."""
    config = config or LinearConfig()
    program = Assembler()
    chain(program, jobs, config)
    program.add(Engine.CONTROL, ControlOpcode.END)
    return forecast_linear(program, config=config, read_latency=read_latency, write_latency=write_latency)
