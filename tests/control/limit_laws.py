"""Laws of the shell at its limits: the last count that fits, the last cycle in time (run by cocotb)."""

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge
from program import command, end, fence, pause
from request_laws import RING, begin, bits, check, copies, queue, settle
from shell_laws import STEP

from gradloom.rtl.control.errors import Error
from gradloom.rtl.control.signature import COMMAND_BYTES, Engine

#: Commands in a burst.
BURST = 16 * STEP // COMMAND_BYTES


async def bursts(dut, asked):
    """Counts read addresses that were taken, in ``asked[0]``."""
    while True:
        await RisingEdge(dut.clk)
        asked[0] += int(dut.m_axi_arvalid.value) and int(dut.m_axi_arready.value)


@cocotb.test()
async def a_program_that_ended_asks_for_nothing(dut):
    """Its third burst waits on the bus while END comes, with the second: a fourth is due, and is never asked for."""
    host = await begin(dut)
    address = host.slave.read_if.ar_channel
    asked = [0]
    counting = cocotb.start_soon(bursts(dut, asked))

    async def leaves(last, beyond, *, bell=0):
        asked[0] = 0
        await host.start(*[fence()] * (2 * BURST - 1), last, *[beyond] * (4 * BURST))
        await host.set("CONTROL", bell)
        while asked[0] < 2:
            await RisingEdge(dut.clk)
        address.pause = True
        await ClockCycles(dut.clk, 400)
        address.pause = False

    await leaves(end(), command(Engine.ARRAY, 77))
    assert await host.finish() is Error.NONE
    await ClockCycles(dut.clk, 100)
    assert asked == [3]
    # What a program left behind at a YIELD is not the request's.
    steps, expected = await copies(host, 0x1000, 0x5000, 20, 0)
    await queue(host, *steps, end())
    await leaves(pause(), end(), bell=RING)
    await settle(host)
    assert await bits(host, "done", "request_done") == (1, 1)
    await check(host, expected)
    counting.cancel()
