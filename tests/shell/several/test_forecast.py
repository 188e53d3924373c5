"""The forecast of several ports beside arithmetic; beside the RTL in ``laws/time_laws.py``."""

from collections import deque

import pytest

from gradloom.program.assembler import Assembler
from gradloom.rtl.machines.images import IMAGES
from gradloom.rtl.shell.bus.read_dma import ReadDMA
from gradloom.rtl.shell.engines import CONTROL, LOAD, STORE
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.sim.time.shell.bus import MemoryTime
from gradloom.sim.time.shell.shell import Queue, ShellMachine


class Source(Queue):
    """A beat a cycle."""

    def begin(self, cycle, beats):
        self.times = deque([cycle + 1] * beats)


def cycles(engine, offsets, beats, *, data_bits=256, ports=2, latency=20, port_reads=0):
    """Cycles from the first start to the last done of a transfer from each offset."""
    program = Assembler()
    for offset in offsets:
        program.add(engine, offset=offset, beats=beats, arg=0, **{"dest" if engine == LOAD else "source": 0})
    program.add(CONTROL, ControlOpcode.END)
    shell = {"data_bits": data_bits, "depth": 16, "slots": 64, "outstanding": 16, "ports": ports, "port_bits": 128}
    memory = MemoryTime(read_latency=latency, write_latency=latency, port_reads=port_reads)
    machine = ShellMachine(program.instructions, IMAGES, shell, 1 << 16, memory)
    machine.queues[0] = Source(machine)
    machine.run()
    times = machine.command_times()[:-1]
    return times[-1][1] - times[0][0]


@pytest.mark.parametrize("latency", [1, 20, 100])
def test_a_lone_transfer(latency):
    """Two cycles more than by one port; a burst of a narrow port takes its 16 parts, each further one 8 beats."""
    for beats in (1, 40, 256):
        assert cycles(LOAD, [0], beats, data_bits=128, latency=latency) == ReadDMA.cycles(beats, latency + 1) + 2
    for bursts in (1, 2, 9, 20):
        promised = ReadDMA.cycles(16 + 8 * (bursts - 1), latency + 1) + 2
        assert cycles(LOAD, [0], 8 * bursts, latency=latency) == promised


def test_ports_with_8_reads_are_two_of_them():
    """At 200 cycles 8 bursts of 16 beats are a share of one port's cycles; two ports have all of a stream as wide."""
    near, one, two = (
        cycles(LOAD, [0], 6400, data_bits=128, ports=ports, latency=latency, port_reads=8)
        for ports, latency in ((1, 20), (1, 200), (2, 200))
    )
    assert one > 1.5 * near and two < 1.05 * near


@pytest.mark.parametrize("engine", [LOAD, STORE])
def test_transfers_at_a_stride_of_the_ports_use_one(engine):
    apart = [512 * n for n in range(64)]
    beside = [256 * n for n in range(64)]
    slow, fast = (cycles(engine, each, 8, latency=1) for each in (apart, beside))
    # A burst of a port is 16 beats of it.
    assert slow >= 16 * 63 and fast < 0.85 * slow
