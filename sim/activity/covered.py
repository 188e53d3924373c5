"""Stimulus for toggle coverage of each preset."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.firmware.device.host import Accelerator, AcceleratorTimeout, ProgramError
from gradloom.models.network import LayerNetwork
from gradloom.models.onnx_import import load_pretrained
from gradloom.preset import PRESETS
from gradloom.program.assembler import Assembler
from gradloom.rtl.catalog import UNITS
from gradloom.rtl.emit.verilog import convert
from gradloom.rtl.formats.images import PARAMETER
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.shell.engines import CONTROL, LOAD, STORE, Engines
from gradloom.rtl.shell.registers.regtable import REGISTERS
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.sim.run.builds.designs import design
from gradloom.sim.run.counted import check_words
from gradloom.sim.run.device import SimulatedDevice, SimulationError, build_device
from gradloom.sim.run.machine import MachineRunner
from gradloom.sim.units.adapters import ADAPTERS
from gradloom.sim.units.simulate import simulate, unpacked
from gradloom.systems.images.integers import fill_cache, fine_tune
from gradloom.systems.images.program.lowering import lower
from gradloom.systems.images.program.program import Settings, plan_finetune
from gradloom.systems.images.program.schedule import initial_adapters
from gradloom.systems.images.simulated import compare, run_plan
from gradloom.systems.images.workload import ImageWorkload
from gradloom.systems.text.small import SmallLanguage

from . import counts as toggle_counts

__all__ = ["RUNS", "measured"]

_MEMORY = 1 << 24
Tell = Callable[[str], None]

#: The bench is no part of the design.
_BENCH = '`verilator_config\ncoverage_off -file "*axi_memory.sv"\ncoverage_off -file "*device.sv"\n'


def measured(preset: str, changes: Mapping[str, int], tell: Tell) -> dict[str, Any]:
    """Configuration, cycles, and the coverage after a preset's runs.

    The coverage is that of :func:`.counts.report`.
    """
    return RUNS[preset](preset, changes, tell)


# ---- Presets


def _preset(name: str, changes: Mapping[str, int], tell: Tell) -> dict[str, Any]:
    config = replace(PRESETS[name].config, **changes)
    files = design(config)
    with tempfile.TemporaryDirectory() as folder:
        sources = []
        for path in files:
            sources.append(Path(folder) / path.name)
            sources[-1].write_text(toggle_counts.instrument(path.read_text(encoding="utf-8")), encoding="utf-8")
        sources.append(Path(folder) / "bench.vlt")
        sources[-1].write_text(_BENCH, encoding="utf-8")
        program = build_device(
            sources, memory_bytes=_MEMORY, **config.bus, arguments=toggle_counts.ARGUMENTS, tell=tell
        )
        counted = Path(folder) / "counted"
        rng = np.random.default_rng(1)
        device = SimulatedDevice(program, memory_bytes=_MEMORY)
        with device:
            for what, run in _stimuli(name, config):
                tell(f"{what}, from cycle {device.cycles}")
                run(device, rng)
            cycles = device.cycles
            device.write_coverage(counted)
        tell("constants")
        return {"configuration": changes, "cycles": cycles} | toggle_counts.told(files, counted)


def _stimuli(name: str, config: Any) -> Iterator[tuple[str, Callable[[SimulatedDevice, np.random.Generator], None]]]:
    workload = PRESETS[name].workload
    if workload.label == "text":
        language = SmallLanguage(config, _MEMORY)
        if workload.kind == "text-instantft":
            yield "a forward cache and steps from it", language.instant
        yield "training steps", language.steps
        yield "tokens as requests", language.requests
    else:
        assert isinstance(workload, ImageWorkload)
        network = load_pretrained(workload.network)
        yield "fine-tunes", lambda device, rng: _images(device, config, network, rng)
    yield "commands at random", lambda device, rng: _commands(device, rng, config.machine.engines)
    yield "a bus that stalls and fails", lambda device, rng: _faults(device, rng, config.address_bits)
    yield "registers", _registers


def _images(device: SimulatedDevice, config: ImageConfig, network: LayerNetwork, rng: np.random.Generator) -> None:
    """Fine-tunes on images of noise, compared with the reference.

    Some images are dim, and with some nothing in the network fits its format.
    """
    rank = config.rank
    plain = Settings(samples=10, epochs=2, batch=5)
    for number, (above, spread, wide, settings) in enumerate(
        (
            (1 << config.activation.frac, 0.3, False, replace(plain, momentum=0.9)),
            (1 << config.activation.width - 2, 3.0, False, replace(plain, batch=7, rate=8.0, momentum=0.5, slots=4)),
            (1 << config.activation.frac, 0.3, config.activation_bits == 24, replace(plain, rate=0.01)),
        )
    ):
        lowered = lower(network, config, rank, wide=wide)
        images = rng.integers(0, above, (10, *network.input_shape))
        labels = rng.integers(0, network.classes, 10)
        start = initial_adapters(network.taps, network.classes, rank, number)
        a = [PARAMETER.encode(rng.normal(0, spread, m.shape) if spread > 1 else m) for m, _ in start]
        b = [PARAMETER.encode(rng.normal(0, spread, m.shape)) for _, m in start]
        plan = plan_finetune(lowered, settings, images, labels, a, b)
        cache = fill_cache(lowered, images)
        host = Accelerator(device)
        host.clear_cache()
        device.advance(config.cache_slots // 16)  # a program would wait for it
        compare(run_plan(plan, MachineRunner(host)), fine_tune(lowered, settings, cache, labels, a, b), cache)


# ---- What is wrong on purpose, and what is at random


def _run(host: Accelerator, program: Assembler) -> None:
    """A program at the window's start, which may be wrong."""
    program.add(CONTROL, ControlOpcode.END)
    host.store(0, program.code)
    _ends(host, 0, len(program))


def _ends(host: Accelerator, offset: int, commands: int) -> None:
    """Waits for the end of a program, well or not.

    One that takes long is stopped.
    """
    with suppress(ProgramError):
        try:
            host.run(offset, commands, timeout=60)
        except AcceleratorTimeout:
            host.reset()


def _commands(device: SimulatedDevice, rng: np.random.Generator, engines: Engines) -> None:
    """Random beats to every memory of the chip, then random commands.

    The commands have random operands: some of them run.
    """
    host = Accelerator(device)
    host.set_watchdog(4000)
    host.store(_MEMORY // 2, rng.integers(0, 256, _MEMORY // 4, np.uint8))
    for _ in range(400):
        program = Assembler()
        for _ in range(rng.integers(0, 3)):
            program.add(
                LOAD,
                0,
                offset=_MEMORY // 2 + 4096 * int(rng.integers(0, 512)),
                # Mostly small, or nearly all would be refused.
                beats=int(rng.integers(1, 64)),
                dest=int(rng.integers(0, 16)) >> int(rng.integers(0, 2)),
                arg=int(rng.integers(0, 1 << 32)) >> (int(rng.integers(0, 32)) | 16 * int(rng.integers(0, 2))),
            )
        engine = list(engines)[int(rng.integers(0, len(engines)))]
        # Bits that are set by half, a quarter or an eighth: most operands are too large otherwise.
        words = rng.integers(0, 1 << 32, (int(rng.integers(1, 4)), 5), np.uint64)
        arguments = int.from_bytes(np.bitwise_and.reduce(words).astype("<u4").tobytes(), "little")
        opcode = int(rng.integers(0, 1 << int(rng.integers(1, 9))))
        program.add_bits(engine, opcode, arguments)
        _run(host, program)


def _faults(device: SimulatedDevice, rng: np.random.Generator, bits: int) -> None:
    """Errors of bus and window, stalls, resets and addresses.

    Errors are on reads and writes, resets in the middle, and addresses have all ``bits``.
    """
    host = Accelerator(device)
    host.set_watchdog(20000)
    base, size = device.window_base, device.window_size
    for response in (2, 3):
        for engine in (LOAD, STORE):
            for beats in (1, 40):
                for name, value in (("fail_address", base + 8192), ("fail_resp", response), ("fail_enable", 1)):
                    device.set(name, value)
                program = Assembler()
                program.add(engine, 0, offset=8192, beats=beats)
                _run(host, program)
                device.set("fail_enable", 0)
    device.set("fail_address", base)
    device.set("fail_enable", 1)
    _run(host, Assembler())
    device.set("fail_enable", 0)
    for stall in (40, 200):
        device.set("stall", stall)
        for length in (30, 300, 900):
            program = Assembler()
            program.add(LOAD, 0, offset=0x4000, beats=200, dest=int(rng.integers(0, 6)))
            program.add(STORE, 0, offset=0x8000, beats=200)
            program.add(CONTROL, ControlOpcode.END)
            host.store(0, program.code)
            host.start(0, len(program))
            device.advance(length)
            device.set("rst", 1)
            device.advance(4)
            device.set("rst", 0)
            host = Accelerator(device)
    device.set("stall", 0)
    host.set_watchdog(20000)
    # The program lies in memory, what it asks for does not: addresses reach as far as the bus is wide.
    for _ in range(30):
        reach = 1 << int(rng.integers(27, 32))
        start = (1 << bits) - reach if bits > 32 and rng.integers(2) else 0
        host.set_window(start, (1 << 32) - 1)
        at = (base - start) % (1 << bits)
        for engine in (LOAD, STORE):
            program = Assembler()
            program.add(
                engine,
                0,
                offset=int(rng.integers(0, 1 << 28)) << 4,
                beats=int(rng.integers(1, 1 << 24)) >> int(rng.integers(0, 24)),
            )
            program.add(CONTROL, ControlOpcode.END)
            device.write_memory(0, program.code)
            if at < 1 << 32:
                _ends(host, at, len(program))
    host.set_window(base, size)


def _registers(device: SimulatedDevice, rng: np.random.Generator) -> None:
    """Writes random bits to every register, and reads every address.

    It comes last, since it leaves no window.
    """
    for _ in range(12):
        for register in REGISTERS.registers:
            if any(field.writable for field in register.fields) and register.name != "CONTROL":
                with suppress(SimulationError):
                    device.write32(register.address, int(rng.integers(0, 1 << 32)))
            with suppress(SimulationError):
                device.read32(register.address)
        device.advance(200)
        # With whatever stands there now.
        for bit in (1, 4, 2):
            with suppress(SimulationError):
                device.write32(REGISTERS.address("CONTROL"), bit)
            device.advance(500)
    for address in range(0, 1 << 12, 4):
        with suppress(SimulationError):
            device.read32(address)


# ---- A unit alone


def _mesh(name: str, changes: Mapping[str, int], tell: Tell) -> dict[str, Any]:
    unit, adapter = UNITS["mesh"], ADAPTERS["mesh"]
    parameters = unit.settings(changes)
    component = unit.build(**parameters)
    rng = np.random.default_rng(1)
    rows, columns, x_bits, w_bits = (int(parameters[name]) for name in ("rows", "cols", "x_bits", "w_bits"))
    arrays = {
        "x": rng.integers(-(1 << x_bits - 1), 1 << x_bits - 1, (12, 40, rows)),
        "w": rng.integers(-(1 << w_bits - 1), 1 << w_bits - 1, (12, rows, columns)),
    }
    texts = convert(component, name="unit").files
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        tell("building and running the simulation")
        feed = replace(adapter.feed(component, arrays), stall=1)
        beats, cycles = simulate(
            component,
            feed,
            simulator="verilator",
            directory=root,
            arguments=toggle_counts.ARGUMENTS,
            change=toggle_counts.instrument,
        )
        check_words(
            adapter.collect(component, arrays, unpacked(component, beats)), adapter.reference(parameters, arrays)
        )
        files = [root / f"{module}.v" for module in texts]
        for path in files:
            path.write_text(texts[path.stem], encoding="utf-8")
        said = toggle_counts.told(files, root / "coverage.dat", "unit")
    return {"configuration": parameters, "cycles": cycles} | said


RUNS: dict[str, Callable[[str, Mapping[str, int], Tell], dict[str, Any]]] = {
    # Recurrent presets have no stimulus of their own.
    **dict.fromkeys((name for name, each in PRESETS.items() if each.workload.label in ("images", "text")), _preset),
    "mesh": _mesh,
}
