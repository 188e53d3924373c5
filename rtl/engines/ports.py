"""Ports to memory that are plain streams of beats on an engine's side."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from ..shell.engines import TAP_BEATS

__all__ = ["TapQueue", "give", "send", "take"]


def take(m, port, into):
    """The data of a load port's beats go into a stream."""
    m.d.comb += [into.valid.eq(port.beats.valid), into.p.eq(port.beats.p.data), port.beats.ready.eq(into.ready)]


def give(m, port, out):
    """Store port: sends the beats of a stream on request.

    It sends as many as are requested, however many these are.
    """
    m.d.comb += [
        port.request.ready.eq(1),
        port.beats.valid.eq(out.valid),
        port.beats.p.eq(out.p),
        out.ready.eq(port.beats.ready),
    ]


def send(m, port, read, *, depth, beat=None):
    """Store port: sends words of a memory of ``depth`` words on request.

    Starts at word ``arg`` and sends as many as requested.

    A word a cycle, the first 2 cycles after the request; words beyond the last are refused.

    ``read`` is a read port without a clock of its own. ``beat`` is its word as a beat; unless given, the word itself.
    """
    request, out = port.request, port.beats
    left, place, free = Signal(range(depth + 1)), Signal(range(depth)), Signal()
    m.d.comb += [request.ready.eq(1), read.addr.eq(place), free.eq(~out.valid | out.ready)]
    m.d.sync += port.refuse.eq(request.p.arg + request.p.beats > depth)
    with m.If(request.valid):
        m.d.sync += [place.eq(request.p.arg), left.eq(request.p.beats)]
    with m.Elif(free & (left != 0)):
        m.d.sync += [place.eq(place + 1), left.eq(left - 1)]
    with m.If(free):
        m.d.sync += [out.valid.eq(left != 0), out.p.eq(read.data if beat is None else beat)]


class TapQueue(wiring.Component):
    """Beats of a tap that wait for STORE.

    An encoder need not wait while STORE serves another.

    Members
    -------
    i, o : streams of beats.
    """

    #: Beats that have room.
    depth = TAP_BEATS

    def __init__(self):
        beats = stream.Signature(128)
        super().__init__({"i": In(beats), "o": Out(beats)})

    def elaborate(self, platform):
        m = Module()
        # Two places more than are given away: room is known a cycle late, so that an encoder's way back is short.
        m.submodules.fifo = fifo = SyncFIFOBuffered(width=128, depth=self.depth + 2)
        roomy = Signal()
        m.d.sync += roomy.eq(fifo.w_level < self.depth)
        m.d.comb += [
            fifo.w_data.eq(self.i.p),
            fifo.w_en.eq(self.i.valid & roomy),
            self.i.ready.eq(roomy),
            self.o.valid.eq(fifo.r_rdy),
            self.o.p.eq(fifo.r_data),
            fifo.r_en.eq(self.o.ready),
        ]
        return m
