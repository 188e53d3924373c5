"""The smallest and the largest weight in a stream of NF4 codes."""

from amaranth.hdl import Module, Mux, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from gradloom.rtl.units.decoder import DECODED, NF4Decoder


class RangeMeter(wiring.Component):
    """Range of all weights that have passed.

    Members
    -------
    codes : ``In(stream)``, as the decoder takes it
        Four codes and their scale in a beat.
    low, high : ``Out(18)``
        Smallest and largest weight since reset, in units of 2**-10; both include 0.
    """

    def __init__(self):
        self._decoder = NF4Decoder(lanes=4)
        super().__init__(
            {
                "codes": In(self._decoder.i.signature.flip()),
                "low": Out(signed(DECODED.width)),
                "high": Out(signed(DECODED.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.decoder = decoder = self._decoder
        connect(m, flipped(self.codes), decoder.i)
        m.d.comb += decoder.o.ready.eq(1)
        low, high = self.low, self.high
        for lane in range(4):
            weight = decoder.o.p.x[lane]
            low, high = Mux(weight < low, weight, low), Mux(weight > high, weight, high)
        with m.If(decoder.o.valid):
            m.d.sync += [self.low.eq(low), self.high.eq(high)]
        return m
