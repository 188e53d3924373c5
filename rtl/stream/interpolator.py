"""A function of one variable, a value a cycle."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Interpolator"]


class Interpolator(wiring.Component):
    """``y = table(x)``, 3 enabled cycles later; one multiplier.

    Parameters
    ----------
    table : :class:`~gradloom.rtl.formats.interpolation.Interpolation`
        Of a function that rises.
    """

    latency = 3

    def __init__(self, *, table):
        if table.table[1].min() < 0:
            raise ValueError(f"function={table.function!r}: must be one that rises, as exp2, log2, sqrt and inverse do")
        self.table = table
        super().__init__({"enable": In(1), "x": In(table.frac_in), "y": Out(table.frac_out + 1)})

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
        """Verilog of this module for synthesis on a ``family``.

        Its pieces are in a block of memory: eight LUTs a bit, and the wires to them, are too slow where a LUT has four
        inputs (``ecp5``; None for others).

        The output of the block is late and may have a long way: it goes to registers at once, and the product has none,
        which are the multiplier's elsewhere.
        """
        base, slope = self.table.table
        rest, low, high = self.table.rest, int(slope.max()).bit_length(), int(base.max()).bit_length()
        if family != "ecp5" or max(low, rest) > 17:
            return None
        total = self.table.frac_out + rest + 1
        return (
            "\n".join(
                [
                    f"module {name} (enable, x, y, clk);",
                    "  input clk, enable;",
                    f"  input [{self.table.frac_in - 1}:0] x;",
                    f"  output [{self.table.frac_out}:0] y;",
                    f'  (* rom_style = "block" *) reg [{high + low - 1}:0] pieces [0:{len(base) - 1}];',
                    "  initial begin",
                    *(
                        f"    pieces[{n}] = {high + low}'d{(int(b) << low) + int(s)};"
                        for n, (b, s) in enumerate(zip(base, slope, strict=True))
                    ),
                    "  end",
                    f"  reg [{high + low - 1}:0] piece = 0;",
                    f"  reg [{rest - 1}:0] rest = 0, factor = 0;",
                    f"  reg [{high - 1}:0] base = 0;",
                    f"  reg [{low - 1}:0] slope = 0;",
                    f"  reg [{total - 1}:0] total = 0;",
                    f"  wire [{low + rest - 1}:0] product = slope * factor;",
                    "  always @(posedge clk) if (enable) begin",
                    f"    piece <= pieces[x[{self.table.frac_in - 1}:{rest}]];",
                    f"    rest <= x[{rest - 1}:0];",
                    "    {base, slope} <= piece;",
                    "    factor <= rest;",
                    f"    total <= product + {{base, {rest}'d{1 << rest - 1}}};",
                    "  end",
                    f"  assign y = total[{total - 1}:{rest}];",
                    "endmodule",
                ]
            )
            + "\n"
        )
