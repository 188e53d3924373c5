"""The gradient engine in time, and the memory of h beside it."""

from collections.abc import Sequence

from gradloom.rtl.engines.operands import OperandQueue
from gradloom.rtl.engines.words import Requantize
from gradloom.rtl.machines.language import GRADIENT

from .shell.bus import Sink, TransferTime
from .shell.queues import Operands, Output, Taken
from .shell.shell import OneAtATime, TimedMachine

__all__ = ["GradientTime"]


class GradientTime(OneAtATime):
    """The engine GRADIENT.

    It takes a beat in ``rank / 2`` cycles, then reads the results of a tile.
    """

    def __init__(self, machine: TimedMachine) -> None:
        self.machine: TimedMachine = machine
        self.kept = KeptPanel(machine)
        self.offered = None
        self.command = None
        self.free_at = 0
        config = self.config = machine.config
        self.operands: dict[str, int] = {}
        self.parts = config.edge // config.beat_words
        words = config.beat_words
        self.output = Output(
            machine, GRADIENT, steps=words, limit=16 - (12 // words + 2), delay=1 + Requantize.latency + 1
        )
        self.queue = Operands(OperandQueue.depth)
        self.queues = {GRADIENT.store("gradients"): self.output, GRADIENT.store("hidden"): self.kept}
        self.sinks: dict[int, Sink] = {GRADIENT.load("x"): self.take, GRADIENT.load("hidden"): self.kept.restore}
        self.open_at: int | None = None  # takes beats from then on
        self.left = 0  # beats of the tile

    def _begin(self, command: int, at: int) -> None:
        operands = self.operands = self.machine.commands[command].operands
        self.tiles = operands["tiles"]
        self.output.expect(self.tiles * operands["rank"] * self.parts, command)
        self._open(at + 2)

    def _open(self, cycle: int) -> None:
        self.open_at = cycle
        self.left = self.operands["tokens"] * self.parts
        self._advance()
        self.machine.bus.pump()

    def take(self, at: int, count: int, transfer: TransferTime) -> Sequence[int]:
        """Beats into the queue."""
        times: list[int] = []
        while more := self.queue.write(at, count - len(times)):
            times += more
            at = more[-1] + 1
            self._advance()
        return times

    def _advance(self) -> None:
        """Takes the beats that wait."""
        queue, pairs = self.queue, self.operands["rank"] // 2 if self.operands else 0
        while self.open_at is not None and queue.head is not None:
            first = max(queue.head, self.open_at)
            last = first + pairs - 1
            queue.take(last)
            self.kept.busy.add(first, last)
            self.open_at = last + 1
            self.left -= 1
            if not self.left:
                self.open_at = None
                # Eight cycles until all sums are in.
                self.machine.agenda.decide(last + 9, self._sums_in)

    def _sums_in(self, cycle: int) -> None:
        self.output.produce(cycle, self.operands["rank"] * self.parts, self._was_read)

    def _was_read(self, last: int) -> None:
        self.tiles -= 1
        if self.tiles:
            self._open(last + 1)
        else:
            self.command = None
            self.free_at = last + 1
            self._start(last + 1)


class KeptPanel(Output):
    """Transfers of h to memory and back.

    A beat takes ``edge / 16`` cycles in which nothing else uses its memory.
    """

    def __init__(self, machine: TimedMachine) -> None:
        super().__init__(machine, GRADIENT, steps=machine.config.beat_words // 2, limit=4, delay=2)
        self.busy = Taken()  # by the gradient engine
        self.made = Taken()  # words of a product are written
        self.free_at = 0  # takes a request
        self.back_at = 0  # takes a beat back

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

    def restore(self, at: int, count: int, transfer: TransferTime) -> Sequence[int]:
        """Beats of h that come back, one at a time.

        They come for the words of products that may come.
        """
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
