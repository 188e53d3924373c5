"""Gives STORE the beats that it asks for."""
import functools
import operator

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..config import PARAMETER
from ..engines.compare import beyond
from ..shell.signature import StoreRequest

__all__ = ["Source", "Collector"]


class Source:
    """``source`` of a STORE."""

    CONVOLUTION_TAPS = 0    #: beats of encoded convolution inputs, in order
    DENSE_TAPS = 1          #: beats of encoded dense inputs, in order
    RAW = 2                 #: beats of raw dense activations, in order
    LANES = 3               #: adapter words from address ``arg`` on, two beats a word of one parameter a column
    HEAD = 4                #: B from its start, two beats a word of one parameter a class
    LOSSES = 5              #: a beat a step, in order


class Collector(wiring.Component):
    """Passes one source's beats on at a time, as many as STORE asked for; a beat a cycle.

    Behind the taps is room for ``depth`` beats, so that an encoder need not wait while STORE serves another.
    Adapter words leave as two beats every six cycles.

    Members
    -------
    request, o : to STORE.
    refuse : a cycle behind the payload of ``request``: there is no such source, or adapter words or words of B beyond
        the last are asked for. Of the other sources nobody knows how many beats will come.
    convolution_taps, dense_taps, raw, head, losses : streams of beats.
    dump : adapter words that ``words`` holds 2 cycles later.
    head_ask : asks the head for B; ``head`` follows.
    """

    depth = 128

    def __init__(self, config):
        self.config = config
        beats = stream.Signature(unsigned(128))
        super().__init__({
            "request": In(stream.Signature(StoreRequest)), "refuse": Out(1),
            "o": Out(beats),
            "convolution_taps": In(beats), "dense_taps": In(beats), "raw": In(beats), "head": In(beats),
            "losses": In(beats),
            "dump": Out(data.StructLayout({"valid": 1, "address": ceil_log2(config.adapter_depth)})),
            "words": In(data.ArrayLayout(PARAMETER.shape, config.columns)),
            "head_ask": Out(stream.Signature(data.StructLayout({"beats": 24}))),
        })

    def elaborate(self, platform):
        m = Module()
        request = self.request.p
        self._refuse(m, request)
        # A bit for each source, of which at most one is set: what leaves is little logic behind them.
        chosen = Signal(Source.LOSSES + 1)
        left = Signal(24)
        busy = Signal()
        word = Signal(16)
        with m.If(~busy):
            is_head = request.source == Source.HEAD
            m.d.comb += [
                self.head_ask.valid.eq(self.request.valid & is_head),
                self.head_ask.p.beats.eq(request.beats),
                self.request.ready.eq(Mux(is_head, self.head_ask.ready, 1)),
            ]
            with m.If(self.request.valid & self.request.ready):
                m.d.sync += [busy.eq(1), left.eq(request.beats - 1), word.eq(request.arg),
                             *(bit.eq(request.source == number) for number, bit in enumerate(chosen))]
        with m.Elif(self.o.valid & self.o.ready):
            m.d.sync += left.eq(left - 1)
            with m.If(left == 0):
                m.d.sync += [busy.eq(0), chosen.eq(0)]

        offers = {}
        for number, port in ((Source.HEAD, self.head), (Source.LOSSES, self.losses), (Source.RAW, self.raw)):
            m.d.comb += port.ready.eq(chosen[number] & self.o.ready)
            offers[number] = port.valid, port.p
        for number, port in ((Source.CONVOLUTION_TAPS, self.convolution_taps), (Source.DENSE_TAPS, self.dense_taps)):
            # Two places more than are given away: room is known a cycle late, so that an encoder's way back is short.
            fifo = SyncFIFOBuffered(width=128, depth=self.depth + 2)
            roomy = Signal(name=f"roomy_{number}")
            m.d.sync += roomy.eq(fifo.w_level < self.depth)
            m.submodules[f"fifo_{number}"] = fifo
            m.d.comb += [fifo.w_data.eq(port.p), fifo.w_en.eq(port.valid & roomy), port.ready.eq(roomy)]
            m.d.comb += fifo.r_en.eq(chosen[number] & self.o.ready)
            offers[number] = fifo.r_rdy, fifo.r_data

        # Adapter words: asked for, there two cycles later, and then as two beats.
        wait = Signal(2)
        high, held = Signal(), Signal(256)
        have = Signal()
        m.d.comb += [self.dump.valid.eq(chosen[Source.LANES] & (wait != 3) & ~have),
                     self.dump.address.eq(word)]
        with m.If(self.dump.valid):
            m.d.sync += wait.eq(wait + 1)
        with m.If((wait == 3) & ~have):
            m.d.sync += [held.eq(self.words.as_value()), have.eq(1), high.eq(0)]

        offers[Source.LANES] = have, held.word_select(high, 128)
        with m.If(chosen[Source.LANES] & have & self.o.ready):
            m.d.sync += high.eq(1)
            with m.If(high | (left == 0)):
                m.d.sync += [have.eq(0), wait.eq(0), word.eq(word + 1)]
        m.d.comb += [
            self.o.valid.eq(Cat(chosen[number] & valid for number, (valid, _) in offers.items()).any()),
            self.o.p.eq(functools.reduce(operator.or_, (
                Mux(chosen[number], payload, 0) for number, (_, payload) in offers.items()))),
        ]
        return m

    def _refuse(self, m, request):
        """Judges a request, in beats: an adapter word is two."""
        config = self.config
        bits = ceil_log2(config.adapter_depth) + 1
        end = Cat(Const(0, 1), request.arg[:bits]) + request.beats[:bits + 1]
        too_far = Signal()
        with m.Switch(request.source):
            with m.Case(Source.LANES):
                m.d.comb += too_far.eq(request.arg[bits:].any() | request.beats[bits + 1:].any()
                                       | beyond(end, 2 * config.adapter_depth))
            with m.Case(Source.HEAD):
                m.d.comb += too_far.eq(request.beats > 2 * config.taps * config.rank)
            with m.Case(Source.CONVOLUTION_TAPS, Source.DENSE_TAPS, Source.RAW, Source.LOSSES):
                pass
            with m.Default():
                m.d.comb += too_far.eq(1)
        m.d.sync += self.refuse.eq(too_far)
