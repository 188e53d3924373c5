"""The host of the shell's bench: registers and memory, and what a program's end tells."""

import logging
import os
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiResp, AxiSlave, MemoryRegion

from gradloom.rtl.machines.images import ARRAY, HEAD
from gradloom.rtl.shell.registers.errors import Error
from gradloom.rtl.shell.registers.regtable import REGISTERS

from .program import end, load, store, timer

BITS = int(os.environ.get("DATA_BITS", "128"))
STEP = BITS // 8
#: AXI4 managers, and bytes of a beat of theirs.
PORTS = int(os.environ.get("PORTS", "1"))
PORT_STEP = int(os.environ.get("PORT_BITS", BITS)) // 8
#: Beats of a whole burst.
BURST = 16 * PORT_STEP // STEP
MANAGERS = ["m_axi", *(f"m_axi_{n}" for n in range(1, PORTS))]
BASE, SIZE = 0x1_0000_0000, 1 << 17
PROGRAM = 0x8000


class Failing(Exception):
    """An access to it answers an error."""


class Faulty(MemoryRegion):
    """A memory at ``BASE`` in which some bytes answer SLVERR."""

    bad = range(0)

    async def read(self, address, length, **kwargs):
        if address - BASE in self.bad or address - BASE + length - 1 in self.bad:
            raise Failing
        return await super().read(address - BASE, length, **kwargs)

    async def write(self, address, data, **kwargs):
        if address - BASE in self.bad:
            raise Failing
        await super().write(address - BASE, data, **kwargs)


class Host:
    """Driver of the bench: registers over AXI4-Lite, memory by cocotbext-axi or by the RTL model."""

    def __init__(self, dut, *, model=False):
        self.dut = dut
        self.model = model
        self.seed = random.Random(3)

    async def begin(self, *, pauses=False, latency=20, stall=0, spread=0, slow=0):
        dut = self.dut
        for bus in ("s_axi", *MANAGERS):
            logging.getLogger(f"cocotb.shell_bench.{bus}").setLevel(logging.ERROR)
        dut.rst.value = 1
        dut.keep.value = 0
        dut.use_memory.value = int(self.model)
        dut.slow.value = slow
        dut.read_latency.value = latency
        dut.write_latency.value = latency
        dut.port_reads.value = 0
        dut.stall.value = stall
        dut.spread.value = spread
        dut.dram.value = 0
        dut.seed.value = 5
        dut.fail_enable.value = 0
        dut.fail_address.value = 0
        dut.fail_resp.value = 2
        dut.host_we.value = 0
        dut.host_word.value = 0
        dut.host_wdata.value = 0
        cocotb.start_soon(Clock(dut.clk, 5, unit="ns").start())
        self.lite = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axi"), dut.clk, dut.rst)
        if not self.model:
            # cocotbext's own AxiRam knows no errors: a slave over a region does.
            self.memory = Faulty(SIZE)
            self.slaves = [
                AxiSlave(AxiBus.from_prefix(dut, name), dut.clk, dut.rst, target=self.memory) for name in MANAGERS
            ]
            if pauses:
                self.pause()
        await self.reset()
        return self

    async def reset(self, *, rest=5):
        """Asserts the machine's reset, waits for ``rest`` cycles after it, and sets registers.

        What the registers hold until then is the map's.
        """
        dut = self.dut
        dut.rst.value = 1
        await ClockCycles(dut.clk, 5)
        dut.rst.value = 0
        await ClockCycles(dut.clk, rest)
        for register in REGISTERS:
            if any(field.stored for field in register.fields):
                held = sum(field.reset << field.lsb for field in register.fields)
                assert await self.get(register.name) == held, register.name
        for name, value in (
            ("WINDOW_BASE_LO", BASE & 0xFFFFFFFF),
            ("WINDOW_BASE_HI", BASE >> 32),
            ("WINDOW_SIZE", SIZE),
            ("PROGRAM_OFFSET", PROGRAM),
            ("IRQ_ENABLE", 3),
            ("WATCHDOG", 3000),
        ):
            await self.set(name, value)

    def pause(self):
        def some(p, seed):
            r = random.Random(seed)
            while True:
                yield r.random() < p

        for number, slave in enumerate(self.slaves):
            w, r = slave.write_if, slave.read_if
            for i, channel in enumerate((w.aw_channel, w.w_channel, w.b_channel, r.ar_channel, r.r_channel)):
                channel.set_pause_generator(some(0.4, 20 * number + i))
        for i, channel in enumerate(
            (
                self.lite.write_if.aw_channel,
                self.lite.write_if.w_channel,
                self.lite.write_if.b_channel,
                self.lite.read_if.ar_channel,
                self.lite.read_if.r_channel,
            )
        ):
            channel.set_pause_generator(some(0.4, 10 + i))

    async def set(self, name, value):
        answer = await self.lite.write(REGISTERS.address(name), value.to_bytes(4, "little"))
        assert answer.resp == AxiResp.OKAY, name

    async def get(self, name):
        answer = await self.lite.read(REGISTERS.address(name), 4)
        assert answer.resp == AxiResp.OKAY, name
        return int.from_bytes(answer.data, "little")

    async def status(self):
        """STATUS of the program."""
        return await self.get("STATUS") & 0xF

    async def get64(self, name):
        return await self.get(name + "_LO") | await self.get(name + "_HI") << 32

    async def put(self, offset, data):
        data = bytes(data)
        if not self.model:
            self.memory.mem[offset : offset + len(data)] = data
            return
        data += bytes(-len(data) % PORT_STEP)
        for i in range(0, len(data), PORT_STEP):
            self.dut.host_word.value = (offset + i) // PORT_STEP
            self.dut.host_wdata.value = int.from_bytes(data[i : i + PORT_STEP], "little")
            self.dut.host_we.value = 1
            await RisingEdge(self.dut.clk)
        self.dut.host_we.value = 0

    async def peek(self, offset, length):
        if not self.model:
            return bytes(self.memory.mem[offset : offset + length])
        out = b""
        for i in range(0, length, PORT_STEP):
            self.dut.host_word.value = (offset + i) // PORT_STEP
            await ClockCycles(self.dut.clk, 3)
            out += int(self.dut.host_rdata.value).to_bytes(PORT_STEP, "little")
        return out[:length]

    async def start(self, *commands, count=None):
        await self.put(PROGRAM, b"".join(commands))
        await self.set("PROGRAM_COMMANDS", len(commands) if count is None else count)
        await self.set("CONTROL", 1)

    async def wait(self):
        async def high():
            while not int(self.dut.irq.value):
                await RisingEdge(self.dut.clk)

        await with_timeout(high(), 200, "us")

    async def finish(self):
        """Waits for the interrupt, clears it, and returns the error code."""
        await self.wait()
        pending, status, code = (await self.get("IRQ_STATUS"), await self.status(), await self.get("ERROR_CODE"))
        assert status == (0b100 if code else 0b010), f"STATUS {status:b} with error {code:#x}"
        assert pending == (0b10 if code else 0b01)
        await self.set("IRQ_STATUS", pending)
        await ClockCycles(self.dut.clk, 3)
        assert not int(self.dut.irq.value)
        assert not int(self.dut.protocol_error.value) and not int(self.dut.order.value)
        return Error(code)

    async def run(self, *commands, count=None):
        await self.start(*commands, count=count)
        return await self.finish()

    async def fails(self, *commands, error, at=None, address=0, count=None):
        """The program stops with ``error`` at command ``at``; the next program runs right."""
        got = await self.run(*commands, count=count)
        assert got is error, f"{got!r} instead of {error!r}"
        if at is not None:
            assert await self.get("ERROR_COMMAND") == at
        assert await self.get64("ERROR_ADDRESS") == (BASE + address if address is not None else 0)
        await self.works()

    async def table(self):
        """The machine table."""
        text = b""
        while b"\0" not in text:
            await self.set("TABLE_PLACE", len(text) // 4)
            text += (await self.get("TABLE_WORD")).to_bytes(4, "little")
        return text.split(b"\0")[0].decode()

    async def works(self):
        """A small program that uses everything runs right."""
        what = self.seed.randbytes(40 * STEP)
        await self.put(0x4000 - 5 * STEP, what)
        got = await self.run(
            load(0x4000 - 5 * STEP, 40, 3, post=1),
            timer(ARRAY, 7, wait=1, post=2),
            timer(HEAD, 3, wait=2, post=4),
            store(0x6000 - 3 * STEP, 40, 3, wait=4),
            end(),
        )
        assert got is Error.NONE, repr(got)
        assert await self.peek(0x6000 - 3 * STEP, 40 * STEP) == what
        assert await self.get("COMMANDS_DONE") == 5


async def until(dut, *signals):
    """The cycle after one in which all ``signals`` of the bus are high."""
    while True:
        await RisingEdge(dut.clk)
        if all(int(getattr(dut, f"bus_{name}").value) for name in signals):
            return
