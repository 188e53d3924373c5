"""What order, slots and tokens make of small steps: who changes one of them sees by how many cycles and beats."""

from dataclasses import replace

import pytest

from gradloom.graph.operations import Add
from gradloom.rtl.shell.engines import LOAD, STORE
from gradloom.sim.time.forecast import USUAL, MemoryTime, forecast
from gradloom.sim.time.shell.dram import Dram
from gradloom.sim.time.tiles import TileRecords
from gradloom.systems.networks.program.prepared import Prepared, learning_of

from ...compiler.nets import conv, headed, tensor
from ...compiler.test_rtl import network
from ...tiles import LEAST

WIDE = replace(LEAST, array_columns=32, x_slots=32, w_slots=64, element_slots=8, norm_slots=8, forwards=1)


def images():
    """Convolutions beside each other, over several tiles of rows and channels."""
    x = tensor("x", 8, 8, 3)
    first = conv(x, "first", 70, 3, pads=1, positive=True)
    wide, short = conv(first.o, "wide", 70, 3, pads=1, stride=2), conv(first.o, "short", 70, 1, stride=2)
    total = Add((wide.o, short.o), tensor("total", 4, 4, 70), positive=True)
    return headed([first, wide, short, total], [x], 10)


#: Network, machine, what learns, and cycles, beats read and written, commands of a step of 4 samples.
STEPS = {
    "a norm, few slots": (network, LEAST, "second,last", (14169, 2914, 1570, 447)),
    "a norm, forwards": (network, WIDE, "*", (17689, 2250, 1173, 628)),
    "images, forwards": (images, WIDE, "*", (76749, 10275, 4998, 1073)),
    "images, results leave": (images, replace(WIDE, forwards=0), "last:2", (13495, 5178, 2408, 269)),
}


#: Of the memory behind the ports.
MEMORIES = {
    "usual": USUAL,
    "at once": MemoryTime(read_latency=1, write_latency=1),
    "few reads": MemoryTime(read_latency=30, port_reads=2),
    "a DRAM": MemoryTime(dram=Dram(1000, 100, 128, 5, 7, 12, 3)),
}


def program_of(name, **more):
    """The program of a step."""
    make, config, targets, _ = STEPS[name]
    prepared = Prepared(learning_of(make(), "classes", "lora", targets=targets, rank=2), "classes")
    return prepared.programs(replace(config, **more), 4, prepared.rules(1e-2), batches=1).step.program


@pytest.mark.parametrize("name", STEPS)
def test_a_step_takes_so_many_cycles_and_beats(name):
    program, wanted = program_of(name), STEPS[name][-1]
    loads, stores = (
        sum(
            each.operands["beats"]
            for each in program.instructions
            if each.engine == engine and not each.operands.get("only")
        )
        for engine in (LOAD, STORE)
    )
    assert (forecast(program).total, loads, stores, len(program.instructions)) == wanted


@pytest.mark.parametrize("ports", [1, 2])
@pytest.mark.parametrize("name", ["a norm, few slots", "images, forwards"])
def test_what_store_takes_ahead_it_takes_as_beat_by_beat(name, ports, monkeypatch):
    program = program_of(name, ports=ports)
    ahead = {memory: forecast(program, memory=each) for memory, each in MEMORIES.items()}
    monkeypatch.setattr(TileRecords, "alone", False)
    for memory, made in ahead.items():
        slow = forecast(program, memory=MEMORIES[memory])
        assert (made.total, made.phases, made.commands) == (slow.total, slow.phases, slow.commands), memory
