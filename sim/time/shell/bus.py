"""Timing of LOAD and of the bus's read side.

::

    LOAD --> transfer --> bursts --+--> address, one at a time --> memory --> beats, in order --> sinks
    fetch of the program ----------+    (a port that keeps few reads                  |
                                         in flight may make it wait)                  +--> dispatch
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gradloom.program.assembler import Instruction
from gradloom.rtl.shell.engines import LOAD, Engines

from .sequencer import SequencedMachine

if TYPE_CHECKING:
    from .dram import Dram

__all__ = ["USUAL", "Bus", "MemoryTime", "ReadingMachine", "Sink", "TransferTime"]


@dataclass(frozen=True, kw_only=True)
class MemoryTime:
    """What a forecast knows of the memory behind a machine's ports.

    Parameters
    ----------
    read_latency, write_latency : int
        As the simulated memory has them: a first datum comes ``read_latency + 1`` cycles after its address, a
        response ``write_latency + 1`` cycles after a burst's last datum.
    port_reads : int
        Reads that a port keeps in flight, :attr:`~gradloom.boards.Board.port_reads` of a board; 0: as many as the
        machine asks for.
    dram : Dram, optional
        What lies behind the ports; without, data is there after the latencies.
    """

    read_latency: int = 40
    write_latency: int = 10
    port_reads: int = 0
    dram: "Dram | None" = None

    def __post_init__(self) -> None:
        for name, least in ("read_latency", 1), ("write_latency", 1), ("port_reads", 0):
            value = getattr(self, name)
            if value < least:
                raise ValueError(f"{name}={value}: must be at least {least}")


#: As a simulation's memory is until it is told otherwise.
USUAL = MemoryTime()


@dataclass(eq=False, slots=True)
class TransferTime:
    """A LOAD on its way."""

    command: int
    operands: dict[str, int]
    #: In beats, of the next burst; beats that no burst asks for yet; beats that were taken.
    address: int
    left: int
    taken: int = 0
    #: When its last beat was taken.
    ended: int | None = None

    @property
    def beats(self) -> int:
        """All of them."""
        return self.operands["beats"]


class Sink(Protocol):
    """A sink for the beats of a LOAD."""

    def __call__(self, at: int, count: int, transfer: TransferTime, /) -> Sequence[int]:
        """When the next ``count`` beats are taken, as far as is known.

        The first may be taken from ``at`` on, each other from the cycle after the one before. What returns fewer
        cycles calls :meth:`Bus.pump` when it knows more.
        """


def _unbounded(at: int, count: int, transfer: TransferTime) -> Sequence[int]:
    """A beat a cycle."""
    return range(at, at + count)


class Bus:
    """The engine LOAD, and the read side of the bus.

    The program's fetch shares it.
    """

    def __init__(self, machine: "ReadingMachine") -> None:
        self.machine = machine
        self.agenda = machine.agenda
        self.latency = machine.memory.read_latency
        self.port_reads = machine.memory.port_reads
        self.wanted = 0  # beats of a fetch that waits
        self.in_flight = 0
        self.outstanding = machine.outstanding
        #: Cycles from a beat of a burst to the next.
        self.spacing = 1
        #: What becomes of beats tells when addresses may follow.
        self.limited = bool(self.port_reads)
        self.trying = -1
        self.sent = -1  # when the last burst left for the address register
        self.last = -1  # cycle of the last beat so far
        self.offered: tuple[int, int] | None = None
        self.free_at = 0  # the command before has sent its bursts
        self.contexts: deque[TransferTime] = deque(maxlen=4)
        self.bursting: TransferTime | None = None
        self.burst_at: int | None = None  # its next burst may leave from then on
        #: Bursts that were asked for: first cycle, beats that are not taken yet, what they belong to if not a fetch.
        self.coming: deque[tuple[int, int, TransferTime | None]] = deque()
        self.read_beats = 0
        self.pumping = self.again = False
        # Of a port that keeps few reads in flight only:
        #: The burst in the address register: since when, its first beat, beats, and what they belong to if not a fetch.
        self.addressed: tuple[int, int, int, TransferTime | None] | None = None
        self.flying = 0
        #: Reads of which it is not known when the last beat comes: first cycle, beats, all beats up to its last.
        self.arriving: deque[tuple[int, int, int]] = deque()
        self.asked = self.taken = 0  # beats
        self.took = [-1, -1]  # when the last two were taken
        #: First and last cycles in which beats of the ports that STORE forwards to were taken.
        self.filled: dict[int, deque[tuple[int, int]]] = {
            command.operands["to"]: deque() for command in machine.commands if command.operands.get("forward")
        }

    # commands

    def offer(self, command: int, cycle: int) -> None:
        self.offered = (command, cycle)
        self._start(cycle)

    def _start(self, cycle: int) -> None:
        if self.offered is None or self.bursting is not None:
            return
        command, offered = self.offered
        at = max(cycle, offered, self.free_at)
        if len(self.contexts) == 4:
            ended = self.contexts[0].ended
            if ended is None:
                return
            at = max(at, ended + 1)
        self.offered = None
        self.machine.scheduler.taken(command, at)
        operands = self.machine.commands[command].operands
        self.bursting = TransferTime(
            command, operands, operands["offset"] // self.machine.beat_bytes, operands["beats"]
        )
        self.contexts.append(self.bursting)
        self.burst_at = at + 3
        self._next(at + 3)

    # addresses

    def fetch(self, beats: int, cycle: int) -> None:
        self.wanted = beats
        self._next(cycle)

    def _next(self, cycle: int) -> None:
        """Tries again as soon as a burst may leave, in ``cycle`` at the earliest.

        Where none may, what ends that comes here.
        """
        if self.in_flight >= self.outstanding or self.addressed is not None:
            return
        if self.wanted:
            self._try_at(cycle)
        elif self.burst_at is not None:
            # A sink may tell late that it took beats long ago.
            self._try_at(max(cycle, self.burst_at))

    def _try_at(self, cycle: int) -> None:
        if self.trying != cycle:
            self.trying = cycle
            self.agenda.decide(cycle, self._try)

    def _try(self, cycle: int) -> None:
        if self.trying == cycle:
            self.trying = -1
        # Whoever left in this cycle has seen to the next one.
        if self.sent == cycle or self.in_flight >= self.outstanding or self.addressed is not None:
            return
        if self.wanted:
            beats, self.wanted = self.wanted, 0
            self._ask(cycle, beats, None)
            self.machine.dispatch.accepted(cycle)
            self._next(cycle + 1)
        elif self.burst_at is not None and self.burst_at <= cycle:
            transfer = self.bursting
            assert transfer is not None
            beats = min(self.machine.burst - transfer.address % self.machine.burst, transfer.left)
            transfer.address += beats
            transfer.left -= beats
            self.burst_at = None
            if transfer.left:
                self.burst_at = cycle + 2
            else:
                self.bursting = None
                self.free_at = cycle + 1
                self.agenda.decide(cycle + 1, self._start)
            self._ask(cycle, beats, transfer)
            self._next(cycle + 2)

    def _ask(self, cycle: int, beats: int, transfer: TransferTime | None) -> None:
        """Decides in ``cycle`` on the address of a burst."""
        self.sent = cycle
        self.in_flight += 1
        self.read_beats += beats
        place = self.machine.dispatch.next_beat if transfer is None else transfer.address
        if self.limited:
            self.addressed = cycle + 1, place - beats, beats, transfer
            self.agenda.visible(cycle + 1, self._address)
        else:
            self._coming(self._due(cycle + 1, place - beats, beats), beats, transfer)

    def _due(self, cycle: int, place: int, beats: int) -> int:
        """When memory has the first datum of a burst whose address it takes in ``cycle``."""
        dram = self.machine.dram
        late = 0 if dram is None else dram.read(cycle, place, beats * self.spacing, self.latency)
        return cycle + self.latency + late + 1

    def _coming(self, due: int, beats: int, transfer: TransferTime | None) -> None:
        """The first beat of a burst is at the port from ``due`` on."""
        self.coming.append((due + 1, beats, transfer))
        if len(self.coming) == 1:
            self.pump()

    # a port that keeps few reads in flight

    def _address(self, cycle: int) -> None:
        """The port takes an address in ``cycle``, if one waits and has a place."""
        if self.addressed is None or self.flying >= self.port_reads:
            return
        since, place, beats, transfer = self.addressed
        if cycle < since:
            return  # a sink told late that it took a beat: its own action is still to come
        self.addressed = None
        self.flying += 1
        self.asked += beats
        due = self._due(cycle, place, beats)
        self.arriving.append((due, beats, self.asked))
        self._arrive(())
        self._coming(due, beats, transfer)
        self._next(cycle)

    def _arrive(self, times: Sequence[int]) -> None:
        """The next beats are taken at ``times``.

        LOAD holds two beats that are not taken yet, so that a beat comes after the second before it was taken.
        """
        known = [*self.took, *times]
        while self.arriving:
            first, beats, end = self.arriving[0]
            if end - self.taken > len(known):
                break
            self.arriving.popleft()
            self.agenda.visible(max(first + beats, known[end - 1 - self.taken] + 2), self._arrived)
        self.taken += len(times)
        self.took = known[-2:]

    def _arrived(self, cycle: int) -> None:
        self.flying -= 1
        self._address(cycle)

    # beats

    def pump(self) -> None:
        """Lets beats be taken, as far as is known.

        A sink that takes beats may itself find that more can be taken: then they are looked at once more.
        """
        self.again = True
        if self.pumping:
            return
        self.pumping = True
        while self.again:
            self.again = False
            self._pump()
        self.pumping = False

    def _pump(self) -> None:
        while self.coming:
            first, beats, transfer = self.coming[0]
            at = max(self.last + 1, first)
            # Beats that are there one after another from then on.
            count = beats if self.spacing == 1 else min(beats, (at - first) // (self.spacing - 1) + 1)
            if transfer is None:
                times: Sequence[int] = range(at, at + count)
            else:
                sink = self.machine.sinks.get(transfer.operands["dest"], _unbounded)
                times = sink(at, count, transfer)
                transfer.taken += len(times)
            if self.limited:
                self._arrive(times)
            if times:
                self.last = times[-1]
                if transfer is not None and transfer.operands["dest"] in self.filled:
                    self.filled[transfer.operands["dest"]].append((times[0], times[-1]))
            if len(times) < beats:
                self.coming[0] = (first + self.spacing * len(times), beats - len(times), transfer)
            else:
                self.coming.popleft()
                self.agenda.visible(self.last + 1, self._release)
            if transfer is None:
                for time in times:
                    self.machine.dispatch.arrive(time + 1)
            elif transfer.taken == transfer.beats:
                transfer.ended = self.last
                self.machine.scheduler.done(LOAD, transfer.command, self.last + 1)
                self._start(self.machine.now)
            if len(times) < count:
                return

    def free(self, port: int, cycle: int) -> int:
        """The first cycle from ``cycle`` on that STORE may forward in.

        It follows one in which LOAD's port took no beat. As far as is known; what is before ``cycle`` is forgotten.
        """
        spans = self.filled[port]
        while spans and spans[0][0] < cycle:
            last = spans[0][1]
            if last >= cycle - 1:
                cycle = last + 2
            spans.popleft()
        return cycle

    def sure(self, port: int) -> int:
        """A cycle before which all beats that a port takes are known to :meth:`free`."""
        if any(transfer is not None and transfer.operands["dest"] == port for _, _, transfer in self.coming):
            return self.machine.now + 1
        # An address leaves now at the soonest.
        return self.machine.now + self.latency + 1

    def _release(self, cycle: int) -> None:
        self.in_flight -= 1
        self._next(cycle)


class ReadingMachine(SequencedMachine):
    """Sequencer and LOAD.

    ``sinks`` are those of ports that do not take every beat of a LOAD as it comes.
    """

    def __init__(
        self,
        commands: Sequence[Instruction],
        table: Engines,
        shell: Mapping[str, int],
        program_offset: int,
        memory: MemoryTime,
    ) -> None:
        super().__init__(commands, table, shell, program_offset)
        self.ports: int = shell["ports"]
        self.outstanding = shell["outstanding"] * self.ports
        self.memory = memory
        self.dram = memory.dram.timed(self.beat_bytes) if memory.dram is not None else None
        self.bus = self.make_bus()
        self.engines |= {LOAD: self.bus}
        self.sinks: dict[int, Sink] = {}

    def make_bus(self) -> Bus:
        """The model of its bus."""
        return Bus(self)

    def fetch(self, beats: int, cycle: int) -> None:
        self.bus.fetch(beats, cycle)
