"""Products in LUTs are products."""

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradloom.rtl.stream.product import NarrowProduct, narrow_product
from gradloom.sim.bench.engine import simulate


class Signed(wiring.Component):
    """25 bits times 8, both signed, 3 cycles later."""

    latency = 3
    shapes = signed(25), signed(8)

    def __init__(self):
        super().__init__({"a": In(25), "b": In(8), "o": Out(signed(33))})

    def elaborate(self, platform):
        m = Module()
        a = Signal(signed(25))
        m.d.comb += a.eq(self.a)
        product = NarrowProduct(m, a, self.b)
        m.d.sync += self.o.eq(product.value + product.rest)
        return m


class Narrow(wiring.Component):
    """A product, a cycle later."""

    latency = 1

    def __init__(self, shape, bits):
        self.shapes = shape, unsigned(bits)
        super().__init__({"a": In(shape), "b": In(bits), "o": Out(signed(shape.width + bits + 1))})

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.o.eq(narrow_product(self.a, self.b))
        return m


@pytest.mark.parametrize(
    "unit",
    [Signed(), Narrow(signed(14), 6), Narrow(unsigned(8), 4), Narrow(unsigned(10), 1)],
    ids=["signed", "signed a", "unsigned", "one bit"],
)
def test_a_product_is_one(unit):
    rng = np.random.default_rng(0)
    ranges = [
        (-(1 << shape.width - 1), 1 << shape.width - 1) if shape.signed else (0, 1 << shape.width)
        for shape in unit.shapes
    ]
    (a_low, a_high), (b_low, b_high) = ranges
    pairs = [
        (a, b) for b in range(b_low, b_high) for a in (a_low, a_high - 1, *rng.integers(a_low, a_high, 4).tolist())
    ]

    async def bench(ctx):
        for n in range(len(pairs) + unit.latency):
            if n >= unit.latency:
                a, b = pairs[n - unit.latency]
                assert ctx.get(unit.o) == a * b
            if n < len(pairs):
                a, b = pairs[n]
                ctx.set(unit.a, a)
                ctx.set(unit.b, b)
            await ctx.tick()

    simulate(unit, bench)
