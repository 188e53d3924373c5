"""Timing of the array engine."""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from gradloom.rtl.engines.array.commands import RECORD_ARG, ArrayOpcode
from gradloom.rtl.engines.array.parameters import EDGE, HIDDEN, LANES
from gradloom.rtl.formats.images import SCALES_PER_BEAT
from gradloom.rtl.latencies import PE, POST, WINDOW, WINDOW_SETUP
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.machines.images import ARRAY
from gradloom.rtl.window_run import WindowRun

from .encode import BLOCK, LEVELS, Encoder
from .shell.bus import TransferTime
from .shell.queues import FifoQueue
from .shell.scheduler import Times
from .shell.shell import FIFO, Queue, TimedMachine

__all__ = ["ArrayTime"]

CHECK = 2  # cycles for which ARRAY looks at a command before it takes it


@cache
def _codes_of(arg: int) -> int:
    place = dict(RECORD_ARG)["codes"]
    return (arg >> place.offset) & ((1 << place.width) - 1)


class _Records:
    """The path of records, whose scales the router takes apart.

    The last beat of one waits until the scales have left.
    """

    def __init__(self) -> None:
        self.scales_at = 0  # the last scale has left

    def take(self, at: int, count: int, transfer: TransferTime) -> Sequence[int]:
        codes = _codes_of(transfer.operands["arg"])
        for n in range(min(codes - transfer.taken, count)):
            self.scales_at = max(self.scales_at, at + n + FIFO) + SCALES_PER_BEAT
        if not codes or transfer.taken + count < transfer.beats:
            return range(at, at + count)
        # A register tells.
        return [*range(at, at + count - 1), max(at + count - 1, self.scales_at + 1)]


class _LaneQueue(Queue):
    """Adapter words: two beats of a word every 6 cycles."""

    def begin(self, cycle: int, beats: int) -> None:
        self.low = True
        self.left = beats
        self.times = deque([cycle + 1 + 4])

    def take(self, cycle: int) -> None:
        self.left -= 1
        self.times = deque([cycle + 1 if self.low else cycle + 1 + 4] if self.left else [])
        self.low = not self.low


@dataclass
class _Pass:
    """A pass that was taken: the cycles that the next one depends on."""

    backward: bool
    handed_free: int  # first cycle in which codes are read: from then on its place in front of the reader is free
    filler_free: int  # the filler may take the next pass
    end: int  # last cycle in which codes are read
    loaded: int = -1  # its dh are weights


class _Geometry:
    """Steps of a convolution in which things happen, counted from its first."""

    def __init__(self, config: ImageConfig, run: WindowRun, pool: int) -> None:
        # Steps before the first window; see :meth:`WindowGenerator.fill`.
        fill = (run.kernel_h - 1 - run.pad_top) * run.pitch + config.kernel - 1 - run.pad_left
        rows = max(run.height, run.rows)
        pixels = (
            ((np.arange(run.channels) * rows)[:, None, None] + np.arange(run.height)[:, None]) * run.pitch
            + np.arange(run.width)
        ).ravel()
        self.pixels: list[int] = pixels.tolist()
        #: First window of each channel.
        self.firsts = [channel * rows * run.pitch + fill for channel in range(run.channels)]
        #: Last window of each pool of the last channel.
        high, wide = run.out_height // pool, run.out_width // pool
        y = (np.arange(high) * pool + pool - 1) * run.stride_h
        x = (np.arange(wide) * pool + pool - 1) * run.stride_w
        words = (((run.channels - 1) * rows + y)[:, None] * run.pitch + x).ravel() + fill
        self.words = [int(s) for s in words]
        self.end = (
            ((run.channels - 1) * rows + (run.out_height - 1) * run.stride_h) * run.pitch
            + (run.out_width - 1) * run.stride_w
            + fill
        )
        self.steps = 1 + max(self.end, self.pixels[-1])


class _Flow:
    """A convolution's steps in time.

    They are put off where a window waits for its weights, or a pixel for the encoder, and all later steps with them.
    """

    def __init__(self, geometry: _Geometry, base: int, loaded: int, rows: int, encoder: Encoder | None) -> None:
        self.base = base
        self.thresholds: list[int] = []  # windows of steps from these on ...
        self.shifts: list[int] = []  # ... are so much later
        shift = 0  # of the next step

        firsts = geometry.firsts
        ahead = WINDOW
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
                entered = 0
                for n in sorted({0, min(lost, size - 1), size - 1}):
                    # The encoder does not wait for the window generator: it may take a pixel when the one before has
                    # left, which is earlier than its step where rows of padding or weights lie between.
                    left = pixels[at + n - 1] + 1 if at + n else 0
                    weights(left - 1)
                    entered = base + left + shift
                    if n == 0:
                        entered = max(entered, first)
                    if n == lost:
                        entered = max(entered, then)
                    step = pixels[at + n]
                    weights(step)
                    late = entered - (base + step + shift)
                    if late > 0:
                        shift += late
                        self._late(step, shift)
                if size == BLOCK:
                    encoder.block(entered)
                else:
                    encoder.rest(entered, size)
        weights(1 << 30)
        self.last_shift = shift

    def _late(self, step: int, shift: int) -> None:
        self.thresholds.append(max(step, self.thresholds[-1]) if self.thresholds else step)
        self.shifts.append(shift)

    def window(self, step: int) -> int:
        """When the window of a step enters the array."""
        at = bisect_right(self.thresholds, step)
        return self.base + step + WINDOW + (self.shifts[at - 1] if at else 0)

    def windows(self, steps: list[int]) -> list[int]:
        if not self.thresholds:
            first = self.base + WINDOW
            return [first + step for step in steps]
        return [self.window(step) for step in steps]

    def step(self, step: int) -> int:
        """When the last step is taken."""
        return self.base + step + self.last_shift


class ArrayTime:
    """The engine ARRAY: FORWARD and GRADIENT passes, CONVOLVE, DENSE."""

    def __init__(self, machine: TimedMachine) -> None:
        self.machine = machine
        self.queues = {ARRAY.store("taps"): FifoQueue(machine), ARRAY.store("lanes"): _LaneQueue(machine)}
        self.sinks = {ARRAY.load("record"): _Records().take}
        self.agenda = machine.agenda
        config: ImageConfig = machine.config
        self.config = config
        rows, rank = config.rows, config.rank
        self.beats = BLOCK // config.panels
        latency = PE + rows - 1
        #: From a forward pass's ``drain`` to ``done``; from a gradient's last beat to ``done``.
        self.forward_tail = EDGE + PE - 1 + rank - 2 + rows + HIDDEN + 1 + 1
        self.gradient_tail = EDGE + latency + rank - 1 + LANES + 1
        #: From a window, or the drain of a dense layer, to its word in the queue before the memories.
        post = 1 + POST + FIFO
        self.window_tail = EDGE + latency + rank - 1 + post
        self.dense_tail = EDGE + PE - 1 + rank - 2 + 1 + post
        #: A word leaves the array so many cycles before it is in that queue.
        self.to_queue = POST + FIFO

        self.last: _Pass | None = None
        self.fills: list[int] = [-1, -1]  # last cycles of the last two tables filled
        self.reads: list[int] = [-1, -1]  # ... and read
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
        self.runs: deque[int] = deque(maxlen=4)  # when the last words of the last runs left
        self.popped = -2
        self.encoder = Encoder()
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
        self.machine.scheduler.done(ARRAY, command, self.reported)

    # -- adapters

    def _pass(self, operands: dict[str, int], backward: bool, ready: int) -> Times:
        rows = self.config.rows
        elements = operands["elements"]
        blocks = -(-elements // BLOCK)
        tables = 2 if operands.get("wide") else 1  # of a block, and how often each beat is read
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
        self.last = _Pass(backward=backward, handed_free=first_read, filler_free=filler_free, end=end)
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
        """A run that is announced at ``at``.

        Its last sums reach the post-processor at ``end``.
        """
        taken = max(at + 2, self.post_free)
        self.run_free = taken + 1
        self.post_free = end + 1

    def _pop(self, at: int, words: Sequence[int], cycles: Sequence[int]) -> int:
        """Words in the queue at ``words`` leave, each in ``cycles``.

        Returns the cycle in which the last does.
        """
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
        base = max(at + 1 + WINDOW_SETUP, self.steps_over + 3)
        encode = bool(operands.get("encode"))
        if encode:
            self.encoder.expect(operands)
        flow = _Flow(geometry, base, at + 3 + rows, rows, self.encoder if encode else None)
        end = flow.window(geometry.end)
        self.steps_over = flow.step(geometry.steps - 1)
        # The last pixel may be behind that of the last window.
        self.convolve_idle = max(end, self.steps_over) + 1
        if encode:
            self.machine.queues[ARRAY.store("taps")].add([b + FIFO for b in self.encoder.finish()])
        self._announce(at, end + self.window_tail - self.to_queue)
        cycles = operands["outputs"] if operands["to_dense"] else 1
        words = [cycle + self.window_tail for cycle in flow.windows(geometry.words)]
        popped = self._pop(at, words, [cycles] * len(words))
        return at, max(popped + 2, self.convolve_idle)

    def _dense(self, operands: dict[str, int], ready: int) -> Times:
        rows = self.config.rows
        inputs, samples, outputs = (operands[name] for name in ("inputs", "samples", "outputs"))
        at = max(ready, 1 + max(self.convolve_idle, self.dense_idle, self.passes_idle, self._run_ready()))
        drain = at + inputs + rows
        self.dense_idle = drain + 1
        self.machine.models["encode"].reserve(at + 1, at + inputs)
        first = drain + self.dense_tail
        self._announce(at, first + rows - 1 - self.to_queue)
        cycles = [outputs if row < samples else 1 for row in reversed(range(rows))]
        popped = self._pop(at, range(first, first + rows), cycles)
        return at, popped + 2
