"""The linear engine in time."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from gradloom.rtl.engines.linear.commands import OPERAND_ARG, TILE_ARG, TileKind
from gradloom.rtl.engines.linear.core import LinearArray
from gradloom.rtl.engines.linear.feet import HiddenFoot
from gradloom.rtl.engines.linear.panels import crossings, starts_of
from gradloom.rtl.engines.linear.parts import PartSequencer
from gradloom.rtl.engines.linear.weights.dequantize import Dequantizer
from gradloom.rtl.engines.linear.weights.tile_buffer import TileBuffer
from gradloom.rtl.engines.words import Requantize
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.machines.language import LINEAR

from .shell.bus import Sink, TransferTime
from .shell.queues import Output, Taken
from .shell.shell import FIFO, TimedMachine, Waking

__all__ = ["LinearTime"]


class _Weights:
    """Tables and tiles on their way to the tile buffer."""

    def __init__(self, linear: "LinearTime") -> None:
        self.linear = linear
        config = linear.config
        self.edge = config.edge
        self.words = config.beat_words
        self.left = 0  # beats of the tile that were not taken yet ...
        self.fill = 0  # ... and rows that complete it
        self.began = 0  # tiles
        self.tables_at = self.tiles_at = 0  # from when on the next beat of each may be taken
        #: From when on a tile after the first two may begin; from when on a tile may be used.
        self.free: list[int] = []
        self.full: list[int] = []

    def tables(self, at: int, count: int, transfer: TransferTime) -> Sequence[int]:
        """A word a cycle, four stages deep."""
        at = max(at, self.tables_at)
        times = range(at, at + count * (self.words + 1), self.words + 1)
        self.tables_at = times[-1] + self.words + 1
        self.tiles_at = max(self.tiles_at, times[-1] + self.words + 5)
        return times

    def tiles(self, at: int, count: int, transfer: TransferTime) -> Sequence[int]:
        """Beats of tiles, one a cycle.

        A tile begins when half of the buffer is about to be free.
        """
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
                self.linear.wake(self.linear.machine.now)
        if times:
            self.tiles_at = max(self.tiles_at, at)
        return times

    def _begin(self, transfer: TransferTime, taken: int) -> None:
        """A tile begins behind ``taken`` beats of its command."""
        kind = TileKind(TILE_ARG.from_bits(transfer.operands["arg"]).kind)
        if kind == TileKind.CODES:
            self.left, self.fill = self.edge + 2, 0
            return
        self.left = min(self.edge * kind.row_beats, transfer.beats - taken)
        self.fill = self.edge - self.left // kind.row_beats


class _Stager:
    """Adapter rows for the next tile of outputs.

    A word a cycle, except in cycles in which adapter words are written.
    """

    def __init__(self, linear: "LinearTime") -> None:
        self.linear = linear
        self.agenda = linear.machine.agenda
        self.writes = Taken()
        self.jobs: deque[tuple[int, int]] = deque()  # visible from, words
        self.free_at = 0
        self.running = False
        #: Jobs whose rows were fetched and not read; at most so many.
        self.ahead, self.most = 0, 2 if linear.config.span > 1 else 1 << 30

    def lanes(self, at: int, count: int, transfer: TransferTime) -> Sequence[int]:
        """Adapter words that are written."""
        self.writes.add(at + 2, at + 1 + count)
        return range(at, at + count)

    def push(self, cycle: int, words: int) -> None:
        self.jobs.append((cycle, words))
        if not self.running:
            self._begin()

    def was_read(self, cycle: int) -> None:
        """Rows of a job were read."""
        self.ahead -= 1
        self.free_at = max(self.free_at, cycle) if self.ahead == self.most - 1 and not self.running else self.free_at
        if not self.running:
            self._begin()

    def _begin(self) -> None:
        if not self.jobs or self.ahead >= self.most:
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
        self.ahead += 1
        self.agenda.visible(cycle + LinearArray.peek_latency + 2, self.linear.staged_one)
        self._begin()


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reading of a tile of outputs."""

    since: int  # the job is visible
    first: bool
    rank: int
    tokens: int
    closes: bool  # it is the panel's last


class LinearTime(Waking):
    """The engine LINEAR."""

    def __init__(self, machine: TimedMachine) -> None:
        super().__init__(machine)
        self.agenda = machine.agenda
        self.operands: dict[str, int] = {}
        config: LanguageConfig = machine.config
        self.config = config
        behind = TileBuffer.latency(config) - 1
        #: From the start of a tile's last part, and the tokens after it, until its sums are known to be complete.
        self.completing = behind + LinearArray.latency(config) + config.columns + HiddenFoot.latency + 1 + 1
        part, wait = PartSequencer.reuse_delay(config)
        self.early = config.subtiles - 1 - part, wait
        #: Of a panel's tile that begins next: it is known when.
        self.known = False
        #: Of each tile of a panel, its first part, which begins with the last columns of the tile before.
        self.firsts = [part for part, _ in starts_of(config)]
        self.weights = _Weights(self)
        self.stager = _Stager(self)
        steps = config.beat_words // config.outputs
        self.output = Output(
            machine,
            LINEAR,
            steps=steps,
            limit=64 - (40 // steps + 2),
            delay=config.rank + 2 + 3 + Requantize.latency + 1,
        )
        self.queues = {LINEAR.store("outputs"): self.output}
        self.sinks: dict[int, Sink] = {
            LINEAR.load("tables"): self.weights.tables,
            LINEAR.load("tiles"): self.weights.tiles,
            LINEAR.load("operands"): self.words,
            LINEAR.load("lanes"): self.stager.lanes,
        }
        self.tiles = 0  # begun
        self.counted: list[int] = []  # when words of operands let a tile begin
        self.used = 0  # of these
        self.next_part = 0  # the array takes the next part
        # Registers, as they are visible.
        self.pending = self.finished = self.staged = 0
        self.readings: deque[_Reading] = deque()
        self.reading = False

    def _begin(self, command: int, at: int) -> None:
        operands = self.machine.commands[command].operands
        self.h_before, self.operands = self._h(), operands
        self.inner = self.outer = self.number = 0
        self.running_at = at + 4
        beats = operands["outer"] * operands["tokens"] * self.config.edge // self.config.beat_words
        self.output.expect(beats, command)
        self.wake(self.machine.now)

    def _h(self) -> int | None:
        """The slot of h that the command uses."""
        return self.operands.get("slot", 0) if self.operands.get("rank", 0) else None

    # parts

    def words(self, at: int, count: int, transfer: TransferTime) -> Sequence[int]:
        """Operands that are written."""
        if OPERAND_ARG.from_bits(transfer.operands["arg"]).early:
            # A word is complete with the last of its eight beats.
            self.counted += range(at + 7 - transfer.taken % 8 + 3, at + count + 3, 8)
            self.wake(self.machine.now)
        return range(at, at + count)

    def _early(self) -> bool:
        """Whether the next tile waits for its operands."""
        return bool(self.operands.get("early")) and not self.outer and not self.number

    @property
    def _wide(self) -> int:
        """Tiles of the panel."""
        return min(self.config.span, self.operands["outer"] - self.outer)

    def _go(self, cycle: int) -> None:
        """Begins the next tile, if all that its start waits for is visible."""
        if self.command is None or self.tiles >= len(self.weights.full):
            return
        at = max(self.running_at, self.next_part, self.weights.full[self.tiles])
        if self._early():
            last = self.used + self.operands["tokens"] - 1
            if last >= len(self.counted):
                return
            at = max(at, self.counted[last])
        if self.number and not self.known:
            # Nothing holds the part that ends the tile before.
            self.known = True
            self._frees_across(at, self.number)
            self.machine.bus.pump()
        if at > cycle:
            self.wake(at)
            return
        rank = self.operands.get("rank", 0)
        if self.number:
            self._tile(cycle, rank)
            return
        if not self.inner and self.pending == 2:
            return
        if self.inner == self.operands["inner"] - 1 and not self.outer and rank and self.h_before == self._h():
            if self.pending > (1 if self.inner else 0):
                return
        self._tile(cycle, rank)

    def _tile(self, cycle: int, rank: int) -> None:
        """A tile begins in ``cycle``; nothing stops its parts."""
        config, operands, command = self.config, self.operands, self.command
        assert command is not None
        tokens, inner, number, wide = operands["tokens"], operands["inner"], self.number, self._wide
        part = max(tokens, config.columns)
        first, after = self.firsts[number], self._parts(wide, rank)
        closes = number == wide - 1
        count = (after if closes else self.firsts[number + 1]) - first
        last = cycle + (count - 1) * part
        self.tiles += 1
        self.used += tokens * self._early()
        self.next_part = last + part
        self.machine.array_cycles += count * part
        self._frees(cycle, part, tokens)
        if self.inner == inner - 1:
            before = self.outer // config.span * config.subtiles + first
            for start in range(cycle, last + 1, part)[: max(rank - before, 0)]:
                made = start + self.completing
                self.machine.models["gradient"].kept.made.add(made, made + tokens - 1)
        if not self.inner:
            if not number:
                self.agenda.visible(cycle + 1, self._begun)
            self.readings.append(_Reading(cycle + FIFO, not self.outer, rank, tokens, closes))
            if rank:
                self.stager.push(cycle + FIFO, config.edge * rank)
        self.number += 1
        if closes:
            self.number = 0
            self.inner += 1
        if self.inner == inner:
            self.inner = 0
            self.outer += wide
            self.agenda.visible(last + tokens + self.completing, self._completed)
            if self.outer == operands["outer"]:
                self.command = None
                self.free_at = last + 1
                self._start(cycle)
        self.machine.bus.pump()
        if self.command is not None:
            self.wake(max(cycle, self.next_part))

    def _parts(self, wide: int, rank: int) -> int:
        """Parts of a panel of ``wide`` tiles; the first has as many as make h."""
        own = self.config.parts(wide)
        return max(own, rank) if self.config.span > 1 and not self.outer else own

    def _frees(self, cycle: int, part: int, tokens: int) -> None:
        """A tile that begins in ``cycle`` frees its half, if no other tile of the panel follows."""
        config, number, (parts, wait) = self.config, self.number, self.early
        self.known = False
        if config.span == 1:
            last = cycle + (config.subtiles - 1) * part
            self.weights.free.append((last - parts * part + wait if tokens <= config.columns else last) + 2)
        elif number == self._wide - 1:
            own = crossings(config)[number] - self.firsts[number]
            self._frees_across(cycle + own * part, number + 1)

    def _frees_across(self, start: int, tiles: int) -> None:
        """The last of a panel's first ``tiles`` tiles ends with a part that begins in ``start``."""
        columns = tiles * self.config.edge - crossings(self.config)[tiles - 1] * self.config.columns
        self.weights.free.append(start + PartSequencer.freed(self.config, columns) + 1)

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

        self.output.produce(cycle, beats, over, steps=self.config.beat_words // self.config.dots if job.rank else None)

    def _was_read(self, cycle: int, job: _Reading) -> None:
        self.reading = False
        self.pending -= job.closes
        self.finished -= job.closes
        if job.rank:
            self.staged -= 1
            self.stager.was_read(cycle)
        self._read_at(cycle)
        self.wake(cycle)
