"""Codes, records and words, into beats.

::

    scales --> bytes of a record --+
    codes, of 4 bits two a byte ---+--> four bytes --+
    words of codes ----------------------------------+--> words --> beats
"""

from amaranth.hdl import Cat, Mux, Signal
from amaranth.utils import exact_log2

from ...formats.weights.packed import BLOCKS
from ...stream.delay import delay, registered
from .pack_walk import DECODED, ENCODED

__all__ = ["leave"]


def leave(m, unit, walk, elements, packed, decoded, tops):
    """Codes and records by bytes, words of codes, into beats."""
    args, few, n, tops = unit.args, unit.config.beat_words, walk.n, tops.tops
    # Records: bytes.
    look = elements.kept.read_port(domain="comb")
    place = (n - 8)[: exact_log2(BLOCKS)]
    m.d.comb += look.addr.eq(place)
    scale, top = look.data, Mux(place[0], tops[1], tops[0])
    off = top - scale
    stored = Mux(scale == 0, 0, Mux(off > 254, args.moments & place[0], 255 - off[:8]))
    byte = Signal(8)
    with m.Switch(n):
        for at, value in enumerate((tops[0][:8], tops[0][8:], tops[1][:8], tops[1][8:])):
            with m.Case(at):
                m.d.comb += byte.eq(value)
        with m.Default():
            m.d.comb += byte.eq(Mux((n >= 8) & (n - 8 < args.blocks), stored, 0))
    of_record = delay(m, walk.tail, 1, reset_less=False)
    of_code = delay(m, walk.read, ENCODED, reset_less=False)
    # Codes: two of 4 bits are a byte, the first in its high half.
    turn, high = Signal(), Signal(4, reset_less=True)
    with m.If(of_code):
        m.d.sync += [turn.eq(~turn & ~args.wide), high.eq(packed[:4])]
    entering, whole_byte = Signal(8, reset_less=True), Signal()
    m.d.sync += [
        whole_byte.eq(of_record | (of_code & (args.wide | turn))),
        entering.eq(Mux(of_record, registered(m, byte), Mux(args.wide, packed, Cat(packed[:4], high)))),
    ]
    three, count = Signal(24, reset_less=True), Signal(2)
    with m.If(whole_byte):
        m.d.sync += [three.eq(Cat(three[8:], entering)), count.eq(count + 1)]
    of_word = delay(m, walk.code, DECODED, reset_less=False)
    m.d.comb += unit.saturated.eq(of_word & decoded.clipped)
    word, whole_word = Signal(32, reset_less=True), Signal()
    m.d.sync += [
        whole_word.eq(of_word | (whole_byte & count.all())),
        word.eq(Mux(unit.unpack, decoded.word, Cat(three, entering))),
    ]
    words = Signal(range(max(few, 2)))
    with m.If(whole_word):
        m.d.sync += [words.eq(words + 1), unit.o.eq(Cat(unit.o[32:], word))]
    m.d.sync += unit.valid.eq(whole_word & (words == few - 1))
    # The last: of a record, or of the codes.
    ends = delay(m, walk.tail & (n == 4 * unit.record_beats(unit.config) * few - 1), 3, reset_less=False)
    ended = delay(
        m,
        walk.code & walk.last_batch & (walk.odd | ~args.wide) & n[:-1].all() & (n[-1] | args.wide),
        DECODED + 1,
        reset_less=False,
    )
    m.d.sync += unit.last.eq(ends | ended)
