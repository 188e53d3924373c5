"""Sums of codes that adapters see of a sequence: taps, in RTL."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ...formats.cell import CODE, TAP_PARTS, TAP_QUARTERS, TAP_SHIFT, TAP_WORD, TapArgument
from ...formats.rounding import saturate_hdl
from .feed import given_layout, job_layout
from .stages import READ_STAGES, TAP_WORDS, tap_cycles

__all__ = ["Taps"]


class Taps(wiring.Component):
    """Adds up codes while a command runs, and sends the taps of a sequence.

    ::

        x ------------------> + --> sums     (while a command runs)
                              |      |
                              +------+

        h ----------------------------> h -----------------+
        c --> table of tanh ----------> tanh c ------------+--> shift --> clip --> beats --> o
        sums -----------> + h --------> sum of h ----------+
        sums -------------------------> sums of x ---------+

    Hidden states are added up as they enter the groups, a step late: the last is added when the sum is read. Of each
    row of x the first ``own`` times ``channels`` chunks are added up, ``channels`` sums for each quarter of the steps.

    A request sends the words of one sequence, 32 bits each: hidden state, tanh of the cell state unless ``plain``, sum
    of the hidden states, sums of x of each quarter unless ``alone``, then zeros. A word is shifted left and clipped to
    :data:`TAP_WORD` bits. States are those of the request's cell; sums are of the command that ran.

    Members
    -------
    begins, job, given : of the feed. x : its operands, a cycle behind ``given``.
    place, h, c : where states are read, and their codes, in the same cycle. cell : of the table that is looked up.
    state, squashed : a code of the cell state, and the answer of the table a cycle later, where ``free`` was high.
    asked, argument, beats : a request.
    o : stream of beats of four words; see :func:`tap_cycles`.
    active : states and sums are being read.
    """

    def __init__(self, config):
        self.config = config
        parallel = config.parallel
        self.group_bits, self.channel_bits = ((n - 1).bit_length() for n in (config.groups, config.tap_chunks))
        self.sequence_bits, self.cell_bits = ((n - 1).bit_length() for n in (config.sequences, config.cells))
        #: Of a place without the bit that tells sums of x from those of h.
        self.inner = max(self.group_bits, self.channel_bits + 2) + self.sequence_bits
        state = data.ArrayLayout(signed(config.state_bits), parallel)
        code = data.ArrayLayout(signed(CODE), parallel)
        super().__init__(
            {
                "begins": In(1),
                "job": In(job_layout(config)),
                "given": In(given_layout(config)),
                "x": In(code),
                "place": Out(self.group_bits + self.sequence_bits + self.cell_bits),
                "cell": Out(self.cell_bits),
                "h": In(data.ArrayLayout(signed(8), parallel)),
                "c": In(state),
                "state": Out(state),
                "squashed": In(code),
                "free": Out(1),
                "asked": In(1),
                "argument": In(TapArgument),
                "beats": In(24),
                "o": Out(stream.Signature(128)),
                "active": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.sums = sums = memory.Memory(
            shape=data.ArrayLayout(signed(TAP_WORD), self.config.parallel), depth=2 << self.inner, init=[]
        )
        write = sums.write_port()
        read = sums.read_port()
        adding = self._add(m, write, read)
        valid, part, again, reading = self._walk(m)
        self._words(m, read, valid, part, again)
        m.d.comb += [read.addr.eq(Mux(self.active, reading, adding)), read.en.eq(~self.active | self.free)]
        return m

    def _place(self, index, sequence, quarter=None):
        """A place of the sums, of a chunk of x or of h."""
        of_x = quarter is not None
        parts = [index[: self.channel_bits], quarter] if of_x else [index[: self.group_bits]]
        place = Cat(*parts, sequence[: self.sequence_bits])
        return Cat(place, Const(0, self.inner - len(place)), Const(of_x, 1))

    def _add(self, m, write, read):
        """Adds what is given to its sum; returns the sum's place."""
        job, given = self.job, self.given
        channel, phase, quarter, step = Signal(self.channel_bits), Signal(8), Signal(2), Signal(16)
        # Chunks of the row still count; they are of a later part of it; the step is its quarter's first.
        counted, later, opens = Signal(), Signal(), Signal(init=1)
        starts = [Signal(16, name=f"start_{n}") for n in range(1, TAP_QUARTERS)]
        steps, source, state = self._first_passes(m)
        m.d.sync += [start.eq((steps * n) >> 2) for n, start in enumerate(starts, 1)]
        turn, row_ends, ahead = Signal(), source & given.ends, Signal()
        m.d.comb += [
            turn.eq(channel + 1 == job.channels),
            ahead.eq(step + 1 == Array([*starts, Const(0, 16)])[quarter]),
        ]
        with m.If(source):
            m.d.sync += channel.eq(Mux(turn, 0, channel + 1))
            with m.If(turn):
                m.d.sync += [phase.eq(phase + 1), later.eq(1)]
                with m.If(phase + 1 == job.own):
                    m.d.sync += counted.eq(0)
        with m.If(row_ends | self.begins):
            m.d.sync += [channel.eq(0), phase.eq(0), later.eq(0), counted.eq(job.channels.any())]
        with m.If(row_ends & given.last_sequence):
            m.d.sync += [step.eq(step + 1), opens.eq(ahead), quarter.eq(quarter + ahead)]
        with m.If(self.begins):
            m.d.sync += [step.eq(0), opens.eq(1), quarter.eq(0)]
        place = Signal(self.inner + 1)
        m.d.comb += place.eq(
            Mux(source, self._place(channel, given.sequence, quarter), self._place(given.position, given.sequence))
        )
        first, zero, again = Signal(), Signal(), Signal()
        word = Signal.like(write.data, reset_less=True)
        m.d.sync += [
            write.en.eq(state | (source & counted)),
            write.addr.eq(place),
            # mutant unopened: first.eq(Mux(source, opens, given.first)),
            first.eq(Mux(source, opens & ~later, given.first)),
            # What a state holds before the first step is none of the command's hidden states.
            zero.eq(state & given.first),
            # What was written as the same place was read is not in the answer.
            # mutant stale: again.eq(0),
            again.eq(write.en & (write.addr == place)),
            word.eq(write.data),
        ]
        for n in range(self.config.parallel):
            before = Mux(again, word[n], read.data[n])
            total = Mux(zero, 0, self.x[n]) + Mux(first, 0, before)
            m.d.comb += write.data[n].eq(saturate_hdl(total, signed(TAP_WORD))[0])
        return place

    def _first_passes(self, m):
        """Steps of a sequence; a chunk of x is given, and one of a state: of steps of two passes in the first."""
        job, given = self.job, self.given
        if self.config.gru < 2:
            return job.steps, given.source, given.state
        found = []
        for kind in (given.source, given.state):
            again = Signal()
            with m.If(kind & given.ends & given.last_sequence):
                m.d.sync += again.eq(job.passes & ~again)
            with m.If(self.begins):
                m.d.sync += again.eq(0)
            # mutant twice: found.append(kind)
            found.append(kind & ~again)
        return Mux(job.passes, job.steps >> 1, job.steps), *found

    def _walk(self, m):
        """Goes through a sequence's chunks.

        Returns whether there is one, its part, its beat and the place of its sum.
        """
        config, job, free = self.config, self.job, self.free
        per_chunk, (_, pieces) = max(config.parallel // TAP_WORDS, 1), tap_cycles(config.parallel)
        left, piece, again = Signal(24), Signal(range(pieces)), Signal(range(per_chunk))
        part, quarter = Signal(range(TAP_PARTS + 1)), Signal(range(TAP_QUARTERS))
        index, sequence = Signal(max(self.group_bits, self.channel_bits)), Signal(self.sequence_bits)
        plain, alone = Signal(), Signal()
        valid, of_x, ends, whole = Signal(), Signal(), Signal(), Signal()
        self._shifts = shifts = Signal(data.ArrayLayout(TAP_SHIFT, TAP_PARTS))
        m.d.comb += [
            free.eq(~self.o.valid | self.o.ready),
            valid.eq(left.any()),
            of_x.eq(part == TAP_PARTS - 1),
            ends.eq(index + 1 == Mux(of_x, job.channels, job.hidden)),
            whole.eq(again == per_chunk - 1),
            self.place.eq(Cat(index[: self.group_bits], sequence, self.cell)),
        ]
        with m.If(self.asked):
            m.d.sync += [
                left.eq(self.beats),
                sequence.eq(self.argument.sequence),
                self.cell.eq(self.argument.cell),
                plain.eq(self.argument.plain),
                alone.eq(self.argument.alone),
                *(one.eq(self.argument[name]) for one, name in zip(shifts, ("h", "squashed", "sum", "x"))),
                *(each.eq(0) for each in (piece, again, part, quarter, index)),
            ]
        with m.Elif(valid & free):
            m.d.sync += [piece.eq(Mux(piece == pieces - 1, 0, piece + 1)), again.eq(Mux(whole, 0, again + 1))]
            with m.If(piece == pieces - 1):
                m.d.sync += left.eq(left - 1)
            with m.If(whole & (part != TAP_PARTS)):
                m.d.sync += index.eq(Mux(ends, 0, index + 1))
                with m.If(ends & of_x):
                    m.d.sync += quarter.eq(quarter + 1)
                with m.If(ends & (~of_x | (quarter == TAP_QUARTERS - 1))):
                    # mutant whole: m.d.sync += part.eq(part + 1)
                    m.d.sync += part.eq(part + Mux(Mux(part == 0, plain, alone & (part == TAP_PARTS - 2)), 2, 1))
        place = Mux(of_x, self._place(index, sequence, quarter), self._place(index, sequence))
        return valid, part, again, place

    def _words(self, m, read, valid, part, again):
        """From what is read to beats, while the last beat is not waiting."""
        parallel, free = self.config.parallel, self.free
        lanes, (_, pieces) = min(parallel, TAP_WORDS), tap_cycles(parallel)

        def held(value, name):
            kept = Signal.like(value, name=name, reset_less=True)
            with m.If(free):
                m.d.sync += kept.eq(value)
            return kept

        there = Signal(READ_STAGES - 1)
        with m.If(free):
            m.d.sync += there.eq(Cat(valid, there))
        m.d.comb += self.active.eq(valid | there.any())
        # The codes; the table and the sums answer; a word for each element; the words shifted.
        h = held(held(self.h, "h_read"), "h_held")
        c, sums = held(self.c, "c_read"), held(read.data, "sums_held")
        kind, beat = held(held(part, "part_1"), "part_2"), held(held(held(again, "beat_1"), "beat_2"), "beat_3")
        m.d.comb += self.state.eq(c)
        totals = []
        for n in range(parallel):
            # mutant lastless: whole, _ = saturate_hdl(sums[n], signed(TAP_WORD))
            whole, _ = saturate_hdl(sums[n] + h[n], signed(TAP_WORD))
            value = Signal(signed(TAP_WORD), name=f"value_{n}")
            m.d.comb += value.eq(Array([h[n], self.squashed[n], whole, sums[n], Const(0, signed(2))])[kind])
            totals.append(held(value, f"total_{n}"))
        shift = held(Array([*self._shifts, Const(0, TAP_SHIFT)])[kind], "shift")
        filled = Signal(range(pieces))
        full = Signal()
        for lane in range(lanes):
            total = Array(totals[lane::lanes])[beat] if parallel > lanes else totals[lane]
            wide = held(Value.cast(total).as_signed() << shift, f"wide_{lane}")
            word, _ = saturate_hdl(wide, signed(TAP_WORD))
            for number in range(pieces):
                own = self.o.p[32 * (number * lanes + lane) :][:32]
                with m.If(free & there[-1] & (filled == number)):
                    m.d.sync += own.eq(Cat(word, word[-1].replicate(32 - TAP_WORD)))
        m.d.comb += full.eq(there[-1] & (filled == pieces - 1))
        with m.If(free):
            m.d.sync += self.o.valid.eq(full)
            with m.If(there[-1]):
                m.d.sync += filled.eq(Mux(full, 0, filled + 1))
