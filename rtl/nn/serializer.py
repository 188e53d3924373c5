"""Wide words in, single elements out."""
from amaranth.hdl import Module, Shape, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Serializer"]


class Serializer(wiring.Component):
    """Sends the elements of words one by one, lane 0 first.

    One element a cycle, without a bubble between words. Latency is 1 cycle; a word is taken as its last
    element moves on, so it need not be stored here. ``i.ready`` depends on ``o.ready`` combinationally.

    Parameters
    ----------
    lanes : :class:`int`
        Elements in a word.
    shape : :class:`~amaranth.hdl.Shape`
        Of an element.

    Members
    -------
    i : ``In(stream.Signature(word_layout))``
        Words: ``count`` elements (1 to ``lanes``) from ``p[0]`` on; ``last`` as the user likes.
    o : ``Out(stream.Signature(element_layout))``
        Elements; ``last`` marks the last one of a word that had it.
    """

    latency = 1

    def __init__(self, *, lanes=16, shape=signed(24)):
        if lanes < 1:
            raise ValueError(f"lanes={lanes}: must be at least 1")
        self.lanes = lanes
        self.shape = Shape.cast(shape)
        self.word_layout = data.StructLayout({
            "p": data.ArrayLayout(self.shape, lanes), "count": range(lanes + 1), "last": 1,
        })
        self.element_layout = data.StructLayout({"p": self.shape, "last": 1})
        super().__init__({
            "i": In(stream.Signature(self.word_layout)),
            "o": Out(stream.Signature(self.element_layout)),
        })

    def elaborate(self, platform):
        m = Module()

        lane = Signal(range(self.lanes))
        word = self.i.payload
        final = Signal()
        m.d.comb += final.eq(lane == word.count - 1)

        with m.If(~self.o.valid | self.o.ready):
            m.d.comb += self.i.ready.eq(final)
            m.d.sync += [
                self.o.valid.eq(self.i.valid),
                self.o.payload.p.eq(word.p[lane]),
                self.o.payload.last.eq(word.last & final),
            ]
            with m.If(self.i.valid):
                m.d.sync += lane.eq(lane + 1)
                with m.If(final):
                    m.d.sync += lane.eq(0)

        return m
