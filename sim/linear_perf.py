"""Forecast of the machine for quantised linear layers: cycles of a program, and how many of them its array works.

Nothing here is fitted. Each formula follows one unit of the RTL; times are cycles since the bell, and a command
starts in the cycle in which its engine takes it.
"""
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gradloom.rtl.config import LinearConfig
from gradloom.rtl.control.signature import ControlOpcode, Engine
from gradloom.rtl.linear.core import LinearArray
from gradloom.rtl.linear.feet import HiddenFoot
from gradloom.rtl.linear.machine import Destination, Source
from gradloom.rtl.linear.weights import Dequantizer, TileBuffer
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
            self.machine.scheduler.done(self.engine, self.ends.popleft()[1], cycle + 1)
        if self.on_room is not None:
            waiting, self.on_room = self.on_room, None
            self.machine.agenda.decide(cycle + 2, waiting)

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
        self.beats = config.edge + 2
        self.words = config.beat_words
        self.place = 0                          # beats of the tile that were taken
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
        self.tiles_at = times[-1] + self.words + 5
        return times

    def tiles(self, at: int, count: int, transfer: Transfer) -> Sequence[int]:
        """A beat a cycle; a tile begins when half of the buffer is about to be free."""
        times: list[int] = []
        at = max(at, self.tiles_at)
        while len(times) < count:
            if not self.place:
                if self.began >= 2:
                    if self.began - 2 >= len(self.free):
                        break
                    at = max(at, self.free[self.began - 2])
                self.began += 1
            step = min(self.beats - self.place, count - len(times))
            times.extend(range(at, at + step))
            at += step
            self.place += step
            if self.place == self.beats:
                self.place = 0
                self.full.append(at - 1 + Dequantizer.latency + TileBuffer.latency(self.machine.config) - 2 + 1)
                self.machine.linear.wake(self.machine.now)
        return times


class _Stager:
    """Adapter rows for the next tile of outputs: a word a cycle, but for those in which adapter words are written."""

    def __init__(self, linear: "_Linear") -> None:
        self.linear = linear
        self.agenda = linear.machine.agenda
        self.blocked: deque[tuple[int, int]] = deque()          # first and last cycles
        self.jobs: deque[tuple[int, int]] = deque()             # visible from, words
        self.free_at = 0
        self.running = False

    def lanes(self, at: int, count: int, transfer: Transfer) -> Sequence[int]:
        """Adapter words that are written."""
        self.blocked.append((at + 2, at + 1 + count))
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
        self.agenda.decide(self._end(cycle, words), lambda now: self._check(now, cycle, words))

    def _end(self, cycle: int, words: int) -> int:
        at = cycle
        for first, last in self.blocked:
            if last < at:
                continue
            if first >= at + words:
                break
            words -= max(first - at, 0)
            at = last + 1
        return at + words - 1

    def _check(self, cycle: int, since: int, words: int) -> None:
        end = self._end(since, words)
        if end > cycle:
            self.agenda.decide(end, lambda now: self._check(now, since, words))
            return
        while self.blocked and self.blocked[0][1] <= cycle:
            self.blocked.popleft()
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
        # See `reuse` of PartSequencer.
        lead = 2 + Dequantizer.latency + TileBuffer.latency(config) - 2
        self.early = config.subtiles > 1 and 2 * config.columns <= lead + 2
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
        self.weights.free.append((last - part if self.early and tokens <= config.columns else last) + 2)
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


# -- UPDATE -----------------------------------------------------------------------------------------------------------


class _Update(OneAtATime):
    """The engine UPDATE: a beat of words a cycle. A program loads no more gradients before them than may wait."""

    def __init__(self, machine: "_Machine") -> None:
        self.machine: _Machine = machine
        self.offered = None
        self.command = None
        self.free_at = 0
        self.there: deque[int] = deque()        # gradients, from then on
        self.output = _Output(machine, Engine.ENCODE, steps=1, limit=6, delay=2 + Requantize.latency + 2)
        self.next = 0
        self.left = 0
        self.waking = -1

    def _begin(self, command: int, at: int) -> None:
        self.left = self.machine.commands[command].operands["beats"]
        self.output.expect(self.left, command)
        self.next = max(self.next, at + 2)
        self.machine.bus.pump()

    def directions(self, at: int, count: int, transfer: Transfer) -> Sequence[int]:
        """All of them."""
        times = range(at, at + count)
        self.there.extend(time + FIFO for time in times)
        return times

    def words(self, at: int, count: int, transfer: Transfer) -> Sequence[int]:
        """One at a time, for the room that each finds."""
        if not self.left or not self.there:
            return ()
        cycle = max(at, self.next, self.there[0], self.machine.now)
        if cycle > self.machine.now:
            self._come_back(cycle)
            return ()
        if not self.output.roomy(cycle):
            self.output.wait(cycle, self._pump)
            return ()
        self.there.popleft()
        self.next = cycle + 1
        self.output.issue([cycle])
        self.left -= 1
        if not self.left:
            self.command = None
            self.free_at = cycle + 1
            self._start(cycle + 1)
        if count > 1:
            self._come_back(cycle + 1)
        return (cycle,)

    def _come_back(self, cycle: int) -> None:
        if self.waking != cycle:
            self.waking = cycle
            self.machine.agenda.decide(cycle, self._pump)

    def _pump(self, cycle: int) -> None:
        if self.waking == cycle:
            self.waking = -1
        self.machine.bus.pump()


# -- machine ----------------------------------------------------------------------------------------------------------


class _Machine(ShellMachine):
    """All of it."""

    def __init__(self, commands: Sequence[Instruction], config: LinearConfig, program_offset: int, read_latency: int,
                 write_latency: int) -> None:
        super().__init__(commands, config.shell, program_offset, read_latency, write_latency)
        self.config = config
        self.write_beats = 0
        self.linear = _Linear(self)
        self.gradient = _Gradient(self)
        self.update = _Update(self)
        self.engines |= {Engine.ARRAY: self.linear, Engine.HEAD: self.gradient, Engine.ENCODE: self.update}
        self.queues = {Source.OUTPUTS: self.linear.output, Source.GRADIENTS: self.gradient.output,
                       Source.WORDS: self.update.output}
        self.sinks = {
            Destination.TABLES: self.linear.weights.tables, Destination.TILES: self.linear.weights.tiles,
            Destination.LANES: self.linear.stager.lanes, Destination.GRADIENT: self.gradient.take,
            Destination.DIRECTIONS: self.update.directions, Destination.WORDS: self.update.words}


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
