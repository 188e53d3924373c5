"""Forecast of a program's cycles: when each command starts and is done, on memory of fixed latency.

Nothing here is fitted. Each formula follows one unit of the RTL; times are cycles since the bell, and a command
starts in the cycle in which its engine takes it.
"""
import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Protocol

import numpy as np

from gradloom.rtl.array.commands import ArrayOpcode, EncodeOpcode
from gradloom.rtl.array.engine import EDGE
from gradloom.rtl.array.feet import Hidden
from gradloom.rtl.array.pe import PE
from gradloom.rtl.config import Config
from gradloom.rtl.control.signature import ControlOpcode, Engine
from gradloom.rtl.lora.lane import AdapterLanes
from gradloom.rtl.memory.collector import Collector, Source
from gradloom.rtl.memory.router import RECORD_ARG, SCALES_PER_BEAT, Destination
from gradloom.rtl.nn.post import PostProcess
from gradloom.rtl.nn.window import WindowGenerator, WindowRun
from gradloom.rtl.plan.assembler import Instruction
from gradloom.rtl.plan.program import Plan

__all__ = ["PHASES", "Forecast", "Comparison", "forecast", "compare", "observed"]

PHASES = ("wait", "load", "convolution", "dense", "forward", "loss", "gradient", "store")

BLOCK = 64              # elements that share a scale
BURST = 16              # beats of the longest burst
LEVELS = 16             # cycles in which a table is filled
CHECK = 2               # cycles for which ARRAY looks at a command before it takes it
FIFO = 2                # cycles from a write to a buffered FIFO to its word at the output

Times = tuple[int, int]


@dataclass(frozen=True, kw_only=True, eq=False)
class Forecast:
    """What a program is expected to take.

    ``total``: cycles from bell to interrupt. ``phases``: the same by name, as the phase counters count.
    ``commands``: ``(started, done)`` of each instruction, cycles since the bell; None if it is dropped.
    ``held``: beats of encoders that find the queue to STORE full. What waits behind them waits longer than forecast;
    where it is 0, all of it is exact.
    """

    total: int
    phases: dict[str, int]
    commands: list[Times | None] = field(repr=False)
    clock_mhz: int
    held: int
    instructions: Sequence[Instruction] = field(repr=False)

    @property
    def seconds(self) -> float:
        """Time at the design's clock."""
        return self.total / (self.clock_mhz * 1e6)


class _Agenda:
    """Things to do, cycle by cycle. In a cycle, what becomes visible comes before what is decided on it."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Callable[[int], None]]] = []
        self._count = 0

    def visible(self, cycle: int, action: Callable[[int], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (cycle, 0, self._count, action))

    def decide(self, cycle: int, action: Callable[[int], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (cycle, 1, self._count, action))

    def next(self) -> tuple[int, Callable[[int], None]] | None:
        """What is to be done next, and when; None if there is nothing left."""
        if not self._heap:
            return None
        cycle, _, _, action = heapq.heappop(self._heap)
        return cycle, action


# -- sequencer --------------------------------------------------------------------------------------------------------


class _Engine(Protocol):
    """What starts commands."""

    def offer(self, command: int, cycle: int) -> None:
        """``command`` is offered from ``cycle`` on, until it is taken."""


class _Valid:
    """Valid bits."""

    def __init__(self) -> None:
        self.bits = 0

    @staticmethod
    def cycles(slot: int, count: int) -> int:
        """From start to done of a range."""
        words = (slot + count - 1) // 32 - slot // 32 + 1 if count else 1
        return 9 + words

    def complete(self, slot: int, count: int) -> bool:
        mask = (1 << count) - 1
        return (self.bits >> slot) & mask == mask

    def mark(self, slot: int, count: int) -> None:
        self.bits |= ((1 << count) - 1) << slot


class _Scheduler:
    """Queues, tokens, starts and ends: a start every second cycle, an end a cycle, the lowest engine first."""

    def __init__(self, machine: "_Machine") -> None:
        self.machine = machine
        self.agenda = machine.agenda
        self.depth = machine.config.queue_depth
        n = len(Engine)
        self.tokens = [0] * 16
        self.queues: list[deque[int]] = [deque() for _ in range(n)]      # not yet started
        self.offered = [False] * n
        self.under_way: list[deque[int]] = [deque() for _ in range(n)]   # started or offered, not yet done
        self.room = [self.depth] * n
        self.pending = [0] * n
        self.granted_at = -1
        self.evaluating = -1
        self.processing = -1
        self.control: int | None = None
        self.outstanding = 0

    def poke(self, cycle: int) -> None:
        """Something that a start may wait for is visible from ``cycle`` on."""
        if self.evaluating != cycle:
            self.evaluating = cycle
            self.agenda.decide(cycle, self._evaluate)

    def _evaluate(self, cycle: int) -> None:
        if cycle == self.granted_at:
            self.agenda.decide(cycle + 1, self._evaluate)
            return
        if cycle < self.granted_at:
            return
        tokens, commands = self.tokens, self.machine.commands
        for e in range(len(self.queues)):
            if e == 0:
                if self.control is None:
                    continue
                command = self.control
            else:
                if self.offered[e] or not self.queues[e]:
                    continue
                command = self.queues[e][0]
            if all(tokens[t] for t in commands[command].wait):
                self.granted_at = cycle + 1
                self.agenda.visible(cycle + 2, partial(self._grant, e=e, command=command))
                return

    def _grant(self, cycle: int, *, e: int, command: int) -> None:
        for token in self.machine.commands[command].wait:
            self.tokens[token] -= 1
        if e == 0:
            self.control = None
            self.machine.started(command, cycle - 1)
            self.agenda.decide(cycle, lambda now: self.machine.dispatch.execute(now, command))
        else:
            self.offered[e] = True
            self.machine.engines[e].offer(command, cycle)
        self.poke(cycle)

    def push(self, command: int, cycle: int) -> None:
        """Queued in ``cycle``."""
        e = self.machine.commands[command].engine
        self.room[e] -= 1
        self.outstanding += 1

        def later(now: int) -> None:
            self.queues[e].append(command)
            self.poke(now)
        self.agenda.visible(cycle + 1, later)

    def taken(self, command: int, cycle: int) -> None:
        """The engine takes the command in ``cycle``."""
        e = self.machine.commands[command].engine
        self.machine.started(command, cycle)

        def later(now: int) -> None:
            self.offered[e] = False
            self.queues[e].popleft()
            self.under_way[e].append(command)
            self.machine.executing(e, now)
            self.poke(now)
        self.agenda.visible(cycle + 1, later)

    def done(self, e: int, command: int, cycle: int) -> None:
        """``done`` of ``command`` is high in ``cycle``."""
        self.machine.finished(command, cycle)

        def later(now: int) -> None:
            self.pending[e] += 1
            if e == 0:
                self.under_way[0].append(command)
            self._process_at(now)
        self.agenda.visible(cycle + 1, later)

    def _process_at(self, cycle: int) -> None:
        if self.processing < cycle:
            self.processing = cycle
            self.agenda.decide(cycle, self._process)

    def _process(self, cycle: int) -> None:
        for e in range(len(self.pending)):
            if self.pending[e]:
                break
        else:
            return
        self.pending[e] -= 1

        def later(now: int) -> None:
            command = self.under_way[e].popleft()
            for token in self.machine.commands[command].post:
                self.tokens[token] += 1
            if e:
                self.room[e] += 1
                self.outstanding -= 1
                self.machine.executing(e, now)
            self.machine.dispatch.wake(now)
            self.poke(now)
        self.agenda.visible(cycle + 1, later)
        if any(self.pending):
            self._process_at(cycle + 1)


class _Dispatch:
    """Fetch and dispatch of the program."""

    def __init__(self, machine: "_Machine") -> None:
        self.machine = machine
        self.agenda = machine.agenda
        self.beats: deque[int] = deque()        # cycles from which fetched beats may be popped
        self.left = 2 * len(machine.commands)
        self.credit = 2 * BURST
        self.wanted = False
        self.planning = False
        self.next_beat = machine.program_offset // 16
        self.collecting: int | None = None      # since when
        self.at = 0
        self.waiting: Callable[[int], bool] | None = None
        self.ended: int | None = None

    def begin(self, cycle: int) -> None:
        """The state RUN begins."""
        self._plan_at(cycle)
        self._collect(cycle + 1)

    # fetch

    def _plan_at(self, cycle: int) -> None:
        if not self.planning:
            self.planning = True
            self.agenda.decide(cycle, self._plan)

    def _plan(self, cycle: int) -> None:
        self.planning = False
        if self.wanted or not self.left or self.credit < BURST:
            return
        room = BURST - self.next_beat % BURST
        beats = min(room, self.left)
        self.left -= beats
        self.next_beat += beats
        self.credit -= room
        self.wanted = True
        self.agenda.visible(cycle + 1, lambda now: self.machine.bus.fetch(beats, now))

    def accepted(self, cycle: int) -> None:
        """The request left in ``cycle``."""
        def later(now: int) -> None:
            self.wanted = False
            self._plan_at(now)
        self.agenda.visible(cycle + 1, later)

    def arrive(self, cycle: int) -> None:
        """A fetched beat may be popped from ``cycle`` on."""
        self.beats.append(cycle)
        if self.collecting is not None and len(self.beats) == 2:
            self._pop(self.collecting)

    # dispatch

    def _collect(self, cycle: int) -> None:
        """Ready to pop from ``cycle`` on."""
        self.collecting = cycle
        if len(self.beats) >= 2:
            self._pop(cycle)

    def _pop(self, cycle: int) -> None:
        self.collecting = None
        first = max(cycle, self.beats.popleft())
        second = max(first + 1, self.beats.popleft())
        for pop in (first, second):
            self.agenda.visible(pop + 1, self._credit)
        self.agenda.decide(second + 1, self._decode)

    def _credit(self, cycle: int) -> None:
        self.credit += 1
        if not self.wanted and self.left and self.credit >= BURST:
            self._plan_at(cycle)

    def _decode(self, cycle: int) -> None:
        command = self.machine.commands[self.at]
        if command.slots is None:
            self.agenda.decide(cycle + 1, self._dispatch)
            return
        # ASK in the next cycle, ANSWER until done.
        self.agenda.decide(cycle + 1 + _Valid.cycles(*command.slots), self._answer)

    def _answer(self, cycle: int) -> None:
        slots = self.machine.commands[self.at].slots
        assert slots is not None
        if self.machine.valid.complete(*slots):
            self.at += 1
            self._collect(cycle + 2)
        else:
            self.agenda.decide(cycle + 1, self._dispatch)

    def _dispatch(self, cycle: int) -> None:
        command = self.machine.commands[self.at]
        scheduler = self.machine.scheduler
        if command.engine == Engine.CONTROL:
            scheduler.control = self.at
            scheduler.poke(cycle)
            return

        def attempt(now: int) -> bool:
            if not scheduler.room[command.engine]:
                return False
            scheduler.push(self.at, now)
            self.at += 1
            self._collect(now + 1)
            return True
        if not attempt(cycle):
            self.waiting = attempt

    def wake(self, cycle: int) -> None:
        """A command's end became visible in ``cycle``."""
        if self.waiting is not None:
            self.agenda.decide(cycle, self._retry)

    def _retry(self, cycle: int) -> None:
        if self.waiting is not None:
            waiting, self.waiting = self.waiting, None
            if not waiting(cycle):
                self.waiting = waiting

    def execute(self, cycle: int, index: int) -> None:
        """The state EXECUTE begins."""
        command = self.machine.commands[index]
        opcode = command.opcode
        scheduler = self.machine.scheduler

        def done(now: int) -> None:
            scheduler.done(0, index, now)
            self.at += 1
            self._collect(now + 3)

        if opcode in (ControlOpcode.MARK, ControlOpcode.LOOKUP):
            slot, count = (int(command.operands.get(name, 0)) for name in ("slot", "count"))

            def ranged(now: int) -> None:
                if opcode == ControlOpcode.MARK:
                    self.machine.valid.mark(slot, count)
                done(now)
            self.agenda.decide(cycle + _Valid.cycles(slot, count), ranged)
            return
        if opcode == ControlOpcode.CLEAR:
            def cleared(now: int) -> None:
                self.machine.valid.bits = 0
                done(now)
            self.agenda.decide(cycle + 1 + self.machine.config.cache_slots // 32, cleared)
            return

        def idle(now: int) -> bool:
            if scheduler.outstanding or any(scheduler.pending):
                return False
            if opcode == ControlOpcode.END:
                scheduler.done(0, index, now)
                self.ended = now
            else:
                done(now)
            return True
        if not idle(cycle):
            self.waiting = idle


# -- memory -----------------------------------------------------------------------------------------------------------


class _Bus:
    """The engine LOAD, and the read side of the bus, which the program's fetch shares."""

    def __init__(self, machine: "_Machine") -> None:
        self.machine = machine
        self.agenda = machine.agenda
        self.latency = machine.read_latency
        self.wanted = 0                         # beats of a fetch that waits
        self.in_flight = 0
        self.outstanding = machine.config.outstanding
        self.trying = -1
        self.last = -1                          # cycle of the last beat so far
        self.offered: tuple[int, int] | None = None
        self.free_at = 0                        # the command before has sent its bursts
        self.contexts: deque[int] = deque()     # cycles from which a context is free
        self.bursting: tuple[int, int, int] | None = None    # command, next beat's address, beats that remain
        self.record = False
        self.burst_at: int | None = None        # its next burst may leave from then on
        self.scales_at = 0                      # the router's last scale has left

    # commands

    def offer(self, command: int, cycle: int) -> None:
        self.offered = (command, cycle)
        self._start(cycle)

    def _start(self, cycle: int) -> None:
        if self.offered is None or self.bursting is not None:
            return
        command, offered = self.offered
        at = max(cycle, offered, self.free_at)
        if len(self.contexts) >= 4:
            context = self.contexts[-4]
            if context < 0:
                return
            at = max(at, context)
        self.offered = None
        self.machine.scheduler.taken(command, at)
        operands = self.machine.commands[command].operands
        self.bursting = (command, operands["offset"] // 16, operands["beats"])
        # Beats of a record's scales, which the router takes apart.
        self.scales = _codes_of(operands["arg"]) if operands["dest"] == Destination.RECORD else 0
        self.record = self.scales > 0
        self.contexts.append(-1)
        if len(self.contexts) > 4:
            self.contexts.popleft()
        self.agenda.visible(at + 3, self._ready)

    def _ready(self, cycle: int) -> None:
        self.burst_at = cycle
        self._try_at(cycle)

    # addresses

    def fetch(self, beats: int, cycle: int) -> None:
        self.wanted = beats
        self._try_at(cycle)

    def _try_at(self, cycle: int) -> None:
        if self.trying != cycle:
            self.trying = cycle
            self.agenda.decide(cycle, self._try)

    def _try(self, cycle: int) -> None:
        if self.in_flight >= self.outstanding:
            return
        if self.wanted:
            beats, self.wanted = self.wanted, 0
            first = self._flow(cycle, beats)
            for n in range(beats):
                self.machine.dispatch.arrive(first + n + 1)
            self.machine.dispatch.accepted(cycle)
            self._release(first + beats - 1)
            if self.burst_at is not None:
                self._try_at(cycle + 1)
        elif self.burst_at is not None and self.burst_at <= cycle:
            assert self.bursting is not None
            command, address, left = self.bursting
            beats = min(BURST - address % BURST, left)
            first = self._flow(cycle, beats)
            scales = min(self.scales, beats)
            for n in range(scales):
                self.scales_at = max(self.scales_at, first + n + FIFO) + SCALES_PER_BEAT
            self.scales -= scales
            end = first + beats - 1
            if beats < left:
                self.bursting = (command, address + beats, left - beats)
                self.burst_at = None
                self._release(end)
                self.agenda.visible(cycle + 2, self._ready)
                return
            if self.record:
                # A record's last beat waits until its scales have left; a register tells.
                end = self.last = max(end, self.scales_at + 1)
            self._release(end)
            self.machine.scheduler.done(Engine.LOAD, command, end + 1)
            self.bursting = self.burst_at = None
            for n, context in enumerate(self.contexts):
                if context < 0:
                    self.contexts[n] = end + 1
                    break
            self.free_at = cycle + 1
            self.agenda.decide(cycle + 1, self._start)

    def _flow(self, cycle: int, beats: int) -> int:
        """First beat of a burst whose address is decided on in ``cycle``."""
        first = max(self.last + 1, cycle + 1 + self.latency + 2)
        self.last = first + beats - 1
        self.in_flight += 1
        return first

    def _release(self, end: int) -> None:
        def later(now: int) -> None:
            self.in_flight -= 1
            if self.wanted or self.burst_at is not None:
                self._try_at(now)
        self.agenda.visible(end + 1, later)


@cache
def _codes_of(arg: int) -> int:
    place = dict(RECORD_ARG)["codes"]
    return (arg >> place.offset) & ((1 << place.width) - 1)


class _Queue:
    """Beats on their way to STORE, by the cycle from which each may be taken."""

    def __init__(self, machine: "_Machine") -> None:
        self.machine = machine
        self.times: deque[int] = deque()

    def add(self, times: Sequence[int]) -> None:
        self.times.extend(times)
        self.machine.store.poke()

    def change(self, old: int, times: Sequence[int]) -> None:
        """The last ``old`` beats come at other times; those that were taken in between stay taken."""
        keep = min(old, len(self.times))
        for _ in range(keep):
            self.times.pop()
        self.times.extend(times[len(times) - keep:])
        self.machine.store.poke()

    def next(self) -> int | None:
        return self.times[0] if self.times else None

    def take(self, cycle: int) -> None:
        times = self.times
        if len(times) > Collector.depth and times[Collector.depth] - FIFO < cycle:
            self.machine.held += 1
        times.popleft()

    def begin(self, cycle: int, beats: int) -> None:
        """STORE asks in ``cycle``."""


class _LaneQueue(_Queue):
    """Adapter words: two beats of a word every 6 cycles."""

    def begin(self, cycle: int, beats: int) -> None:
        self.low = True
        self.left = beats
        self.times = deque([cycle + 1 + 4])

    def take(self, cycle: int) -> None:
        self.left -= 1
        self.times = deque([cycle + 1 if self.low else cycle + 1 + 4] if self.left else [])
        self.low = not self.low


class _HeadQueue(_Queue):
    """B: four beats are under way at most."""

    def begin(self, cycle: int, beats: int) -> None:
        self.left = beats
        self.issued = cycle
        self.times = deque()
        self._issue(cycle, 4)

    def _issue(self, cycle: int, count: int) -> None:
        for _ in range(min(count, self.left)):
            self.issued = max(self.issued + 1, cycle + 1)
            self.left -= 1
            self.times.append(self.issued + 2 + FIFO)

    def take(self, cycle: int) -> None:
        self.times.popleft()
        self._issue(cycle, 1)
        if not self.times:
            # Idle, then out of the state: two cycles after the last beat.
            self.machine.head.dumped(cycle + 2)


class _RawQueue(_Queue):
    """Raw activations, straight from the engine ENCODE."""

    def take(self, cycle: int) -> None:
        self.times.popleft()
        self.machine.encode.raw_taken(cycle)


class _OneAtATime:
    """An engine that runs one command, while the next may be offered; :meth:`_begin` is what differs."""

    machine: "_Machine"
    offered: tuple[int, int] | None
    command: int | None
    free_at: int
    #: Cycles in which it checks a command before it takes it.
    check = 0

    def offer(self, command: int, cycle: int) -> None:
        self.offered = (command, cycle)
        if self.command is None:
            self._start(cycle)

    def _start(self, cycle: int) -> None:
        if self.offered is None or self.command is not None:
            return
        command, offered = self.offered
        at = max(offered + self.check, self.free_at)
        self.offered = None
        self.command = command
        self.machine.scheduler.taken(command, at)
        self._begin(command, at)

    def _begin(self, command: int, at: int) -> None:
        raise NotImplementedError


class _Store(_OneAtATime):
    """The engine STORE."""

    def __init__(self, machine: "_Machine") -> None:
        self.machine = machine
        self.agenda = machine.agenda
        self.latency = machine.write_latency
        self.offered = None
        self.command = None
        self.free_at = 0
        self.queue: _Queue | None = None
        self.waking = -1
        self.moves: deque[int] = deque(maxlen=2 * BURST)     # when each of the last beats left the buffer
        self.answers: deque[int] = deque(maxlen=machine.config.outstanding)
        self.ends: deque[int] = deque(maxlen=4)

    def _begin(self, command: int, at: int) -> None:
        operands = self.machine.commands[command].operands
        self.left = operands["beats"]
        self.address = operands["offset"] // 16
        self.in_burst = 0
        self.issue = at + 1                     # not before the cycle two after this one
        source = operands["source"]
        self.asking = at + 3
        if source == Source.HEAD:
            self.asking = max(self.asking, self.machine.head.free_at)
        self.agenda.decide(self.asking, lambda now: self._asked(now, source))

    def _asked(self, cycle: int, source: int) -> None:
        self.queue = self.machine.queues[source]
        if source == Source.HEAD:
            self.machine.head.dumping(cycle)
        self.queue.begin(cycle, self.left)
        self.next = cycle + 1
        self._pull(cycle)

    def poke(self) -> None:
        """A source knows more."""
        if self.queue is not None:
            self._pull(self.machine.now)

    def _pull(self, cycle: int) -> None:
        """Takes what can be taken up to ``cycle``, and comes back for the rest."""
        queue = self.queue
        while queue is not None:
            time = queue.next()
            if time is None:
                return
            time = max(time, self.next)
            if len(self.moves) == 2 * BURST:
                time = max(time, self.moves[0] + 1)
            if time > cycle:
                if self.waking != time:
                    self.waking = time
                    self.agenda.decide(time, self._wake)
                return
            self._take(time)
            queue = self.queue

    def _wake(self, cycle: int) -> None:
        self.waking = -1
        if self.queue is not None:
            self._pull(cycle)

    def _take(self, cycle: int) -> None:
        queue = self.queue
        assert queue is not None
        self.next = cycle + 1
        self.left -= 1
        self.in_burst += 1
        self.address += 1
        if not self.left:
            self.queue = None
        queue.take(cycle)
        if self.left and self.address % BURST:
            return
        issue = max(cycle + 1, self.issue + 2)
        if len(self.answers) == self.machine.config.outstanding:
            issue = max(issue, self.answers[0] + 1)
        if len(self.ends) == 4:
            issue = max(issue, self.ends[0] + 1)
        self.issue = issue
        move = max(issue + 1, self.moves[-1] + 1 if self.moves else 0)
        for n in range(self.in_burst):
            self.moves.append(move + n)
        end = move + self.in_burst - 1
        self.ends.append(end)
        answer = end + 1 + self.latency + 1
        if self.answers:
            answer = max(answer, self.answers[-1] + 1)
        self.answers.append(answer)
        self.in_burst = 0
        if not self.left:
            command, self.command = self.command, None
            assert command is not None
            self.machine.scheduler.done(Engine.STORE, command, answer + 1)
            self.free_at = issue + 1
            self._start(issue + 1)


# -- encoders ---------------------------------------------------------------------------------------------------------


class _Encoder:
    """An encoder with its packer: from the cycles of a tap's elements to those of its beats.

    Blocks enter one after the other. An element enters when what came 128 elements before it has been read back,
    a block's first one also when the payload four blocks before has left.
    The taps of a program are all in codes of 4 bits or all in codes of 8 bits (``wide``).
    """

    def __init__(self) -> None:
        self.free_at = 0        # the next block's first element may enter
        self.multiplied = 0     # the thresholds of the next block may be multiplied
        # First cycle and element before which a cycle is lost, of the last two blocks as they are read back.
        self.read: tuple[Times, ...] = ((-1 << 30, BLOCK), (-1 << 30, BLOCK))
        self.read_end = -1
        self.payloads: tuple[int, ...] = (-1 << 30,) * 4
        self.beats: list[int] = []
        self.blocks = 0
        self.wide = False

    def expect(self, operands: dict[str, int]) -> None:
        """Takes the kind of codes that a command asks for."""
        self.wide = bool(operands.get("wide"))

    @property
    def still(self) -> int:
        """Cycles that a payload waits for its beats after the first."""
        return 3 if self.wide else 1

    def copy(self) -> "_Encoder":
        other = _Encoder()
        other.__dict__.update(self.__dict__)
        other.beats = list(self.beats)
        return other

    def limits(self) -> tuple[int, int, int]:
        """``(first, element, then)``: when the next block's first element may enter; from ``element`` on, elements
        may enter from ``then`` on, one a cycle."""
        start, lost = self.read[0]
        return max(self.free_at, start + 1, self.payloads[0] + self.still + 1), lost, start + lost + 1 + self.still

    def block(self, end: int) -> None:
        """A block, whose last element entered in ``end``."""
        start = max(end + 3, self.multiplied)
        self.multiplied = start + LEVELS
        first = max(start + LEVELS + 4, self.read_end + 1)
        # While a payload waits for its other beats the search stands still.
        payload = self.payloads[-1]
        if payload <= first < payload + self.still:
            first = payload + self.still
        lost = payload - first if first <= payload <= first + BLOCK - 1 else BLOCK
        self.read_end = first + BLOCK - 1 + (self.still if lost < BLOCK else 0)
        self.read = (self.read[1], (first, lost))
        payload = self.read_end + (11 if self.wide else 6)
        self.payloads = (*self.payloads[1:], payload)
        self.beats += range(payload, payload + 1 + self.still)
        self.blocks += 1
        self.free_at = end + 1

    def rest(self, last: int, elements: int) -> None:
        """The rest of a short block, of which ``elements`` are there, the last since ``last``."""
        _, lost, then = self.limits()
        end = last + BLOCK - elements
        if lost >= elements and lost < BLOCK:
            end = max(end, then + BLOCK - 1 - lost)
        self.block(end)

    def finish(self) -> list[int]:
        """Beats of the tap that has ended."""
        beats, self.beats = self.beats, []
        beats += [beats[-1] + 1 + n for n in range(-(-self.blocks // SCALES_PER_BEAT))]
        self.blocks = 0
        return beats


class _Encode(_OneAtATime):
    """The engine ENCODE."""

    check = 1
    #: From the read of an element of row 0 to the element at the encoder.
    delay = 6 + 2 + FIFO

    def __init__(self, machine: "_Machine") -> None:
        self.machine = machine
        self.agenda = machine.agenda
        self.encoder = _Encoder()
        self.offered: tuple[int, int] | None = None
        self.free_at = 0
        self.command: int | None = None
        self.version = 0
        self.raw_left = 0
        self.raw_waits = False                          # a beat of raw elements, for STORE
        self.dense: deque[Times] = deque(maxlen=64)     # cycles in which DENSE reads

    def _begin(self, command: int, at: int) -> None:
        self.at = at
        self.before = self.encoder.copy()
        self.beats: list[int] = []
        self._plan()

    def _reads(self, row: int, elements: int) -> list[int]:
        """When each element arrives at the encoder or the raw beats."""
        cycle = self.at + 1
        wait = self.delay + row
        busy = [(first, last) for first, last in self.dense if last >= cycle]
        if not busy:
            return list(range(cycle + wait, cycle + wait + elements))
        out: list[int] = []
        for first, last in busy:
            count = min(max(first - cycle, 0), elements - len(out))
            out.extend(range(cycle + wait, cycle + wait + count))
            cycle = max(cycle + count, last + 1) if len(out) < elements else cycle
        rest = elements - len(out)
        out.extend(range(cycle + wait, cycle + wait + rest))
        return out

    def _plan(self) -> None:
        assert self.command is not None
        command = self.machine.commands[self.command]
        elements, row = command.operands["elements"], command.operands["row"]
        arrives = self._reads(row, elements)
        self.version += 1
        version = self.version
        if command.opcode == EncodeOpcode.RAW:
            self.arrives = arrives
            self.raw_done = 0
            self.raw_left = elements
            if not self.raw_waits:
                self._raw(0)
            return
        self.encoder = self.before.copy()
        self.encoder.expect(command.operands)
        encoder = self.encoder
        leave = -1
        for at in range(0, elements, BLOCK):
            block = arrives[at:at + BLOCK]
            first, lost, then = encoder.limits()
            leave = max(leave + 1, block[0], first)
            if block[-1] - block[0] == len(block) - 1:
                # One a cycle, but for the cycle that is lost.
                if lost < len(block):
                    leave = max(leave, then - lost)
                leave += len(block) - 1
            else:
                for n, arrival in enumerate(block[1:], 1):
                    leave = max(leave + 1, arrival, then if n == lost else 0)
            if len(block) == BLOCK:
                encoder.block(leave)
            else:
                encoder.rest(leave, len(block))
        beats = [b + FIFO for b in encoder.finish()]
        queue = self.machine.queues[Source.DENSE_TAPS]
        self.agenda.decide(leave, lambda now: self._done(now, version))
        if self.beats:
            queue.change(len(self.beats), beats)
        else:
            queue.add(beats)
        self.beats = beats

    def reserve(self, first: int, last: int) -> None:
        """DENSE reads the rows in these cycles."""
        self.dense.append((first, last))
        if self.command is not None and (self.machine.commands[self.command].opcode != EncodeOpcode.RAW):
            self._plan()

    def _done(self, cycle: int, version: int) -> None:
        if version != self.version or self.command is None:
            return
        self._finish(cycle)

    def _finish(self, cycle: int) -> None:
        assert self.command is not None
        command, self.command = self.command, None
        self.machine.scheduler.done(Engine.ENCODE, command, cycle)
        self.free_at = cycle + 1
        self._start(cycle + 1)

    def _raw(self, after: int) -> None:
        """The next beat of raw elements, the first of which enters after ``after``: it waits here for STORE."""
        count = min(4, self.raw_left)
        at = after
        for n in range(count):
            at = max(at + 1, self.arrives[self.raw_done + n])
        self.raw_done += count
        self.raw_left -= count
        self.raw_waits = True
        self.machine.queues[Source.RAW].add([at + 1])
        if not self.raw_left:
            version = self.version
            self.agenda.decide(at, lambda now: self._done(now, version))

    def raw_taken(self, cycle: int) -> None:
        self.raw_waits = False
        if self.raw_left:
            self._raw(cycle)


# -- array ------------------------------------------------------------------------------------------------------------


@dataclass
class _Pass:
    """A pass that was taken: the cycles that the next one depends on."""

    backward: bool
    reads_at: int           # first cycle in which codes are read
    handed_free: int        # from then on its place in front of the reader is free
    filler_free: int        # the filler may take the next pass
    end: int                # last cycle in which codes are read
    loaded: int = -1        # its dh are weights


class _Geometry:
    """Steps of a convolution in which things happen, counted from its first."""

    def __init__(self, config: Config, run: WindowRun, pool: int) -> None:
        # Steps before the first window; see :meth:`WindowGenerator.fill`.
        fill = (run.kernel_h - 1 - run.pad_top) * run.pitch + config.kernel - 1 - run.pad_left
        rows = max(run.height, run.rows)
        pixels = (((np.arange(run.channels) * rows)[:, None, None] + np.arange(run.height)[:, None]) * run.pitch
                  + np.arange(run.width)).ravel()
        self.pixels: list[int] = pixels.tolist()
        #: First window of each channel.
        self.firsts = [channel * rows * run.pitch + fill for channel in range(run.channels)]
        #: Last window of each pool of the last channel.
        high, wide = run.out_height // pool, run.out_width // pool
        y = (np.arange(high) * pool + pool - 1) * run.stride_h
        x = (np.arange(wide) * pool + pool - 1) * run.stride_w
        words = (((run.channels - 1) * rows + y)[:, None] * run.pitch + x).ravel() + fill
        self.words = [int(s) for s in words]
        self.end = ((run.channels - 1) * rows + (run.out_height - 1) * run.stride_h) * run.pitch \
            + (run.out_width - 1) * run.stride_w + fill
        self.steps = 1 + max(self.end, self.pixels[-1])


class _Flow:
    """A convolution's steps in time: they are put off where a window waits for its weights, or a pixel for the
    encoder, and everything behind them too."""

    def __init__(self, geometry: _Geometry, base: int, loaded: int, rows: int, encoder: _Encoder | None) -> None:
        self.base = base
        self.thresholds: list[int] = []         # windows of steps from these on ...
        self.shifts: list[int] = []             # ... are so much later
        shift = 0                               # of the next step

        firsts = geometry.firsts
        ahead = WindowGenerator.latency
        channel = 0

        def weights(before: int) -> None:
            """First windows that are out before ``before`` is stepped."""
            nonlocal channel, loaded, shift
            while channel < len(firsts) and firsts[channel] + ahead <= before:
                first = firsts[channel]
                enters = self.window(first)
                if enters < loaded:
                    shift += loaded - enters
                    self._late(first, shift)
                    enters = loaded
                loaded = enters + rows + 1
                channel += 1

        if encoder is not None:
            pixels = geometry.pixels
            for at in range(0, len(pixels), BLOCK):
                size = min(BLOCK, len(pixels) - at)
                first, lost, then = encoder.limits()
                for n, limit in ((0, first), (lost, then)):
                    if n < size:
                        step = pixels[at + n]
                        weights(step)
                        late = limit - (base + step + shift)
                        if late > 0:
                            shift += late
                            self._late(step, shift)
                step = pixels[at + size - 1]
                weights(step)
                if size == BLOCK:
                    encoder.block(base + step + shift)
                else:
                    encoder.rest(base + step + shift, size)
        weights(1 << 30)
        self.last_shift = shift

    def _late(self, step: int, shift: int) -> None:
        self.thresholds.append(max(step, self.thresholds[-1]) if self.thresholds else step)
        self.shifts.append(shift)

    def window(self, step: int) -> int:
        """When the window of a step enters the array."""
        at = bisect_right(self.thresholds, step)
        return self.base + step + WindowGenerator.latency + (self.shifts[at - 1] if at else 0)

    def windows(self, steps: list[int]) -> list[int]:
        if not self.thresholds:
            first = self.base + WindowGenerator.latency
            return [first + step for step in steps]
        return [self.window(step) for step in steps]

    def step(self, step: int) -> int:
        """When the last step is taken."""
        return self.base + step + self.last_shift


class _Array:
    """The engine ARRAY: FORWARD and GRADIENT passes, CONVOLVE, DENSE."""

    def __init__(self, machine: "_Machine") -> None:
        self.machine = machine
        self.agenda = machine.agenda
        config = self.config = machine.config
        rows, rank = config.rows, config.rank
        self.beats = BLOCK // config.panels
        latency = PE.latency + rows - 1
        #: From a forward pass's ``drain`` to ``done``; from a gradient's last beat to ``done``.
        self.forward_tail = EDGE + PE.latency - 1 + rank - 2 + rows + Hidden.latency + 1 + 1
        self.gradient_tail = EDGE + latency + rank - 1 + AdapterLanes.latency + 1
        #: From a window, or the drain of a dense layer, to its word in the queue before the memories.
        post = 1 + PostProcess.latency + FIFO
        self.window_tail = EDGE + latency + rank - 1 + post
        self.dense_tail = EDGE + PE.latency - 1 + rank - 2 + 1 + post
        #: A word leaves the array so many cycles before it is in that queue.
        self.to_queue = PostProcess.latency + FIFO

        self.last: _Pass | None = None
        self.fills: list[int] = [-1, -1]        # last cycles of the last two tables filled
        self.reads: list[int] = [-1, -1]        # ... and read
        self.load_end = -1
        self.swapped = -1
        self.passes_idle = 0
        self.gradients_over = 0
        self.optimiser: tuple[int, ...] = ()

        self.convolve_idle = 0
        self.steps_over = 0
        self.dense_idle = 0
        self.run_free = 0
        self.post_free = 0
        self.runs: deque[int] = deque(maxlen=4)         # when the last words of the last runs left
        self.popped = -2
        self.encoder = _Encoder()
        self.reported = -1
        self.words: deque[int] = deque()
        self.geometries: dict[tuple[int, ...], _Geometry] = {}

    def offer(self, command: int, cycle: int) -> None:
        what = self.machine.commands[command]
        ready = cycle + CHECK
        if what.opcode in (ArrayOpcode.FORWARD, ArrayOpcode.GRADIENT):
            at, end = self._pass(what.operands, what.opcode == ArrayOpcode.GRADIENT, ready)
        elif what.opcode == ArrayOpcode.CONVOLVE:
            at, end = self._convolve(what.operands, ready)
        else:
            at, end = self._dense(what.operands, ready)
        self.machine.scheduler.taken(command, at)
        self.reported = max(self.reported + 1, end)
        self.machine.scheduler.done(Engine.ARRAY, command, self.reported)

    # -- adapters

    def _pass(self, operands: dict[str, int], backward: bool, ready: int) -> Times:
        rows = self.config.rows
        elements = operands["elements"]
        blocks = -(-elements // BLOCK)
        tables = 2 if operands.get("wide") else 1       # of a block, and how often each beat is read
        tail = ((elements - 1) % BLOCK) // self.config.panels + 1
        last = self.last

        free = max(self.convolve_idle, self.dense_idle, self.fills[1], self.reads[0])
        if last is not None:
            free = max(free, last.filler_free)
        if backward:
            optimiser = tuple(operands.get(name, 0) for name in ("q", "v_mode", "apply", "mu"))
            if optimiser != self.optimiser:
                free = max(free, self.gradients_over)
            self.optimiser = optimiser
        else:
            free = max(free, self.gradients_over)
        at = max(ready, free + 1)

        # The filler hands the pass on when the place before the reader is free.
        hand = max(at + 1, last.handed_free if last is not None else 0)
        filled = []
        start = at + 1
        reads = list(self.reads)
        fills = list(self.fills)
        begin = hand + 1
        if last is not None:
            begin = max(begin, last.end + (0 if last.backward else rows))
        if backward:
            load = max(hand + 1, self.load_end + 1, self.swapped)
            self.load_end = load + rows
            begin = max(begin, self.load_end)
        first_read = -1
        for block in range(blocks):
            if block:
                start = max(fills[-1], reads[-2]) + 1
            fills.append(start + LEVELS - 1)
            if tables == 2:
                fills.append(max(fills[-1], reads[-1]) + LEVELS)
            filled.append(fills[-1])
            if block:
                read = max(reads[-1], fills[-1]) + 1
            else:
                read = first_read = max(begin, fills[-1]) + 1
            reads += [read + tables * (tail if block == blocks - 1 else self.beats) - 1] * tables
        end = reads[-1]
        if backward:
            self.swapped = first_read
        self.fills, self.reads = fills[-2:], reads[-2:]
        filler_free = filled[-1] if hand <= filled[-1] else hand + 2
        self.last = _Pass(backward=backward, reads_at=first_read, handed_free=first_read, filler_free=filler_free,
                          end=end)
        if backward:
            done = end + self.gradient_tail
            self.passes_idle = end + 1
            self.gradients_over = done
        else:
            done = end + rows + self.forward_tail
            self.passes_idle = end + rows + 1
        return at, done

    # -- layers of the frozen network

    def _run_ready(self) -> int:
        """When another run may be announced to the post-processor."""
        at = self.run_free
        if len(self.runs) == 4:
            at = max(at, self.runs[0] + 1)
        return at

    def _announce(self, at: int, end: int) -> None:
        """A run that is announced at ``at`` and whose last sums reach the post-processor at ``end``."""
        taken = max(at + 2, self.post_free)
        self.run_free = taken + 1
        self.post_free = end + 1

    def _pop(self, at: int, words: Sequence[int], cycles: Sequence[int]) -> int:
        """Words in the queue at ``words`` leave, each in ``cycles``; the cycle in which the last does."""
        popped = max(self.popped + 1, at + FIFO)
        for word, count in zip(words, cycles):
            popped = max(popped, word - 1) + count
        self.popped = popped
        self.runs.append(popped)
        return popped

    def _convolve(self, operands: dict[str, int], ready: int) -> Times:
        rows = self.config.rows
        fields = tuple(operands[name] for name in WindowRun.__dataclass_fields__)
        key = (*fields, operands["pool"])
        geometry = self.geometries.get(key)
        if geometry is None:
            run = WindowRun(**dict(zip(WindowRun.__dataclass_fields__, fields)))
            geometry = self.geometries[key] = _Geometry(self.config, run, operands["pool"])

        at = max(ready, 1 + max(self.convolve_idle, self.dense_idle, self.passes_idle, self._run_ready()))
        # The window generator prepares for 4 cycles and arms for 2; a pixel needs as long.
        base = max(at + 1 + WindowGenerator.setup, self.steps_over + 3)
        encode = bool(operands.get("encode"))
        if encode:
            self.encoder.expect(operands)
        flow = _Flow(geometry, base, at + 3 + rows, rows, self.encoder if encode else None)
        end = flow.window(geometry.end)
        self.convolve_idle = end + 1
        self.steps_over = flow.step(geometry.steps - 1)
        if encode:
            self.machine.queues[Source.CONVOLUTION_TAPS].add([b + FIFO for b in self.encoder.finish()])
        self._announce(at, end + self.window_tail - self.to_queue)
        cycles = operands["outputs"] if operands["to_dense"] else 1
        words = [cycle + self.window_tail for cycle in flow.windows(geometry.words)]
        popped = self._pop(at, words, [cycles] * len(words))
        return at, popped + 2

    def _dense(self, operands: dict[str, int], ready: int) -> Times:
        rows = self.config.rows
        inputs, samples, outputs = (operands[name] for name in ("inputs", "samples", "outputs"))
        at = max(ready, 1 + max(self.convolve_idle, self.dense_idle, self.passes_idle, self._run_ready()))
        drain = at + inputs + rows
        self.dense_idle = drain + 1
        self.machine.encode.reserve(at + 1, at + inputs)
        first = drain + self.dense_tail
        self._announce(at, first + rows - 1 - self.to_queue)
        cycles = [outputs if row < samples else 1 for row in reversed(range(rows))]
        popped = self._pop(at, range(first, first + rows), cycles)
        return at, popped + 2


class _Head:
    """The engine HEAD."""

    def __init__(self, machine: "_Machine") -> None:
        self.machine = machine
        self.free_at = 0
        self.blocked = False
        self.offered: tuple[int, int] | None = None

    def offer(self, command: int, cycle: int) -> None:
        if self.blocked:
            self.offered = (command, cycle)
            return
        operands = self.machine.commands[command].operands
        samples, k, classes = (operands[name] for name in ("samples", "k", "classes"))
        most = self.machine.config.classes
        at = max(cycle, self.free_at)
        done = at + (samples - 1) * max(k, classes, 4) + 2 * k + classes + most + 42
        self.free_at = done + k * classes + 12
        self.machine.scheduler.taken(command, at)
        self.machine.scheduler.done(Engine.HEAD, command, done)
        if operands.get("last"):
            self.machine.queues[Source.LOSSES].add([done - 1 + FIFO])

    def dumping(self, cycle: int) -> None:
        self.blocked = True

    def dumped(self, cycle: int) -> None:
        self.blocked = False
        self.free_at = cycle
        if self.offered is not None:
            offered, self.offered = self.offered, None
            self.offer(*offered)


# -- machine ----------------------------------------------------------------------------------------------------------


class _Machine:
    """All of it."""

    def __init__(self, commands: Sequence[Instruction], config: Config, program_offset: int, read_latency: int,
                 write_latency: int) -> None:
        self.commands = commands
        self.config = config
        self.program_offset = program_offset
        self.read_latency = read_latency
        self.write_latency = write_latency
        self.times: list[list[int] | None] = [None] * len(commands)
        self.now = 0
        self.agenda = _Agenda()
        self.valid = _Valid()
        self.scheduler = _Scheduler(self)
        self.dispatch = _Dispatch(self)
        self.bus = _Bus(self)
        self.store = _Store(self)
        self.array = _Array(self)
        self.head = _Head(self)
        self.encode = _Encode(self)
        self.engines: dict[int, _Engine] = {
            Engine.LOAD: self.bus, Engine.STORE: self.store, Engine.ARRAY: self.array,
            Engine.HEAD: self.head, Engine.ENCODE: self.encode}
        kinds: dict[int, type[_Queue]] = {
            Source.CONVOLUTION_TAPS: _Queue, Source.DENSE_TAPS: _Queue, Source.RAW: _RawQueue,
            Source.LANES: _LaneQueue, Source.HEAD: _HeadQueue, Source.LOSSES: _Queue}
        self.queues = {source: kind(self) for source, kind in kinds.items()}
        self.held = 0
        self.phase_since = 0
        self.phase = 0
        self.phase_cycles = [0] * len(PHASES)

    def started(self, command: int, cycle: int) -> None:
        self.times[command] = [cycle, -1]

    def finished(self, command: int, cycle: int) -> None:
        times = self.times[command]
        assert times is not None
        times[1] = cycle

    def executing(self, e: int, cycle: int) -> None:
        """What ``e`` executes has changed; the phase is a register behind it."""
        if e not in (Engine.ARRAY, Engine.HEAD):
            return
        under_way = self.scheduler.under_way
        phase = 0
        for engine in (Engine.ARRAY, Engine.HEAD):
            if under_way[engine]:
                phase = self.commands[under_way[engine][0]].phase
                break
        if phase != self.phase:
            self.phase_cycles[self.phase] += cycle + 1 - self.phase_since
            self.phase, self.phase_since = phase, cycle + 1

    def run(self) -> int:
        """Cycles from the bell to the interrupt."""
        # Three cycles of checks come before the first fetch.
        self.agenda.visible(3, self.dispatch.begin)
        while (todo := self.agenda.next()) is not None:
            self.now, action = todo
            action(self.now)
        if self.dispatch.ended is None:
            raise ValueError(f"command {self.dispatch.at}: the program does not get beyond it")
        total = self.dispatch.ended + 3
        self.phase_cycles[self.phase] += total - self.phase_since
        return total


def forecast(plan: Plan | Sequence[Instruction], *, config: Config | None = None, program_offset: int | None = None,
             read_latency: int = 40, write_latency: int = 10) -> Forecast:
    """Forecasts a program.

    Parameters
    ----------
    plan : Plan or sequence of Instruction
        A plan says ``config`` and ``program_offset`` itself.
    read_latency, write_latency : int
        As the simulated memory has them: a first datum comes ``read_latency + 1`` cycles after its address, a
        response ``write_latency + 1`` cycles after a burst's last datum.
    """
    if isinstance(plan, Plan):
        commands: Sequence[Instruction] = plan.assembler.instructions
        config, program_offset = plan.lowered.config, plan.program_offset
    else:
        commands, config, program_offset = plan, config or Config(), program_offset or 0
    for name, value in (("read_latency", read_latency), ("write_latency", write_latency)):
        if value < 1:
            raise ValueError(f"{name}={value}: must be at least 1")
    machine = _Machine(commands, config, program_offset, read_latency, write_latency)
    total = machine.run()
    return Forecast(total=total, phases=dict(zip(PHASES, machine.phase_cycles)),
                    commands=[None if t is None else (t[0], t[1]) for t in machine.times],
                    clock_mhz=config.clock_mhz, held=machine.held, instructions=commands)


# -- comparison -------------------------------------------------------------------------------------------------------


def observed(forecast: Forecast, trace: np.ndarray) -> list[Times | None]:
    """``(started, done)`` of each command in a trace; None where the forecast has a command dropped.

    Raises :class:`ValueError` if the trace has other commands than the forecast.
    """
    starts: list[list[int]] = [[] for _ in Engine]
    dones: list[list[int]] = [[] for _ in Engine]
    for event in trace.tolist():
        cycle = event >> 12
        for e in range(len(Engine)):
            if event >> e & 1:
                starts[e].append(cycle)
            if event >> (6 + e) & 1:
                dones[e].append(cycle)
    out: list[Times | None] = []
    at = [0] * len(Engine)
    for command, times in zip(forecast.instructions, forecast.commands):
        if times is None:
            out.append(None)
            continue
        e = int(command.engine)
        if at[e] == min(len(starts[e]), len(dones[e])):
            raise ValueError(f"trace: {command.engine.name} ends {at[e]} commands, the forecast has more")
        out.append((starts[e][at[e]], dones[e][at[e]]))
        at[e] += 1
    for engine, ended in zip(Engine, dones):
        if len(ended) != at[engine]:
            raise ValueError(f"trace: {engine.name} ends {len(ended)} commands, the forecast has {at[engine]}")
    # A trace counts from where it likes: its first event is where the forecast has it.
    first = min((t[0] for t in out if t is not None), default=0)
    shift = min((t[0] for t in forecast.commands if t is not None), default=0) - first
    return [None if t is None else (t[0] + shift, t[1] + shift) for t in out]


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """A forecast beside a trace.

    ``started``, ``done``, ``duration``: forecast minus trace, of each command that ran (``index``). ``engine``,
    ``opcode``: what it is.
    """

    index: np.ndarray
    engine: np.ndarray
    opcode: np.ndarray
    started: np.ndarray
    done: np.ndarray
    duration: np.ndarray

    def equal(self, engine: int | None = None, opcode: int | None = None) -> float:
        """Share of the commands (of ``engine``, ``opcode``) whose duration is as forecast; 1 if there are none."""
        which = np.ones(len(self.index), bool)
        if engine is not None:
            which &= self.engine == engine
        if opcode is not None:
            which &= self.opcode == opcode
        return float((self.duration[which] == 0).mean()) if which.any() else 1.0

    @property
    def exact(self) -> float:
        """Share of the commands that start and are done in the very cycles that were forecast."""
        return float(((self.started == 0) & (self.done == 0)).mean())


def compare(forecast: Forecast, trace: np.ndarray) -> Comparison:
    """Compares command by command with what :meth:`~gradloom.sim.device.SimulatedDevice.take_trace` recorded."""
    pairs = [(n, ours, theirs) for n, (ours, theirs) in enumerate(zip(forecast.commands, observed(forecast, trace)))
             if ours is not None and theirs is not None]
    if not pairs:
        raise ValueError("forecast: no command runs")
    difference = np.array([p[1] for p in pairs]) - np.array([p[2] for p in pairs])
    which = [forecast.instructions[p[0]] for p in pairs]
    return Comparison(
        index=np.array([p[0] for p in pairs]), engine=np.array([int(c.engine) for c in which]),
        opcode=np.array([int(c.opcode) for c in which]), started=difference[:, 0], done=difference[:, 1],
        duration=difference[:, 1] - difference[:, 0])
