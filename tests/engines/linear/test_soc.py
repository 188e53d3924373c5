"""The firmware on a processor in simulated RTL: it finds jobs in memory, runs them, and tells the UART."""

import dataclasses
import io
import struct
import zlib

import numpy as np
import pytest

from gradloom.firmware.chip.adapter_store import AdapterStore
from gradloom.firmware.chip.card import Section, write_card
from gradloom.firmware.chip.soc import FAILED, JobKept, JobProgram, JobResult, ResultKind, SocJob, parse_losses
from gradloom.firmware.chip.soc_image import build, compilers, image_text, sources_sum
from gradloom.firmware.device.host import ProgramError
from gradloom.program.assembler import Assembler
from gradloom.rtl.machines.language import LINEAR
from gradloom.rtl.shell.engines import CONTROL
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.rtl.shell.table import needed_table
from gradloom.rtl.soc import soc_sources
from gradloom.sim.run.device import SimulationError
from gradloom.sim.run.soc import SimulatedSoC, SoCHost, build_soc
from gradloom.systems.alone import identity
from gradloom.systems.text.program.engines.linear import LayerMap
from gradloom.systems.text.run.linear import START, LinearMachine, choose_exponents, mathematics, reference_step

from .conftest import MACHINE, SMALL, make_layer

RATE = 0.01
WINDOW = 1 << 16


@pytest.fixture(scope="session")
def program():
    """A small machine under a processor, built once."""
    return build_soc(SMALL)


@pytest.fixture
def soc(program):
    """One that has just been reset."""
    soc = SimulatedSoC(program)
    yield soc
    soc.close()


@pytest.fixture(scope="module")
def started(program):
    """One that runs jobs of many tests: whatever it refuses, it goes on."""
    soc = SimulatedSoC(program)
    yield soc
    soc.close()


def commands(*instructions):
    """A program of ``(engine, opcode, operands)`` and END."""
    program = Assembler()
    for engine, opcode, operands in instructions:
        program.add(engine, opcode, **operands)
    program.add(CONTROL, ControlOpcode.END)
    return program.code


def fixed(word, fraction):
    """What the firmware prints for a word: six digits, the rest cut off."""
    size = abs(word)
    digits = (size & (1 << fraction) - 1) * 10**6 >> fraction
    return f"{'-' if word < 0 else ''}{size >> fraction}.{digits:06d}"


@pytest.mark.parametrize("stall", [0, 100])
def test_a_training_step_leaves_the_words_of_the_reference(soc, stall):
    soc.set("stall", stall)
    layer = make_layer(32, 48, 8, 4, seed=3)
    e = choose_exponents(layer, mathematics(layer, RATE))
    place = LayerMap.place(layer.shape, SMALL, START)
    results = (
        JobResult(name="y[0,0]", offset=place.y, fraction=e.y),
        JobResult(name="dx[0,0]", offset=place.dx, fraction=31),
        JobResult(name="adapterA", offset=place.a, kind=ResultKind.SUM, words=4 * 48),
    )
    host = SoCHost(soc, SMALL, results)
    expected = reference_step(layer, e, RATE)
    found = LinearMachine(SMALL, host=host).step(layer, e, RATE)
    assert found.saturated == expected.saturated
    for name, words in found.tensors.items():
        assert np.array_equal(words, expected.tensors[name]), name
    y, dx = expected.tensors["y"][0, 0], expected.tensors["dx"][0, 0]
    assert soc.lines[:3] == [identity(SMALL), "card: none", "ready"]
    assert host.lines[0].startswith("program: ") and host.lines[0].endswith(" commands")
    assert host.lines[2:] == [
        f"y[0,0] = {fixed(int(y), e.y)}",
        f"dx[0,0] = {fixed(int(dx), 31)}",
        f"adapterA: 192 words, sum 0x{zlib.crc32(host.fetch(place.a, 4 * 192)):08x}",
        "done",
    ]
    assert found.cycles == host.last.cycles > 0
    assert host.last.read_beats > 0 and host.last.write_beats > 0


class CardHost(SoCHost):
    """Leaves to a memory card what it would put in memory itself, where ``sections`` have a place for it."""

    def __init__(self, soc, results=()):
        super().__init__(soc, SMALL, results)
        self.sections = []

    def store(self, offset, values):
        if len(values) >= 512 and len(self.sections) < 4:
            self.sections.append(
                Section(name=f"tensor {len(self.sections)}", parts=(bytes(values),), offset=self.window_offset + offset)
            )
        else:
            super().store(offset, values)

    def run(self, offset, commands, *, timeout=None):
        image = io.BytesIO()
        write_card(image, self.sections, memory_bytes=self.soc.memory_bytes)
        self.soc.insert(image.getvalue())
        return super().run(offset, commands, timeout=timeout)


def test_weights_and_operands_come_from_a_memory_card(soc):
    layer = make_layer(32, 48, 8, 4, seed=3)
    e = choose_exponents(layer, mathematics(layer, RATE))
    host = CardHost(soc)
    found, expected = LinearMachine(SMALL, host=host).step(layer, e, RATE), reference_step(layer, e, RATE)
    assert len(host.sections) == 4 and soc.lines[1] == "card: 4 sections" and soc.lines[6] == "card: loaded"
    for name, words in found.tensors.items():
        assert np.array_equal(words, expected.tensors[name]), name


def test_the_processor_costs_the_accelerator_no_cycle(soc, machine):
    """It polls registers, and leaves memory alone until the end."""
    layer = make_layer(64, 64, 8, 4, seed=4)
    e = choose_exponents(layer, mathematics(layer, RATE))
    found = LinearMachine(SMALL, host=SoCHost(soc, SMALL)).step(layer, e, RATE)
    assert found.cycles == machine.step(layer, e, RATE).cycles


def test_an_error_is_told_and_the_next_program_runs(soc):
    bad = commands((CONTROL, ControlOpcode.FENCE, {}), (LINEAR, 0, {"inner": 1, "outer": 1, "tokens": 0}))
    assert soc.run(SocJob(window_bytes=WINDOW, programs=(JobProgram(bad),), machine=MACHINE)) == [
        "program: 3 commands",
        "error: BAD_OPERAND 0x00000012 at command 1, address 0x00000000: An operand is outside the engine's bounds.",
        "failed",
    ]
    assert soc.read_memory(0, 4) == FAILED
    host = SoCHost(soc, SMALL)
    host.store(0, bad)
    with pytest.raises(ProgramError, match="BAD_OPERAND at command 1"):
        host.run(0, 3)
    assert (
        soc.run(SocJob(window_bytes=WINDOW, programs=(JobProgram(commands(), runs=2),), machine=MACHINE))[-1] == "done"
    )


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"gelu": 1}, "gelu=0, must be at least 1 (--set gelu=1)"),
        ({"features": 512}, "features=256, must be at least 512 (--set features=512)"),
        ({"depth": 64}, "depth=128, must be 64 (--set depth=64)"),
        ({"rank": 8}, "rank=4, must be 8 (--set rank=8)"),
        ({"features": 128, "groups": 2, "lane_depth": 32}, None),
    ],
    ids=str,
)
def test_a_job_for_another_machine_does_not_run(started, changes, said):
    """Programs for GELU are legal without it, and would compute SiLU; more than a job needs does not matter."""
    machine = needed_table(SMALL.replace(**changes))
    lines = started.run(SocJob(window_bytes=WINDOW, programs=(JobProgram(commands()),), machine=machine))
    if said is None:
        assert lines[-1] == "done"
    else:
        assert lines == [f"error: the job is for another design: {said}", "failed"]


def test_a_program_runs_as_often_as_asked(soc):
    lines = soc.run(SocJob(window_bytes=WINDOW, programs=(JobProgram(commands(), runs=3),), machine=MACHINE))
    assert [line.split(":")[0] for line in lines] == ["program", "run 1", "run 2", "run 3", "done"]


def spoilt(change, *, repair=True):
    """Headers that say something wrong, with a right sum if ``repair``."""
    job = SocJob(
        window_bytes=WINDOW,
        programs=(JobProgram(commands()),),
        results=(JobResult(name="r", offset=64, kind=ResultKind.SUM, words=2),),
        machine=MACHINE,
    )
    words = bytearray(job.header())
    for index, value in change.items():
        struct.pack_into("<I", words, 4 * index, value)
    if repair:
        struct.pack_into("<I", words, 12, zlib.crc32(words[16:]))

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Spoilt(SocJob):
        def header(self):
            return bytes(words)

    return Spoilt(window_bytes=WINDOW, programs=(JobProgram(commands()),), machine=MACHINE)


@pytest.mark.parametrize(
    "change, repair, message",
    [
        ({1: 1}, True, "the header is of another layout"),
        ({2: 40000}, True, "the header has no such length"),
        ({2: 47}, True, "the header has no such length"),
        ({26: 77}, False, "the header's sum is wrong"),
        ({23: 2}, True, "the header has another number of programs or results, or names no machine"),
        ({22: 2}, True, "the header has another number of programs or results, or names no machine"),
        ({22: 0x1000_0001}, True, "the header has another number of programs or results, or names no machine"),
        ({4: 0x4000_0000, 5: 4096}, True, "the window is outside the memory"),
        ({5: 0xFFFF_F000}, True, "the window is outside the memory"),
        ({25: 2}, True, "a program is outside the window"),
        ({25: WINDOW}, True, "a program is outside the window"),
        ({26: 1 << 27}, True, "a program is outside the window"),
        ({27: 1}, True, "the program's sum is wrong"),
        ({32: 3}, True, "a result is outside the window"),
        ({32: 0}, True, "a result has another number of words"),
        ({32: 2}, True, "a result has another number of words"),
        ({33: WINDOW - 4}, True, "a result is outside the window"),
        ({34: 1 << 30}, True, "a result is outside the window"),
        ({35: 32}, True, "a result is outside the window"),
        ({26: 0, 27: 0}, True, "the driver refused the program"),
        ({4: 2048}, True, "the driver refused the window"),
        ({19: WINDOW}, True, "the step table is outside the window"),
        ({19: 4096}, True, "the step table is of another layout"),
        ({8: 32, 9: 1 << 17, 10: 1}, True, "the adapter is outside the window"),
        ({7: WINDOW, 8: 64, 9: 1 << 17, 10: 1}, True, "the adapter is outside the window"),
        ({8: 64, 9: (1 << 17) + 4, 10: 1}, True, "the adapter's store is in the window, or outside the memory"),
        ({8: 64, 9: (1 << 30) - 192, 10: 1}, True, "the adapter's store is in the window, or outside the memory"),
        ({8: 64, 9: WINDOW, 10: 1}, True, "the adapter's store is in the window, or outside the memory"),
        ({8: 64, 9: 1 << 17, 10: 0}, True, "the adapter is never kept"),
        ({8: 64, 9: 0, 10: 0}, True, "the adapter is never kept"),
        ({8: 64, 10: 1, 13: WINDOW, 14: 1}, True, "the log is in the window, or outside the memory"),
        ({8: 64, 10: 1, 13: 1 << 17, 14: 1 << 27}, True, "the log is in the window, or outside the memory"),
    ],
)
def test_a_bad_header_is_refused(started, change, repair, message):
    started.write_memory(2048, commands())  # where a window at 2048 looks for it
    lines = started.run(spoilt(change, repair=repair))
    assert lines[-2:] == [f"error: {message}", "failed"]
    assert started.run(SocJob(window_bytes=WINDOW, programs=(JobProgram(commands()),), machine=MACHINE))[-1] == "done"


@pytest.mark.parametrize(
    "at, message",
    [
        (WINDOW, "the description of prompts is outside the window"),
        (4096, "the description of prompts is of another layout"),
    ],
)
def test_a_job_without_what_its_prompts_need_is_refused(started, at, message):
    assert started.run(spoilt({20: at}))[-2:] == [f"prompts: error: {message}", "failed"]


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: JobResult(name="", offset=0), "name"),
        (lambda: JobResult(name="nine char", offset=0), "name"),
        (lambda: JobResult(name="a", offset=2), "offset of a"),
        (lambda: JobResult(name="a", offset=0, words=0), "words of a"),
        (lambda: JobResult(name="a", offset=0, fraction=32), "fraction of a"),
        (lambda: JobResult(name="a", offset=0, words=2), "words of a must be 1, not 2"),
        (lambda: JobResult(name="a", offset=0, kind=ResultKind.LOSS), "words of a must be 4, not 1"),
        (lambda: JobProgram(b"123"), "program must"),
        (lambda: JobProgram(bytes(32), 16), "offset of a program"),
        (lambda: JobKept(offset=0, bytes=32, store=64), "bytes=32"),
        (lambda: JobKept(offset=0, bytes=64, store=9), "store=9"),
        (lambda: JobKept(offset=0, bytes=64, store=64, every=0), "every=0"),
        (lambda: SocJob(window_bytes=64, programs=(JobProgram(bytes(96)),), machine=MACHINE), "the job needs 96"),
        (
            lambda: SocJob(
                window_bytes=64,
                programs=(JobProgram(bytes(32)),),
                kept=JobKept(offset=0, bytes=128, store=8192),
                machine=MACHINE,
            ),
            "the job needs 128",
        ),
        (
            lambda: SocJob(window_bytes=64, programs=(JobProgram(bytes(32)),), window_offset=64, machine=MACHINE),
            "window_offset",
        ),
        (lambda: SocJob(window_bytes=64, programs=(), machine=MACHINE), "1 to 150, not 0"),
        (
            lambda: SocJob(window_bytes=512, programs=(JobProgram(bytes(32)),) * 5, table=64, machine=MACHINE),
            "1 to 4 with a table",
        ),
        (
            lambda: SocJob(window_bytes=64, programs=(JobProgram(bytes(32)),), table=2, machine=MACHINE),
            "table=2: must be a multiple of 4",
        ),
        (
            lambda: SocJob(
                window_bytes=64,
                programs=(JobProgram(bytes(32)),),
                results=(JobResult(name="a", offset=0),) * 17,
                machine=MACHINE,
            ),
            "at most 16",
        ),
    ],
)
def test_a_bad_job_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_job_without_room_on_a_card_is_refused(soc):
    words = spoilt({8: 64, 10: 1, 13: 1 << 17, 14: 1})
    assert soc.run(words)[-2:] == ["kept: error: the card has no place for it", "failed"]


def test_an_adapter_is_kept_after_each_run_and_goes_on(soc):
    """Nothing trains it here: what is kept is what lies in the window."""
    store = 1 << 18
    job = SocJob(
        window_bytes=WINDOW,
        programs=(JobProgram(commands(), runs=2),),
        kept=JobKept(offset=4096, bytes=128, store=store),
        machine=MACHINE,
    )
    words, other, behind = bytes(range(128)), bytes(128), b"\xa5" * 64
    soc.write_memory(job.window_offset + 4096, words)
    assert [line for line in soc.run(job) if "adapter" in line] == ["adapter: number 1 kept", "adapter: number 2 kept"]
    found = AdapterStore(Shared(soc), store, 128).find()
    assert (found.sequence, found.data) == (2, words)
    soc.write_memory(job.window_offset + 4096, other + behind)
    assert [line for line in soc.run(job) if "adapter" in line][0] == "adapter: number 2 goes on"
    assert soc.read_memory(job.window_offset + 4096, 192) == words + behind


class Shared:
    """The shared memory, from its first byte on."""

    def __init__(self, soc):
        self.store, self.fetch = soc.write_memory, soc.read_memory


@pytest.mark.parametrize(
    "loss, tokens, told",
    [
        (0, 0, "loss = 0 tokens"),
        (3 << 16, 2, "loss = 1.039718 nats a token, 2 tokens"),
        (5 << 33, 64, "loss = 7097.812500 nats a token, 64 tokens"),
    ],
)
def test_a_loss_is_told_in_nats_a_token(soc, loss, tokens, told):
    job = SocJob(
        window_bytes=WINDOW,
        programs=(JobProgram(commands()),),
        results=(JobResult(name="loss", offset=4096, kind=ResultKind.LOSS, words=4),),
        machine=MACHINE,
    )
    soc.write_memory(job.window_offset + 4096, struct.pack("<QQ", loss, tokens))
    lines = soc.run(job)
    assert lines[2] == told
    if tokens:
        mean = loss // tokens * 45426 >> 16
        assert told.split()[2] == fixed(mean, 16) and parse_losses(lines) == [float(fixed(mean, 16))]


def test_a_card_may_bring_a_job(soc):
    job = SocJob(window_bytes=WINDOW, programs=(JobProgram(commands(), 64),), machine=MACHINE)
    image = io.BytesIO()
    write_card(
        image,
        [
            Section(name="programs", parts=(commands(),), offset=job.window_offset + 64),
            Section(name="job", parts=(job.header(),), offset=0),
        ],
        memory_bytes=soc.memory_bytes,
    )
    soc.insert(image.getvalue())
    assert soc.listen() == ["program: 1 commands", "run 1: 58 cycles, 4 beats read, 0 written, 0 saturated", "done"]


class PressedHost(SoCHost):
    """Somebody presses the reset button `after` cycles into each program, and memory gets slow; then the host asks for
    the program once more."""

    def __init__(self, soc):
        super().__init__(soc, SMALL)
        self.after, self.stored, self.greeting = 0, [], []

    def store(self, offset, values):
        self.stored.append((offset, bytes(values)))
        super().store(offset, values)

    def run(self, offset, commands, *, timeout=None):
        job = SocJob(
            window_bytes=self.window_bytes,
            programs=(JobProgram(self.fetch(offset, 32 * commands), offset, checked=False),),
            machine=MACHINE,
        )
        self.soc.write_memory(4, job.header()[4:])
        self.soc.write_memory(0, job.header()[:4])
        while not self.soc.hear().startswith("program: "):
            pass
        end = self.soc.cycles + self.after
        while self.soc.cycles < end:
            try:
                self.soc.hear(end - self.soc.cycles)
            except SimulationError as error:
                assert "silent" in str(error)
        self.soc.set("restart", 1)
        with pytest.raises(SimulationError, match="silent"):
            self.soc.hear(1)
        self.soc.write_memory(0, bytes(4))
        self.soc.set("read_latency", 16000)
        self.soc.set("restart", 0)
        self.greeting = [self.soc.hear()]
        while self.greeting[-1] != "card: none":
            self.greeting.append(self.soc.hear())
        self.soc.set("read_latency", 40)
        for place, values in self.stored:
            super().store(place, values)
        return super().run(offset, commands, timeout=timeout)


def test_the_button_restarts_the_processor_alone(program):
    """At any moment. Accelerator and memory are not reset: they see only whole accesses, a program that still runs is
    stopped, and the next one leaves the words of the reference."""
    layer = make_layer(32, 48, 8, 4, seed=3)
    e = choose_exponents(layer, mathematics(layer, RATE))
    expected = reference_step(layer, e, RATE)
    soc = SimulatedSoC(program)
    soc.set("stall", 100)
    host = PressedHost(soc)
    greetings = []
    for after in (0, 700, 820, 2006, 20009):
        host.after = after
        host.stored.clear()
        found = LinearMachine(SMALL, host=host).step(layer, e, RATE)
        for name, words in found.tensors.items():
            assert np.array_equal(words, expected.tensors[name]), (name, after)
        greetings.append(host.greeting)
    soc.close()
    for first, *others in greetings:
        assert first.endswith(identity(SMALL)) and others[-1] == "card: none"
    stopped = [others[0] == "accelerator: stopped" for _, *others in greetings]
    assert any(stopped) and not all(stopped)


def test_a_silent_uart_is_told(soc):
    while soc.hear() != "ready":
        pass
    with pytest.raises(SimulationError, match="the UART is silent"):
        soc.hear(1000)


def test_an_access_to_nowhere_is_told(program, tmp_path):
    """``lui a0, 0x40000; lw a1, 0(a0); j .``"""
    image = tmp_path / "soc_image.mem"
    image.write_text("40000537\n00052583\n0000006f\n")
    soc = SimulatedSoC(program, image=image)
    with pytest.raises(SimulationError, match="an access of the processor failed"):
        soc.hear(1000)
    soc.close()


def test_a_processor_that_meets_no_instruction_is_told(program, tmp_path):
    image = tmp_path / "soc_image.mem"
    image.write_text("00000000\n")
    soc = SimulatedSoC(program, image=image)
    with pytest.raises(SimulationError, match="the processor has stopped"):
        soc.hear(1000)
    soc.close()


def test_what_any_compiler_here_makes_does_the_same(program, tmp_path):
    found = compilers()
    if not found:
        pytest.skip("no RISC-V compiler is installed")
    for number, compiler in enumerate(found):
        image = tmp_path / str(number) / "soc_image.mem"
        image.parent.mkdir()
        image.write_text(image_text(build(compiler), compiler.name, sources_sum()))
        soc = SimulatedSoC(program, image=image)
        assert soc.run(SocJob(window_bytes=WINDOW, programs=(JobProgram(commands()),), machine=MACHINE))[-1] == "done"
        soc.close()


def test_another_core_is_refused_by_name():
    with pytest.raises(ValueError, match="core must be one of picorv32, not 'cray'"):
        soc_sources("cray")
