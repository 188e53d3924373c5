"""Store port of tiles: words become codes with a power of two a tile."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from ..formats.tile_codes import EDGE, LEAST, MOST, NARROW, WIDE, WORD, ZERO
from ..formats.tile_records import BEAT, TileArgument
from ..hierarchy import place
from ..shell.signature import StoreSignature
from ..stream.delay import delay

__all__ = ["EXPONENT", "PEAK", "CodeLane", "TileStore"]

#: Words that are read at a time.
_WORDS = 16
#: Bits of a word's exponent, and of that of the leading bit of the largest.
EXPONENT, PEAK = 11, 12
#: Places that a word is shifted left before it is shifted right.
_LIFT = WIDE - 1


class CodeLane(wiring.Component):
    """A word to a code: shifted, rounded half up, limited.

    A word a cycle, :attr:`latency` cycles later.

    Members
    -------
    i, shift : word; it is multiplied by ``2**(15 - shift)``, ``shift`` 0 to 63. over : the shift would be below 0.
    wide : the code has 16 bits, else 8. o : the code, in 16 bits. zeroed, clipped : it was.
    """

    latency = 4

    def __init__(self):
        super().__init__(
            {
                "i": In(signed(WORD)),
                "shift": In(6),
                "over": In(1),
                "wide": In(1),
                "o": Out(signed(WIDE)),
                "zeroed": Out(1),
                "clipped": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        # Shifted by multiples of eight, then by the rest. One bit below the code's last decides the rounding; of those
        # above the code's first it only counts whether one is not the sign.
        lifted, keep = self.i << _LIFT + 1, WIDE + 3
        coarse = Signal(signed(keep + 7), reset_less=True)
        fine = Signal(signed(keep), reset_less=True)
        rounded = Signal(signed(WIDE + 2), reset_less=True)
        small, some = Signal(3, reset_less=True), delay(m, self.i.any(), 3)
        wide, over = delay(m, self.wide, 3), delay(m, self.over & self.i.any(), 3)
        negative = delay(m, self.i[-1], 3)
        near, above = Signal(9, reset_less=True), Signal(reset_less=True)
        beyond = Signal(reset_less=True)
        differs = (lifted ^ self.i[-1].replicate(len(lifted)))[: len(lifted)]
        # Bytes in which a bit differs from the sign, from the first above ``coarse`` on.
        rest = Cat(differs[first : first + 8].any() for first in range(keep + 7, len(lifted), 8))
        m.d.sync += [
            coarse.eq((lifted >> (self.shift & 0b111000))[: keep + 7].as_signed()),
            above.eq((rest >> self.shift[3:]).any()),
            small.eq(self.shift[:3]),
            fine.eq((coarse >> small)[:keep].as_signed()),
            # Words that no code holds come only with an exponent at its end.
            near.eq((coarse[keep - 2 :] ^ delay(m, self.i[-1], 1).replicate(9)) >> small),
            beyond.eq(delay(m, above, 1) | near.any()),
            rounded.eq((fine + 1) >> 1),
        ]
        most = Signal(signed(WIDE + 2))
        m.d.comb += most.eq(Mux(wide, (1 << WIDE - 1) - 1, (1 << NARROW - 1) - 1))
        high, low, far = Signal(), Signal(), Signal()
        m.d.comb += [
            far.eq(beyond | over),
            # mutant unlimited: high.eq(0),
            high.eq((far & ~negative) | (~far & (rounded > most))),
            low.eq((far & negative) | (~far & (rounded < -most))),
        ]
        m.d.sync += [
            self.o.eq(Mux(high, most, Mux(low, -most, rounded))),
            self.zeroed.eq(some & ~far & (rounded == 0)),
            self.clipped.eq(far | (rounded > most + 1) | (rounded < -most - 1)),
        ]
        return m


class TileStore(wiring.Component):
    """Serves a store port with records of the tiles of result slots.

    ::

        request --> walk over rows --> read --> 16 lanes of codes --> beats
                        |                            ^
                        +--> exponent of the tile ---+

    The record's header leaves :attr:`latency` cycles after the request, then a beat a cycle as long as they are taken.
    The exponent is the least with which the largest word's leading bit is within a code,
    :func:`~gradloom.rtl.formats.tile_codes.stored`.

    Parameters
    ----------
    slots : int
        A power of two.

    Members
    -------
    port : of the engine's specification; ``arg`` as :data:`~gradloom.rtl.formats.tile_records.TileArgument`. A slot
        that is not there, or another number of beats than the record has, is refused.
    slot : slot of the record, from the cycle after the request on.
    peak, some : exponent of the leading bit of the slot's largest word; a word is not 0. From ``slot``, in the same
        cycle or one later.
    read : 16 words in the next cycle: ``en``, ``row``, ``column`` in words of 16.
    words, exponent : in the cycle after ``read``; the exponent is the row's.
    saturated, underflowed : words whose code was limited because an exponent ended, and became 0, in this cycle.
    """

    latency = 4

    def __init__(self, *, slots):
        self.slots = slots
        super().__init__(
            {
                "port": In(StoreSignature(8 * BEAT)),
                "slot": Out(range(max(slots, 2))),
                "peak": In(signed(PEAK)),
                "some": In(1),
                "read": Out(data.StructLayout({"en": 1, "row": range(EDGE), "column": range(EDGE // _WORDS)})),
                "words": In(data.ArrayLayout(signed(WORD), _WORDS)),
                "exponent": In(signed(EXPONENT)),
                "saturated": Out(8),
                "underflowed": Out(8),
            }
        )

    def elaborate(self, platform):
        m = Module()
        depth = 16
        tag = data.StructLayout({"valid": 1, "header": 1, "upper": 1, "count": range(_WORDS + 1)})
        m.submodules.queue = queue = SyncFIFOBuffered(width=8 * BEAT, depth=depth)
        credit = Signal(range(depth + 1), init=depth)
        request, asked = self.port.request, Signal(TileArgument)
        arg, busy, begins = Signal(TileArgument), Signal(), Signal(4)
        m.d.comb += [asked.eq(request.p.arg), request.ready.eq(~busy)]
        # Beats of a row less 1, and of the record.
        row_beats = Mux(asked.wide, asked.features[3:], asked.features[4:])
        expected = Signal(range(EDGE * 8 + 2))
        m.d.comb += expected.eq((asked.rows + 1) * (row_beats + 1) + 1)
        m.d.sync += self.port.refuse.eq((asked.slot >= self.slots) | (request.p.beats != expected))
        row, at, go, last = Signal(range(EDGE)), Signal(3), Signal(), Signal()
        beats = Signal(3)
        m.d.comb += self.slot.eq(arg.slot)
        with m.If(request.valid & request.ready):
            m.d.sync += [arg.eq(asked), busy.eq(1), begins.eq(1), row.eq(0), at.eq(0), beats.eq(row_beats)]
        with m.Else():
            m.d.sync += begins.eq(begins << 1)

        # The tile's exponent, in two steps; ``begins[3]`` sends the header.
        e, zero = Signal(signed(PEAK + 1)), Signal()
        exponent = Signal(signed(EXPONENT))
        m.d.sync += [e.eq(self.peak - Mux(arg.wide, WIDE - 2, NARROW - 2)), zero.eq(~self.some)]
        with m.If(begins[2]):
            m.d.sync += exponent.eq(Mux(zero, ZERO, Mux(e < LEAST, LEAST, Mux(e > MOST, MOST, e))))
        sends = Signal()
        m.d.comb += sends.eq(begins[3] & (credit != 0))
        with m.If(begins[3] & ~sends):
            m.d.sync += begins.eq(begins)
        walking = Signal()
        with m.If(sends):
            m.d.sync += walking.eq(1)
        m.d.comb += [
            go.eq(walking & (credit != 0)),
            last.eq((row == arg.rows) & (at == beats)),
            self.read.en.eq(go),
            self.read.row.eq(row),
            self.read.column.eq(Mux(arg.wide, at[1:], at)),
        ]
        with m.If(go):
            m.d.sync += at.eq(at + 1)
            with m.If(at == beats):
                m.d.sync += [at.eq(0), row.eq(row + 1)]
            with m.If(last):
                m.d.sync += [walking.eq(0), busy.eq(0)]
        m.d.sync += credit.eq(credit - (go | sends) + (queue.r_rdy & queue.r_en))

        now = Signal(tag)
        # Words of this beat that are the tile's.
        first = Mux(arg.wide, Cat(Const(0, 3), at), Cat(Const(0, 4), at))
        left = Signal(signed(9))
        m.d.comb += [
            left.eq(arg.features + 1 - first),
            now.valid.eq(go | sends),
            now.header.eq(sends),
            now.upper.eq(arg.wide & at[0]),
            now.count.eq(Mux(left > _WORDS, _WORDS, Mux(left > 0, left, 0))),
        ]
        read = delay(m, now, 1, reset_less=False)
        # Words are there: their shifts are those of the row.
        words = Signal(data.ArrayLayout(signed(WORD), _WORDS), reset_less=True)
        distance = Signal(signed(PEAK + 3))
        m.d.comb += distance.eq(exponent - self.exponent + _LIFT)
        shift, over = Signal(6, reset_less=True), Signal(reset_less=True)
        m.d.sync += [shift.eq(Mux(distance > 63, 63, distance)), over.eq(distance < 0)]
        halves = data.ArrayLayout(signed(WORD), _WORDS // 2)
        lower = Signal(halves)
        m.d.comb += lower.eq(Mux(read.upper, self.words.as_value()[WORD * _WORDS // 2 :], self.words.as_value()))
        m.d.sync += words.eq(Cat(lower, self.words.as_value()[WORD * _WORDS // 2 :]))
        there = delay(m, read, 1, reset_less=False)
        wide = Signal(reset_less=True)
        m.d.sync += wide.eq(arg.wide)
        codes, zeroed, clipped = [], [], []
        made = delay(m, there, CodeLane.latency, reset_less=False)
        for n in range(_WORDS):
            lane = place(m, f"lane_{n}", CodeLane(), platform)
            counts = n < there.count
            if n >= _WORDS // 2:
                counts = counts & ~wide
            m.d.comb += [
                lane.i.eq(Mux(counts, words[n], 0)),
                lane.shift.eq(shift),
                lane.over.eq(over),
                lane.wide.eq(wide),
            ]
            codes.append(lane.o)
            zeroed.append(lane.zeroed & made.valid & ~made.header)
            clipped.append(lane.clipped & made.valid & ~made.header)
        narrow = Cat(code[:NARROW] for code in codes)
        whole = Cat(codes[: _WORDS // 2])
        m.d.sync += [self.underflowed.eq(sum(zeroed)), self.saturated.eq(sum(clipped))]
        m.d.comb += [
            queue.w_en.eq(made.valid),
            queue.w_data.eq(Mux(made.header, exponent[:8], Mux(wide, whole, narrow))),
            self.port.beats.valid.eq(queue.r_rdy),
            self.port.beats.p.eq(queue.r_data),
            queue.r_en.eq(self.port.beats.ready),
        ]
        return m
