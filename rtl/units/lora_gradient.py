"""Gradient PEs: a stream unit of multiply-add slices for dB and dh."""

from amaranth.hdl import Cat, Module, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradloom.rtl.formats.fixed import product_sum_width
from gradloom.rtl.formats.images import ACTIVATION, PARAMETER
from gradloom.rtl.formats.rounding import round_shift_hdl, saturate_hdl
from gradloom.rtl.hierarchy import place
from gradloom.rtl.stream.delay import delay
from gradloom.rtl.systolic.slices import MultiplyAdd

__all__ = ["GRADIENT_WIDTH", "DH_DROP", "LoraGradient", "dh_width", "sum_width"]

#: Bits of d' and dh.
GRADIENT_WIDTH = 18
#: Fraction bits that dh loses: those of B, and one for the range that a sum over the classes gains.
DH_DROP = PARAMETER.frac + 1


def sum_width(rows, activation=ACTIVATION):
    """Bits of a sum of ``rows`` products of d' and h, which cannot wrap."""
    return product_sum_width(GRADIENT_WIDTH, activation.width, rows)


def dh_width(classes):
    """Bits of a sum of ``classes`` products of B and d', which cannot wrap."""
    return product_sum_width(PARAMETER.width, GRADIENT_WIDTH, classes)


class LoraGradient(wiring.Component):
    """Gradients of ``z = B h`` for one rank index ``k`` a beat.

    Each beat is of one sample.

    ::

        dh[k]   = saturate(nearest_even(sum_c B[c, k] * d'[c] >> 13))
        dB[c,k] = (0 if first else dB[c, k]) + d'[c] * h[k]

    Throughput is one beat a cycle as long as a ``k`` does not come back within 4 cycles, when it waits;
    latency is ``latency`` cycles.

    Parameters
    ----------
    classes : :class:`int`
        Outputs, 1..64.
    depth : :class:`int`
        Rank indices.
    samples : :class:`int`
        Most samples that are summed; the width of dB follows from it.

    Members
    -------
    i : ``In(stream.Signature({k, first: 1, h: Fixed(24, 16), d, b}))``
        ``d``: signed(18) of each class. ``b``: column k of B, Fixed(16, 12) of each class. ``first``: the
        first sample of the sum.
    o : ``Out(stream.Signature({k, dh: signed(18), saturated: 1, db: ArrayLayout(signed(48), classes)}))``
        In the order of ``i``; ``db`` includes this sample. ``dh`` has one fraction bit less than ``d``.
    """

    def __init__(self, *, classes, depth, samples=32):
        for field, value, bound in (("classes", classes, 64), ("depth", depth, 1024), ("samples", samples, 64)):
            if not 1 <= value <= bound:
                raise ValueError(f"{field}={value}: must be from 1 to {bound}")
        self.classes = classes
        self.depth = depth
        self.samples = samples
        self.levels = ceil_log2(classes)
        self.latency = 7 + self.levels
        k = range(max(depth, 2))
        super().__init__(
            {
                "i": In(
                    stream.Signature(
                        data.StructLayout(
                            {
                                "k": k,
                                "first": 1,
                                "h": ACTIVATION.shape,
                                "d": data.ArrayLayout(signed(GRADIENT_WIDTH), classes),
                                "b": data.ArrayLayout(PARAMETER.shape, classes),
                            }
                        )
                    )
                ),
                "o": Out(
                    stream.Signature(
                        data.StructLayout(
                            {
                                "k": k,
                                "dh": signed(GRADIENT_WIDTH),
                                "saturated": 1,
                                "db": data.ArrayLayout(signed(48), classes),
                            }
                        )
                    )
                ),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width = sum_width(self.samples)
        fifo_depth = self.latency + 4
        m.submodules.queue = queue = SyncFIFOBuffered(width=len(self.o.p.as_value()), depth=fifo_depth)
        pending = Signal(range(fifo_depth + 1))
        take = Signal()
        k = [self.i.p.k]
        valid = [take]
        for n in range(self.latency - 1):
            valid.append(Signal(name=f"valid{n + 1}"))
            m.d.sync += valid[-1].eq(valid[-2])
            k.append(delay(m, k[-1], 1))
        # A sum is read in cycle 0 and written in cycle 3: until then its k may not come again.
        clash = Cat(valid[n] & (k[n] == self.i.p.k) for n in range(1, 4)).any()
        m.d.comb += [self.i.ready.eq((pending != fifo_depth) & ~clash), take.eq(self.i.valid & self.i.ready)]
        m.d.sync += pending.eq(pending + take - (self.o.valid & self.o.ready))

        first2 = delay(m, self.i.p.first, 2)
        sums, level = [], []
        for c in range(self.classes):
            memory = Memory(shape=signed(width), depth=max(self.depth, 2), init=[])
            m.submodules[f"memory_{c}"] = memory
            read, write = memory.read_port(), memory.write_port()
            db = place(m, f"db_{c}", MultiplyAdd(a=ACTIVATION.width, b=GRADIENT_WIDTH, width=width), platform)
            dh = MultiplyAdd(a=PARAMETER.width, b=GRADIENT_WIDTH, width=dh_width(self.classes))
            dh = place(m, f"dh_{c}", dh, platform)
            m.d.comb += [
                read.addr.eq(k[0]),
                db.a.eq(self.i.p.h),
                db.b.eq(self.i.p.d[c]),
                db.c.eq(delay(m, read.data, 1)),
                db.add.eq(~first2),
                dh.a.eq(self.i.p.b[c]),
                dh.b.eq(self.i.p.d[c]),
                dh.c.eq(0),
                dh.add.eq(0),
                write.addr.eq(k[3]),
                write.data.eq(db.p),
                write.en.eq(valid[3]),
            ]
            sums.append(delay(m, db.p, self.levels + 2))
            level.append(dh.p)
        while len(level) > 1:
            pairs = [level[n] + level[n + 1] for n in range(0, len(level) - 1, 2)] + level[len(level) & ~1 :]
            level = [delay(m, pair, 1) for pair in pairs]
        dh, over = saturate_hdl(delay(m, round_shift_hdl(level[0], DH_DROP), 1), signed(GRADIENT_WIDTH))
        m.d.comb += queue.w_en.eq(valid[5 + self.levels])
        result = Signal(self.o.p.shape())
        m.d.comb += [
            result.k.eq(k[5 + self.levels]),
            result.dh.eq(delay(m, dh, 1)),
            result.saturated.eq(delay(m, over, 1)),
            *(result.db[c].eq(sums[c]) for c in range(self.classes)),
            queue.w_data.eq(result),
            self.o.payload.eq(queue.r_data),
            self.o.valid.eq(queue.r_rdy),
            queue.r_en.eq(self.o.ready),
        ]
        return m
