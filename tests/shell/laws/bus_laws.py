"""Laws of the shell on a bus that stalls, fails and is reset (run by cocotb)."""

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge

from gradloom.rtl.shell.engines import LOAD, STORE
from gradloom.rtl.shell.registers.errors import Error

from ..host import BASE, BITS, BURST, PORTS, PROGRAM, STEP, Host, until
from ..program import end, fence, load, store

READ, WRITE = ("rvalid", "rready"), ("wvalid", "wready")


@cocotb.test()
async def the_memory_model_behaves_under_stalls(dut):
    host = await Host(dut, model=True).begin(stall=100, latency=30, spread=170)
    await host.works()
    dut.fail_enable.value = 1
    for code, fetch, read, write in (
        (2, Error.FETCH_SLVERR, Error.READ_SLVERR, Error.WRITE_SLVERR),
        (3, Error.FETCH_DECERR, Error.READ_DECERR, Error.WRITE_DECERR),
    ):
        dut.fail_resp.value = code
        for offset, error, program in (
            (PROGRAM, fetch, [end()]),
            (0x2000 + 37 * STEP, read, [load(0x2000, 50, 0), end()]),
            (0x2000 + 37 * STEP, write, [store(0x2000, 50, 0), end()]),
        ):
            dut.fail_enable.value = 1
            dut.fail_address.value = BASE + offset
            got = await host.run(*program)
            assert got is error
            dut.fail_enable.value = 0
            await host.works()


@cocotb.test()
async def an_error_on_the_first_or_the_last_beat_is_told(dut):
    """Either error, of a transfer of one beat, of one burst and of several; a write's names the burst."""
    host = await Host(dut, model=True).begin(stall=60, latency=9)
    for code, read, write in ((2, Error.READ_SLVERR, Error.WRITE_SLVERR), (3, Error.READ_DECERR, Error.WRITE_DECERR)):
        dut.fail_resp.value = code
        for beats in (1, 16, 34):
            for beat in {0, beats - 1}:
                where = 0x2000 + beat * STEP
                dut.fail_address.value = BASE + where
                for error, program, address in (
                    (read, load(0x2000, beats, 0), where),
                    (write, store(0x2000, beats, 0), where - beat % BURST * STEP),
                ):
                    dut.fail_enable.value = 1
                    assert await host.run(program, end()) is error
                    assert await host.get64("ERROR_ADDRESS") == BASE + address
                    dut.fail_enable.value = 0
                    # The beats beside it are sound.
                    around = [
                        make(0x2000 + first * STEP, n, 0)
                        for make in (load, store)
                        for first, n in ((-3, 3), (beats, 3))
                    ]
                    dut.fail_enable.value = int(beats == 1)
                    assert await host.run(*around, end()) is Error.NONE
                    dut.fail_enable.value = 0
        await host.works()


@cocotb.test()
async def bursts_in_flight_are_as_many_as_allowed(dut):
    """A burst is in flight from its address to its last datum or its response; the shell's default is 16.

    The memory's port may keep fewer reads.
    """
    host = await Host(dut, model=True).begin(latency=400)
    most = {}

    async def watch():
        flying = {"read": 0, "write": 0}
        while True:
            await RisingEdge(dut.clk)

            def high(*names):
                return all(int(getattr(dut, f"bus_{name}").value) for name in names)

            flying["read"] += high("arvalid", "arready") - high("rvalid", "rready", "rlast")
            flying["write"] += high("awvalid", "awready") - high("bvalid", "bready")
            for name, number in flying.items():
                most[name] = max(most.get(name, 0), number)

    job = cocotb.start_soon(watch())
    for stall, port_reads in ((0, 0), (90, 0), (0, 8), (90, 3)):
        dut.stall.value, dut.port_reads.value = stall, port_reads
        most.clear()
        assert await host.run(load(0x1000, 600, 0), store(0x10000, 600, 0), end()) is Error.NONE
        assert most == {"read": port_reads or 16, "write": 16}
    job.cancel()


@cocotb.test()
async def ports_bring_and_take_a_beat_a_cycle(dut):
    """At least 30 of 32, with a latency of each burst that is drawn up to 200 cycles."""
    host = await Host(dut, model=True).begin(latency=1, spread=199)
    for move, first in ((load, 0), (store, 0x4000)):
        spent = []
        for beats in (500, 3500):
            assert await host.run(move(first, beats, 0), end()) is Error.NONE
            spent.append(await host.get64("CYCLES"))
        share = 3000 / (spent[1] - spent[0])
        assert share >= 30 / 32, (move, share)


@cocotb.test()
async def a_reset_amid_bursts_leaves_nothing_behind(dut):
    """The bus is reset too, as AXI asks: what was outstanding never comes, half a burst of data is forgotten."""
    host = await Host(dut, model=True).begin(stall=60, latency=30)
    for wait, channel in ((0, READ), (7, READ), (40, READ), (0, WRITE), (5, WRITE), (21, WRITE), (60, WRITE)):
        await host.start(load(0x1000, 600, 0), store(0x10000, 600, 0), end())
        await until(dut, *channel)
        await ClockCycles(dut.clk, wait)
        await host.reset()
        assert await host.status() == 0 and await host.get("IRQ_STATUS") == 0
        assert await host.get("ERROR_CODE") == 0 and not int(dut.irq.value)
        await host.works()


@cocotb.test()
async def late_answers_from_before_a_reset_are_dropped(dut):
    """The memory has seen no reset: it answers all reads, and the write whose data it had."""
    host = await Host(dut, model=True).begin(latency=150)
    for program, what in (
        ([load(0x1000, 600, 0), end()], (("arvalid", "arready"), READ)),
        ([fence(), end()], (("arvalid", "arready"),)),
        ([store(0x10000, BURST, 0), end()], ((*WRITE, "wlast"),)),
    ):
        for wait in (1, 30, 100):
            await host.start(*program)
            for signals in what:
                await until(dut, *signals)
            await ClockCycles(dut.clk, wait)
            dut.keep.value = 1
            await host.reset(rest=400)
            dut.keep.value = 0
            assert await host.status() == 0 and await host.get("IRQ_STATUS") == 0
            await host.works()


@cocotb.test(skip=PORTS > 1)
async def a_lone_transfer_takes_as_long_as_promised(dut):
    """``cycles`` of both DMA to the cycle, and one beat a cycle across LOAD commands."""
    from gradloom.rtl.shell.bus.read_dma import ReadDMA
    from gradloom.rtl.shell.bus.write_dma import WriteDMA

    async def events(bit, n):
        out = []
        cycle = 0
        while len(out) < n:
            await RisingEdge(dut.clk)
            cycle += 1
            e = int(dut.events.value)
            for b in (bit, 16 + bit):
                if e >> b & 1:
                    out.append((cycle, b >= 16))
        return out

    for latency in (1, 17, 60):
        host = await Host(dut, model=True).begin(latency=latency)
        for beats in (1, 16, 100):
            job = cocotb.start_soon(events(LOAD, 2))
            assert await host.run(load(0x1000, beats, 0), fence(), end()) is Error.NONE
            (t0, _), (t1, _) = await job
            assert t1 - t0 == ReadDMA.cycles(beats, latency + 1), (latency, beats, t1 - t0)
        job = cocotb.start_soon(events(LOAD, 8))
        assert await host.run(*[load(0x1000 + 96 * STEP * i, 96, 0) for i in range(4)], end()) is Error.NONE
        ends = [t for t, done in await job if done]
        assert [b - a for a, b in zip(ends, ends[1:])] == [96] * 3
        for beats, first in ((48, 0), (5, 0), (20, 0), (17, 15), (33, 3), (1, 7), (9, 10)):
            job = cocotb.start_soon(events(STORE, 2))
            assert await host.run(store(0x1000 + first * STEP, beats, 0), fence(), end()) is Error.NONE
            (t0, _), (t1, _) = await job
            promised = WriteDMA.cycles(first * STEP, beats, latency + 1, data_bits=BITS)
            assert t1 - t0 == promised, (latency, beats, first, t1 - t0, promised)
