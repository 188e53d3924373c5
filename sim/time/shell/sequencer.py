"""Timing of the sequencer: fetch and dispatch."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from gradloom.program.assembler import Instruction
from gradloom.program.progress import StuckError
from gradloom.rtl.shell.engines import CONTROL, Engines
from gradloom.rtl.shell.signature import COMMAND_BYTES, ControlOpcode

from .scheduler import Agenda, EngineModel, SchedulerTime, Times

__all__ = ["SequencedMachine"]

BURST = 16  # of a port: its beats of the longest burst


class Valid:
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


class DispatchTime:
    """Fetch and dispatch of the program."""

    def __init__(self, machine: "SequencedMachine") -> None:
        self.machine = machine
        self.agenda = machine.agenda
        self.beats: deque[int] = deque()  # cycles from which fetched beats may be popped
        #: Beats of a command.
        self.parts = max(COMMAND_BYTES // machine.beat_bytes, 1)
        self.left = self.parts * len(machine.commands)
        self.burst = machine.burst
        self.credit = 2 * self.burst
        self.wanted = False
        self.planning = False
        self.next_beat = machine.program_offset // machine.beat_bytes
        self.collecting: int | None = None  # since when
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
        if self.wanted or not self.left or self.credit < self.burst:
            return
        room = self.burst - self.next_beat % self.burst
        beats = min(room, self.left)
        self.left -= beats
        self.next_beat += beats
        self.credit -= room
        self.wanted = True
        self.agenda.visible(cycle + 1, lambda now: self.machine.fetch(beats, now))

    def accepted(self, cycle: int) -> None:
        """The request left in ``cycle``."""

        def later(now: int) -> None:
            self.wanted = False
            self._plan_at(now)

        self.agenda.visible(cycle + 1, later)

    def arrive(self, cycle: int) -> None:
        """A fetched beat may be popped from ``cycle`` on."""
        self.beats.append(cycle)
        if self.collecting is not None and len(self.beats) == self.parts:
            self._pop(self.collecting)

    # dispatch

    def _collect(self, cycle: int) -> None:
        """Ready to pop from ``cycle`` on."""
        self.collecting = cycle
        if len(self.beats) >= self.parts:
            self._pop(cycle)

    def _pop(self, cycle: int) -> None:
        self.collecting = None
        pop = cycle - 1
        for _ in range(self.parts):
            pop = max(pop + 1, self.beats.popleft())
            self.agenda.visible(pop + 1, self._credit)
        self.agenda.decide(pop + 1, self._decode)

    def _credit(self, cycle: int) -> None:
        self.credit += 1
        if not self.wanted and self.left and self.credit >= self.burst:
            self._plan_at(cycle)

    def _decode(self, cycle: int) -> None:
        command = self.machine.commands[self.at]
        if command.slots is None:
            self.agenda.decide(cycle + 1, self._dispatch)
            return
        # ASK in the next cycle, ANSWER until done.
        self.agenda.decide(cycle + 1 + Valid.cycles(*command.slots), self._answer)

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
        if command.engine == CONTROL:
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

            self.agenda.decide(cycle + Valid.cycles(slot, count), ranged)
            return
        if opcode == ControlOpcode.CLEAR:

            def cleared(now: int) -> None:
                self.machine.valid.bits = 0
                done(now)

            self.agenda.decide(cycle + 1 + self.machine.slots // 32, cleared)
            return

        def idle(now: int) -> bool:
            if scheduler.outstanding or any(scheduler.pending):
                return False
            if opcode == ControlOpcode.END:
                scheduler.done(0, index, now)
                self.ended = now
            else:
                if opcode == ControlOpcode.YIELD:
                    # Nobody asks for one before the next command is dispatched. No request is pending.
                    scheduler.tokens = [0] * len(scheduler.tokens)
                done(now)
            return True

        if not idle(cycle):
            self.waiting = idle


class SequencedMachine(ABC):
    """Commands in time, for any ``engines``.

    They may come from any memory.
    """

    def __init__(
        self, commands: Sequence[Instruction], table: Engines, shell: Mapping[str, int], program_offset: int
    ) -> None:
        self.commands = commands
        self.engine_table = table
        self.beat_bytes = shell["data_bits"] // 8
        #: Beats of the longest burst.
        self.burst = BURST * shell["port_bits"] // shell["data_bits"]
        self.queue_depth, self.slots = shell["depth"], shell["slots"]
        self.program_offset = program_offset
        self.times: list[list[int] | None] = [None] * len(commands)
        self.now = 0
        self.agenda = Agenda()
        self.valid = Valid()
        self.scheduler = SchedulerTime(self)
        self.dispatch = DispatchTime(self)
        self.engines: dict[int, EngineModel] = {}
        self.phase_since = 0
        self.phase = 0
        self.phase_cycles = [0] * len(table.phases)

    @abstractmethod
    def fetch(self, beats: int, cycle: int) -> None:
        """Asks memory for the next beats of the program, in one burst."""

    def started(self, command: int, cycle: int) -> None:
        self.times[command] = [cycle, -1]

    def finished(self, command: int, cycle: int) -> None:
        times = self.times[command]
        assert times is not None
        times[1] = cycle

    def executing(self, e: int, cycle: int) -> None:
        """Updates the phase after a change of ``e``'s commands.

        The phase is a register behind it.
        """
        under_way = self.scheduler.under_way
        phase = 0
        for engine in self.engine_table.by_urgency:
            if under_way[engine]:
                phase = engine.phase_base + engine.phase(self.commands[under_way[engine][0]].phase)
                break
        if phase != self.phase:
            self.phase_cycles[self.phase] += cycle + 1 - self.phase_since
            self.phase, self.phase_since = phase, cycle + 1

    def run(self) -> int:
        """Cycles from the bell to the interrupt."""
        # Three cycles of checks come before the first fetch.
        self.agenda.visible(3, self.dispatch.begin)
        for now, action in self.agenda.actions():
            self.now = now
            action(now)
        if self.dispatch.ended is None:
            raise StuckError(f"command {self.dispatch.at}: the program stops at this command")
        total = self.dispatch.ended + 3
        self.phase_cycles[self.phase] += total - self.phase_since
        return total

    def command_times(self) -> list[Times | None]:
        """``(started, done)`` of each command."""
        return [None if t is None else (t[0], t[1]) for t in self.times]
