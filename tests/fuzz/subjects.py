"""Small machines of each kind in simulation, each with a good program whose every word and cycle is known."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gradloom.firmware.device.host import Accelerator, ProgramCounters
from gradloom.models.recurrent.example import example_codes, example_network
from gradloom.program.assembler import Assembler
from gradloom.program.descent import AdamW
from gradloom.program.memory import PAGE, rounded
from gradloom.rtl.formats.codebook import INT8_HIGH, INT8_LOW, NF4
from gradloom.rtl.formats.images import LEVEL
from gradloom.rtl.formats.vector import VectorOpcode
from gradloom.rtl.machines.images import ARRAY
from gradloom.rtl.machines.language import LINEAR as PRODUCTS
from gradloom.rtl.machines.recurrent import CELL as CELLS
from gradloom.rtl.shell.engines import LOAD
from gradloom.rtl.shell.signature import COMMAND_BYTES, ControlOpcode
from gradloom.sim.reference.tiles.program import TileMachine as TileModels
from gradloom.sim.run.builds.designs import design
from gradloom.sim.run.device import SimulatedDevice, build_device
from gradloom.systems.networks.program.prepared import Prepared, learning_of
from gradloom.systems.networks.program.steps import MachineSteps
from gradloom.systems.sequences.program.image import CellImage
from gradloom.systems.sequences.program.program import CellProgram, CellSetup
from gradloom.systems.text.program.engines.linear import codebook_table, codebook_words
from gradloom.systems.text.program.engines.side import append
from gradloom.systems.text.run.linear import LinearMachine, choose_exponents, mathematics, reference_step

from ..compiler.test_rtl import network
from ..engines.cell.test_machine import SMALL as CELL
from ..engines.linear.conftest import SMALL as LINEAR
from ..engines.linear.conftest import make_layer
from ..engines.linear.side import Side, operations
from ..systems.images.conftest import SMALL as IMAGE
from ..systems.images.conftest import Machine, small_network
from ..tiles import LEAST as TILES

__all__ = ["GAP", "SUBJECTS", "Subject", "Windowed"]

#: Memory before the window, which no program may touch; there is more behind it.
GAP = 1 << 16
END, FENCE = (each.to_bytes(COMMAND_BYTES, "little") for each in (ControlOpcode.END, ControlOpcode.FENCE))
RATE = AdamW(lr=1e-3)


class Windowed(SimulatedDevice):
    """A device whose programs may reach ``size`` bytes amid its memory; a burst that leaves them is an error."""

    def __init__(self, program, size):
        super().__init__(program)
        self.window_base, self.window_size = self.window_base + GAP, size
        self.set("fence_low", self.window_base)
        self.set("fence_high", self.window_base + size)

    def read_memory(self, offset, length):
        return super().read_memory(GAP + offset, length)

    def write_memory(self, offset, data):
        super().write_memory(GAP + offset, data)


@dataclass
class Subject:
    """A machine, and a program with what it finds in the window and leaves there.

    ``code``: its bytes, which begin with what the machine knows after reset only: tables that programs may rewrite.
    ``start`` and ``end``: all of the window before and after it.
    """

    program: Path
    size: int
    config: object
    offset: int = 0
    code: bytes = b""
    start: bytes = b""
    end: bytes = b""
    counters: ProgramCounters | None = None
    _device: Windowed | None = None

    @property
    def device(self):
        if self._device is None:
            self._device = Windowed(self.program, self.size)
        return self._device

    def close(self):
        """The next use has a new simulation."""
        if self._device is not None:
            self._device.close()
        self._device = None

    @property
    def beats(self):
        """Bytes of a beat."""
        return self.config.data_bits // 8

    @property
    def words(self):
        """Commands of the good program."""
        return [int.from_bytes(self.code[at : at + 32], "little") for at in range(0, len(self.code), 32)]

    @property
    def requests(self):
        return getattr(self.config, "requests", 0)

    @property
    def spare(self):
        """Offset behind all that the good program uses, where there is room for two others."""
        return self.size - (1 << 14)

    @property
    def host(self):
        return Accelerator(self.device)

    def quiet(self):
        """Memory as the good program has it, which answers as in a forecast."""
        for name, value in (("stall", 0), ("read_latency", 40), ("write_latency", 10), ("fail_enable", 0)):
            self.device.set(name, value)

    def learn(self, parts, offset, patch):
        """Takes what lies in the window for the start and runs it; ``parts``: commands, one after the other."""
        self.code, self.offset = FENCE.join(part.removesuffix(END) for part in parts) + END, offset
        for where, content in (*patch, (offset, self.code)):
            self.device.write_memory(where, content)
        self.start = self.device.read_memory(0, self.size)
        self.counters = self.host.run(offset, len(self.words), timeout=60)
        self.end = self.device.read_memory(0, self.size)

    def works(self):
        """The good program leaves every word and takes every cycle as on a new machine."""
        self.quiet()
        host = self.host
        host.set_watchdog(1 << 16)
        host.clear_cache()
        self.device.advance(1000)  # a program would wait for it
        self.device.write_memory(0, self.start)
        host.start(self.offset, len(self.words))
        assert self.device.advance(2 * self.counters.cycles), "the good program does not end"
        counters = host.wait(timeout=1)
        assert counters == self.counters, (counters, self.counters)
        found = self.device.read_memory(0, self.size)
        if found != self.end:
            at = next(n for n, (ours, theirs) in enumerate(zip(found, self.end)) if ours != theirs)
            raise AssertionError(f"the good program left another byte at {at:#x}")


def _load(offset, content, beat, **operands):
    """A command that loads ``content``, and what lies there."""
    content += bytes(-len(content) % beat)
    program = Assembler()
    program.add(LOAD, offset=offset, beats=len(content) // beat, **operands)
    return program.code, (offset, content)


def _books():
    """Beats of BOOKS: the levels and thresholds that the image machine has after reset."""
    words = [int(v) for book in (NF4, NF4, INT8_HIGH, INT8_LOW) for v in book.level_table(LEVEL.frac)]
    levels = np.array(words, "<i2").tobytes()
    thresholds = [int(v) for v in NF4.threshold_table(16)]
    return levels + bytes(8 * 16) + b"".join((v & (1 << 128) - 1).to_bytes(16, "little") for v in thresholds)


def image():
    """The image machine, and a step of fine-tuning on two convolutions and two dense layers, cache and all."""
    machine = Machine(IMAGE)
    size = 1 << 17
    subject = Subject(program=machine.program, size=size, config=IMAGE)
    plan, reference, _ = machine.plan(small_network(), samples=4, epochs=1, batch=2)
    for offset, content in plan.segments:
        subject.device.write_memory(offset, content)
    load, patch = _load(size - 4096, _books(), 16, dest=ARRAY.load("books"), arg=0)
    subject.learn([load, plan.assembler.code], plan.offset, [patch])
    losses = subject.end[plan.losses : plan.losses + 16 * len(reference.losses)]
    assert [int.from_bytes(losses[at : at + 8], "little") for at in range(0, len(losses), 16)] == reference.losses
    return subject


def _built(config, size):
    """A machine that other tests build with as much memory, of which a window is used."""
    program = build_device(design(config), **config.bus)
    return Subject(program=program, size=size, config=config)


def linear(config=LINEAR):
    """The language models' machine: a layer's step by AdamW, then operations of the vector engine."""
    size, beat = 1 << 18, config.data_bits // 8
    subject = _built(config, size)
    machine = LinearMachine(config, host=subject.host)
    layer = make_layer(32, 32, 5, 4)
    exponents = choose_exponents(layer, mathematics(layer, 0.3))
    plan = machine.plan(layer, exponents, 1 << 16)
    work = [
        each
        for opcode in (VectorOpcode.SWIGLU_BACKWARD, VectorOpcode.NORM, VectorOpcode.ROPE)
        for each in operations(opcode, (5, 32), config.edge, opcode)
    ]
    side = Side(machine, work, plan.place.end, limit=96)
    assembler = Assembler()
    plan.product(assembler)
    plan.product(assembler, backward=True)
    plan.gradients(assembler)
    plan.update(assembler, RATE)
    append(assembler, side.pieces)
    table = codebook_table(size - 4096, config)
    load, patch = _load(table.offset, codebook_words(NF4), beat, dest=PRODUCTS.load("tables"), arg=table.argument)
    subject.learn([load, assembler.code], 0, [patch])
    side.check()
    expected = reference_step(layer, exponents, RATE)
    for name, words in machine.results(plan, RATE).items():
        assert np.array_equal(words, expected.tensors[name]), name
    return subject


def ports():
    """The same machine with two ports to memory."""
    return linear(replace(LINEAR, ports=2))


def cell():
    """The machine of recurrent networks: answers of one with a convolution in front and a layer at its end."""
    made = example_network(1, 16, 4, kernel=5, stride=2, outputs=8, classes=30)
    image = CellImage(made, CELL)
    codes = image.windows(example_codes(made, np.random.default_rng(2), 5, 21))
    program = CellProgram(image, codes, CELL, each=True)
    setup = CellSetup(image, CELL, rounded(program.length, PAGE))
    subject = _built(CELL, 1 << 17)
    for each in (setup, program):
        for offset, content in each.contents():
            subject.device.write_memory(offset, content)
    # States stay from program to program, and those of all places are stored.
    states = bytes(2 * CELL.state_places * subject.beats)
    load, patch = _load(subject.size - 4096, states, subject.beats, dest=CELLS.load("state"), arg=0)
    subject.learn([load, setup.code, program.code], setup.offset, [patch])
    return subject


class _Unstarted:
    """A machine that only takes what programs find in memory, and the programs themselves."""

    def __init__(self, host):
        self.write, self.read, self.programs = host.store, host.fetch, []

    def run(self, program):
        self.programs.append(program)


def tiles():
    """The machine of tiles: a step of LoRA in a network with convolutions, a norm and a wide last layer, by AdamW."""
    prepared = Prepared(learning_of(network(), "classes", "lora", targets="second,last", rank=2), "classes")
    programs = prepared.programs(TILES, 4, prepared.rules(1e-2), batches=1)
    random = np.random.default_rng(1)
    inputs = prepared.inputs(random.standard_normal((4, *network().inputs[0].shape)))
    target = np.eye(70)[random.integers(0, 70, 4)]
    subject, models = _built(TILES, 1 << 20), TileModels(TILES, programs.length)
    memory = _Unstarted(subject.host)
    for each in (memory, models):
        MachineSteps(programs, each, prepared.integers(), "classes")(inputs, target)
    subject.learn([each.code for each in memory.programs], rounded(programs.length, PAGE), [])
    assert subject.end[: programs.length] == models.read(0, programs.length)
    return subject


#: How each is made.
SUBJECTS = {"image": image, "linear": linear, "ports": ports, "cell": cell, "tiles": tiles}
