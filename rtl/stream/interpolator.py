"""A function of one variable, a value a cycle."""
from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..array.primitive import interpolator_primitive

__all__ = ["Interpolator"]


class Interpolator(wiring.Component):
    """``y = table(x)``, 3 enabled cycles later; one multiplier.

    Parameters
    ----------
    table : :class:`~gradloom.rtl.formats.interpolation.Interpolation`
    """

    latency = 3

    def __init__(self, *, table):
        self.table = table
        super().__init__({
            "enable": In(1),
            "x": In(table.frac_in),
            "y": Out(table.frac_out + 1),
        })

    def elaborate(self, platform):
        m = Module()
        base, slope = self.table.table
        rest = self.table.rest

        # The pieces fold into LUTs: two and a multiplexer a bit.
        base_q = Signal(range(int(base.max()) + 1), reset_less=True)
        slope_q = Signal(range(int(slope.max()) + 1), reset_less=True)
        rest_q = Signal(rest, reset_less=True)
        with m.If(self.enable):
            m.d.sync += rest_q.eq(self.x)
            with m.Switch(self.x[rest:]):
                for n in range(1 << self.table.index):
                    with m.Case(n):
                        m.d.sync += [base_q.eq(int(base[n])), slope_q.eq(int(slope[n]))]

        product = Signal(len(slope_q) + rest, reset_less=True)
        base_p = Signal.like(base_q, reset_less=True)
        total = Signal(self.table.frac_out + rest + 1, reset_less=True)
        with m.If(self.enable):
            m.d.sync += [
                product.eq(slope_q * rest_q),
                base_p.eq(base_q),
                # The half that rounds stands below the base, so that one adder does both.
                total.eq(product + Cat(Const(1 << (rest - 1), rest), base_p)),
            ]
        m.d.comb += self.y.eq(total[rest:])
        return m

    def primitive(self, *, family, name):
        """Verilog of this module with its table in a block of memory, for synthesis where that is faster."""
        return interpolator_primitive(self.table, family=family, name=name)
