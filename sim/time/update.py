"""The update engine in time."""

from collections import deque
from collections.abc import Iterable, Sequence

from amaranth.utils import ceil_log2

from gradloom.rtl.engines.update.adamw import AdamLane
from gradloom.rtl.engines.update.commands import UpdateOpcode
from gradloom.rtl.engines.update.engine import Descent, UpdateEngine
from gradloom.rtl.engines.update.pack import PackUnit
from gradloom.rtl.engines.words import Requantize
from gradloom.rtl.formats.adamw import GradientArgument

from .shell.bus import Sink, TransferTime
from .shell.queues import Output
from .shell.shell import TimedMachine, Waking

__all__ = ["UpdateTime"]


class Pairs:
    """Beats of gradients and of words that wait for each other.

    They are read as :class:`PairQueue` reads them: alternately.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.put: tuple[list[int], list[int]] = ([], [])  # when each was written, for both streams
        self.got: tuple[list[int], list[int]] = ([], [])  # ... and read
        self.turn = 0
        self.moved: int | None = -1  # the beat that was read last left the memory's output, if it has
        self.taken = -1  # the last pair
        self.ready: int | None = None  # the next pair is there

    def write(self, stream: int, at: int, count: int) -> list[int]:
        """When the next beats of a stream are written, from ``at`` on.

        The list ends where room is not known yet.
        """
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


class CodesTime:
    """Beats of codes on their way to the pairs, as words.

    They go as :class:`~gradloom.rtl.engines.update.codes.GradientCodes` makes them.
    """

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs
        self.left = 0  # beats of words that are to be written ...
        self.next = 0  # ... from then on
        self.free = 0  # the next beat may be taken
        self.written = -1  # the last
        self.transfer: TransferTime | None = None
        self.header, self.position = False, 0  # of the next beat

    def flow(self) -> None:
        """Writes what has room."""
        if self.left:
            times = self.pairs.write(0, self.next, self.left)
            self.left -= len(times)
            if times:
                self.written = self.free = times[-1]
                self.next = self.written + 1

    def take(self, at: int, count: int, transfer: TransferTime) -> Sequence[int]:
        """When the next beats are taken."""
        arg = GradientArgument.from_bits(transfer.operands.get("arg", 0))
        times: list[int] = []
        if self.transfer is not transfer:
            self.transfer, self.header, self.position = transfer, bool(arg.codes and arg.header), 0
        while len(times) < count:
            self.flow()
            if self.left:
                break
            cycle = max(at, self.free)
            times.append(cycle)
            at = self.free = cycle + 1
            if self.header:
                self.header = False
                continue
            ends = self.position == arg.features >> 4
            self.position = 0 if ends else self.position + 1
            self.left = 2 if arg.codes and not (ends and not arg.features & 8) else 1
            self.next = cycle + 1
        self.flow()
        return times


class NewWords(Output):
    """New words: the last of a command of AdamW waits for its last moments."""

    def __init__(self, machine: TimedMachine, *, limit: int) -> None:
        super().__init__(
            machine, machine.engine_table.named("update"), steps=1, limit=limit, delay=1 + 1 + Descent.latency + 1
        )
        self.gates: deque[int] = deque()  # beats that wait
        self.opened: deque[int] = deque()  # from when on they do not

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


class NewMoments(Output):
    """New moments."""

    def __init__(self, machine: TimedMachine, words: NewWords, *, limit: int) -> None:
        super().__init__(
            machine, machine.engine_table.named("update"), steps=1, limit=limit, delay=1 + 1 + AdamLane.m_latency + 1
        )
        self.words = words

    def end(self, command: int, cycle: int) -> None:
        self.words.opened.append(cycle + 1)


class Packer:
    """A command of :class:`~gradloom.rtl.engines.update.pack.PackUnit`.

    It gives the cycles of the pairs of beats that it takes, and of the beats that leave.
    """

    def __init__(self, update: "UpdateTime", operands: dict[str, int], unpacks: bool, at: int) -> None:
        self.update = update
        config = update.machine.config
        self.edge, self.few = config.edge, config.beat_words
        self.batches = operands["blocks"] // 2
        self.wide = bool(operands.get("wide", 0))
        self.record = PackUnit.record_beats(config)
        self.unpacks = unpacks
        codes = 4 if self.wide else 2
        #: Beats that leave.
        self.beats = 16 * self.batches if unpacks else codes * self.batches + self.record
        self.batch = self.taken = 0
        self.state = "room"
        self.next = at + 2

    def go(self, now: int) -> None:
        """Does what begins in this cycle, or comes back."""
        update = self.update
        while update.packer is self:
            if self.state == "room":
                if self.next > now:
                    update.wake(self.next)
                    return
                full = [output for output in (update.words, update.moments) if not output.roomy(now)]
                if full:
                    full[0].wait(now, update.wake)
                    return
                self.next = now + 1
                self.state = "fill" if not self.unpacks else "codes" if self.batch or self.taken else "header"
            if update.pairs.ready is None:
                return
            cycle = max(self.next, update.pairs.ready)
            if cycle > now:
                update.wake(cycle)
                return
            getattr(self, f"_{self.state}")(now)

    def _take(self, last: int) -> None:
        self.update.pairs.take(last)
        self.taken += 1
        self.next = last + 1

    def _leave(self, cycles: Iterable[int]) -> None:
        self.update.words.issue([cycle - self.update.words.delay for cycle in cycles])

    def _header(self, now: int) -> None:
        self._take(now + self.few - 1)
        if self.taken == self.record:
            self.taken, self.state = 0, "codes"

    def _codes(self, now: int) -> None:
        count = self.edge if self.wide else 2 * self.edge
        self._leave(now + n + 16 for n in range(self.few - 1, count, self.few))
        self._take(now + count - 1)
        self.state = "skip"

    def _skip(self, now: int) -> None:
        self._take(now)
        if self.taken == (4 if self.wide else 2):
            self.taken = 0
            self.batch += 1
        self.state = "room"
        if self.batch == self.batches:
            self.update.packed(now + 19)

    def _fill(self, now: int) -> None:
        self._take(now + self.few - 1)
        if self.taken < 16:
            return
        self.taken = 0
        self.batch += 1
        first = self.next + 11
        last = first + 2 * self.edge - 1
        step = self.edge // 2 if self.wide else self.edge
        self._leave(first + n + 17 for n in range(step - 1, 2 * self.edge, step))
        self.state, self.next = "room", last + 1
        if self.batch == self.batches:
            tail = last + 19
            self._leave(tail + n + 4 for n in range(4 * self.few - 1, 4 * self.few * self.record, 4 * self.few))
            self.update.packed(tail + 4 * self.few * self.record + 5)


class UpdateTime(Waking):
    """The engine UPDATE.

    It takes a beat of words in ``parts`` cycles, by SGD in half as many.
    """

    def __init__(self, machine: TimedMachine) -> None:
        super().__init__(machine)
        self.parts = machine.config.beat_words // max(machine.config.beat_words // 4, 1)
        self.slack = AdamLane.latency + 5 + Requantize.latency + 4
        deep = 2 * (AdamLane.m_latency + 5) // self.parts + 4
        self.pairs = Pairs(2 * UpdateEngine.depth)
        self.codes = CodesTime(self.pairs) if machine.config.records else None
        self.words = NewWords(machine, limit=512 - self.slack)
        self.moments = NewMoments(machine, self.words, limit=(1 << ceil_log2(deep + 8)) - deep)
        engine = machine.engine_table.named("update")
        self.queues = {engine.store("words"): self.words, engine.store("moments"): self.moments}
        self.sinks: dict[int, Sink] = {
            engine.load("directions"): self.take_gradients,
            engine.load("words"): self.take_words,
            engine.load("moments"): self.take_moments,
        }
        self.adam = False
        self.next = 0  # the next half may enter
        self.second = False  # ... and is the second of its beat
        self.left = 0  # beats
        self.packer: Packer | None = None

    def _begin(self, command: int, at: int) -> None:
        what = self.machine.commands[command]
        if what.opcode in (UpdateOpcode.PACK, UpdateOpcode.UNPACK):
            self.packer = Packer(self, what.operands, what.opcode == UpdateOpcode.UNPACK, at)
            self.words.expect(self.packer.beats, command)
            self.wake(self.machine.now)
            return
        self.left = what.operands["beats"]
        self.adam = what.opcode in (UpdateOpcode.ADAMW, UpdateOpcode.ADAMW_CODES)
        self.words.expect(self.left, command)
        if self.adam:
            self.words.gates.append(self.words.ends[-1][0] - 1)
            self.moments.expect(2 * self.left, command)
        self.next = at + 2
        self.wake(self.machine.now)

    # sinks

    def take_gradients(self, at: int, count: int, transfer: TransferTime) -> Sequence[int]:
        """Beats of gradients."""
        if self.codes is None:
            return self._put(0, at, count)
        times = self.codes.take(at, count, transfer)
        if times:
            self.wake(self.machine.now)
        return times

    def take_words(self, at: int, count: int, transfer: TransferTime) -> Sequence[int]:
        """Beats of words."""
        if self.codes is not None:
            self.codes.flow()
            # The pairs have one way in.
            at = max(at, self.codes.written + 1)
        return self._put(1, at, count)

    def _put(self, stream: int, at: int, count: int) -> Sequence[int]:
        times = self.pairs.write(stream, at, count)
        if times:
            self.wake(self.machine.now)
        return times

    def take_moments(self, at: int, count: int, transfer: TransferTime) -> Sequence[int]:
        """Beats of moments, one at a time.

        A beat of words begins with moments for its first half, and needs more for its second.
        """
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
        self.wake(self.next)
        return (cycle,)

    # beats

    def _may_begin(self, at: int) -> int | None:
        """This cycle, if the next beat begins in it; otherwise comes back."""
        if not self.left or self.pairs.ready is None:
            return None
        now = self.machine.now
        cycle = max(at, self.next, self.pairs.ready)
        if cycle > now:
            self.wake(cycle)
            return None
        # Both, for each keeps its account of time.
        full = [output for output in (self.words, self.moments) if not output.roomy(now)]
        if full:
            full[0].wait(now, self.wake)
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

    def packed(self, cycle: int) -> None:
        """PACK or UNPACK is not busy any more from ``cycle`` on."""
        self.packer = self.command = None
        self.free_at = cycle + self.slack - AdamLane.latency + 1
        self._start(self.machine.now)

    def _go(self, cycle: int) -> None:
        if self.codes is not None:
            self.codes.flow()
        if self.packer is not None:
            self.packer.go(cycle)
        elif not self.adam:
            while self._may_begin(0) is not None:
                self.pairs.take(cycle)
                self.next = cycle + self.parts // 2
                self._leave(cycle + self.parts // 2 - 1)
        # What waits on the bus may be moments, or find room.
        self.machine.bus.pump()
