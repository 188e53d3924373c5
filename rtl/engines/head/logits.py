"""From h to the loss: logits, softmax, sums of losses.

::

    walk over samples and k --> h --> lanes --> sums --> collect --> softmax --> losses --> o_loss
                                                           ^            | d
                                logits, labels of the -----+            v
                                frozen network                       gradients
"""

from dataclasses import dataclass

from amaranth.hdl import Array, Cat, Const, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory

from gradloom.rtl.formats.images import ACTIVATION, PARAMETER
from gradloom.rtl.formats.rounding import round_shift_hdl, saturate_hdl
from gradloom.rtl.hierarchy import place
from gradloom.rtl.stream.delay import delay
from gradloom.rtl.units.softmax import SoftmaxCrossEntropy

from .walk import RankWalk

__all__ = ["PERIOD", "Logits", "add_losses", "make_logits", "place_softmax"]

#: Cycles before a sum of dB may be touched again.
PERIOD = 4


@dataclass(frozen=True)
class Logits:
    """A logit a cycle, ``out``, and whether it was ``clipped``."""

    out: data.View
    clipped: Value


def make_logits(m, head, step, lanes, h):
    """Walks over samples and k; returns a logit a cycle."""
    args, start = step.args, step.start
    sample_bits = len(head.dh_address.sample)
    samples = Signal(range(head.rows + 1))
    period = Signal(range(max(head.max_taps * head.rank, 16) + 1))
    m.submodules.forward = walk = RankWalk(taps=head.max_taps, rank=head.rank)
    active = Signal()
    phase = Signal.like(period)
    sample = Signal(sample_bits)
    in_k = Signal()
    last_phase = Signal()
    longest = Mux(args.k > args.classes, args.k, args.classes)
    m.d.sync += period.eq(Mux(longest > PERIOD, longest, PERIOD))
    m.d.comb += [
        last_phase.eq(phase == period - 1),
        in_k.eq(active & (phase < args.k)),
        walk.step.eq(in_k),
        walk.clear.eq(start | last_phase),
    ]
    with m.If(start):
        m.d.sync += [active.eq(1), phase.eq(0), sample.eq(0), samples.eq(args.samples)]
    with m.Elif(active):
        m.d.sync += phase.eq(phase + 1)
        with m.If(last_phase):
            m.d.sync += [phase.eq(0), sample.eq(sample + 1), active.eq(sample != samples - 1)]

    # Cycle 0: word of h. 1: rank index at lane 0. 2: h at lane 0. 5: its sum, if k was the last.
    word = Array(h.data.word_select(n, head.activation.width) for n in range(head.rank))
    m.d.comb += [
        h.addr.eq(Cat(sample, walk.tap)),
        lanes[0].forward_i.k.eq(delay(m, walk.k, 1)),
        lanes[0].forward_i.first.eq(delay(m, phase == 0, 1)),
        lanes[0].forward_h_i.eq(delay(m, word[delay(m, walk.index, 1)], 1)),
    ]
    last_k = delay(m, in_k & (phase == args.k - 1), 4, reset_less=False)
    return _collect(m, head, step, last_k, lanes)


def _collect(m, head, step, last_k, lanes):
    """Picks each lane's ready sum, adds the frozen logit, and rounds."""
    args, start, label_error = step.args, step.start, step.label_error
    sample_bits = len(head.dh_address.sample)
    lane = Signal(range(head.max_classes))
    active = Signal()
    sample = Signal(sample_bits)
    last = Signal()
    m.d.comb += last.eq(lane == args.classes - 1)
    with m.If(active):
        m.d.sync += lane.eq(lane + 1)
        with m.If(last):
            m.d.sync += [active.eq(0), sample.eq(sample + 1)]
    with m.If(last_k):
        m.d.sync += [active.eq(1), lane.eq(0)]
    with m.If(start):
        m.d.sync += sample.eq(0)

    m.submodules.logits = logits = Memory(shape=128, depth=8 << sample_bits, init=[])
    write, read = logits.write_port(), logits.read_port()
    m.d.comb += [
        write.en.eq(head.i_logits.valid),
        write.data.eq(head.i_logits.data),
        write.addr.eq(Cat(head.i_logits.beat, head.i_logits.sample, head.i_logits.half)),
        read.addr.eq(Cat((lane >> 2)[:2] if len(lane) > 2 else Const(0, 2), sample, args.half)),
    ]
    m.submodules.labels = labels = Memory(shape=128, depth=4, init=[])
    label_write, label_read = labels.write_port(), labels.read_port()
    sample5 = Signal(5)
    m.d.comb += [
        sample5.eq(sample),
        label_write.en.eq(head.i_labels.valid),
        label_write.data.eq(head.i_labels.data),
        label_write.addr.eq(Cat(head.i_labels.beat, head.i_labels.half)),
        label_read.addr.eq(Cat(sample5[4], args.half)),
    ]

    lane2 = delay(m, lane, 2)
    label2 = Signal(8, reset_less=True)
    m.d.sync += label2.eq(label_read.data.word_select(delay(m, sample5[:4], 1), 8))
    total = delay(m, Array(each.z for each in lanes)[lane], 2)
    base = delay(m, read.data.word_select(delay(m, lane[:2], 1), 32).as_signed(), 1)
    control = Cat(active, lane == 0, last & active)
    control2 = delay(m, control, 2, reset_less=False)
    m.d.sync += label_error.eq(control2[0] & control2[1] & (label2 >= args.classes))
    total = delay(m, total + Cat(Const(0, PARAMETER.frac), base).as_signed(), 1)
    total = delay(m, round_shift_hdl(total, head.activation.frac + PARAMETER.frac - ACTIVATION.frac), 1)
    clipped, over = saturate_hdl(total, ACTIVATION.shape)
    control5 = delay(m, control2, 3, reset_less=False)
    out = Signal(data.StructLayout({"z": ACTIVATION.shape, "target": 1, "valid": 1, "first": 1, "last": 1}))
    m.d.comb += [
        out.z.eq(delay(m, clipped, 1)),
        out.target.eq(delay(m, label2 == lane2, 3)),
        Cat(out.valid, out.first, out.last).eq(control5),
    ]
    return Logits(out=out, clipped=delay(m, over, 1) & out.valid)


def place_softmax(m, platform, head, z):
    """Places the softmax, which never waits, behind the logits."""
    softmax = place(m, "softmax", SoftmaxCrossEntropy(max_length=head.max_classes), platform)
    m.d.comb += [
        softmax.i.valid.eq(z.valid),
        softmax.i.p.z.eq(z.z),
        softmax.i.p.target.eq(z.target),
        softmax.i.p.first.eq(z.first),
        softmax.i.p.last.eq(z.last),
        softmax.o.ready.eq(1),
        softmax.o_loss.ready.eq(1),
    ]
    return softmax


def add_losses(m, head, step, softmax):
    """Adds up the losses, and gives their sums for each command that asks for them."""
    args, start = step.args, step.start
    loss, correct, samples = Signal(48), Signal(32), Signal(32)
    with m.If(start & args.first):
        m.d.sync += [loss.eq(0), correct.eq(0), samples.eq(0)]
    with m.Elif(softmax.o_loss.valid):
        m.d.sync += [
            # mutant loss-of-26-bits: loss.eq((loss + softmax.o_loss.p.loss)[:26]),
            loss.eq(loss + softmax.o_loss.p.loss),
            correct.eq(correct + softmax.o_loss.p.correct),
            samples.eq(samples + 1),
        ]
    m.submodules.loss_queue = queue = SyncFIFOBuffered(width=48 + 32 + 32, depth=4)
    m.d.comb += [
        step.loss_ready.eq(queue.w_rdy),
        queue.w_en.eq(step.finishing & args.last),
        queue.w_data.eq(Cat(loss, samples, correct)),
        head.o_loss.valid.eq(queue.r_rdy),
        queue.r_en.eq(head.o_loss.ready),
        head.o_loss.payload.eq(Cat(queue.r_data[:48], Const(0, 16), queue.r_data[48:])),
    ]
