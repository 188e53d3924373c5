"""The firmware on its processor writes a card: copies of what a job keeps, in RTL from the processor to the wires.

The accelerator does nothing here, so the words stay and the log grows; ``tests/engines/linear/test_kept.py`` has one
that learns.
"""

import io
import random

import pytest

from gradloom.firmware.chip.card import KEPT, Section, read_header, write_card
from gradloom.firmware.chip.kept import Reason, newest
from gradloom.firmware.chip.soc import JobKept, JobProgram, Limits, SocJob
from gradloom.sim.run.device import SimulationError
from gradloom.sim.run.soc import SimulatedSoC

from .conftest import MACHINE, MEMORY

WORDS, RUNS = random.Random(1).randbytes(704), 3


def image(limits=None, every=1, words=WORDS):
    kept = JobKept(offset=0, bytes=len(words), log=1 << 15, records=RUNS, every=every)
    job = SocJob(
        window_bytes=1 << 14,
        programs=(JobProgram(bytes(32), 12288, runs=RUNS, checked=False),),
        kept=kept,
        limits=limits or Limits(),
        machine=MACHINE,
    )
    file = io.BytesIO()
    write_card(
        file,
        [
            Section(name="words", parts=(words,), offset=4096),
            Section(name="learnt", parts=(), offset=0, kind=KEPT, capacity=kept.room),
            Section(name="job", parts=(job.header(),), offset=0),
        ],
        memory_bytes=MEMORY,
    )
    return file.getvalue()


def area_of(content):
    sections, identity = read_header(content[:512])
    (area,) = (each for each in sections if each.kind == KEPT)
    return area, identity


def kept(content):
    area, identity = area_of(content)
    return newest(io.BytesIO(content), area.start, area.size // 2, identity)


def run(program, content, *, seed=0, mains=False, warm=False, **card):
    """What the UART says up to the job's end or that of power, the card then, and bytes on its line while it wrote."""
    soc = SimulatedSoC(program, memory_bytes=MEMORY)
    soc.write_memory(0, random.Random(seed).randbytes(1 << 16))
    soc.insert(content, **card)
    soc.set("mains_lost", mains)
    soc.set("temperature", 2950 if warm else 2800)
    lines = []
    try:
        while not lines or lines[-1] not in ("done", "failed", "stopped"):
            lines.append(soc.hear(1 << 23))
            if lines[-1].startswith("paused"):
                soc.set("mains_lost", 0)
                # As warm as the limit is not cool enough yet.
                soc.set("temperature", 2870 if warm else 2800)
                if warm:
                    with pytest.raises(SimulationError, match="silent"):
                        soc.hear(20_000)
                soc.set("temperature", 2829)
    except SimulationError as error:
        assert "power is gone" in str(error)
        lines.append("dark")
    found = soc.content(), soc.written()[1]
    assert soc.card()[2] == 0
    soc.close()
    return lines, *found


def test_after_cuts_of_power_the_job_goes_on(program):
    lines, content, length = run(program, image())
    assert [line for line in lines if "kept" in line] == [f"kept: after run {number}" for number in range(1, RUNS + 1)]
    expected = kept(content)
    assert (expected.words, expected.runs, len(expected.log), expected.reason) == (WORDS, RUNS, RUNS, Reason.DONE)
    for part in (1, 2, 3):
        lines, content, _ = run(program, image(), card_cut=length * part // 4, card_seed=part, seed=part)
        assert lines[-1] == "dark"
        lines, content, _ = run(program, content, seed=part + 100)
        again = kept(content)
        assert lines[-1] == "done" and (again.words, again.log, again.runs) == (WORDS, expected.log, RUNS)
        begun = [int(line.split()[-1]) for line in lines if "goes on" in line]
        assert sum(line.startswith("run ") for line in lines) == RUNS - sum(begun) and bool(begun) == (part > 1)


def test_lost_mains_pause_a_job_and_limits_stop_it(program):
    lines, content, _ = run(program, image(Limits(runs=2), every=100), mains=True)
    first = lines.index("kept: after run 1")
    assert lines[first + 1 : first + 3] == ["paused: mains power is gone", "goes on: mains power is back"]
    assert lines[-2:] == ["stopped: limit of runs", "stopped"] and kept(content).reason == Reason.RUNS
    lines, content, _ = run(program, content)
    assert lines[-1] == "done" and "kept: goes on after run 2" in lines
    lines, _, length = run(program, content)
    assert lines[-1] == "done" and "run " not in str([line[:4] for line in lines]) and length == 0


def test_a_warm_chip_pauses_a_job(program):
    lines, content, _ = run(program, image(Limits(runs=1, celsius=80), every=100), warm=True)
    first = lines.index("kept: after run 1")
    assert lines[first + 1 : first + 3] == ["stopped: limit of runs", "stopped"]
    lines, content, _ = run(program, image(Limits(celsius=80), every=100), warm=True)
    first = lines.index("kept: after run 1")
    assert lines[first + 1 : first + 3] == ["paused: the chip has 90 degrees", "goes on: the chip has 75 degrees"]
    assert lines[-1] == "done" and kept(content).reason == Reason.DONE


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"card_protect": 1}, "kept: error: the card is write-protected"),
        ({"card_bad": True}, "kept: error: the card cannot write a block"),
        ({"card_spoil": True, "card_spoils": 3}, "kept: error: blocks arrive at the card damaged"),
        ({"card_spoil": True, "card_spoils": 2}, "kept: after run 1"),
        ({"card_wait": 5}, "kept: after run 1"),
    ],
)
def test_a_card_that_does_not_store_is_told(program, settings, said):
    content = image(Limits(runs=1))
    number = area_of(content)[0].start // 512 + 2
    settings = {name: number if value is True else value for name, value in settings.items()}
    lines, _, _ = run(program, content, **settings)
    assert said in lines and lines[-1] == "stopped"


def test_the_rate_is_that_of_the_line(program):
    """263 cycles a word, of which the line takes 256."""
    took = []
    for blocks in (1, 9):
        soc = SimulatedSoC(program, memory_bytes=MEMORY)
        soc.insert(image(Limits(runs=1), words=bytes(512 * blocks)))
        while not soc.hear(1 << 23).startswith("run 1"):
            pass
        before = soc.cycles
        assert soc.hear(1 << 23) == "kept: after run 1"
        took.append(soc.cycles - before)
        soc.close()
    assert 256 < (took[1] - took[0]) / (8 * 128) < 270
