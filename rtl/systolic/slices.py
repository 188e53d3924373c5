"""Arithmetic that is one DSP slice each, and says so to synthesis."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..latencies import ACCUMULATE, MULTIPLY_ADD
from .primitive import accumulate_primitive, add_primitive, multiply_add_primitive

__all__ = ["Accumulate", "Add", "MultiplyAdd"]


class MultiplyAdd(wiring.Component):
    """``p = a * b + (c if add else 0)``, and half a unit.

    It is one DSP slice with all of its registers.

    ``a`` and ``b`` of cycle t meet ``c`` and ``add`` of cycle t + 2; ``p`` holds the result in cycle t + 3.

    Parameters
    ----------
    a, b, width : :class:`int`
        Bits of the operands and of ``c`` and ``p``, all signed.
    half : :class:`int` or None
        ``2**half`` is added, so that ``p >> half + 1`` is rounded, up where it is a tie. There is ``tie`` then,
        which comes with ``p``: the bits below are all 0.
    """

    latency = MULTIPLY_ADD

    def __init__(self, *, a, b, width=48, half=None):
        for field, value, bound in (("a", a, 27), ("b", b, 18), ("width", width, 48)):
            if not 2 <= value <= bound:
                raise ValueError(f"{field}={value}: a DSP slice takes 2 to {bound} bits")
        if half is not None and not 0 <= half < width - 1:
            raise ValueError(f"half={half}: must be 0 to {width - 2}, below the sign of {width} bits")
        self.a_width = a
        self.b_width = b
        self.width = width
        self.half = half
        super().__init__(
            {
                "a": In(signed(a)),
                "b": In(signed(b)),
                "c": In(signed(width)),
                "add": In(1),
                "p": Out(signed(width)),
                **({} if half is None else {"tie": Out(1)}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        a = Signal.like(self.a, reset_less=True)
        b = Signal.like(self.b, reset_less=True)
        product = Signal(signed(self.a_width + self.b_width), reset_less=True)
        total = Signal.like(self.p)
        m.d.comb += total.eq(product + Mux(self.add, self.c, 0) + (0 if self.half is None else 1 << self.half))
        m.d.sync += [a.eq(self.a), b.eq(self.b), product.eq(a * b), self.p.eq(total)]
        if self.half is not None:
            m.d.sync += self.tie.eq(~total[: self.half + 1].any())
        return m

    def primitive(self, *, family, name):
        """Verilog of this module with the slice instantiated, for synthesis."""
        return multiply_add_primitive(self, family=family, name=name)


class Add(wiring.Component):
    """``p = a + (c if add else 0)`` of ``width`` bits, a cycle later.

    It is the adder of a DSP slice, 48 bits wide.
    """

    latency = 1

    def __init__(self, *, width=48):
        if not 2 <= width <= 48:
            raise ValueError(f"width={width}: a DSP slice takes 2 to 48 bits")
        self.width = width
        word = signed(width)
        super().__init__({"a": In(word), "c": In(word), "add": In(1), "p": Out(word)})

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.p.eq(self.a + Mux(self.add, self.c, 0))
        return m

    def primitive(self, *, family, name):
        """Verilog of this module with the slice instantiated, for synthesis."""
        return add_primitive(self.width, family=family, name=name)


class Accumulate(wiring.Component):
    """``p = a * b + (p if add else 0)``: one DSP slice.

    ``a`` and ``b`` of cycle t meet ``add`` of cycle t + 2; ``p`` holds the result in cycle t + 3.

    Parameters
    ----------
    a, b, width : :class:`int`
        Bits of the operands and of ``p``, all signed.
    """

    latency = ACCUMULATE

    def __init__(self, *, a, b, width=48):
        for field, value, bound in (("a", a, 27), ("b", b, 18), ("width", width, 48)):
            if not 2 <= value <= bound:
                raise ValueError(f"{field}={value}: a DSP slice takes 2 to {bound} bits")
        self.a_width = a
        self.b_width = b
        self.width = width
        super().__init__({"a": In(signed(a)), "b": In(signed(b)), "add": In(1), "p": Out(signed(width))})

    def elaborate(self, platform):
        m = Module()
        a = Signal.like(self.a, reset_less=True)
        b = Signal.like(self.b, reset_less=True)
        product = Signal(signed(self.a_width + self.b_width), reset_less=True)
        m.d.sync += [a.eq(self.a), b.eq(self.b), product.eq(a * b)]
        # mutant first-kept: m.d.sync += self.p.eq(product + self.p)
        m.d.sync += self.p.eq(product + Mux(self.add, self.p, 0))
        return m

    def primitive(self, *, family, name):
        """Verilog of this module with the slice instantiated, for synthesis."""
        return accumulate_primitive(self, family=family, name=name)
