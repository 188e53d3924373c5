"""Reads a program ahead, in bursts."""

from amaranth.hdl import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ...stream.queue import PlainQueue
from ..bus.axi import BURST_BEATS
from ..bus.read_dma import FetchBeat, FetchRequest
from ..bus.window import advance, burst_beats
from ..signature import COMMAND_BYTES

__all__ = ["Fetch"]


class Fetch(wiring.Component):
    """Bursts of a program, into a buffer of two bursts.

    Parameters
    ----------
    data_bits : :class:`int`
        Bus width: 64, 128 or 256.
    longest : :class:`int`
        Beats of a whole burst.

    Members
    -------
    fresh : ``In(1)``
        Forgets everything and takes ``offset`` and ``commands``: the next beat is the first of these.
    run : ``In(1)``
        Bursts may be asked for.
    offset : ``In(32)``, commands : ``In(24)``
        First byte, and how many commands follow.
    o_fetch, i_fetch : streams of ``FetchRequest``, ``FetchBeat(data_bits)``
        To and from :class:`~gradloom.rtl.shell.bus.read_dma.ReadDMA`.
    o : ``Out(stream.Signature(FetchBeat(data_bits)))``
        The program's beats, in order.
    o_offset : ``Out(32)``
        Offset of the beat on ``o``.
    """

    def __init__(self, *, data_bits, longest=BURST_BEATS):
        self.data_bits = data_bits
        self.longest = longest
        super().__init__(
            {
                "fresh": In(1),
                "run": In(1),
                "offset": In(32),
                "commands": In(24),
                "o_fetch": Out(stream.Signature(FetchRequest)),
                "i_fetch": In(stream.Signature(FetchBeat(data_bits))),
                "o": Out(stream.Signature(FetchBeat(data_bits))),
                "o_offset": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        depth = 2 * self.longest
        parts = COMMAND_BYTES * 8 // self.data_bits
        fetched = ResetInserter(self.fresh)(PlainQueue(width=self.data_bits + 2, depth=depth))
        m.submodules.fetched = fetched
        next_offset = Signal(32)
        left = Signal(26)
        credit = Signal(range(depth + 1))
        # Of the next burst; a cycle behind ``next_offset`` and ``left``, which a plan leaves alone for two.
        bits = exact_log2(self.longest) + 1
        length, final, room, some = Signal(bits), Signal(), Signal(bits), Signal()
        burst = {"data_bits": self.data_bits, "longest": self.longest}
        for register, value in zip((length, final, room), burst_beats(next_offset, left, **burst)):
            m.d.sync += register.eq(value)
        m.d.sync += some.eq(left.any())
        pop = Signal()
        plan = Signal()
        wanted = Signal()
        m.d.comb += [
            pop.eq(self.o.valid & self.o.ready),
            # mutant room-for-one-less: plan.eq(self.run & ~wanted & some & (credit >= self.longest - 1)),
            plan.eq(self.run & ~wanted & some & (credit >= self.longest)),
            self.o_fetch.valid.eq(wanted),
            self.i_fetch.ready.eq(1),
            fetched.w_en.eq(self.i_fetch.valid),
            fetched.w_data.eq(Cat(self.i_fetch.payload.data, self.i_fetch.payload.resp)),
            fetched.r_en.eq(pop),
            self.o.valid.eq(fetched.r_rdy),
            self.o.payload.eq(fetched.r_data),
        ]
        # The last burst of a program may be shorter than ``room``: nobody misses the credit.
        spared = Signal.like(credit)
        m.d.comb += spared.eq(credit - Mux(plan, room, 0))
        # Whether a command leaves is known late.
        m.d.sync += credit.eq(Mux(pop, spared + 1, spared))
        with m.If(self.o_fetch.ready):
            m.d.sync += wanted.eq(0)
        with m.If(plan):
            m.d.sync += [
                wanted.eq(1),
                self.o_fetch.payload.offset.eq(next_offset),
                self.o_fetch.payload.beats.eq(length),
                next_offset.eq(advance(next_offset, **burst)),
                # mutant never-final: left.eq(left - room),
                left.eq(Mux(final, 0, left - room)),
            ]
        with m.If(pop):
            m.d.sync += self.o_offset.eq(self.o_offset + self.data_bits // 8)
        with m.If(self.fresh):
            m.d.sync += [
                wanted.eq(0),
                # mutant from-elsewhere: next_offset.eq(self.offset + 4096),
                next_offset.eq(self.offset),
                self.o_offset.eq(self.offset),
                credit.eq(depth),
                left.eq(self.commands * parts),
            ]
        return m
