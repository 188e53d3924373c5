"""Laws of the shell in time: each transfer starts and ends in the cycle of the forecast (run by cocotb)."""

import random
from collections import deque

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge

from gradloom.program.assembler import Assembler
from gradloom.rtl.machines.images import IMAGES
from gradloom.rtl.shell.engines import CONTROL, LOAD, STORE
from gradloom.rtl.shell.registers.errors import Error
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.sim.time.shell.bus import MemoryTime
from gradloom.sim.time.shell.dram import Dram
from gradloom.sim.time.shell.shell import Queue, ShellMachine
from gradloom.sim.time.timing import Timing, compare

from ..host import BITS, BURST, PORT_STEP, PORTS, PROGRAM, STEP, Host

SHELL = {"data_bits": BITS, "depth": 16, "slots": 16384, "outstanding": 16, "ports": PORTS, "port_bits": 8 * PORT_STEP}


class Pad(Queue):
    """The bench's scratchpad gives a beat a cycle from the cycle after a request on."""

    def begin(self, cycle, beats):
        self.times = deque([cycle + 1] * beats)


def transfers(seed, count):
    """Transfers of any length from any beat, and short ones in a row that all are of one port."""
    generator, program = random.Random(seed), Assembler()
    while len(program) < count:
        kind = generator.choice(("any", "any", "long", "one port", "fence"))
        if kind == "fence":
            program.add(CONTROL, ControlOpcode.FENCE)
            continue
        load = generator.random() < 0.5
        first, room = (0, 0x8000) if load else (0x10000, 0x10000)
        times = generator.randint(2, 24) if kind == "one port" else 1
        lane = generator.randrange(4)
        for n in range(times):
            beats = {"any": generator.randint(1, 5 * BURST), "long": 30 * BURST, "one port": BURST}[kind]
            place = (4 * n + lane) * BURST if kind == "one port" else generator.randrange(room // STEP - beats)
            where = {"offset": first + place * STEP, "beats": beats}
            program.add(LOAD, dest=0, arg=0, **where) if load else program.add(STORE, source=0, arg=0, **where)
    program.add(CONTROL, ControlOpcode.END)
    return program


#: Refreshed often; pages of 512 bytes in 4 banks, which each transfer crosses, and a bus that is as fast as the port.
DRAM = Dram(refresh_every=300, refresh_for=70, beat=256, turn=9, miss=13, page=9, bank=2)
#: Fast, with long refreshes, which close large pages.
FAST = Dram(refresh_every=700, refresh_for=200, beat=43, turn=0, miss=90, page=13, bank=3)


def forecast(program, memory):
    machine = ShellMachine(program.instructions, IMAGES, SHELL, PROGRAM, memory)
    machine.queues[0] = Pad(machine)
    total = machine.run()
    return Timing(
        total=total,
        phases=dict(zip(IMAGES.phases, machine.phase_cycles)),
        commands=machine.command_times(),
        clock_mhz=1,
        engines=IMAGES,
        instructions=program.instructions,
        read_beats=machine.bus.read_beats,
        write_beats=machine.store.write_beats,
        held=0,
        array_cycles=0,
    )


@cocotb.test()
async def transfers_take_as_long_as_forecast(dut):
    """Of any length, also many of one port, on near and far memory, where a port keeps few reads, and from a DRAM."""
    host = await Host(dut, model=True).begin()
    events = []

    async def watch():
        cycle = 0
        while True:
            await RisingEdge(dut.clk)
            cycle += 1
            if found := int(dut.events.value):
                events.append(cycle << 32 | found)

    job = cocotb.start_soon(watch())
    memories = ((1, 0, None), (40, 0, None), (200, 0, None), (9, 3, None), (200, 8, None), (40, 0, DRAM), (9, 3, FAST))
    for seed, (latency, port_reads, dram) in enumerate(memories):
        dut.read_latency.value = dut.write_latency.value = latency
        dut.port_reads.value = port_reads
        dut.dram.value = dram.word if dram else 0
        program = transfers(seed, 40)
        memory = MemoryTime(read_latency=latency, write_latency=latency, port_reads=port_reads, dram=dram)
        told = forecast(program, memory)
        await host.put(PROGRAM, program.code)
        await host.set("PROGRAM_COMMANDS", len(program))
        for _ in range(dram.refresh_every if dram else 0):
            # As new.
            await RisingEdge(dut.clk)
        events.clear()
        await host.set("CONTROL", 1)
        assert await host.finish() is Error.NONE
        beside = compare(told, np.array(events, np.uint64))
        wrong = np.flatnonzero((beside.started != 0) | (beside.done != 0))
        assert not wrong.size, [
            (n, program.instructions[beside.index[n]], beside.started[n], beside.done[n]) for n in wrong[:4]
        ]
        assert await host.get64("CYCLES") == told.total
        assert await host.get("READ_BEATS") == told.read_beats
        assert await host.get("WRITE_BEATS") == told.write_beats
    job.cancel()
