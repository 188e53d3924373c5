"""The element engine in time."""

from collections.abc import Sequence

from gradloom.rtl.engines.element.engine import ElementEngine
from gradloom.rtl.formats.tiles.element import ElementOpcode

from .shell.bus import Sink, TransferTime
from .shell.queues import Operands
from .shell.shell import OneAtATime, Queue, TimedMachine
from .tiles import records_to_store

__all__ = ["ElementTime"]

#: Features of a beat of results, and words of a beat of the bus.
_CODES, _WORDS = 8, 8
#: Cycles of a beat of SQUARES.
_SQUARE = 4


class ElementTime(OneAtATime):
    """The engine ELEMENT: a beat of results in one cycle.

    One of SQUARES takes four, and words are taken as they come, by TABLE in four cycles a beat.
    """

    def __init__(self, machine: TimedMachine) -> None:
        self.machine: TimedMachine = machine
        self.engine = machine.engine_table.named("element")
        self.offered = None
        self.command = None
        self.free_at = 0
        self.words = Operands(ElementEngine.depth)
        self.queues: dict[int, Queue] = records_to_store(machine, self.engine)
        self.sinks: dict[int, Sink] = {self.engine.load("words"): self.take}
        self.next = 0  # the next beat of words may be taken
        self.left = 0  # beats of words
        self.more = 0  # cycles of a beat of words less 1

    def _begin(self, command: int, at: int) -> None:
        what = self.machine.commands[command]
        rows, features = what.operands.get("rows", 0) + 1, what.operands.get("features", 0) + 1
        first = at + ElementEngine.start
        if what.opcode in (ElementOpcode.WORDS, ElementOpcode.TABLE):
            table = what.opcode == ElementOpcode.TABLE
            self.next, self.left = first, rows * -(-(_CODES if table else features) // _WORDS)
            self.more = _WORDS - 1 if table else 0
            self._advance()
            self.machine.bus.pump()
            return
        steps = _SQUARE if what.opcode == ElementOpcode.SQUARES else 1
        self._end(first + rows * -(-features // _CODES) * steps - 1)

    def take(self, at: int, count: int, transfer: TransferTime) -> Sequence[int]:
        """Beats of words into the queue."""
        times: list[int] = []
        while more := self.words.write(at, count - len(times)):
            times += more
            at = more[-1] + 1
            self._advance()
        return times

    def _advance(self) -> None:
        """Takes the words that wait."""
        while self.left and self.words.head is not None:
            cycle = max(self.next, self.words.head) + self.more
            self.words.take(cycle)
            self.next = cycle + 1
            self.left -= 1
            if not self.left:
                self._end(cycle)

    def _end(self, last: int) -> None:
        """The last beat of results begins in ``last``."""
        command, self.command = self.command, None
        assert command is not None
        done = last + ElementEngine.finish
        self.free_at = done + 1
        self.machine.scheduler.done(self.engine, command, done)
        self._start(self.machine.now)
