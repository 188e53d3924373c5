"""Laws of the shell around any number of engines: table, numbers, queues, phases, errors."""
import os

import cocotb
from cocotb.triggers import RisingEdge

from gradloom.firmware.machine import parse_table
from gradloom.rtl.shell.registers.errors import Error
from gradloom.rtl.shell.table import machine_table

from .bench import BAD
from .family import family
from .program import command, end, timer
from .shell_laws import Host

ENGINES = family(int(os.environ["ENGINES"]))


@cocotb.test()
async def the_table_tells_the_machine(dut):
    host = await Host(dut).begin()
    text = await host.table()
    assert text == machine_table(ENGINES, {"rows": 25, "rank": 4}, (5, 4))
    table = parse_table(text)
    assert table.phases == ENGINES.phases
    assert table.engine_names == tuple(each.name for each in ENGINES)
    assert await host.get("MACHINE") == 1 | 1 << 8 | len(ENGINES.own) << 16 | len(ENGINES.phases) << 24


@cocotb.test()
async def every_engine_runs_and_counts_for_its_phases(dut):
    host = await Host(dut).begin()
    lengths, steps, token = {}, [], 0
    for engine in ENGINES.own:
        for phase, name in enumerate(engine.spec.phases):
            lengths[name] = 30 + 7 * len(lengths)
            steps.append(timer(engine, lengths[name], phase=phase, wait=1 << token if steps else 0, post=2 << token))
            token += 1
    seen = []

    async def watch():
        while True:
            await RisingEdge(dut.clk)
            events = int(dut.events.value)
            seen.extend((kind, number) for kind, shift in (("started", 0), ("done", 16)) for number in range(16)
                        if events >> shift + number & 1)

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
