"""The firmware on its processor keeps on a card what the accelerator learns, and goes on after power was cut."""

import io
import random

import numpy as np
import pytest

from gradloom.firmware.chip.card import KEPT, Section, read_header, write_card
from gradloom.firmware.chip.kept import Reason, newest
from gradloom.firmware.chip.soc import STOPPED, JobKept, JobProgram, Limits, SocJob
from gradloom.rtl.formats.weights.tiles import untile_rows
from gradloom.sim.run.device import SimulationError
from gradloom.sim.run.soc import SimulatedSoC, build_soc
from gradloom.systems.text.program.engines.linear import LayerMap
from gradloom.systems.text.run.linear import START, LinearMachine, choose_exponents, mathematics, reference_step

from ...deep import deep
from .conftest import MACHINE, SMALL, make_layer

RATE, RUNS, MEMORY = 0.01, 4, 1 << 24


pytestmark = deep


class Captured(Exception):
    """The program, which nobody runs yet."""


class Capture:
    """Takes what a step puts in memory, and its program."""

    def __init__(self):
        self.memory, self.parts = bytearray(MEMORY), []
        self.end = 0

    def store(self, offset, values):
        self.memory[offset : offset + len(values)] = values
        self.parts.append((offset, bytes(values)))
        self.end = max(self.end, offset + len(values))

    def run(self, offset, commands, *, timeout=None):
        self.start, self.code = offset, bytes(self.memory[offset : offset + 32 * commands])
        raise Captured


LAYER = make_layer(16, 16, 4, 2, seed=3)
EXPONENTS = choose_exponents(LAYER, mathematics(LAYER, RATE))


@pytest.fixture(scope="module")
def step():
    made = Capture()
    with pytest.raises(Captured):
        LinearMachine(SMALL, host=made).step(LAYER, EXPONENTS, RATE)
    return made


@pytest.fixture(scope="module")
def program():
    return build_soc(SMALL)


def image(step, limits=None, **how):
    """A card whose job makes the step again and again."""
    place = LayerMap.place(LAYER.shape, SMALL, START)
    first = min(place.a, place.b)
    size = max(place.a + 4 * 2 * 16, place.b + 4 * 2 * 16) - first
    window = -(-step.end // 4096) * 4096
    kept = JobKept(offset=first, bytes=size, log=4096 + window, records=RUNS, **({"every": 1} | how))
    job = SocJob(
        window_bytes=window,
        programs=(JobProgram(step.code, step.start, runs=RUNS, checked=False),),
        kept=kept,
        limits=limits or Limits(),
        machine=MACHINE,
    )
    file = io.BytesIO()
    write_card(
        file,
        [
            *(Section(name=f"{offset}", parts=(data,), offset=4096 + offset) for offset, data in step.parts),
            Section(name="learnt", parts=(), offset=0, kind=KEPT, capacity=kept.room),
            Section(name="job", parts=(job.header(),), offset=0),
        ],
        memory_bytes=MEMORY,
    )
    return file.getvalue()


def run(program, content, *, seed=0, **card):
    """What the UART says of the job up to its end, or to the end of power, and the card then."""
    soc = SimulatedSoC(program, memory_bytes=MEMORY)
    soc.write_memory(0, random.Random(seed).randbytes(1 << 18))
    soc.insert(content, **card)
    lines = []
    try:
        while not lines or lines[-1] not in ("done", "failed", "stopped"):
            lines.append(soc.hear(1 << 23))
        ended = soc.read_memory(0, 4)
    except SimulationError as error:
        assert "power is gone" in str(error)
        ended = b"DARK"
    content, written, violations = soc.content(), soc.written(), soc.card()[2]
    soc.close()
    assert violations == 0
    return lines, content, written, ended


def kept(content):
    sections, identity = read_header(content[:512])
    (area,) = (each for each in sections if each.kind == KEPT)
    return newest(io.BytesIO(content), area.start, area.size // 2, identity)


def learnt(copy):
    """Words of A and B; between them lies memory that nobody wrote, other noise after each power-up."""
    place = LayerMap.place(LAYER.shape, SMALL, START)
    first = min(place.a, place.b)
    return [copy.words[at - first :][: 4 * 2 * 16] for at in (place.a, place.b)]


@pytest.fixture(scope="module")
def whole(program, step):
    lines, content, written, _ = run(program, image(step))
    assert lines[-1] == "done" and [line for line in lines if "kept" in line] == [
        f"kept: after run {number}" for number in range(1, RUNS + 1)
    ]
    return kept(content), written


def test_the_first_copy_has_the_words_of_the_reference(program, step):
    lines, content, _, ended = run(program, image(step, Limits(runs=1)))
    assert lines[-2:] == ["stopped: limit of runs", "stopped"] and ended == STOPPED
    found, expected = kept(content), reference_step(LAYER, EXPONENTS, RATE)
    assert (found.runs, found.reason) == (1, Reason.RUNS)
    place = LayerMap.place(LAYER.shape, SMALL, START)
    first = min(place.a, place.b)
    a = untile_rows(found.words[place.a - first :][: 4 * 32], 2, 16, SMALL.edge)
    assert np.array_equal(a, expected.tensors["a"])
    lines, content, _, _ = run(program, content)
    assert "kept: goes on after run 1" in lines and "run 2: " in "".join(lines) and kept(content).runs == 2


@pytest.mark.parametrize("part", range(1, 21))
def test_after_a_cut_of_power_the_job_goes_on(program, step, whole, part):
    """Memory comes back as noise, and the block in flight is torn. The end is that of a run without a cut."""
    (expected, (_, length)) = whole
    cut = length * part // 21
    lines, content, _, ended = run(program, image(step), card_cut=cut, card_seed=part, seed=part)
    assert ended == b"DARK" and "done" not in lines
    lines, content, _, _ = run(program, content, seed=part + 100)
    again = kept(content)
    assert lines[-1] == "done" and (learnt(again), again.log, again.runs) == (learnt(expected), expected.log, RUNS)
    begun = [int(line.split()[-1]) for line in lines if "goes on" in line]
    assert len(begun) <= 1 and sum(line.startswith("run ") for line in lines) == RUNS - sum(begun)
