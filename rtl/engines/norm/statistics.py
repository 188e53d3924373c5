"""What is known of a group from its sums: roots, means, levels."""

from functools import partial

from amaranth.hdl import Module, Mux, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...formats.tiles.codes import EDGE
from ...formats.tiles.norm import EPS, PULL, UNIT
from ...formats.vector import SUM
from ...hierarchy import place
from ...stream.delay import delay, registered
from ..vector.rows.roots import Roots, RootWord
from ..words import Requantize
from .lane import GradientWord, GroupWord, Kind
from .sums import SECOND, TOTAL, total_layout

__all__ = ["NormStatistics"]

#: Bits of a group's sum less its sign, which are squared in halves.
_SIZE, _LOW = 31, 16


class NormStatistics(wiring.Component):
    """Makes of a group's sums what later passes need.

    A group a cycle, :attr:`latency` cycles later.

    Of squares and a sum, the reciprocal root of ``size² · variance + eps``; of sums of gradients, means; of powers, the
    logarithm of their sum; of p · dp, the pull.

    Members
    -------
    kind, size : held, as all up to ``pull_down``. eps, eps_shift : ``eps << eps_shift`` is added to the variance, which
        is shifted right by ``down`` first. pull_down : shift of a pull.
    begin : the least exponent begins anew. least : of all roots since.
    i : :func:`~.sums.total_layout`.
    group, slope : ``{valid, index, word}``.
    clipped : a mean was.
    """

    latency = 7 + Roots.latency

    def __init__(self):
        def write(word):
            return data.StructLayout({"valid": 1, "index": range(EDGE), "word": word})

        super().__init__(
            {
                "kind": In(Kind),
                "size": In(4),
                "eps": In(EPS),
                "eps_shift": In(6),
                "down": In(6),
                "pull_down": In(6),
                "begin": In(1),
                "i": In(total_layout()),
                "group": Out(write(GroupWord)),
                "slope": Out(write(GradientWord)),
                "least": Out(5),
                "clipped": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        register, later = partial(registered, m), partial(delay, m)
        i, kind = self.i, self.kind
        log, pulls = kind == Kind.POWERS, kind == Kind.PULLS

        # Stage 1: magnitude; 2 and 3: products of its halves; 4: their sum, in two; 5: size² · variance.
        size1 = register(Mux(i.total < 0, -i.total, i.total)[:_SIZE])
        low, high = size1[:_LOW], size1[_LOW:]
        products = [register(register(x * y)) for x, y in ((low, low), (low, high), (high, high))]
        outer4 = register(products[0] + (products[2] << 2 * _LOW))
        cross4 = register(products[1])
        scaled = register(later(i.second[: SUM - 1].as_unsigned(), 3) << self.size, unsigned(SUM))
        less5 = register(scaled - outer4, signed(SUM))
        cross5 = register(cross4)
        # mutant one-half: variance6 = register(less5, signed(SUM))
        variance6 = register(less5 - (cross5 << _LOW + 1), signed(SUM))
        shifted7 = register(variance6 >> self.down)

        roots = place(m, "roots", Roots(), platform)
        m.d.comb += [
            roots.sum.eq(Mux(log, later(i.total, 7), shifted7)),
            roots.along.eq(log),
            roots.log.eq(log),
            roots.eps.eq(self.eps),
            roots.eps_shift.eq(self.eps_shift),
        ]
        row = data.View(RootWord, roots.row)

        # Means: of both sums, or the pull.
        mean = place(m, "mean", Requantize(width=TOTAL, result=GradientWord["mean"].shape.width), platform)
        along = place(m, "along", Requantize(width=SECOND, result=PULL), platform)
        m.d.comb += [
            mean.i.eq(i.total),
            # The largest score is in halves.
            mean.shift.eq(Mux(kind == Kind.LARGEST, 1, Mux(pulls, self.pull_down, self.size))),
            along.i.eq(i.second),
            along.shift.eq(self.size + UNIT),
        ]
        rest = self.latency - Requantize.latency
        there = later(i.valid, self.latency, reset_less=False)
        index = later(i.index, self.latency)
        group, slope = self.group, self.slope
        m.d.comb += [
            group.valid.eq(there & ((kind == Kind.SUMS) | log)),
            group.index.eq(index),
            group.word.sum.eq(Mux(log, roots.row[:32], later(i.total[:32], self.latency))),
            group.word.mantissa.eq(row.mantissa),
            group.word.exponent.eq(row.exponent),
            slope.valid.eq(there & ((kind == Kind.BACK_SUMS) | (kind == Kind.LARGEST) | pulls)),
            slope.index.eq(index),
            slope.word.mean.eq(later(mean.o, rest)),
            slope.word.along.eq(later(along.o, rest)),
            self.clipped.eq(
                slope.valid & (later(mean.saturated, rest) | (later(along.saturated, rest) & (kind == Kind.BACK_SUMS)))
            ),
        ]
        # mutant keeps-least: with m.If(0):
        with m.If(self.begin):
            m.d.sync += self.least.eq((1 << len(self.least)) - 1)
        with m.Elif(group.valid & ~log & (row.exponent < self.least)):
            m.d.sync += self.least.eq(row.exponent)
        return m
