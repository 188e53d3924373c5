"""Records that STORE forwards from engine to engine: every byte, every command's cycles, every refusal."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.firmware.device.host import Accelerator, ProgramError
from gradloom.program.placed import PlacedProgram
from gradloom.rtl.formats.tiles.records import TileArgument, tile_argument
from gradloom.rtl.shell.engines import LOAD, STORE
from gradloom.sim.run.builds.designs import design
from gradloom.sim.run.device import SimulatedDevice, build_device
from gradloom.sim.run.machine import MachineRunner

from ..deep import deep
from .forwarding import CONFIG, MACHINE, Chain

PRODUCT, ELEMENT, NORM = MACHINE.engines.own
MEMORY = {
    "fast": {},
    "near": {"read_latency": 3, "write_latency": 1},
    "far": {"read_latency": 150, "write_latency": 600},
    "few": {"read_latency": 90, "port_reads": 3},
}
STALLS = [
    {"stall": 128, "seed": 5},
    {"stall": 240, "seed": 9, "read_latency": 90, "write_latency": 400, "port_reads": 3},
]

_USUAL = {"read_latency": 40, "write_latency": 10, "port_reads": 0, "stall": 0, "spread": 0}


def chains(rounds=3):
    return [Chain(0, rounds, only=False), *(Chain(seed, rounds) for seed in (1, 2))]


def agrees(machine, program):
    """Memory is the models': what they store, and nothing where a record is only forwarded."""
    ran = machine.run(program)
    for place, content in program.expected:
        assert machine.read(place.offset, place.length) == content
    for place in program.untouched:
        assert not any(machine.read(place.offset, place.length))
    health = {
        name: sum(getattr(each, name, 0) for each in program.models.values()) for name in ("saturated", "underflowed")
    }
    return ran, ran.check(**health)


@pytest.mark.parametrize("memory", MEMORY)
def test_forwards_and_cycles_are_those_of_the_models(memory):
    programs = chains()
    assert any(program.untouched for program in programs)
    with MachineRunner.simulated(CONFIG, timing=MEMORY[memory]) as machine:
        for program in programs:
            ran, checked = agrees(machine, program)
            assert checked["commands"] == len(program)
            # What is only forwarded is no beat of the bus.
            stored = [each.operands for each in program.instructions if each.engine == STORE]
            assert ran.counters.write_beats == sum(each["beats"] for each in stored if not each.get("only"))


@deep
@pytest.mark.parametrize("ports", [2, 4])
def test_several_ports_bring_the_same_in_the_cycles_of_the_models(ports):
    config = replace(CONFIG, ports=ports)
    with MachineRunner.simulated(config) as machine:
        for memory in (*MEMORY.values(), *STALLS, {"read_latency": 20, "spread": 180}):
            for name, value in (_USUAL | memory).items():
                machine.device.set(name, value)
            for program in (Chain(0, 3, only=False, config=config), Chain(1, 3, config=config)):
                checked = agrees(machine, program)[1]
                assert checked["commands"] == (len(program) if machine.device.memory else 0)


@pytest.mark.parametrize("memory", STALLS, ids=str)
def test_forwards_are_those_of_the_models_while_memory_stalls(memory):
    with MachineRunner.simulated(CONFIG, timing=memory) as machine:
        for program in chains():
            # Such a memory has no forecast.
            assert agrees(machine, program)[1]["commands"] == 0


@pytest.fixture
def host():
    built = build_device(design(CONFIG), data_bits=CONFIG.data_bits, address_bits=CONFIG.address_bits)
    with SimulatedDevice(built) as device:
        yield Accelerator(device)


def run(host, program):
    for offset, content in program.contents():
        host.store(offset, content)
    return host.run(program.offset, len(program))


def lives(host, seed=3):
    """The machine runs a program that forwards."""
    program = Chain(seed, 1)
    host.store(0, bytes(program.length))
    run(host, program)
    for place, content in program.expected:
        assert host.fetch(place.offset, place.length) == content


_SHAPE = {"rows": 63, "features": 15, "wide": 1}
#: Beats of the record.
BEATS = 65
GOOD = {
    "offset": 1 << 16,
    "beats": BEATS,
    "source": ELEMENT.store("o"),
    "arg": _SHAPE,
    "to": NORM.load("a"),
    "to_arg": _SHAPE,
    "forward": 1,
}
#: What makes a good STORE a bad one.
WRONG = {
    "a port that takes none": {"to": NORM.load("gain")},
    "another that takes none": {"to": ELEMENT.load("words")},
    "no port": {"to": len(MACHINE.engines.loads)},
    "the last number": {"to": 255},
    "no slot": {"to_arg": _SHAPE | {"slot": 16}},
    "far beyond the slots": {"to_arg": _SHAPE | {"slot": 255}},
    "other rows": {"to_arg": _SHAPE | {"rows": 62}},
    "other features": {"to_arg": _SHAPE | {"features": 16}},
    "wide codes for a port of narrow ones": {"to": PRODUCT.load("x")},
    "narrow codes for a port of wide ones": {"arg": _SHAPE | {"wide": 0}, "to": NORM.load("b")},
    "only, and no forward": {"forward": 0, "only": 1},
    "more beats": {"beats": BEATS + 1},
    "no result slot": {"arg": _SHAPE | {"slot": 4}},
    "no source": {"source": len(MACHINE.engines.stores)},
}


def _store(program, **operands):
    packed = {
        name: int(TileArgument.const({"slot": 0, "_pad": 0} | value).as_bits()) if isinstance(value, dict) else value
        for name, value in operands.items()
    }
    program.add(STORE, **packed)


@pytest.mark.parametrize("only", [0, 1])
@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_forwarded_is_refused(host, case, only):
    program = PlacedProgram(CONFIG)
    more = program.put(np.arange(64))
    program.room(1 << 15)
    for slot in (1, 2):
        program.load(more, "norm", "a", arg=tile_argument(slot, 64, 64))
    good = GOOD | {"only": only}
    _store(program, **good)
    _store(program, **good | {"offset": (1 << 16) + 4096} | WRONG[case])
    _store(program, **good)
    program.end()
    with pytest.raises(ProgramError) as error:
        run(host, program)
    assert (error.value.name, error.value.command, error.value.offset) == ("BAD_OPERAND", 3, (1 << 16) + 4096)
    lives(host)


@pytest.mark.parametrize(
    "change, name",
    [({"offset": 8}, "STORE_ALIGNMENT"), ({"offset": (1 << 32) - 32}, "STORE_WINDOW"), ({"beats": 0}, "STORE_LENGTH")],
)
def test_a_place_is_judged_where_memory_is_written(host, change, name):
    for only in (0, 1):
        program = PlacedProgram(CONFIG)
        program.room(1 << 15)
        _store(program, **GOOD | {"only": only} | change)
        program.end()
        if only and "offset" in change:
            run(host, program)
            continue
        with pytest.raises(ProgramError) as error:
            run(host, program)
        assert (error.value.name, error.value.command) == (name, 0)
    lives(host)


def test_an_abort_in_the_middle_leaves_nothing_behind(host):
    """LOAD fails after ever more beats, before, in and behind a forward."""
    for only in (0, 1):
        for beats in (*range(8, 40, 3), 150, 200):
            program = PlacedProgram(CONFIG)
            program.room(1 << 15)
            more = program.put(np.zeros(8 * beats, int))
            _store(program, **GOOD | {"only": only})
            program.load(more, "norm", "a", arg=tile_argument(1, 64, 64))
            program.add(LOAD, offset=0, beats=1, dest=99)
            program.end()
            with pytest.raises(ProgramError) as error:
                run(host, program)
            assert (error.value.name, error.value.command) == ("BAD_OPERAND", 2)
    lives(host)
