"""Store port of tiles: words become codes with a power of two a tile."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from ..formats.tiles.codes import EDGE, LEAST, MOST, NARROW, WIDE, WORD, ZERO
from ..formats.tiles.records import BEAT, TileArgument
from ..hierarchy import place
from ..shell.signature import StoreSignature
from ..stream.delay import delay, registered
from .tile_port import EXPONENT, PEAK, WORDS, ResultSignature

__all__ = ["CodeLane", "TileStore"]

#: Places that a word is shifted left before it is shifted right.
_LIFT = WIDE - 1


class CodeLane(wiring.Component):
    """A word to a code: shifted, rounded half up, limited.

    A word a cycle, :attr:`latency` cycles later. A code of 8 bits is in the upper half of ``o``.

    Members
    -------
    i, shift : word; it is multiplied by ``2**(15 - shift)``, ``shift`` 0 to 63. over : the shift would be below 0.
    wide : the code has 16 bits, else 8; held from the word to its code. rest : with a shift for 16 bits and not
        ``wide``, the code is what a code of 8 bits leaves; held, too.
    counts : a cycle before the code: else that is 0, and neither ``zeroed`` nor ``clipped``.
    o : the code. zeroed, clipped : it was.
    """

    latency = 4

    def __init__(self):
        super().__init__(
            {
                "i": In(signed(WORD)),
                "shift": In(6),
                "over": In(1),
                "wide": In(1),
                "rest": In(1),
                "counts": In(1),
                "o": Out(WIDE),
                "zeroed": Out(1),
                "clipped": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        # Shifted by two bits of the distance at a time. What is kept has one bit below the code's last, which decides
        # the rounding, and ends with the code's first: above it there is the sign, or the word is beyond all codes.
        keep = WIDE + 1
        sizes = [keep + 15, keep + 3, keep]
        lifted = self.i << _LIFT + 1
        far = Signal(sizes[0])
        m.d.comb += far.eq(lifted >> (self.shift & 0b110000))
        near, rest = registered(m, (far >> (self.shift & 0b1100))[: sizes[1]]), registered(m, self.shift[:2])
        fine = registered(m, (near >> rest)[: sizes[2]])
        # Registers with a reset: a shift register of two or three places would be a LUT each.
        signs = [self.i[-1], *(delay(m, self.i[-1], n, reset_less=False) for n in (1, 2, 3))]

        def beyond(value, size, step, sign, shift):
            # Bits above ``size`` that differ from the sign, after a shift by ``step`` times the two bits of ``shift``.
            parts = [value[first : first + step] for first in range(size, len(value), step)]
            differs = Cat((part ^ sign.replicate(len(part))).any() for part in parts)
            return (differs >> shift).any()

        above = registered(
            m,
            beyond(lifted, sizes[0], 16, signs[0], self.shift[4:])
            | beyond(far, sizes[1], 4, signs[0], self.shift[2:4]),
        )
        over, some = registered(m, self.over), registered(m, self.i.any())
        # Words that no code holds come only with an exponent at its end.
        last = beyond(near, sizes[2], 1, signs[1], rest)
        outside = delay(m, registered(m, above | last | (over & some)), 1)
        some = delay(m, some, 2, reset_less=False)
        rounded = registered(
            m,
            (Cat(fine, signs[2]).as_signed() + Cat(self.wide, Const(0, NARROW - 1), ~self.wide)) >> 1,
            signed(WIDE + 2),
        )
        # The lower byte counts from -128: a code of 8 bits is rounded at its first bit.
        most, low_byte = Const((1 << NARROW - 1) - 1, NARROW), fine[1 : NARROW + 1]
        up = (fine[0] & (low_byte != most)) | (low_byte == 1 << NARROW - 1)
        # mutant unrounded: below = registered(m, low_byte, NARROW)
        below = registered(m, (low_byte + up)[:NARROW])
        # The first bit of the code, those behind it, the sign and one between that a limit needs.
        none = ~rounded[NARROW : WIDE - 1].any() & ~(self.wide & rounded[:NARROW].any())
        first, extra, negative = rounded[WIDE - 1 :]
        high, low, beyond_it = Signal(), Signal(), Signal()
        m.d.comb += [
            # mutant unlimited: high.eq(0),
            high.eq(Mux(outside, ~signs[3], ~negative & (extra | first))),
            low.eq(Mux(outside, signs[3], negative & (~first | none))),
            # What rounds to the first code beyond the end is limited, too, but not counted.
            beyond_it.eq(outside | Mux(negative, ~first, extra | (first & ~none))),
        ]
        code = Mux(self.rest, below << NARROW, rounded)
        least = Cat(Const(1, NARROW), ~self.wide, Const(1 << WIDE - 2 - NARROW, WIDE - 1 - NARROW))
        m.d.sync += [
            self.o.eq(Mux(self.counts, Mux(high, (1 << WIDE - 1) - 1, Mux(low, least, code)), 0)),
            self.zeroed.eq(self.counts & ~self.rest & some & ~outside & ~(negative | extra | first) & none),
            self.clipped.eq(self.counts & ~self.rest & beyond_it),
        ]
        return m


class TileStore(wiring.Component):
    """Serves a store port with records of the tiles of result slots.

    One for all engines of a machine, as STORE asks for one record at a time.

    ::

        request --> walk over rows --> read
                        |
                        +--> exponent of the tile ---+
                                                     v
        words of the engines --> one of them --> 16 lanes of codes --> beats

    The record's header leaves :attr:`latency` cycles after the request, then 16 codes a cycle as long as beats are
    taken: of codes of 16 bits a beat, of 8 bits half of one.
    The exponent is the least with which the largest word's leading bit is within a code,
    :func:`~gradloom.rtl.formats.tiles.codes.stored`. A record of what codes of 8 bits leave has the exponent of codes
    of 16, and zeros where an end limits either.

    Parameters
    ----------
    banks : tuple of int
        Of the result slots of each engine; see :class:`~.tile_port.ResultSignature`.

    Members
    -------
    port : of the shell; ``arg`` as :data:`~gradloom.rtl.formats.tiles.records.TileArgument`. A slot that is not there,
        or another number of beats than the record has, is refused.
    source : with the request: whose slot it is.
    results_N : result slots of engine N.
    saturated, underflowed : words whose code was limited because an exponent ended, and became 0, in this cycle.
    """

    latency = 4

    def __init__(self, *, banks=(1,)):
        self.banks = banks
        super().__init__(
            {
                "port": In(StoreSignature(8 * BEAT)),
                "source": In(range(max(len(banks), 2))),
                **{f"results_{n}": Out(ResultSignature(count)) for n, count in enumerate(banks)},
                "saturated": Out(8),
                "underflowed": Out(8),
            }
        )

    @property
    def results(self):
        """Ports of result slots, in order."""
        return [getattr(self, f"results_{n}") for n in range(len(self.banks))]

    def elaborate(self, platform):
        m = Module()
        depth = 16
        tag = data.StructLayout({"valid": 1, "header": 1, "upper": 1, "count": range(WORDS + 1)})
        m.submodules.queue = queue = SyncFIFOBuffered(width=8 * BEAT, depth=depth)
        credit = Signal(range(depth + 1), init=depth)
        request, asked = self.port.request, Signal(TileArgument)
        arg, source, busy, begins = Signal(TileArgument), Signal.like(self.source), Signal(), Signal(4)
        m.d.comb += [asked.eq(request.p.arg), request.ready.eq(~busy)]
        # Beats of a row less 1, of 16 codes of 16 bits or of 32, and of the record.
        row_beats = Mux(asked.wide, asked.features[4:], asked.features[5:])
        expected = Signal(range(EDGE * EDGE // WORDS + 2))
        m.d.comb += expected.eq((asked.rows + 1) * (row_beats + 1) + 1)
        missing = Array(each.refuse for each in self.results)[self.source]
        m.d.sync += self.port.refuse.eq(missing | (request.p.beats != expected))
        row, column, go, ends = Signal(range(EDGE)), Signal(range(EDGE // WORDS)), Signal(), Signal()
        with m.If(request.valid & request.ready):
            m.d.sync += [arg.eq(asked), source.eq(self.source), busy.eq(1), begins.eq(1)]
            m.d.sync += [row.eq(0), column.eq(0)]
        with m.Else():
            m.d.sync += begins.eq(begins << 1)

        # The tile's exponent, in two steps; ``begins[3]`` sends the header.
        e, zero, gone = Signal(signed(PEAK + 1)), Signal(), Signal()
        exponent, base = Signal(signed(EXPONENT)), Signal(signed(EXPONENT + 1))
        peak = Array(each.peak for each in self.results)[source]
        m.d.sync += [
            e.eq(peak - Mux(arg.wide | arg.rest, WIDE - 2, NARROW - 2)),
            zero.eq(~Array(each.some for each in self.results)[source]),
            # Codes of 8 bits are in the upper half of those of 16.
            base.eq(exponent + Mux(arg.wide | arg.rest, _LIFT, _LIFT - NARROW)),
        ]
        with m.If(begins[2]):
            # mutant without-ends: none = Const(0)
            none = arg.rest & ((e < LEAST) | (e > MOST - NARROW))
            m.d.sync += gone.eq(none)
            m.d.sync += exponent.eq(Mux(zero | none, ZERO, Mux(e < LEAST, LEAST, Mux(e > MOST, MOST, e))))
        sends = Signal()
        m.d.comb += sends.eq(begins[3] & (credit != 0))
        with m.If(begins[3] & ~sends):
            m.d.sync += begins.eq(begins)
        walking = Signal()
        with m.If(sends):
            m.d.sync += walking.eq(1)
        m.d.comb += [go.eq(walking & (credit != 0)), ends.eq(column == arg.features[4:])]
        for n, each in enumerate(self.results):
            m.d.comb += [
                each.asked.eq(asked.slot),
                each.slot.eq(arg.slot),
                each.read.en.eq(go & (source == n)),
                each.read.row.eq(row),
                each.read.column.eq(column),
            ]
        with m.If(go):
            m.d.sync += column.eq(column + 1)
            with m.If(ends):
                m.d.sync += [column.eq(0), row.eq(row + 1)]
                with m.If(row == arg.rows):
                    m.d.sync += [walking.eq(0), busy.eq(0)]
        # A step makes a beat, but the first of two of codes of 8 bits.
        whole = Signal()
        # mutant half-beats: m.d.comb += whole.eq(1)
        m.d.comb += whole.eq(arg.wide | column[0] | ends)
        makes = sends | (go & whole)
        m.d.sync += credit.eq(credit - makes + (queue.r_rdy & queue.r_en))

        # Words that are the tile's of the 16 that are read.
        now, left = Signal(tag), Signal(signed(8))
        m.d.comb += [
            left.eq(arg.features + 1 - (column << 4)),
            now.valid.eq(makes),
            now.header.eq(sends),
            now.upper.eq(column[0] & ~arg.wide),
            now.count.eq(Mux(go, Mux(left > WORDS, WORDS, left), 0)),
        ]
        read = delay(m, now, 1, reset_less=False)
        # Words are there: their shifts are those of the row.
        words = Signal(data.ArrayLayout(signed(WORD), WORDS), reset_less=True)
        own = Array(each.exponent for each in self.results)[source]
        distance = Signal(signed(EXPONENT + 2))
        m.d.comb += distance.eq(base - own)
        shift, over = Signal(6, reset_less=True), Signal(reset_less=True)
        m.d.sync += [shift.eq(Mux(distance[6:-1].any(), 63, distance)), over.eq(distance < 0)]
        # One LUT a bit for four banks.
        choices = [bank.as_value() for each in self.results for bank in each.words]
        firsts = [sum(self.banks[:n]) for n in range(len(self.banks))]
        chosen = Array(first + column[0] if two > 1 else first for first, two in zip(firsts, self.banks))[source]
        m.d.sync += words.eq(_choice(choices, registered(m, chosen, max(len(choices) - 1, 1).bit_length())))
        made = [delay(m, read, n, reset_less=False) for n in range(1, CodeLane.latency + 2)]
        wide, rest = registered(m, arg.wide), registered(m, arg.rest)
        lanes = []
        for n in range(WORDS):
            lane = place(m, f"lane_{n}", CodeLane(), platform)
            before = made[CodeLane.latency - 2]
            counts = registered(m, (n < before.count) & ~gone)
            m.d.comb += [
                lane.i.eq(words[n]),
                lane.shift.eq(shift),
                lane.over.eq(over),
                lane.wide.eq(wide),
                lane.rest.eq(rest),
                lane.counts.eq(counts),
            ]
            lanes.append(lane)
        made = made[-1]
        m.d.sync += [
            self.underflowed.eq(sum(lane.zeroed for lane in lanes)),
            self.saturated.eq(sum(lane.clipped for lane in lanes)),
        ]
        narrow = Cat(lane.o[-NARROW:] for lane in lanes)
        # The lower half waits a cycle for the upper one: nothing holds back the second of two steps alone.
        lower = registered(m, narrow)
        # mutant same-half: codes = Mux(made.upper, Cat(lower, lower), narrow)
        codes = Mux(made.upper, Cat(lower, narrow), narrow)
        m.d.comb += [
            queue.w_en.eq(made.valid),
            queue.w_data.eq(Mux(wide, Cat(lane.o for lane in lanes), codes) | Mux(made.header, exponent[:8], 0)),
            self.port.beats.valid.eq(queue.r_rdy),
            self.port.beats.p.eq(queue.r_data),
            queue.r_en.eq(self.port.beats.ready),
        ]
        return m


def _choice(values, index):
    """``values[index]``, by one bit of the index after the other."""
    if len(values) == 1:
        return values[0]
    half = 1 << (len(values) - 1).bit_length() - 1
    return Mux(index[half.bit_length() - 1], _choice(values[half:], index), _choice(values[:half], index))
