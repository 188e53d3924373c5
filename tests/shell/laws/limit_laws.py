"""Laws of the shell at its limits: the last count that fits, the last cycle in time (run by cocotb)."""

import itertools

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout

from gradloom.rtl.machines.images import ARRAY, ENCODE, HEAD
from gradloom.rtl.shell.registers.errors import Error
from gradloom.rtl.shell.signature import COMMAND_BYTES

from ..host import BASE, MANAGERS, PROGRAM, STEP, Host, until
from ..host import BURST as BEATS
from ..program import command, end, fence, load, pause, store, timer
from .request_laws import RING, begin, bits, check, copies, queue, settle

#: Commands in a burst.
BURST = BEATS * STEP // COMMAND_BYTES


async def bursts(dut, asked):
    """Counts read addresses that were taken, in ``asked[0]``."""
    while True:
        await RisingEdge(dut.clk)
        for name in MANAGERS:
            valid, ready = (getattr(dut, f"{name}_ar{end}") for end in ("valid", "ready"))
            asked[0] += int(valid.value) and int(ready.value)


@cocotb.test()
async def a_program_that_ended_asks_for_nothing(dut):
    """Its third burst waits on the bus while END comes, with the second: a fourth is due, and is never asked for."""
    host = await begin(dut)
    addresses = [slave.read_if.ar_channel for slave in host.slaves]
    asked = [0]
    counting = cocotb.start_soon(bursts(dut, asked))

    async def leaves(last, beyond, *, bell=0):
        asked[0] = 0
        await host.start(*[fence()] * (2 * BURST - 1), last, *[beyond] * (4 * BURST))
        await host.set("CONTROL", bell)
        while asked[0] < 2:
            await RisingEdge(dut.clk)
        for address in addresses:
            address.pause = True
        await ClockCycles(dut.clk, 400)
        for address in addresses:
            address.pause = False

    await leaves(end(), command(ARRAY, 77))
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


@cocotb.test()
async def an_interrupt_that_comes_with_its_clear_is_not_lost(dut):
    """The clear meets the set in one of these cycles; in each the interrupt is seen, a cycle at least."""
    host = await begin(dut)
    kept = []
    for wait in range(24):
        rose = cocotb.start_soon(with_timeout(RisingEdge(dut.irq), 20, "us"))
        await host.start(timer(ARRAY, 60), end())
        await ClockCycles(dut.clk, 70 + wait)
        await host.set("IRQ_STATUS", 1)
        await rose
        await ClockCycles(dut.clk, 50)
        kept.append(await host.get("IRQ_STATUS"))
        await host.set("IRQ_STATUS", 1)
    # The first clears came before the set, the last behind it.
    assert kept == sorted(kept, reverse=True) and set(kept) == {0, 1}, kept


@cocotb.test()
async def a_window_has_an_end(dut):
    """Ends beyond 2^32 are not taken for those at the window's begin, of programs and of transfers."""
    host = await begin(dut)
    for make, error in ((load, Error.LOAD_WINDOW), (store, Error.STORE_WINDOW)):
        offset = (1 << 32) - 16 * STEP
        await host.fails(make(offset, 20, 0), end(), error=error, at=0, address=offset)
    await host.set("PROGRAM_OFFSET", (1 << 32) - COMMAND_BYTES)
    assert await host.run(end(), end()) is Error.PROGRAM_WINDOW
    await host.set("PROGRAM_OFFSET", PROGRAM)
    await host.works()


@cocotb.test()
async def an_answer_that_comes_amid_the_next_program_is_dropped(dut):
    """A write from before the machine's reset, which the memory has not seen, is answered, well or not, once the next
    program runs."""
    host = await Host(dut, model=True).begin(latency=900)
    for bad in (0, 1):
        dut.fail_enable.value = bad
        dut.fail_address.value = BASE + 0x10000
        await host.start(store(0x10000, BEATS, 0), end())
        await until(dut, "wvalid", "wready", "wlast")
        await ClockCycles(dut.clk, 2)
        dut.keep.value = 1
        await host.reset()
        dut.keep.value = 0
        answer = cocotb.start_soon(until(dut, "bvalid", "bready"))
        await host.start(timer(ARRAY, 1500), end())
        await with_timeout(answer, 20, "us")
        assert (await host.status()) & 1, "the answer shall come while the program runs"
        assert await host.finish() is Error.NONE
        assert await host.get("COMMANDS_DONE") == 2
        dut.fail_enable.value = 0
        await host.works()


@cocotb.test()
async def a_token_starts_one_command(dut):
    """Three engines and a fence wait for it: as many start as tokens were posted, whoever posts them."""
    host = await begin(dut)
    waiting = [timer(engine, 30, wait=1) for engine in (ARRAY, HEAD, ENCODE)]
    for posts in range(5):
        for fenced in ([], [fence(wait=1)]):
            given = [load(0x1000, 1, 0, post=1)] * posts
            program = [*given, *waiting, *fenced, end()]
            if posts >= len(waiting) + len(fenced):
                assert await host.run(*program) is Error.NONE, (posts, fenced)
                assert await host.get("COMMANDS_DONE") == len(program)
            else:
                assert await host.run(*program) is Error.DEADLOCK
                # A fence that has its token ends when nothing is queued any more, which is never.
                assert await host.get("COMMANDS_DONE") in (2 * posts, 2 * posts - len(fenced))
    await host.works()


@cocotb.test()
async def a_token_that_is_given_and_taken_at_255_is_no_overflow(dut):
    """HEAD gives the 256th in, before or behind the cycle in which ARRAY, which ENCODE has let go, takes one."""
    host = await begin(dut)
    done = {}

    async def watch():
        for cycle in itertools.count():
            await RisingEdge(dut.clk)
            for engine in (HEAD, ENCODE):
                if int(dut.events.value) >> 16 + engine & 1:
                    done[engine] = cycle

    watching = cocotb.start_soon(watch())
    seen = set()
    for cycles in range(8, 22):
        done.clear()
        got = await host.run(
            *[timer(HEAD, 1, post=1)] * 255,
            fence(),
            timer(ENCODE, 20, post=2),
            timer(ARRAY, 1, wait=3),
            timer(HEAD, cycles, post=1),
            end(),
        )
        # A command is offered 4 cycles after the end of what it waits for, and took its tokens in the cycle before.
        late = done[HEAD] - done.get(ENCODE, done[HEAD])  # an overflow stops ENCODE
        assert got is (Error.TOKEN_OVERFLOW if late < 2 else Error.NONE), (cycles, late, got)
        seen.add(late)
    assert {1, 2, 3} <= seen, seen
    watching.cancel()
    # 255 are there to be taken, and no more.
    posts, takes = [timer(HEAD, 1, post=1)] * 255, [timer(HEAD, 1, wait=1)]
    assert await host.run(*posts, fence(), *takes * 255, end()) is Error.NONE
    await host.fails(*posts, fence(), *takes * 256, end(), error=Error.DEADLOCK, at=511, address=None)


@cocotb.test()
async def an_overflow_names_the_command_that_posted(dut):
    """Whichever engine posts, whatever follows in its queue, and whatever else ends in the cycles after it."""
    host = await begin(dut)
    posts = [timer(HEAD, 1, post=1)] * 255
    others = [timer(ARRAY, 1), timer(HEAD, 1), timer(ENCODE, 1)]
    for last in (
        timer(HEAD, 9, post=1),
        timer(ARRAY, 9, post=1),
        timer(ENCODE, 9, post=1),
        load(0x1000, 1, 0, post=1),
        store(0x1000, 1, 0, post=1),
        fence(post=1),
    ):
        for more in ([], others * 4):
            program = [*posts, fence(), timer(ARRAY, 1), last, *more, end()]
            assert await host.run(*program) is Error.TOKEN_OVERFLOW
            assert await host.get("ERROR_COMMAND") == 257, await host.get("ERROR_COMMAND")
    await host.works()


@cocotb.test()
async def a_wrong_command_is_named_while_ends_are_processed(dut):
    """Three engines end in the same cycle, one of those around the cycle in which the dispatcher stops: the error waits
    until all ends are processed, and still names the command that the dispatcher stopped at."""
    host = await begin(dut)
    engines = (ARRAY, HEAD, ENCODE)
    seen = {"started": {}, "done": {}}

    async def watch():
        for cycle in itertools.count():
            await RisingEdge(dut.clk)
            events = int(dut.events.value)
            for engine in engines:
                for kind, shift in (("started", 0), ("done", 16)):
                    if events >> shift + engine & 1:
                        seen[kind].setdefault(engine, cycle)

    watching = cocotb.start_soon(watch())
    assert await host.run(*[timer(engine, 100) for engine in engines], end()) is Error.NONE
    start = seen["started"].copy()
    together = 0
    for last in range(4, 40):
        seen["done"].clear()
        lengths = [start[ENCODE] - start[engine] + last for engine in engines]
        timers = [timer(engine, length) for engine, length in zip(engines, lengths)]
        between = [load(0x1000, 1, 0)] * 4  # the time of the timers' starts
        assert await host.run(*timers, *between, command(15), end()) is Error.UNKNOWN_ENGINE
        assert await host.get("ERROR_COMMAND") == 7, (last, await host.get("ERROR_COMMAND"))
        together += len(seen["done"]) == 3 and len(set(seen["done"].values())) == 1
    assert together
    watching.cancel()


@cocotb.test()
async def engines_are_reset_for_4_cycles(dut):
    """At an error, and where nothing runs; the bus is idle. Before a program, while it is checked: 3."""
    host = await begin(dut)
    lengths = []

    async def watch():
        while True:
            await RisingEdge(dut.aborting)
            cycles = 0
            while int(dut.aborting.value):
                cycles += 1
                await RisingEdge(dut.clk)
            lengths.append(cycles)

    watching = cocotb.start_soon(watch())
    assert await host.run(timer(ARRAY, 9), end()) is Error.NONE
    (before,) = lengths
    assert await host.run(command(ARRAY, 77), end()) is Error.UNKNOWN_OPCODE
    await host.set("CONTROL", 2)
    await ClockCycles(dut.clk, 20)
    assert [cycles - before for cycles in lengths[1:]] == [0, 1, 1], lengths
    watching.cancel()
    await host.works()
