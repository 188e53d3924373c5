"""Laws of the shell, seen from its two buses (run by cocotb)."""

import itertools

import cocotb
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiResp

from gradloom.rtl.machines.images import ARRAY, ENCODE, HEAD, IMAGES
from gradloom.rtl.shell.engines import LOAD, STORE
from gradloom.rtl.shell.registers.errors import Error
from gradloom.rtl.shell.registers.regtable import REGISTERS
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.rtl.shell.table import PROGRAM_FORMAT, TABLE_FORMAT, machine_table

from ..host import BASE, BITS, BURST, PROGRAM, SIZE, STEP, Host
from ..program import command, control, end, fence, load, store, timer

MARK, LOOKUP, CLEAR = ControlOpcode.MARK, ControlOpcode.LOOKUP, ControlOpcode.CLEAR


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
        assert await host.get64("ERROR_ADDRESS") == BASE + where - beat % BURST * STEP
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
    r = host.slaves[0].read_if.r_channel
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
    # So it does behind END, while commands beyond it come slowly.
    seen = set()
    for wait in range(80, 200, 40):
        await host.set("WATCHDOG", 300)
        await host.fails(timer(HEAD, 5), command(ARRAY, 2), end(), error=Error.BAD_OPERAND, at=1, address=None)
        r.set_pause_generator(itertools.cycle((1, 1, 1, 0)))
        await host.start(timer(HEAD, 40), *[end()] * 60)
        await ClockCycles(dut.clk, wait)
        r.clear_pause_generator()
        r.pause = True
        await host.wait()
        seen.add((await host.get("ERROR_CODE"), await host.get("ERROR_COMMAND")))
        await host.set("IRQ_STATUS", 3)
        r.pause = False
        await ClockCycles(dut.clk, 400)
        await host.works()
    assert (Error.WATCHDOG, 1) in seen and seen <= {(Error.WATCHDOG, 1), (Error.NONE, 0)}, seen
    await host.set("CONTROL", 2)  # while idle
    while await host.status() & 1:
        pass
    await host.works()


@cocotb.test()
async def valid_bits_hold_what_was_marked(dut):
    host = await Host(dut).begin()

    async def lookup(slot, count):
        assert await host.run(control(LOOKUP, slot, count), end()) is Error.NONE
        return await host.get("CACHE_HITS"), await host.get("CACHE_MISSES")

    await host.set("CACHE_CLEAR", 1)
    truth = set()
    for slot, count in ((0, 1), (31, 2), (64, 32), (100, 200), (16383, 1), (6400, 0), (5000, 0), (5000, 45)):
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
