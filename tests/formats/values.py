"""What expressions of hardware are, by simulation."""

from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator


def values_of(inputs, expressions, rows):
    """Values of the expressions, a tuple for each row of values of the inputs."""
    m, found = Module(), []
    results = [Signal(each.shape()) for each in expressions]
    m.d.comb += [result.eq(each) for result, each in zip(results, expressions)]

    async def process(ctx):
        for row in rows:
            for signal, value in zip(inputs, row, strict=True):
                ctx.set(signal, int(value))
            found.append(tuple(ctx.get(each) for each in results))

    simulator = Simulator(m)
    simulator.add_testbench(process)
    simulator.run()
    return found
