"""Laws of the shell around any number of engines: table, numbers, queues, phases, errors."""

import os
import random

import cocotb
from cocotb.triggers import RisingEdge

from gradloom.firmware.device.machine import parse_table
from gradloom.rtl.shell.registers.errors import Error
from gradloom.rtl.shell.table import PROGRAM_FORMAT, TABLE_FORMAT, machine_table

from ..family import DEPTH, family, machine, stored
from ..host import BASE, STEP, Host
from ..program import command, end, load, store, timer
from ..timer import BAD

ENGINES = family(int(os.environ["ENGINES"]))
MACHINE = machine(ENGINES)


@cocotb.test()
async def the_table_tells_the_machine(dut):
    host = await Host(dut).begin()
    text = await host.table()
    assert text == machine_table(ENGINES, {"rows": 25, "rank": 4}, MACHINE.loop(None))
    table = parse_table(text)
    assert table.phases == ENGINES.phases
    assert table.engine_names == tuple(each.name for each in ENGINES)
    assert table.loads == tuple(map(str, ENGINES.loads))
    assert table.stores == tuple(map(str, ENGINES.stores))
    formats = TABLE_FORMAT | PROGRAM_FORMAT << 8
    assert await host.get("MACHINE") == formats | len(ENGINES.own) << 16 | len(ENGINES.phases) << 24


@cocotb.test()
async def every_engine_runs_and_counts_for_its_phases(dut):
    host = await Host(dut).begin()
    lengths, steps, token = {}, [], 0
    for engine in ENGINES.own:
        for phase, name in enumerate(engine.spec.phases):
            lengths[name] = 30 + 7 * len(lengths)
            # An engine's only phase counts whatever its commands say.
            said = phase if len(engine.spec.phases) > 1 else 5
            steps.append(timer(engine, lengths[name], phase=said, wait=1 << token if steps else 0, post=2 << token))
            token += 1
    seen = []

    async def watch():
        while True:
            await RisingEdge(dut.clk)
            events = int(dut.events.value)
            seen.extend(
                (kind, number)
                for kind, shift in (("started", 0), ("done", 16))
                for number in range(16)
                if events >> shift + number & 1
            )

    cocotb.start_soon(watch())
    assert await host.run(*steps, end()) is Error.NONE
    own = [(kind, int(engine)) for engine in ENGINES.own for _ in engine.spec.phases for kind in ("started", "done")]
    assert [each for each in seen if each[1] >= 3] == own
    counted = {name: await host.get(f"PHASE_CYCLES{n}") for n, name in enumerate(ENGINES.phases)}
    assert {name: counted[name] for name in lengths} == {name: cycles + 1 for name, cycles in lengths.items()}
    assert sum(counted.values()) == await host.get64("CYCLES")


@cocotb.test()
async def errors_name_the_command_and_unknown_engines_are_refused(dut):
    host = await Host(dut).begin()
    for engine in ENGINES.own:
        assert await host.run(timer(engine, 5), command(engine, BAD), end()) is Error.BAD_OPERAND
        assert await host.get("ERROR_COMMAND") == 1
        assert await host.run(command(engine, 77), end()) is Error.UNKNOWN_OPCODE
    for number in range(len(ENGINES), 16):
        assert await host.run(command(number), end()) is Error.UNKNOWN_ENGINE


def _words(rng, count):
    return [rng.getrandbits(8 * STEP) for _ in range(count)]


def _bytes(words):
    return b"".join(word.to_bytes(STEP, "little") for word in words)


@cocotb.test()
async def every_port_gets_its_beats_and_gives_its_own(dut):
    """Each load port is filled, then each store port is emptied, in parts, ports in turn."""
    host = await Host(dut).begin()
    rng, source, target = random.Random(5), 0x10000, 0x18000
    loaded, steps = {}, []
    # In two parts: the second half of every port first.
    for arg in (DEPTH // 2, 0):
        for number in ENGINES.loads:
            words = _words(rng, DEPTH // 2)
            loaded.setdefault(number, {}).update({arg + n: word for n, word in enumerate(words)})
            await host.put(source, _bytes(words))
            steps.append(load(source, len(words), arg, port=number))
            source += len(words) * STEP
    assert source <= target and await host.run(*steps, end()) is Error.NONE
    steps, expected = [], []
    for arg, beats in ((3, 9), (0, 1), (DEPTH - 5, 5)):
        for engine in ENGINES.own:
            contents = [loaded[number] for number in engine.loads]
            for port, number in enumerate(engine.stores):
                steps.append(store(target + len(expected) * STEP, beats, arg, port=number))
                expected += [stored(int(engine) - 3, port, len(ENGINES.own), arg + n, contents) for n in range(beats)]
    assert await host.run(*steps, end()) is Error.NONE
    assert await host.peek(target, len(expected) * STEP) == _bytes(expected)


@cocotb.test()
async def what_has_no_place_is_refused_with_its_address(dut):
    host = await Host(dut).begin()

    async def refused(step, command_number, address):
        assert await host.run(*[timer(ENGINES.own[0], 3)] * command_number, step, end()) is Error.BAD_OPERAND
        assert await host.get("ERROR_COMMAND") == command_number
        assert await host.get64("ERROR_ADDRESS") == BASE + address

    for number in (len(ENGINES.loads), 255):
        await refused(load(0x4000, 3, 0, port=number), 1, 0x4000)
    for number in (len(ENGINES.stores), 255):
        await refused(store(0x5000, 3, 0, port=number), 2, 0x5000)
    for number in ENGINES.loads:
        await refused(load(0x4000, 3, DEPTH - 2, port=number), 0, 0x4000 + 2 * STEP)
    for number in ENGINES.stores:
        await refused(store(0x5000, 3, DEPTH - 2, port=number), 0, 0x5000)


@cocotb.test()
async def what_the_loop_is_given_comes_back(dut):
    host = await Host(dut).begin()
    loop = parse_table(await host.table()).loop
    size = loop.bits // 8
    words = [(3331 * n + 1285) % 0x7FFF for n in range(loop.beats * STEP // size)]
    await host.put(0x4000, b"".join(word.to_bytes(size, "little") for word in words))
    assert (
        await host.run(
            load(0x4000, loop.beats, loop.arg, port=loop.dest, post=1),
            store(0x5000, loop.beats, loop.arg, port=loop.source, wait=1),
            end(),
        )
        is Error.NONE
    )
    got = await host.peek(0x5000, loop.beats * STEP)
    for n, word in enumerate(words):
        if n % loop.group < loop.kept:
            assert got[size * n : size * (n + 1)] == word.to_bytes(size, "little")
