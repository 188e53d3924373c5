"""A machine without requests has neither registers nor bits of them."""

import pytest

from gradloom.rtl.shell.bus.axi import Resp
from gradloom.rtl.shell.registers.axilite import RegisterFile
from gradloom.rtl.shell.registers.regtable import REGISTERS
from gradloom.sim.bench.engine import simulate


async def write(ctx, bus, address, value):
    ctx.set(bus.awaddr, address)
    ctx.set(bus.wdata, value)
    ctx.set(bus.wstrb, 15)
    ctx.set(bus.awvalid, 1)
    ctx.set(bus.wvalid, 1)
    ctx.set(bus.bready, 1)
    await ctx.tick().until(bus.awready & bus.wready)
    ctx.set(bus.awvalid, 0)
    ctx.set(bus.wvalid, 0)
    (answer,) = await ctx.tick().sample(bus.bresp).until(bus.bvalid)
    return answer


async def read(ctx, bus, address):
    ctx.set(bus.araddr, address)
    ctx.set(bus.arvalid, 1)
    ctx.set(bus.rready, 1)
    await ctx.tick().until(bus.arready)
    ctx.set(bus.arvalid, 0)
    value, answer = await ctx.tick().sample(bus.rdata, bus.rresp).until(bus.rvalid)
    return value, answer


@pytest.mark.parametrize("requests", [False, True])
def test_registers_of_requests(requests):
    unit = RegisterFile(requests=requests)
    expected = Resp.OKAY if requests else Resp.SLVERR

    async def bench(ctx):
        bus = unit.bus
        for register in REGISTERS:
            if register.name.startswith("REQUEST_"):
                assert (await read(ctx, bus, register.address))[1] == expected, register.name
        assert await write(ctx, bus, REGISTERS.address("REQUEST_OFFSET"), 0x1220) == expected
        assert ctx.get(unit.stored.REQUEST_OFFSET.value) == 0x1220 * requests
        assert await write(ctx, bus, REGISTERS.address("IRQ_ENABLE"), 7) == Resp.OKAY
        assert await read(ctx, bus, REGISTERS.address("IRQ_ENABLE")) == (7 if requests else 3, Resp.OKAY)
        # What a program reads is locked while it runs, what a request reads meanwhile is not; and the other way.
        for program, request, refused in (
            (1, 0, ("PROGRAM_OFFSET", "WINDOW_SIZE")),
            (0, 1, ("REQUEST_OFFSET", "WINDOW_SIZE")),
            (0, 0, ()),
        ):
            ctx.set(unit.busy.program, program)
            ctx.set(unit.busy.request, request)
            for name in ("PROGRAM_OFFSET", "REQUEST_OFFSET", "WINDOW_SIZE"):
                absent = name == "REQUEST_OFFSET" and not requests
                answer = await write(ctx, bus, REGISTERS.address(name), 64)
                assert answer == (Resp.SLVERR if absent or name in refused else Resp.OKAY), (name, program, request)

    simulate(unit, bench)
