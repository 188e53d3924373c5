"""Store port of tiles: words become codes with a power of two a tile."""

from types import SimpleNamespace

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
    wide : two cycles behind the word: the code has 16 bits, else 8. rest : a cycle before the code: with a shift for 16
        bits and not ``wide``, it is what a code of 8 bits leaves.
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
        wide = registered(m, self.wide)
        # The lower byte counts from -128: a code of 8 bits is rounded at its first bit.
        most, low_byte = Const((1 << NARROW - 1) - 1, NARROW), fine[1 : NARROW + 1]
        up = (fine[0] & (low_byte != most)) | (low_byte == 1 << NARROW - 1)
        # mutant unrounded: below = registered(m, low_byte, NARROW)
        below = registered(m, (low_byte + up)[:NARROW])
        # The first bit of the code, those behind it, the sign and one between that a limit needs.
        none = ~rounded[NARROW : WIDE - 1].any() & ~(wide & rounded[:NARROW].any())
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
        least = Cat(Const(1, NARROW), ~wide, Const(1 << WIDE - 2 - NARROW, WIDE - 1 - NARROW))
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

        next request --> exponent of its tile --+
                                                v
        request --> walk over rows --> read, header
                                                |
        words of the engines --> one of them --> lanes of codes --> beats

    The record's header leaves :attr:`latency` cycles after the request, or is told ahead, then a beat a cycle as long
    as beats are taken: but a beat of 32 codes of 8 bits takes two cycles from an engine with one bank of results.
    What is told ahead begins when the last step of the record before is made, without a cycle between them.
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
    ahead : the payload of ``port.request`` is that of the next request, and stays until that is taken.
    source : with the payload: whose slot it is.
    results_N : result slots of engine N.
    saturated, underflowed : words whose code was limited because an exponent ended, and became 0, in this cycle.
    """

    latency = 3

    def __init__(self, *, banks=(1,)):
        self.banks = banks
        super().__init__(
            {
                "port": In(StoreSignature(8 * BEAT)),
                "ahead": In(1),
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
        depth, banks = 16, max(self.banks)
        tag = data.StructLayout(
            {"valid": 1, "header": 1, "upper": 1, "wide": 1, "rest": 1, "count": range(banks * WORDS + 1)}
        )
        m.submodules.queue = queue = SyncFIFOBuffered(width=8 * BEAT, depth=depth)
        credit = Signal(range(depth + 1), init=depth)
        asked, held = Signal(TileArgument), Signal()
        after, exponent, gone = self._next(m, asked, held)

        # The record whose rows are read; ``begins`` sends its header.
        arg, source, empty = Signal(TileArgument), Signal.like(self.source), Signal()
        base = Signal(signed(EXPONENT + 1))
        row, column = Signal(range(EDGE)), Signal(range(EDGE // WORDS))
        walking, begins, go = Signal(), Signal(), Signal()
        room = credit != 0
        m.d.comb += [begins.eq(after.ready & ~walking & room), go.eq(walking & room)]
        with m.If(begins):
            m.d.sync += [arg.eq(after.arg), source.eq(after.source), empty.eq(gone), row.eq(0), column.eq(0)]
            m.d.sync += [walking.eq(1), held.eq(0)]
            # Codes of 8 bits are in the upper half of those of 16.
            m.d.sync += base.eq(exponent + Mux(after.arg.wide | after.arg.rest, _LIFT, _LIFT - NARROW))
        for n, each in enumerate(self.results):
            m.d.comb += [
                each.asked.eq(asked.slot),
                each.slot.eq(arg.slot),
                each.read.en.eq(go & (source == n)),
                each.read.row.eq(row),
                each.read.column.eq(column),
            ]
        # A step reads 16 words of a row, or 32 where both banks have a part of a beat.
        two = ~arg.wide & Array(int(count > 1) for count in self.banks)[source]
        ends = Mux(two, column[1:] == arg.features[5:], column == arg.features[4:])
        with m.If(go):
            m.d.sync += column.eq(Mux(two, column + 2, column + 1))
            with m.If(ends):
                m.d.sync += [column.eq(0), row.eq(row + 1)]
                with m.If(row == arg.rows):
                    m.d.sync += walking.eq(0)
        # A step makes a beat, but the first of two.
        whole = Signal()
        # mutant half-beats: m.d.comb += whole.eq(1)
        m.d.comb += whole.eq(arg.wide | two | column[0] | ends)
        makes = begins | (go & whole)
        m.d.sync += credit.eq(credit - makes + (queue.r_rdy & queue.r_en))

        # Words that are the tile's of those that are read.
        now, left, most = Signal(tag), Signal(signed(8)), Mux(two, banks * WORDS, WORDS)
        m.d.comb += [
            left.eq(arg.features + 1 - (column << 4)),
            now.valid.eq(makes),
            now.header.eq(begins),
            now.upper.eq(column[0] & ~arg.wide),
            now.wide.eq(arg.wide),
            now.rest.eq(arg.rest),
            now.count.eq(Mux(go & ~empty, Mux(left > most, most, left), 0)),
        ]
        tags = [delay(m, now, n, reset_less=False) for n in range(1, CodeLane.latency + 3)]
        header = delay(m, Mux(begins, exponent, 0)[:8], CodeLane.latency + 2)

        lanes = self._lanes(m, platform, source, column, base, tags)
        made = tags[-1]
        m.d.sync += [
            self.underflowed.eq(sum(lane.zeroed for lane in lanes)),
            self.saturated.eq(sum(lane.clipped for lane in lanes)),
        ]
        narrow = Cat(lane.o[-NARROW:] for lane in lanes)
        # The lower half waits a cycle for the upper one: nothing holds back the second of two steps alone.
        lower, first = registered(m, narrow[: NARROW * WORDS]), narrow[: NARROW * WORDS]
        # mutant same-half: codes = Mux(made.upper, Cat(lower, lower), narrow)
        codes = Mux(made.upper, Cat(lower, first), narrow)
        m.d.comb += [
            queue.w_en.eq(made.valid),
            queue.w_data.eq(Mux(made.wide, Cat(lane.o for lane in lanes[:WORDS]), codes) | header),
            self.port.beats.valid.eq(queue.r_rdy),
            self.port.beats.p.eq(queue.r_data),
            queue.r_en.eq(self.port.beats.ready),
        ]
        return m

    def _next(self, m, asked, held):
        """The record that is made next: its operands, exponent, and whether an end limits what its codes leave.

        ``held``: there is one; what begins it clears this. ``ready`` of the result: all of it is known.
        """
        request = self.port.request
        arg, source, given = Signal(TileArgument), Signal.like(self.source), Signal()
        takes, steps = Signal(), Signal(2)
        m.d.comb += [
            asked.eq(request.p.arg),
            # mutant begun-twice: takes.eq((self.ahead | request.valid) & ~held),
            takes.eq((self.ahead | request.valid) & ~given & ~held),
            request.ready.eq(given | ~held),
        ]
        # Beats of a row less 1, of 16 codes of 16 bits or of 32, and of the record.
        row_beats = Mux(asked.wide, asked.features[4:], asked.features[5:])
        expected = Signal(range(EDGE * EDGE // WORDS + 2))
        m.d.comb += expected.eq((asked.rows + 1) * (row_beats + 1) + 1)
        missing = Array(each.refuse for each in self.results)[self.source]
        m.d.sync += [
            self.port.refuse.eq(missing | (request.p.beats != expected)),
            given.eq((given | takes) & ~request.valid),
            steps.eq(Cat(takes, steps)),
        ]
        with m.If(takes):
            m.d.sync += [arg.eq(asked), source.eq(self.source), held.eq(1)]

        # The tile's exponent, in two steps.
        e, zero, gone = Signal(signed(PEAK + 1)), Signal(), Signal()
        exponent, ready = Signal(signed(EXPONENT)), Signal()
        peak, full = (Array(getattr(each, name) for each in self.results)[source] for name in ("peak", "some"))
        m.d.sync += [e.eq(peak - Mux(arg.wide | arg.rest, WIDE - 2, NARROW - 2)), zero.eq(~full)]
        with m.If(steps[1]):
            # mutant without-ends: none = Const(0)
            none = arg.rest & ((e < LEAST) | (e > MOST - NARROW))
            m.d.sync += [gone.eq(none), ready.eq(1)]
            m.d.sync += exponent.eq(Mux(zero | none, ZERO, Mux(e < LEAST, LEAST, Mux(e > MOST, MOST, e))))
        with m.Elif(~held):
            m.d.sync += ready.eq(0)
        return SimpleNamespace(arg=arg, source=source, ready=ready & held), exponent, gone

    def _lanes(self, m, platform, source, column, base, tags):
        """Codes of the words that are read; ``tags``: of each step, from a cycle behind it on."""
        # Words are there: their shifts are those of the row.
        own = Array(each.exponent for each in self.results)[source]
        distance = Signal(signed(EXPONENT + 2))
        m.d.comb += distance.eq(base - own)
        shift, over = Signal(6, reset_less=True), Signal(reset_less=True)
        m.d.sync += [shift.eq(Mux(distance[6:-1].any(), 63, distance)), over.eq(distance < 0)]
        # One LUT a bit for four banks.
        choices = [bank.as_value() for each in self.results for bank in each.words]
        firsts = [sum(self.banks[:n]) for n in range(len(self.banks))]
        chosen = Array(first + column[0] if count > 1 else first for first, count in zip(firsts, self.banks))[source]
        chosen = registered(m, chosen, max(len(choices) - 1, 1).bit_length())
        words = [_choice(choices, chosen).word_select(n, WORD) for n in range(WORDS)]
        pairs = [n for n, count in enumerate(self.banks) if count > 1]
        if pairs:
            place_of = Array(pairs.index(n) if n in pairs else 0 for n in range(len(self.banks)))
            which = registered(m, place_of[source], 1) if len(pairs) > 1 else None
            odd = _choice([self.results[n].words[1].as_value() for n in pairs], which)
            words += [odd.word_select(n, WORD) for n in range(WORDS)]
        lanes = []
        # Tags of a word in its lane, and those that a lane has two and three cycles later.
        late, last = tags[3], tags[4]
        for n, word in enumerate(words):
            lane = place(m, f"lane_{n}", CodeLane(), platform)
            m.d.comb += [
                lane.i.eq(registered(m, word.as_signed(), signed(WORD))),
                lane.shift.eq(shift),
                lane.over.eq(over),
                lane.wide.eq(late.wide),
                lane.rest.eq(last.rest),
                lane.counts.eq(registered(m, n < late.count)),
            ]
            lanes.append(lane)
        return lanes


def _choice(values, index):
    """``values[index]``, by one bit of the index after the other."""
    if len(values) == 1:
        return values[0]
    half = 1 << (len(values) - 1).bit_length() - 1
    return Mux(index[half.bit_length() - 1], _choice(values[half:], index), _choice(values[:half], index))
