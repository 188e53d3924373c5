"""B: its update from dB, its loads and dumps by the host.

::

    walk over (k, class) --> B, dB, velocity --> optimiser --> velocity
                             ^                       |
    i_b --> load ------------+-----------------------+
                             |
                             +--> queue --> o_b
"""

from dataclasses import dataclass

from amaranth.hdl import Array, Cat, Mux, Signal
from amaranth.lib import data
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.utils import ceil_log2

from gradloom.rtl.formats.images import PARAMETER, VELOCITY
from gradloom.rtl.hierarchy import place
from gradloom.rtl.stream.delay import delay
from gradloom.rtl.stream.queue import count_up_down
from gradloom.rtl.units.optimizer import OPTIMIZER_CONFIG, OptimizerLane, lane_config

__all__ = ["UpdateUnderWay", "update_b"]

#: Classes in a beat of B.
_BEAT_CLASSES = 8


@dataclass(frozen=True)
class UpdateUnderWay:
    """The update under way: ``k`` is read; ``out`` is the new word of ``(out_k, out_c)``, from ``optimizer``."""

    k: Signal
    out: data.View
    out_k: Signal
    out_c: Signal
    optimizer: OptimizerLane


def update_b(m, platform, head, step, lanes):
    """Updates, loads and dumps B."""
    updates = _optimize(m, platform, head, step, lanes)
    dump_k = _dump(m, head, step, lanes)
    _write(m, head, step, lanes, updates, dump_k)
    return updates


def _optimize(m, platform, head, step, lanes):
    """Takes B through the optimiser, word by word."""
    args, updating = step.args, step.updating
    depth, class_bits = head.max_taps * head.rank, ceil_log2(head.max_classes)
    optimizer = OptimizerLane(offset=head.activation.frac, rounding=head.rounding, seed=head.seed)
    optimizer = place(m, "optimizer", optimizer, platform)
    config = Signal(OPTIMIZER_CONFIG)
    m.d.comb += [
        config.q.eq(args.q),
        config.v_mode.eq(args.v_mode),
        config.apply.eq(args.apply),
        config.mu.eq(args.mu),
        optimizer.config.eq(lane_config(m, config)),
    ]
    m.submodules.velocity = velocity = Memory(shape=VELOCITY.shape, depth=depth << class_bits, init=[])
    v_write, v_read = velocity.write_port(), velocity.read_port()

    # Cycle 0: addresses. 1: words of all lanes, one of them picked. 2: optimiser.
    issued = Signal()
    reading = Signal()
    m.d.comb += reading.eq(updating & ~issued)
    k, c, last = _walk(m, head, args, reading, ~updating)
    m.d.sync += issued.eq(updating & (issued | last))
    c1 = delay(m, c, 1)
    m.d.comb += [
        v_read.addr.eq(Cat(c, k)),
        optimizer.i.valid.eq(delay(m, reading, 2, reset_less=False)),
        optimizer.w.eq(delay(m, Array(lane.b for lane in lanes)[c1], 1 + optimizer.w_wait)),
        optimizer.i.g.eq(delay(m, Array(lane.db for lane in lanes)[c1], 1)),
        optimizer.i.v.eq(delay(m, v_read.data, 1)),
    ]
    out = optimizer.o
    out_k, out_c, out_last = _walk(m, head, args, out.valid, ~updating)
    m.d.comb += [
        v_write.en.eq(out.valid),
        v_write.addr.eq(Cat(out_c, out_k)),
        v_write.data.eq(delay(m, optimizer.velocity.v, optimizer.latency - optimizer.velocity_latency)),
    ]
    m.d.sync += step.updated.eq(out.valid & out_last)
    return UpdateUnderWay(k=k, out=out, out_k=out_k, out_c=out_c, optimizer=optimizer)


def _walk(m, head, args, step, clear):
    """(k, class) in step with ``step``; ``last`` at the end."""
    k, c, last = Signal(ceil_log2(head.max_taps * head.rank)), Signal(ceil_log2(head.max_classes)), Signal()
    last_c = c == args.classes - 1
    m.d.comb += last.eq(last_c & (k == args.k - 1))
    with m.If(clear):
        m.d.sync += [k.eq(0), c.eq(0)]
    with m.Elif(step):
        m.d.sync += c.eq(c + 1)
        with m.If(last_c):
            m.d.sync += [c.eq(0), k.eq(k + 1)]
    return k, c, last


def _dump(m, head, step, lanes):
    """Dumps beats of B; returns the rank index that is read for them."""
    depth = head.max_taps * head.rank
    # Cycle 0 address, 1 words, 2 queue. A beat enters only when the queue has room.
    left = Signal(24)
    beat = Signal(24)
    pending = Signal(4)
    issue = Signal()
    with m.If(head.i_dump.valid & head.i_dump.ready):
        m.d.sync += [left.eq(head.i_dump.p.beats), beat.eq(0)]
    with m.Elif(issue):
        m.d.sync += [left.eq(left - 1), beat.eq(beat + 1)]
    m.submodules.b_queue = queue = SyncFIFOBuffered(width=128, depth=4)
    m.d.comb += issue.eq(step.dumping & (left != 0) & ~pending[-1])
    count_up_down(m, pending, issue, head.o_b.valid & head.o_b.ready)
    m.d.comb += step.dumped.eq((left == 0) & ~pending[0])
    dump_k = beat >> 1
    exists = delay(m, dump_k < depth, 1)
    halves = [Cat(*(Cat(lane.b) for lane in lanes[n : n + _BEAT_CLASSES])) for n in (0, _BEAT_CLASSES)]
    picked = Mux(delay(m, beat[0], 1), halves[1], halves[0])[:128]
    m.d.comb += [
        queue.w_data.eq(delay(m, Mux(exists, picked, 0), 1)),
        queue.w_en.eq(delay(m, issue, 2, reset_less=False)),
        head.o_b.valid.eq(queue.r_rdy),
        queue.r_en.eq(head.o_b.ready),
        head.o_b.payload.eq(queue.r_data),
    ]
    return dump_k


def _write(m, head, step, lanes, updates, dump_k):
    """Writes words that were loaded or made, and reads those that are dumped or updated."""
    depth, out = head.max_taps * head.rank, updates.out
    load_k = head.i_b.index >> 1
    load = Signal()
    m.d.comb += load.eq(head.i_b.valid & (load_k < depth))
    m.d.sync += step.b_error.eq(head.i_b.valid & ((load_k >= depth) | step.updating))
    # A word is written a cycle after it was loaded or made, long before it is read again.
    write_k = delay(m, Mux(load, load_k, updates.out_k), 1)
    for n, lane in enumerate(lanes):
        m.d.comb += [lane.read.eq(step.updating | step.dumping), lane.read_k.eq(Mux(step.dumping, dump_k, updates.k))]
        write = Mux(load, head.i_b.index[0] == n // _BEAT_CLASSES, out.valid & (updates.out_c == n))
        word = Mux(load, head.i_b.data.word_select(n % _BEAT_CLASSES, PARAMETER.width), out.w)
        m.d.comb += [
            lane.write.eq(delay(m, write, 1, reset_less=False)),
            lane.write_b.eq(delay(m, word, 1)),
            lane.write_k.eq(write_k),
        ]
