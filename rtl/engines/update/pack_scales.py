"""Two blocks, their scales, and the largest scales of a group.

::

    floats --> blocks --+--> largest of each --> scale of each --> largest scale of a side
                        |                            |
                        v                            +--> scales of the record
                  elements in the order of codes
    record --> largest scales, scales below them
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Mux, Signal, Value
from amaranth.lib.memory import Memory
from amaranth.utils import exact_log2

from ...formats.adamw import FRACTION
from ...formats.weights.linear import MASTER
from ...formats.weights.packed import BLOCKS, FINE, LONG, RECORD, TOP
from ...stream.delay import delay, registered
from .pack_walk import FLOATED, SIZE

__all__ = ["ReadElement", "Tops", "buffer_blocks", "read_record"]


@dataclass(frozen=True)
class Tops:
    """Largest scale of either side, and the memory of a record's other scales."""

    tops: list[Signal]
    stored: Memory


@dataclass(frozen=True)
class ReadElement:
    """An element, 2 cycles after ``read``: its float, its block's scale, and a random word.

    ``v``: it is of the second moment. ``kept``: the memory of all blocks' scales.
    """

    scale: Value
    v: Value
    element: Value
    noise: Value
    kept: Memory


def read_record(m, unit, header, n, taken):
    """Takes a record: largest scales of both sides, and the others in relation to them."""
    tops = [Signal(12, reset_less=True, name=f"top_{side}") for side in range(2)]
    at, known = delay(m, n, 1), delay(m, header, 1, reset_less=False)
    m.submodules.stored = stored = Memory(shape=32, depth=4, init=[])
    write = stored.write_port()
    m.d.comb += [write.addr.eq((at - 2)[:2]), write.data.eq(taken), write.en.eq(known & (at >= 2) & (at < RECORD // 4))]
    with m.If(unit.start):
        m.d.sync += [top.eq(0) for top in tops]
    with m.Elif(known & (at == 0)):
        m.d.sync += [tops[0].eq(taken[:12]), tops[1].eq(taken[16:28])]
    return Tops(tops=tops, stored=stored)


def buffer_blocks(m, unit, walk, floats, chance, tops):
    """Holds two blocks, their scales, and elements in the order of codes.

    They are there 2 cycles after ``read``.
    """
    look, largest = _keep_blocks(m, unit, walk, floats)
    kept, scales = _choose_scales(m, unit, walk, largest, tops)
    return _read_elements(m, unit, walk, look, scales, kept, chance)


def _keep_blocks(m, unit, walk, floats):
    """Keeps the floats of two blocks; returns the port that reads them, and the largest of each."""
    args, few, edge, n, read = unit.args, unit.config.beat_words, unit.config.edge, walk.n, walk.read
    half = exact_log2(few) - 1
    m.submodules.buffer = buffer = Memory(shape=MASTER.width, depth=2 * edge, init=[])
    write, look = buffer.write_port(), buffer.read_port()
    there, place = delay(m, walk.fill, FLOATED, reset_less=False), delay(m, n, FLOATED)
    m.d.comb += [write.en.eq(there), write.addr.eq(place), write.data.eq(Cat(floats.bits, floats.negative))]
    largest = [Signal(SIZE, reset_less=True, name=f"largest_{side}") for side in range(2)]
    side = Mux(args.moments, place[half], place[-1])
    more = Signal()
    m.d.comb += more.eq(floats.bits > Mux(side, largest[1], largest[0]))
    for number, each in enumerate(largest):
        with m.If(there & (side == number) & more):
            m.d.sync += each.eq(floats.bits)
    with m.If(unit.start | (read & n.all())):
        m.d.sync += [each.eq(0) for each in largest]
    return look, largest


def _choose_scales(m, unit, walk, largest, tops):
    """Chooses the scales of both blocks, one after the other, in three cycles each."""
    args, scaling = unit.args, walk.scaling
    of = Signal()
    with m.If(scaling):
        m.d.sync += of.eq(~of)
    with m.Else():
        m.d.sync += of.eq(0)
    chosen, v = Mux(of, largest[1], largest[0]), args.moments & of
    mantissa = Cat(chosen[:FRACTION], Const(1, 1))
    addend = Mux(v, Mux(args.wide, 1 << FRACTION - LONG, 1 << FRACTION), Mux(args.wide, mantissa >> 7, 0))
    sum1 = registered(m, chosen + addend)
    some1, v1, of1 = registered(m, chosen.any()), registered(m, v), registered(m, of)
    # Up to the next step: no element is cut.
    sum2 = registered(m, sum1 + Mux(v1, 0, (1 << FRACTION - FINE) - 1))
    some2, v2, of2 = registered(m, some1), registered(m, v1), registered(m, of1)
    scaled = delay(m, scaling, 2, reset_less=False)
    fine, long = sum2[FRACTION - FINE :], sum2[FRACTION - LONG :]
    long = Cat(long[:LONG] & args.wide.replicate(LONG), long[LONG:])
    most = Mux(args.wide, TOP[LONG], 254 << LONG)
    new = Signal(12)
    m.d.comb += new.eq(Mux(some2, Mux(v2, Mux(long > most, most, long), Mux(fine > TOP[FINE], TOP[FINE], fine)), 0))
    scales = [Signal(12, reset_less=True, name=f"scale_{number}") for number in range(2)]
    m.submodules.scales = kept = Memory(shape=12, depth=BLOCKS, init=[])
    keep = kept.write_port()
    m.d.comb += [keep.en.eq(scaled), keep.addr.eq(Cat(of2, walk.batch)), keep.data.eq(new)]
    for number, (scale, top) in enumerate(zip(scales, tops.tops)):
        with m.If(scaled & (of2 == number)):
            m.d.sync += scale.eq(new)
            with m.If(new > top):
                m.d.sync += top.eq(new)
    return kept, scales


def _read_elements(m, unit, walk, look, scales, kept, chance):
    """Reads elements: blocks one after the other or, 8-bit codes of moments, by halves."""
    args, n = unit.args, walk.n
    half, side_bits = exact_log2(unit.config.beat_words) - 1, exact_log2(unit.config.edge)
    block, element = Signal(), Signal(side_bits)
    m.d.comb += [block.eq(n[-1]), element.eq(n[:-1])]
    with m.If(args.moments & args.wide):
        m.d.comb += [block.eq(n[side_bits - 1]), element.eq(Cat(n[: side_bits - 1], n[-1]))]
    m.d.comb += look.addr.eq(Mux(args.moments, Cat(element[:half], block, element[half:]), Cat(element, block)))
    which = registered(m, block)
    noise = delay(m, chance, 2)
    element2 = registered(m, look.data)
    scale2 = registered(m, Mux(which, scales[1], scales[0]))
    return ReadElement(scale=scale2, v=registered(m, which) & args.moments, element=element2, noise=noise, kept=kept)
