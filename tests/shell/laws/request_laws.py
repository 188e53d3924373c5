"""Laws of two programs on one shell (run by cocotb)."""

import random

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotbext.axi import AxiResp

from gradloom.rtl.machines.images import ARRAY, ENCODE, HEAD
from gradloom.rtl.shell.registers.errors import Error
from gradloom.rtl.shell.registers.regtable import REGISTERS
from gradloom.rtl.shell.signature import ControlOpcode

from ..host import BASE, PROGRAM, SIZE, STEP, Host
from ..program import command, control, end, fence, load, pause, store, timer

REQUEST = 0xC000
BELL, RESET, RING = 1, 2, 4
STATUS = {f.name: f.lsb for f in REGISTERS["STATUS"].fields}
MARK, LOOKUP = ControlOpcode.MARK, ControlOpcode.LOOKUP


async def begin(dut, **kwargs):
    host = await Host(dut, **kwargs).begin()
    await host.set("IRQ_ENABLE", 7)
    await host.set("REQUEST_OFFSET", REQUEST)
    return host


async def queue(host, *commands, count=None):
    """Puts a request into memory, ready to be rung."""
    await host.put(REQUEST, b"".join(commands))
    await host.set("REQUEST_COMMANDS", len(commands) if count is None else count)


async def ask(host, *commands):
    await queue(host, *commands)
    await host.set("CONTROL", RING)


async def bits(host, *names):
    status = await host.get("STATUS")
    return tuple(status >> STATUS[name] & 1 for name in names)


async def until_clear(host, name):
    async def clear():
        while (await bits(host, name))[0]:
            pass

    await with_timeout(clear(), 300, "us")


async def settle(host):
    """Both programs ended without error; interrupts told so and are cleared."""
    await until_clear(host, "busy")
    await until_clear(host, "request_busy")
    assert await host.get("ERROR_CODE") == 0
    await host.set("IRQ_STATUS", await host.get("IRQ_STATUS"))
    assert not int(host.dut.protocol_error.value) and not int(host.dut.order.value)


async def copies(host, source, target, beats, word):
    """A program that copies through the scratchpad, and what must have been copied."""
    what = host.seed.randbytes(beats * STEP)
    await host.put(source, what)
    return [load(source, beats, word, post=1), store(target, beats, word, wait=1)], (target, what)


async def check(host, *expected):
    for target, what in expected:
        assert await host.peek(target, len(what)) == what


@cocotb.test()
async def a_request_alone_starts_at_once(dut):
    host = await begin(dut)
    assert await bits(host, "requests", "busy", "request_busy") == (1, 0, 0)
    steps, expected = await copies(host, 0x1000, 0x5000, 40, 0)
    await ask(host, *steps, end())
    await host.wait()
    assert await host.get("IRQ_STATUS") == 0b100
    assert await bits(host, "request_done", "request_error", "done", "busy") == (1, 0, 0, 0)
    await check(host, expected)
    assert await host.get("REQUEST_WAITED") == 3
    assert 40 < await host.get("REQUEST_CYCLES") < 400
    await host.set("IRQ_STATUS", 4)
    # A program behind it is as ever; its counters know nothing of the request.
    await host.set("IRQ_ENABLE", 3)
    await host.works()
    before = await host.get64("CYCLES")
    await ask(host, end())
    await until_clear(host, "request_busy")
    assert (await host.get64("CYCLES"), await host.get("COMMANDS_DONE")) == (before, 5)


@cocotb.test()
async def a_request_runs_at_a_yield_and_only_there(dut):
    """Whenever it rings: between the sections it interrupts nothing, and both keep their words and their tokens."""
    host = await begin(dut, model=True)
    dut.stall.value = 60
    rng = random.Random(7)
    served = 0
    for wait in (0, 3, 60, 130, 250, 400, 700):
        one, first = await copies(host, 0x1000, 0x5000, 33, 0)
        two, second = await copies(host, 0x1800, 0x6000, 17, 64)
        mine, third = await copies(host, 0x2000, 0x7000, 20, 200)
        # Tokens that a section leaves behind are gone for the request, and for the next section.
        main = [
            *one,
            timer(HEAD, 40, post=1),
            timer(HEAD, 1, post=8),
            pause(),
            timer(HEAD, 50, post=2),
            timer(ARRAY, 60, wait=2),
            pause(),
            *two,
            fence(),
            end(),
        ]
        await queue(host, *mine, pause(), timer(ENCODE, rng.randrange(1, 90), post=0x4000), end())
        await host.start(*main)
        await ClockCycles(dut.clk, wait)
        await host.set("CONTROL", RING)
        await settle(host)
        await check(host, first, second, third)
        assert await bits(host, "done", "request_done", "error", "request_error") == (1, 1, 0, 0)
        served += await host.get("COMMANDS_DONE") == len(main) + 5
    assert served >= 4, "the request shall have run within the program, more than once"


@cocotb.test()
async def tokens_end_at_a_yield(dut):
    host = await begin(dut)
    await host.fails(
        timer(HEAD, 3, post=1), pause(), timer(HEAD, 3, wait=1), end(), error=Error.DEADLOCK, at=2, address=None
    )
    # Its own post too, with a request and without.
    for ring in (False, True):
        await queue(host, timer(HEAD, 3, post=1), end())
        await host.start(timer(HEAD, 300), pause(post=1), timer(HEAD, 3, wait=1), end())
        if ring:
            await host.set("CONTROL", RING)
        await host.wait()
        await until_clear(host, "busy")
        assert await host.get("ERROR_CODE") == Error.DEADLOCK and await host.get("ERROR_COMMAND") == 2
        assert await bits(host, "request_done") == (int(ring),)
        await host.set("IRQ_STATUS", 7)
    await host.fails(pause(wait=2), end(), error=Error.DEADLOCK, at=0, address=None)
    # 200 posts a section, which would be too many for one.
    assert (
        await host.run(*[timer(HEAD, 1, post=1)] * 200, pause(), *[timer(HEAD, 1, post=1)] * 200, end()) is Error.NONE
    )


@cocotb.test()
async def neither_starves(dut):
    """Requests rung without end are served once a section; the program ends as if nobody had rung."""
    host = await begin(dut)
    sections = 6
    await queue(host, timer(HEAD, 20), end())
    await host.start(*[step for _ in range(sections) for step in (timer(ARRAY, 400), pause())], end())
    served = 0
    while (await bits(host, "busy"))[0]:
        await host.set("CONTROL", RING)
        await until_clear(host, "request_busy")
        served += 1
        # Never longer than a section, the bus's round trip and the switch.
        assert await host.get("REQUEST_WAITED") < 400 + 120
    assert served in (sections, sections + 1), served
    await settle(host)
    assert await host.get("COMMANDS_DONE") in (2 * sections + 1 + 2 * sections, 2 * sections + 1 + 2 * served)


@cocotb.test()
async def a_full_queue_refuses(dut):
    host = await begin(dut)
    steps, expected = await copies(host, 0x1000, 0x5000, 9, 0)
    await queue(host, *steps, timer(HEAD, 400), end())
    await host.start(timer(ARRAY, 600), pause(), timer(ARRAY, 600), end())
    await host.set("CONTROL", RING)
    assert await bits(host, "request_busy", "request_running", "refused") == (1, 0, 0)
    for running in (0, 1):
        for name in ("REQUEST_OFFSET", "REQUEST_COMMANDS", "WINDOW_SIZE", "PROGRAM_OFFSET"):
            assert (await host.lite.write(REGISTERS.address(name), bytes(4))).resp == AxiResp.SLVERR
        await host.set("CONTROL", RING)
        assert await bits(host, "request_running", "refused") == (running, 1)
        while not running and not (await bits(host, "request_running"))[0]:
            pass
    await settle(host)
    await check(host, expected)
    assert await bits(host, "done", "request_done", "refused") == (1, 1, 1)
    # Once: what was refused does not come later.
    await ClockCycles(dut.clk, 800)
    assert await host.get("IRQ_STATUS") == 0
    # While a request runs alone, the program's registers may be written, and its bell is kept.
    await host.set("CONTROL", RING)
    assert await bits(host, "refused", "request_busy", "busy") == (0, 1, 0)
    assert (await host.lite.write(REGISTERS.address("WINDOW_SIZE"), bytes(4))).resp == AxiResp.SLVERR
    await host.start(timer(ARRAY, 100), end())
    assert await bits(host, "request_running", "busy") == (1, 1)
    await settle(host)
    assert await bits(host, "done", "request_done") == (1, 1)
    assert 2 + 2 <= await host.get("COMMANDS_DONE") <= 2 + 4  # from its bell on


@cocotb.test()
async def an_error_stops_both_and_says_whose_it_is(dut):
    host = await begin(dut)
    good = [timer(ARRAY, 300), pause(), timer(ARRAY, 300), end()]
    for request, error, at, address in (
        ([fence(), timer(HEAD, 9), command(HEAD, 2), end()], Error.BAD_OPERAND, 2, 0),
        ([load(SIZE - STEP, 2, 0), end()], Error.LOAD_WINDOW, 0, BASE + SIZE - STEP),
        ([fence(), fence()], Error.PROGRAM_UNENDED, 2, 0),
        ([timer(HEAD, 9, wait=1), end()], Error.DEADLOCK, 0, 0),
        ([command(HEAD, 1), end()], Error.WATCHDOG, 0, 0),
        ([], Error.PROGRAM_LENGTH, 0, 0),
    ):
        for alone in (False, True):
            await queue(host, *request)
            if not alone:
                await host.start(*good)
            await host.set("CONTROL", RING)
            await host.wait()
            assert await bits(host, "busy", "request_busy", "request_error") == (0, 0, 1)
            if not alone:
                assert await bits(host, "done", "error") == (0, 1)
            assert await host.get("ERROR_CODE") == error
            assert await host.get("ERROR_COMMAND") == at | 1 << 31
            assert await host.get64("ERROR_ADDRESS") == address
            await host.set("IRQ_STATUS", 7)
            await host.works()
    # The program's own, behind a request, and with one pending, which is not lost in silence.
    bad = [timer(ARRAY, 300), pause(), timer(ARRAY, 3), command(ARRAY, 2), end()]
    await queue(host, timer(HEAD, 20), end())
    await host.start(*bad)
    await host.set("CONTROL", RING)
    await until_clear(host, "busy")
    assert await host.get("ERROR_CODE") == Error.BAD_OPERAND and await host.get("ERROR_COMMAND") == 3
    assert await bits(host, "error", "request_done", "request_error") == (1, 1, 0)
    await host.set("IRQ_STATUS", 7)
    await host.start(timer(ARRAY, 200), command(ARRAY, 2), end())
    await host.set("CONTROL", RING)
    await until_clear(host, "busy")
    assert await host.get("ERROR_COMMAND") == 1
    assert await bits(host, "error", "request_done", "request_error", "request_busy") == (1, 0, 1, 0)
    await host.set("IRQ_STATUS", 7)
    await host.works()


@cocotb.test()
async def bells_and_resets_in_any_order_hang_nothing(dut):
    host = await begin(dut, model=True)
    rng = random.Random(1)
    await queue(host, load(0x1000, 30, 0), timer(HEAD, 25), store(0x6000, 30, 0), end())
    program = [step for _ in range(4) for step in (load(0x1000, 70, 0), timer(ARRAY, 60), pause())]
    for _ in range(60):
        dut.stall.value = rng.choice((0, 90))
        dut.read_latency.value = rng.choice((3, 40, 150))
        if not (await bits(host, "busy"))[0]:
            await host.put(PROGRAM, b"".join([*program, end()]))
            await host.set("PROGRAM_COMMANDS", len(program) + 1)
        for _ in range(rng.randrange(1, 6)):
            bells = (BELL, BELL, RING, RING, BELL | RING, RESET, BELL | RESET, RING | RESET)
            await host.set("CONTROL", rng.choice(bells))
            await ClockCycles(dut.clk, rng.choice((0, 1, 2, 5, 30, 100, 250)))
        await until_clear(host, "busy")
        await until_clear(host, "request_busy")
        # An engines' reset while idle takes a few cycles.
        await ClockCycles(dut.clk, 20)
        assert (await host.get("ERROR_CODE")) in (Error.NONE, Error.ABORTED)
        await host.set("IRQ_STATUS", 7)
    await host.set("IRQ_ENABLE", 3)
    await host.works()
    # A reset while the machine changes over stops both.
    await host.set("IRQ_ENABLE", 7)
    dut.stall.value = 0
    dut.read_latency.value = 100
    for wait in range(100, 240, 12):
        await host.start(timer(ARRAY, 60), pause(), timer(ARRAY, 2000), end())
        await host.set("CONTROL", RING)
        await ClockCycles(dut.clk, wait)
        await host.set("CONTROL", RESET)
        await until_clear(host, "busy")
        assert await bits(host, "error", "done", "request_busy") == (1, 0, 0)
        assert await host.get("ERROR_CODE") == Error.ABORTED
        await host.set("IRQ_STATUS", 7)
    # One that waits does not run, either, if the reset comes behind END, while what was fetched beyond it comes.
    await queue(host, timer(HEAD, 2000), end())
    for wait in range(0, 240, 12):
        await host.start(timer(ARRAY, 60), *[end()] * 60)
        await host.set("CONTROL", RING)
        await ClockCycles(dut.clk, wait)
        await host.set("CONTROL", RESET)
        await until_clear(host, "busy")
        await until_clear(host, "request_busy")
        assert await bits(host, "request_done", "request_error") == (0, 1)
        assert await host.get("ERROR_CODE") == Error.ABORTED
        await host.set("IRQ_STATUS", 7)


@cocotb.test()
async def valid_bits_and_predicates_are_shared(dut):
    host = await begin(dut)
    await host.set("CACHE_CLEAR", 1)
    await ask(host, control(MARK, 5, 3), end())
    await until_clear(host, "request_busy")
    await host.set("IRQ_STATUS", 7)
    assert await host.run(control(LOOKUP, 4, 5), end()) is Error.NONE
    assert await host.get("CACHE_HITS") == 3


@cocotb.test()
async def a_long_program_goes_on_where_it_was(dut):
    """Its place is beyond what was fetched ahead, in a burst and between two; the last yield stands before END."""
    host = await begin(dut)
    await queue(host, timer(HEAD, 4), end())
    for length in (1, 6, 7, 8, 15, 16, 31, 40):
        marks = [control(MARK, slot, 1) for slot in range(length)]
        await host.set("CACHE_CLEAR", 1)
        await host.start(timer(ARRAY, 250), *marks, pause(), *marks, pause(), control(LOOKUP, 0, length), end())
        await host.set("CONTROL", RING)
        await RisingEdge(dut.clk)
        await settle(host)
        assert await host.get("CACHE_HITS") == length
        assert await host.get("COMMANDS_DONE") == 2 * length + 5 + 2
