"""Forward pass of an adapter, h = A x, as a stream unit."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..formats.images import ACTIVATION, DECODED, PARAMETER
from ..formats.rounding import round_shift_hdl, saturate_hdl
from ..hierarchy import place
from ..stream.delay import delay
from ..systolic.pe import ACCUMULATE, HOLD, PE, RESTART, Precision

__all__ = ["LoraForward"]


class LoraForward(wiring.Component):
    """Multiplies vectors x with A; ``lanes`` elements a beat.

    ``h[k] = saturate(nearest_even(sum_n A[k, n] * x[n] >> 6))`` of each vector.

    The sums stay in a PE each, as in the array's forward pass, and are added up behind. Throughput is a beat a
    cycle; h leaves ``latency`` cycles after its last beat. A vector may have 8192 beats; then 48 bits hold any sum.

    Parameters
    ----------
    lanes : int
        Elements of x in a beat.
    rank : int
        Rows of A.

    Members
    -------
    i : ``In(stream.Signature({x, a, first: 1, last: 1}))``
        ``x``: ``lanes`` of Fixed(18, 10). ``a``: for each of them, a column of A: ``rank`` of Fixed(16, 12).
        ``first``, ``last``: of a vector; a short beat is filled up with zeros.
    o : ``Out(stream.Signature({h, saturated}))``
        ``h``: ``rank`` of Fixed(24, 16). ``saturated``: a bit each.
    """

    def __init__(self, *, lanes=4, rank=4):
        for field, value in (("lanes", lanes), ("rank", rank)):
            if not isinstance(value, int) or not 1 <= value <= 16:
                raise ValueError(f"{field}={value}: must be from 1 to 16")
        self.lanes = lanes
        self.rank = rank
        super().__init__(
            {
                "i": In(
                    stream.Signature(
                        data.StructLayout(
                            {
                                "x": data.ArrayLayout(DECODED.shape, lanes),
                                "a": data.ArrayLayout(data.ArrayLayout(PARAMETER.shape, rank), lanes),
                                "first": 1,
                                "last": 1,
                            }
                        )
                    )
                ),
                "o": Out(
                    stream.Signature(
                        data.StructLayout({"h": data.ArrayLayout(ACTIVATION.shape, rank), "saturated": rank})
                    )
                ),
            }
        )

    @property
    def _to_word(self):
        # A weight comes a cycle before its operand; then a level of adders a cycle, rounding, saturation.
        return 1 + PE.latency + ceil_log2(self.lanes) + 2

    @property
    def latency(self):
        """Cycles from taking a vector's last beat to offering its h."""
        return self._to_word + 2

    def elaborate(self, platform):
        m = Module()
        depth = self.latency + 2
        m.submodules.results = results = SyncFIFOBuffered(width=len(self.o.p.as_value()), depth=depth)
        pending = Signal(range(depth + 1))
        take = Signal()
        ends = take & self.i.p.last
        m.d.comb += [self.i.ready.eq(pending != depth), take.eq(self.i.valid & self.i.ready)]
        m.d.sync += pending.eq(pending + ends - (self.o.valid & self.o.ready))

        taken, first = delay(m, take, 1, reset_less=False), delay(m, self.i.p.first, 1)
        result = Signal(self.o.p.shape())
        precision = Precision(x=DECODED.width, w=PARAMETER.width)
        modes = {field: Mux(taken, Mux(first, RESTART[field], ACCUMULATE[field]), HOLD[field]) for field in HOLD}
        for k in range(self.rank):
            terms = []
            for lane in range(self.lanes):
                pe = place(m, f"pe_{k}_{lane}", PE(precision=precision), platform)
                m.d.comb += [
                    pe.w_i.eq(self.i.p.a[lane][k]),
                    pe.x_i.eq(delay(m, self.i.p.x[lane], 1)),
                    pe.tag_i.load.eq(take),
                    pe.tag_i.swap.eq(taken),
                    *(pe.tag_i[field].eq(value) for field, value in modes.items()),
                ]
                terms.append(pe.p_o)
            while len(terms) > 1:
                added = []
                for at in range(0, len(terms), 2):
                    total = Signal(signed(precision.sum), reset_less=True)
                    m.d.sync += total.eq(sum(terms[at + 1 : at + 2], terms[at]))
                    added.append(total)
                terms = added
            rounded = round_shift_hdl(terms[0], DECODED.frac + PARAMETER.frac - ACTIVATION.frac)
            word, over = saturate_hdl(delay(m, rounded, 1), ACTIVATION.shape)
            m.d.comb += [result.h[k].eq(delay(m, word, 1)), result.saturated[k].eq(delay(m, over, 1))]

        m.d.comb += [
            results.w_en.eq(delay(m, ends, self._to_word, reset_less=False)),
            results.w_data.eq(result),
            self.o.valid.eq(results.r_rdy),
            self.o.payload.eq(results.r_data),
            # mutant ready-ignored: results.r_en.eq(1),
            results.r_en.eq(self.o.ready),
        ]
        return m
