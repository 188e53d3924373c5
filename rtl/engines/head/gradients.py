"""From d to dh and dB.

::

    d --> scale, round --> d' --> lanes, a class a cycle
                            |        ^            | sums of dh
                            v        | h, k       v
                          walk ------+        round --> memory of dh --> dh
"""

from dataclasses import dataclass

from amaranth.hdl import Array, Cat, Const, Mux, Signal, signed
from amaranth.lib.memory import Memory

from gradloom.rtl.formats.rounding import round_shift_hdl, saturate_hdl
from gradloom.rtl.stream.delay import delay
from gradloom.rtl.units.lora_gradient import DH_DROP, GRADIENT_WIDTH

from .walk import RankWalk

__all__ = ["make_gradients"]


@dataclass(frozen=True)
class _Walking:
    """The walk over k of a ``sample`` while ``active``; ``final``: it is the last of the last sample."""

    walk: RankWalk
    active: Signal
    sample: Signal
    final: Signal


def make_gradients(m, head, step, softmax, lanes, h):
    """Gives d' to the lanes, walks over k behind it, and keeps words of dh.

    Returns whether d' and whether dh was clipped.
    """
    d_clipped = _scale(m, head, step, softmax, lanes)
    walks = _walk(m, head, step, softmax, lanes, h)
    return d_clipped, _keep(m, head, step, lanes, walks)


def _scale(m, head, step, softmax, lanes):
    """Scales d, in four cycles: operands, product, rounding, saturation."""
    lane = Signal(range(head.max_classes))
    valid = softmax.o.valid
    with m.If(valid):
        m.d.sync += lane.eq(Mux(softmax.o.p.last, 0, lane + 1))
    scale = delay(m, Cat(step.args.scale, Const(0, 1)).as_signed(), 1)
    product = delay(m, delay(m, softmax.o.p.d, 1) * scale, 1)
    rounded = delay(m, round_shift_hdl(product, 16), 1)
    clipped, over = saturate_hdl(rounded, signed(GRADIENT_WIDTH))
    d = delay(m, clipped, 1)
    valid4 = delay(m, valid, 4, reset_less=False)
    lane4 = delay(m, lane, 4)
    d_over = delay(m, over, 1) & valid4
    for c, each in enumerate(lanes):
        m.d.comb += [each.d.eq(d), each.d_load.eq(valid4 & (lane4 == c))]
    return d_over


def _walk(m, head, step, softmax, lanes, h):
    """Walks over k of each sample when its first d' is there."""
    args, start, sample_bits = step.args, step.start, len(head.dh_address.sample)
    # Cycle 0: word of h; 1: rank index at lane 0; 2: h at lane 0, d' there since then.
    begin = delay(m, softmax.o.valid & softmax.o.p.first, 2, reset_less=False)
    m.submodules.backward = walk = RankWalk(taps=head.max_taps, rank=head.rank)
    active = Signal()
    last = Signal()
    sample = Signal(sample_bits)
    final = Signal()
    m.d.comb += [
        last.eq(active & (walk.k == args.k - 1)),
        walk.step.eq(active),
        walk.clear.eq(start | last),
        final.eq(last & (sample == args.samples - 1)),
    ]
    with m.If(last):
        m.d.sync += [active.eq(0), sample.eq(sample + 1)]
    with m.If(begin):
        m.d.sync += active.eq(1)
    with m.If(start):
        m.d.sync += [active.eq(0), sample.eq(0)]
    word = Array(h.data.word_select(n, head.activation.width) for n in range(head.rank))
    m.d.comb += [
        h.addr.eq(Cat(sample, walk.tap)),
        lanes[0].backward_i.k.eq(delay(m, walk.k, 1)),
        lanes[0].backward_i.first.eq(delay(m, sample == 0, 1)),
        lanes[0].backward_i.valid.eq(delay(m, active, 1, reset_less=False)),
        lanes[0].backward_h_i.eq(delay(m, word[delay(m, walk.index, 1)], 1)),
        lanes[0].dh_i.eq(0),
    ]
    return _Walking(walk=walk, active=active, sample=sample, final=final)


def _keep(m, head, step, lanes, walks):
    """Rounds the sums of dh, and keeps them as words of a tap."""
    sample_bits = len(head.dh_address.sample)
    # The last lane's sum is there in cycle 4 + classes; then rounding, saturation, its place in a word.
    wait = 4 + head.max_classes + 2
    total = delay(m, round_shift_hdl(lanes[-1].dh_o, DH_DROP), 1)
    clipped, over = saturate_hdl(total, signed(GRADIENT_WIDTH))
    dh = delay(m, clipped, 1)
    valid = delay(m, walks.active, wait, reset_less=False)
    index = delay(m, walks.walk.index, wait)
    address = delay(m, Cat(walks.sample, walks.walk.tap), wait)
    m.submodules.dh_memory = dh_memory = Memory(
        shape=head.rank * GRADIENT_WIDTH, depth=head.max_taps << sample_bits, init=[]
    )
    write, read = dh_memory.write_port(), dh_memory.read_port()
    word = Signal(head.dh_word)
    kept = Signal(head.dh_word, reset_less=True)
    for n in range(head.rank):
        m.d.comb += word[n].eq(kept[n] if n < head.rank - 1 else dh)
        with m.If(index == n):
            m.d.sync += kept[n].eq(dh)
    m.d.comb += [
        write.en.eq(valid & (index == head.rank - 1)),
        write.addr.eq(address),
        write.data.eq(word),
        read.addr.eq(Cat(head.dh_address.sample, head.dh_address.tap)),
        head.dh.eq(read.data),
        step.finished.eq(delay(m, walks.final, wait - 1, reset_less=False)),
    ]
    return delay(m, over, 1) & valid
