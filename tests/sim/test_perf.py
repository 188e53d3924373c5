"""The forecast against traces of the RTL: every command to the cycle."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.firmware.device.host import Accelerator
from gradloom.models.onnx_import import load_pretrained
from gradloom.program.assembler import Assembler, Instruction
from gradloom.program.progress import StuckError
from gradloom.rtl.engines.array.commands import ArrayOpcode
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.machines.images import ARRAY, ENCODE, HEAD, IMAGES
from gradloom.rtl.shell.engines import CONTROL, LOAD, STORE
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.sim.run.machine import MachineRunner
from gradloom.sim.time.forecast import MemoryTime, forecast
from gradloom.sim.time.shell.dram import Dram
from gradloom.sim.time.timing import compare
from gradloom.systems.images.program.lowering import lower
from gradloom.systems.images.program.program import Settings, plan_finetune
from gradloom.systems.images.simulated import run_plan

from ..systems.images import conftest as small


@pytest.fixture(scope="session")
def built():
    return small.Machine(small.SMALL)


def plan_of(network, config, *, samples, rank=2, wide=False, **settings):
    """A fine-tune on made-up images."""
    rng = np.random.default_rng(samples)
    lowered = lower(network, config, rank, wide=wide)
    images = rng.integers(0, 65536, (samples, *network.input_shape))
    labels = rng.integers(0, network.classes, samples)
    a = [rng.integers(-900, 900, (rank, tap.elements)) for tap in lowered.taps]
    b = [rng.integers(-900, 900, (network.classes, rank)) for _ in lowered.taps]
    return plan_finetune(lowered, Settings(samples=samples, **settings), images, labels, a, b)


def simulated_run(built, timing, *, convs=2, **settings):
    """``(plan, result)`` of the RTL on memory of fixed latency."""
    plan = plan_of(small.small_network(convs=convs), built.config, **settings)
    with MachineRunner.simulated(built.config, built.files, timing=timing) as machine:
        return plan, run_plan(plan, machine)


@pytest.mark.parametrize(
    "read_latency, write_latency, port_reads, settings",
    [
        (40, 10, 0, {"samples": 20, "epochs": 2, "batch": 5}),
        # Microbatches, momentum, two adapters a tap, and samples that are computed each time.
        (40, 10, 0, {"samples": 14, "epochs": 2, "batch": 12, "momentum": 0.9, "slots": 5, "convs": 1, "rank": 4}),
        (3, 1, 0, {"samples": 20, "epochs": 2, "batch": 3, "convs": 0}),
        (40, 10, 0, {"samples": 20, "epochs": 2, "batch": 5, "wide": True}),
        (
            3,
            1,
            0,
            {"samples": 14, "epochs": 2, "batch": 12, "momentum": 0.9, "slots": 5, "convs": 1, "rank": 4, "wide": True},
        ),
        # Commands are fetched between the bursts of loads, and stores lag behind.
        (120, 900, 0, {"samples": 30, "epochs": 1, "batch": 4}),
        # The memory's port keeps fewer reads in flight than LOAD asks for.
        (200, 30, 8, {"samples": 20, "epochs": 2, "batch": 5}),
        (60, 10, 3, {"samples": 14, "epochs": 2, "batch": 12, "momentum": 0.9, "slots": 5, "convs": 1, "rank": 4}),
        (3, 1, 1, {"samples": 20, "epochs": 2, "batch": 3, "convs": 0}),
    ],
)
def test_forecast_is_the_rtl(built, read_latency, write_latency, port_reads, settings):
    timing = {"read_latency": read_latency, "write_latency": write_latency, "port_reads": port_reads}
    plan, result = simulated_run(built, timing, **settings)
    told = forecast(plan, memory=MemoryTime(**timing))
    found = compare(told, result.ran.trace)
    assert told.held == 0
    for engine, opcode in (
        (ARRAY, ArrayOpcode.FORWARD),
        (ARRAY, ArrayOpcode.GRADIENT),
        (ARRAY, ArrayOpcode.CONVOLVE),
        (ARRAY, ArrayOpcode.DENSE),
        (HEAD, 0),
        (ENCODE, None),
        (LOAD, None),
        (STORE, None),
    ):
        assert found.equal(engine, opcode) == 1, f"{engine.name} {opcode}"
    assert found.exact == 1
    assert result.metrics["cycles"] == {"total": told.total, **told.phases}


@pytest.mark.parametrize("port_reads", [0, 8])
def test_forecast_is_the_rtl_with_a_dram(built, port_reads):
    """Loads, stores and fetches share its bus, after a rest that makes it as new; of ports see ``time_laws.py``."""
    dram = Dram(refresh_every=400, refresh_for=90, beat=250, turn=9, miss=15, page=10, bank=2)
    timing = {"read_latency": 40, "write_latency": 10, "port_reads": port_reads}
    plan = plan_of(small.small_network(convs=1), built.config, samples=14, epochs=2, batch=12, slots=5)
    with MachineRunner.simulated(built.config, built.files, timing=timing | {"dram": dram.word}) as machine:
        result = run_plan(plan, machine)
        ended = machine.device.cycles
        machine.device.rest()
        assert machine.device.cycles - ended == dram.refresh_every
    told = forecast(plan, memory=MemoryTime(**timing, dram=dram))
    assert told.total > forecast(plan, memory=MemoryTime(**timing)).total
    assert compare(result.ran.forecast, result.ran.trace).exact == 1
    assert result.ran.forecast.commands == told.commands


def test_predicates_and_valid_bits_are_the_rtl(built):
    asm = Assembler()

    def load(beats, **more):
        asm.add(LOAD, 0, offset=48, beats=beats, dest=ARRAY.load("image"), **more)

    asm.add(CONTROL, ControlOpcode.MARK, slot=3, count=70)
    load(1, slots=(3, 70))
    load(30, slots=(3, 71))
    # The first slot of a word, a word and the first slot of the next, a range without its first slot.
    for slots in ((32, 1), (0, 33), (2, 2)):
        load(1, slots=slots)
    asm.add(CONTROL, ControlOpcode.LOOKUP, slot=30, count=34, slots=(0, 2))
    asm.add(CONTROL, ControlOpcode.FENCE, slots=(4, 1))
    asm.add(CONTROL, ControlOpcode.CLEAR)
    load(2, slots=(3, 70), post=(5,))
    asm.add(CONTROL, ControlOpcode.FENCE, wait=(5,))
    asm.add(CONTROL, ControlOpcode.END)
    told = forecast(asm.instructions, config=built.config, program_offset=4096)
    assert [n for n, times in enumerate(told.commands) if times is None] == [1, 3, 7]
    with built.device() as device:
        host = Accelerator(device)
        host.store(4096, asm.code)
        device.set("trace", 1)
        counters = host.run(4096, len(asm), timeout=60)
        found = compare(told, device.take_trace())
    assert found.exact == 1
    assert counters.metrics()["cycles"] == {"total": told.total, **told.phases}


def test_preset_workload():
    config = ImageConfig()
    plan = plan_of(load_pretrained(), config, samples=40, rank=4, epochs=2, batch=20)
    told = forecast(plan)
    assert tuple(told.phases) == IMAGES.phases
    assert sum(told.phases.values()) == told.total
    assert told.seconds == pytest.approx(told.total / (config.clock_mhz * 1e6))
    assert told.held == 0
    last = {engine: -1 for engine in IMAGES}
    for command, times in zip(plan.assembler.instructions, told.commands):
        started, done = times
        assert last[command.engine] < started < done < told.total
        last[command.engine] = started
    # Slower memory takes longer, and a forecast is the same each time.
    assert forecast(plan, memory=MemoryTime(read_latency=400, write_latency=400)).total > told.total
    assert forecast(plan).commands == told.commands
    # A port that keeps as many reads as LOAD asks for changes nothing; one that keeps half of them bounds far memory.
    far = MemoryTime(read_latency=200)
    free, held = forecast(plan, memory=far), forecast(plan, memory=replace(far, port_reads=8))
    assert forecast(plan, memory=replace(far, port_reads=config.outstanding)).commands == free.commands
    assert held.total > 1.1 * free.total
    fewer = plan_of(load_pretrained(), config.replace(outstanding=8), samples=40, rank=4, epochs=2, batch=20)
    assert held.total == pytest.approx(forecast(fewer, memory=far).total, rel=0.01)


def test_refuses_what_never_ends():
    with pytest.raises(StuckError, match="command 0: the program stops at this command"):
        forecast(
            [Instruction(CONTROL, ControlOpcode.FENCE, {}, wait=(1,)), Instruction(CONTROL, ControlOpcode.END, {})]
        )
    for name, least in {"read_latency": 1, "write_latency": 1, "port_reads": 0}.items():
        with pytest.raises(ValueError, match=f"{name}={least - 1}: must be at least {least}"):
            MemoryTime(**{name: least - 1})


def test_refuses_a_trace_of_another_program():
    told = forecast([Instruction(CONTROL, ControlOpcode.END, {})])
    with pytest.raises(ValueError, match="trace: control ends 0 commands, the forecast has more"):
        compare(told, np.zeros(0, np.uint64))
    events = np.array([100 << 32 | 1, 101 << 32 | 1 << 16, 105 << 32 | 1, 106 << 32 | 1 << 16], np.uint64)
    with pytest.raises(ValueError, match="trace: control ends 2 commands, the forecast has 1"):
        compare(told, events)
