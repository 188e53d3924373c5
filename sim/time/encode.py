"""The encode engine in time, and the encoder that the array has too."""

from collections import deque

from gradloom.rtl.engines.encode.commands import EncodeOpcode
from gradloom.rtl.formats.images import SCALES_PER_BEAT
from gradloom.rtl.machines.images import ENCODE

from .shell.bus import Sink
from .shell.queues import FifoQueue
from .shell.scheduler import Times
from .shell.shell import FIFO, OneAtATime, Queue, TimedMachine

__all__ = ["BLOCK", "LEVELS", "EncodeTime", "Encoder"]

BLOCK = 64  # elements that share a scale
LEVELS = 16  # cycles in which a table is filled


class Encoder:
    """An encoder with its packer.

    It computes the cycles of a tap's beats from those of its elements.

    Blocks enter one after the other. An element enters when the element 128 before it has been read back, a block's
    first one also when the payload four blocks before has left. The taps of a program are all in codes of 4 bits or all
    in codes of 8 bits (``wide``).
    """

    def __init__(self) -> None:
        self.free_at = 0  # the next block's first element may enter
        self.multiplied = 0  # the thresholds of the next block may be multiplied
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

    def copy(self) -> "Encoder":
        other = Encoder()
        other.__dict__.update(self.__dict__)
        other.beats = list(self.beats)
        return other

    def limits(self) -> tuple[int, int, int]:
        """When elements of the next block may enter: ``(first, element, then)``.

        ``first``: the block's first element; from ``element`` on, elements may enter from ``then`` on, one a cycle.
        """
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
        """Enters the rest of a short block.

        ``elements`` of it are there, the last since ``last``.
        """
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


class _RawQueue(Queue):
    """Raw activations, straight from the engine ENCODE."""

    machine: TimedMachine

    def take(self, cycle: int) -> None:
        self.times.popleft()
        self.machine.models["encode"].raw_taken(cycle)


class EncodeTime(OneAtATime):
    """The engine ENCODE."""

    check = 1
    #: From the read of an element of row 0 to the element at the encoder.
    delay = 6 + 2 + FIFO

    def __init__(self, machine: TimedMachine) -> None:
        self.machine: TimedMachine = machine
        self.queues = {ENCODE.store("taps"): FifoQueue(machine), ENCODE.store("raw"): _RawQueue(machine)}
        self.sinks: dict[int, Sink] = {}
        self.agenda = machine.agenda
        self.encoder = Encoder()
        self.offered: tuple[int, int] | None = None
        self.free_at = 0
        self.command: int | None = None
        self.version = 0
        self.raw_left = 0
        self.raw_waits = False  # a beat of raw elements, for STORE
        self.dense: deque[Times] = deque(maxlen=64)  # cycles in which DENSE reads

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
            cycle = max(cycle, last + 1)
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
            block = arrives[at : at + BLOCK]
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
        queue = self.machine.queues[ENCODE.store("taps")]
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
        self.machine.scheduler.done(ENCODE, command, cycle)
        self.free_at = cycle + 1
        self._start(cycle + 1)

    def _raw(self, after: int) -> None:
        """The next beat of raw elements.

        Its first element enters after ``after``; it waits here for STORE.
        """
        count = min(4, self.raw_left)
        at = after
        for n in range(count):
            at = max(at + 1, self.arrives[self.raw_done + n])
        self.raw_done += count
        self.raw_left -= count
        self.raw_waits = True
        self.machine.queues[ENCODE.store("raw")].add([at + 1])
        if not self.raw_left:
            version = self.version
            self.agenda.decide(at, lambda now: self._done(now, version))

    def raw_taken(self, cycle: int) -> None:
        self.raw_waits = False
        if self.raw_left:
            self._raw(cycle)
