"""Laws of the shell, seen from its two buses (run by cocotb)."""

import logging
import os
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiResp, AxiSlave, MemoryRegion

from gradloom.rtl.machines.images import ARRAY, ENCODE, HEAD, IMAGES
from gradloom.rtl.shell.engines import LOAD, STORE
from gradloom.rtl.shell.registers.errors import Error
from gradloom.rtl.shell.registers.regtable import REGISTERS
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.rtl.shell.table import PROGRAM_FORMAT, TABLE_FORMAT, machine_table

from .program import command, control, end, fence, load, store, timer

BITS = int(os.environ.get("DATA_BITS", "128"))
STEP = BITS // 8
BASE, SIZE = 0x1_0000_0000, 1 << 17
PROGRAM = 0x8000
MARK, LOOKUP, CLEAR = ControlOpcode.MARK, ControlOpcode.LOOKUP, ControlOpcode.CLEAR


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

    async def begin(self, *, pauses=False, latency=20, stall=0, slow=0):
        dut = self.dut
        for bus in ("s_axi", "m_axi"):
            logging.getLogger(f"cocotb.shell_bench.{bus}").setLevel(logging.ERROR)
        dut.rst.value = 1
        dut.keep.value = 0
        dut.use_memory.value = int(self.model)
        dut.slow.value = slow
        dut.read_latency.value = latency
        dut.write_latency.value = latency
        dut.port_reads.value = 0
        dut.stall.value = stall
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
            self.slave = AxiSlave(AxiBus.from_prefix(dut, "m_axi"), dut.clk, dut.rst, target=self.memory)
            if pauses:
                self.pause()
        await self.reset()
        return self

    async def reset(self, *, rest=5):
        """Asserts the machine's reset, waits for ``rest`` cycles after it, and sets registers."""
        dut = self.dut
        dut.rst.value = 1
        await ClockCycles(dut.clk, 5)
        dut.rst.value = 0
        await ClockCycles(dut.clk, rest)
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

        w, r = self.slave.write_if, self.slave.read_if
        for i, channel in enumerate((w.aw_channel, w.w_channel, w.b_channel, r.ar_channel, r.r_channel)):
            channel.set_pause_generator(some(0.4, i))
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
        data += bytes(-len(data) % STEP)
        for i in range(0, len(data), STEP):
            self.dut.host_word.value = (offset + i) // STEP
            self.dut.host_wdata.value = int.from_bytes(data[i : i + STEP], "little")
            self.dut.host_we.value = 1
            await RisingEdge(self.dut.clk)
        self.dut.host_we.value = 0

    async def peek(self, offset, length):
        if not self.model:
            return bytes(self.memory.mem[offset : offset + length])
        out = b""
        for i in range(0, length, STEP):
            self.dut.host_word.value = (offset + i) // STEP
            await ClockCycles(self.dut.clk, 3)
            out += int(self.dut.host_rdata.value).to_bytes(STEP, "little")
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


@cocotb.test()
async def registers_keep_their_laws(dut):
    host = await Host(dut).begin()
    assert await host.get("ID") == 0x47524C4D
    formats = TABLE_FORMAT | PROGRAM_FORMAT << 8
    assert await host.get("MACHINE") == formats | len(IMAGES.own) << 16 | len(IMAGES.phases) << 24
    assert await host.table() == machine_table(IMAGES, {"rows": 25, "rank": 4}, None)
    assert await host.get("CONFIG_MEMORY") == BITS | 16384 << 16
    assert await host.get("IRQ_ENABLE") == 3
    await host.set("WATCHDOG", 0x01020304)
    await host.lite.write(REGISTERS.address("WATCHDOG") + 1, b"\xaa")  # one strobe
    assert await host.get("WATCHDOG") == 0x0102AA04
    for address in (0x080, 0x0B8, 0x100, 0xFFC):
        assert (await host.lite.read(address, 4)).resp == AxiResp.SLVERR
        assert (await host.lite.write(address, bytes(4))).resp == AxiResp.SLVERR
    assert (await host.lite.write(REGISTERS.address("ID"), bytes(4))).resp == AxiResp.SLVERR
    # Data long before address, and address long before data.
    w = host.lite.write_if
    for slow in (w.aw_channel, w.w_channel):
        slow.pause = True
        job = cocotb.start_soon(host.lite.write(REGISTERS.address("BASE_ID"), b"abcd"))
        await ClockCycles(dut.clk, 20)
        assert not job.done()
        slow.pause = False
        await job
        assert await host.get("BASE_ID") == int.from_bytes(b"abcd", "little")
    # Locked while busy.
    await host.set("WATCHDOG", 3000)
    await host.start(timer(ARRAY, 1000), end())
    assert (await host.lite.write(REGISTERS.address("WINDOW_SIZE"), bytes(4))).resp == AxiResp.SLVERR
    assert await host.status() == 1
    assert await host.finish() is Error.NONE
    assert await host.get("WINDOW_SIZE") == SIZE


@cocotb.test()
async def what_load_reads_store_writes(dut):
    """Any length from any beat, under random pauses; bursts are legal (cocotbext checks 4 KB)."""
    host = await Host(dut).begin(pauses=True, slow=1)
    await host.works()
    for beats, first in ((1, 0), (1, 255), (15, 1), (16, 0), (17, 15), (100, 250), (260, 127)):
        what = host.seed.randbytes(beats * STEP)
        source, target = 0x2000 + first * STEP, 0x10000 + (255 - first % 200) * STEP
        await host.put(source, what)
        assert (
            await host.run(load(source, beats, 7, post=1), store(target, beats, 7, wait=1, port=beats % 3), end())
            is Error.NONE
        )
        assert await host.peek(target, len(what)) == what
        assert await host.get("WRITE_BEATS") == beats


@cocotb.test()
async def a_bad_transfer_is_refused(dut):
    host = await Host(dut).begin()
    for make, length, alignment, window in (
        (load, Error.LOAD_LENGTH, Error.LOAD_ALIGNMENT, Error.LOAD_WINDOW),
        (store, Error.STORE_LENGTH, Error.STORE_ALIGNMENT, Error.STORE_WINDOW),
    ):
        good = make(0x1000, 3, 0)
        await host.fails(good, make(0x100, 0, 0), end(), error=length, at=1, address=0x100)
        await host.fails(good, good, make(STEP + 8, 4, 0), end(), error=alignment, at=2, address=STEP + 8)
        await host.fails(make(SIZE - STEP, 2, 0), end(), error=window, at=0, address=SIZE - STEP)
        await host.fails(make(0xFFFFFF00, 0xFFFFFF, 0), end(), error=window, at=0, address=0xFFFFFF00)
        assert await host.run(make(SIZE - STEP, 1, 0), end()) is Error.NONE
        bad = command(LOAD if make is load else STORE, 9, args=1)
        await host.fails(good, bad, end(), error=Error.UNKNOWN_OPCODE, at=1, address=1)


@cocotb.test()
async def a_bus_error_names_its_address(dut):
    host = await Host(dut).begin(pauses=True)
    for beat in (0, 1, 15, 16, 33):
        where = 0x3000 + beat * STEP
        host.memory.bad = range(where, where + STEP)
        await host.start(load(0x2000, 2, 0), load(0x3000, 34, 0), load(0x2000, 9, 0), end())
        assert await host.finish() is Error.READ_SLVERR
        assert await host.get("ERROR_COMMAND") == 1
        assert await host.get64("ERROR_ADDRESS") == BASE + where
        await host.start(store(0x5000, 2, 0), store(0x3000, 34, 0), store(0x5000, 9, 0), end())
        assert await host.finish() is Error.WRITE_SLVERR
        assert await host.get("ERROR_COMMAND") == 1
        assert await host.get64("ERROR_ADDRESS") == BASE + where - beat % 16 * STEP
        host.memory.bad = range(PROGRAM + 64, PROGRAM + 64 + STEP)
        await host.start(fence(), fence(), fence(), end())
        assert await host.finish() is Error.FETCH_SLVERR
        assert await host.get("ERROR_COMMAND") == 2
        assert await host.get64("ERROR_ADDRESS") == BASE + PROGRAM + 64
        host.memory.bad = range(0)
        await host.works()


@cocotb.test()
async def a_bad_program_is_refused(dut):
    host = await Host(dut).begin()
    assert await host.run(end(), count=0) is Error.PROGRAM_LENGTH
    assert await host.get64("ERROR_ADDRESS") == 0
    for name, value, error, address in (
        ("PROGRAM_OFFSET", PROGRAM + 16, Error.PROGRAM_ALIGNMENT, BASE + PROGRAM + 16),
        ("PROGRAM_OFFSET", SIZE - 32, Error.PROGRAM_WINDOW, BASE + SIZE - 32),
        ("WINDOW_BASE_LO", 0x800, Error.BASE_ALIGNMENT, BASE + 0x800),
        ("WINDOW_SIZE", 0, Error.PROGRAM_WINDOW, BASE + PROGRAM),
    ):
        before = await host.get(name)
        await host.set(name, value)
        assert await host.run(end(), end()) is error
        assert await host.get64("ERROR_ADDRESS") == address
        await host.set(name, before)
        await host.works()
    await host.fails(fence(), fence(), error=Error.PROGRAM_UNENDED, at=2, address=None)
    for engine in (6, 15):
        await host.fails(fence(), command(engine), end(), error=Error.UNKNOWN_ENGINE, at=1, address=None)
    await host.fails(control(77), end(), error=Error.UNKNOWN_OPCODE, at=0, address=None)
    await host.fails(timer(HEAD, 100), command(ARRAY, 77), end(), error=Error.UNKNOWN_OPCODE, at=1, address=None)
    await host.fails(timer(ENCODE, 3), command(ENCODE, 2), end(), error=Error.BAD_OPERAND, at=1, address=None)


@cocotb.test()
async def tokens_order_engines(dut):
    host = await Host(dut).begin()
    # Deadlocks: in a queue before END, a CONTROL command, behind a full queue.
    await host.fails(timer(ARRAY, 3, wait=0x8000), end(), error=Error.DEADLOCK, at=0, address=None)
    await host.fails(timer(ARRAY, 3), fence(wait=2), end(), error=Error.DEADLOCK, at=1, address=None)
    await host.fails(*[timer(HEAD, 1, wait=1)] * 20, end(), error=Error.DEADLOCK, at=0, address=None)
    # 256 posts without a wait.
    await host.fails(*[timer(HEAD, 1, post=1)] * 256, end(), error=Error.TOKEN_OVERFLOW, at=255, address=None)
    assert await host.run(*[timer(HEAD, 1, post=1)] * 255, end()) is Error.NONE
    # A token starts one command only; a ring of two buffers.
    ring = [timer(HEAD, 1, post=1), timer(HEAD, 1, post=1)]
    for i in range(6):
        ring += [timer(ARRAY, 30 - i, wait=1, post=2), timer(HEAD, 10 + i, wait=2, post=1)]
    assert await host.run(*ring, end()) is Error.NONE
    assert await host.get("COMMANDS_DONE") == len(ring) + 1
    assert await host.get("SATURATED") == 6 and await host.get("UNDERFLOWED") == 18
    assert await host.get64("GRADIENT_NORM") == 6 << 40


@cocotb.test()
async def the_watchdog_and_the_host_can_stop_anything(dut):
    host = await Host(dut).begin(pauses=True)
    await host.fails(timer(HEAD, 5), command(ARRAY, 1), end(), error=Error.WATCHDOG, at=1, address=None)
    for wait in (1, 40, 60, 80, 97, 133, 200):
        await host.start(load(0x1000, 600, 0), store(0x10000, 600, 0), end())
        await ClockCycles(dut.clk, wait)
        await host.set("CONTROL", 2)
        got = await host.finish()
        assert got is Error.ABORTED, repr(got)
        await host.works()
    # A bus that never answers: the interrupt comes all the same, and the machine lives on when the bus does.
    r = host.slave.read_if.r_channel
    r.clear_pause_generator()
    r.pause = True
    await host.set("WATCHDOG", 300)
    await host.start(load(0x1000, 64, 0), end())
    await host.wait()
    assert await host.status() == 0b1101
    assert await host.get("ERROR_CODE") == Error.WATCHDOG
    await host.set("IRQ_STATUS", 2)
    r.pause = False
    await ClockCycles(dut.clk, 400)
    assert await host.status() == 0b100
    assert await host.get("IRQ_STATUS") == 0
    await host.works()
    await host.set("CONTROL", 2)  # while idle
    await host.works()


@cocotb.test()
async def valid_bits_hold_what_was_marked(dut):
    host = await Host(dut).begin()

    async def lookup(slot, count):
        assert await host.run(control(LOOKUP, slot, count), end()) is Error.NONE
        return await host.get("CACHE_HITS"), await host.get("CACHE_MISSES")

    await host.set("CACHE_CLEAR", 1)
    truth = set()
    for slot, count in ((0, 1), (31, 2), (64, 32), (100, 200), (16383, 1), (5000, 0), (5000, 45)):
        assert await host.run(control(MARK, slot, count), end()) is Error.NONE
        truth |= set(range(slot, slot + count))
        for s, c in ((slot, count), (max(slot - 5, 0), min(count + 9, 16384 - slot)), (0, 16384)):
            hits = len(truth & set(range(s, s + c)))
            assert await lookup(s, c) == (hits, c - hits)
    await host.fails(control(LOOKUP, 16380, 5), end(), error=Error.SLOT_RANGE, at=0, address=None)
    await host.fails(fence(predicate=(16384, 1)), end(), error=Error.SLOT_RANGE, at=0, address=None)
    # Predicates: dropped only if every slot is valid; waits and posts go with it.
    program = [
        timer(ARRAY, 1, predicate=(100, 200), wait=1),
        timer(ARRAY, 1, predicate=(99, 200)),
        timer(ARRAY, 1, predicate=(64, 33)),
        end(),
    ]
    assert await host.run(*program) is Error.NONE
    assert await host.get("COMMANDS_DROPPED") == 1 and await host.get("COMMANDS_DONE") == 3
    await host.set("BASE_ID", 1)
    assert await lookup(0, 16384) == (0, 16384)
    assert (
        await host.run(control(MARK, 7, 1), control(LOOKUP, 0, 50), control(CLEAR), control(LOOKUP, 0, 50), end())
        is Error.NONE
    )
    assert await host.get("CACHE_HITS") == 1 and await host.get("CACHE_MISSES") == 99


@cocotb.test()
async def a_look_that_was_stopped_marks_nothing(dut):
    """It goes on, under the next program, whose MARK is for other slots."""
    host = await Host(dut).begin()
    await host.set("CACHE_CLEAR", 1)
    await ClockCycles(dut.clk, 600)
    await host.start(control(LOOKUP, 0, 16384), end())
    await ClockCycles(dut.clk, 60)
    await host.set("CONTROL", 2)
    assert await host.finish() is Error.ABORTED
    assert await host.run(control(MARK, 7, 1), control(LOOKUP, 0, 16384), end()) is Error.NONE
    assert await host.get("CACHE_HITS") == 1


@cocotb.test()
async def every_cycle_belongs_to_a_phase(dut):
    host = await Host(dut).begin()
    assert (
        await host.run(
            load(0x1000, 20, 0, post=1),
            timer(ARRAY, 100, phase=2, wait=1, post=2),
            timer(HEAD, 50, wait=2, post=4),
            timer(ARRAY, 30, phase=3, wait=4, post=8),
            timer(ENCODE, 40, wait=8, post=16),
            store(0x3000, 20, 0, wait=16),
            end(),
        )
        is Error.NONE
    )
    phases = {name: await host.get(f"PHASE_CYCLES{i}") for i, name in enumerate(IMAGES.phases)}
    assert sum(phases.values()) == await host.get64("CYCLES")
    own = {name: phases[name] for name in IMAGES.phases[3:]}
    assert own == {"convolution": 0, "dense": 0, "forward": 101, "gradient": 31, "loss": 51, "encode": 41}, phases
    # As long as a transfer may take of a memory that stalls.
    assert 20 <= phases["load"] < 400 and 20 <= phases["store"] < 400 and await host.get("PHASE_CYCLES15") == 0
    assert await host.get("READ_BEATS") == 20 + 7 * 32 // STEP


@cocotb.test()
async def the_memory_model_behaves_under_stalls(dut):
    host = await Host(dut, model=True).begin(stall=100, latency=30)
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


async def until(dut, *signals):
    """The cycle after one in which all ``signals`` of the bus are high."""
    while True:
        await RisingEdge(dut.clk)
        if all(int(getattr(dut, f"bus_{name}").value) for name in signals):
            return


READ, WRITE = ("rvalid", "rready"), ("wvalid", "wready")


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
                    (write, store(0x2000, beats, 0), where - beat % 16 * STEP),
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
        ([store(0x10000, 16, 0), end()], ((*WRITE, "wlast"),)),
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


@cocotb.test()
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
