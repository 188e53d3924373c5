"""A board gives its card's blocks by UART; a line that drops and changes bytes costs repeats and no word."""

import dataclasses
import io
import random

import pytest
import serial

import gradloom
from gradloom.boards.links.cards import SerialCard, opened
from gradloom.boards.links.lines import Lines
from gradloom.boards.links.prompts import prompted
from gradloom.firmware.chip.card import KEPT, read_header
from gradloom.firmware.chip.kept import Copy, KeptRecord, Reason, encode
from gradloom.models.adapters.lora import load_lora
from gradloom.output import marked
from gradloom.sim.run.soc import SimulatedSoC
from gradloom.systems.text.card.course import qlora_course
from gradloom.systems.text.card.job import board_job, write_card_image
from gradloom.systems.text.card.prompts import ask_board

from ..systems.text.conftest import CONFIG, MODEL, TOKENS, adapters, frozen, model, tensors  # noqa: F401
from .cable import Line
from .conftest import MEMORY


@pytest.fixture
def image(frozen, adapters, tmp_path_factory):  # noqa: F811
    """A card with a copy of an adapter on one linear, as a board leaves it, and that copy."""
    folder = tmp_path_factory.mktemp("card")
    used = dict(list(adapters.items())[-1:])
    made = board_job(qlora_course(frozen, (TOKENS,), used, [1], 0.1, 3), CONFIG)
    facts = {"model": "small", "shapes": dataclasses.asdict(MODEL), "rank": 2, "alpha": 4.0, "steps": 3}
    made = dataclasses.replace(
        made, sections=tuple(dataclasses.replace(each, unit=512) for each in made.sections if each.offset == 0)
    )
    write_card_image(made, folder / "run", facts, memory_bytes=1 << 24)
    content = bytearray((folder / "run" / "card.img").read_bytes())
    sections, identity = read_header(bytes(content[:512]))
    (area,) = (each for each in sections if each.kind == KEPT)
    words = random.Random(1).randbytes(made.job.kept.bytes)
    copy = Copy(sequence=1, identity=identity, runs=2, words=words, log=(KeptRecord(9, 8, 0),) * 2, reason=Reason.RUNS)
    data = encode(copy)
    content[area.start : area.start + len(data)] = data
    # The board must not begin the job: its accelerator does nothing.
    job = max(each.start for each in sections)
    content[job : job + 512] = bytes(512)
    return bytes(content), folder


@pytest.fixture
def soc(program, image):
    made = SimulatedSoC(program, memory_bytes=MEMORY)
    made.insert(image[0])
    yield made
    made.close()


def test_an_adapter_comes_off_a_board_by_a_bad_line(soc, image, tmp_path, monkeypatch):
    content, folder = image
    (folder / "card.img").write_bytes(content)
    expected = gradloom.card.collect(tmp_path / "expected", card=folder / "card.img")
    while not soc.hear(1 << 22).startswith("ready"):
        pass
    line = Line(soc, every=4000)
    monkeypatch.setattr(serial, "Serial", lambda *_, **how: line)
    told = []
    found = gradloom.card.collect(tmp_path / "out", port="/dev/ttyUSB0", tell=lambda *each: told.append(each))
    assert {**found, "output": ""} == {**expected, "output": ""} and found["steps"] == 2
    assert line.hurt > 5 and told[-1][2] == "reading the card"
    for name, each in load_lora(tmp_path / "expected", MODEL).items():
        again = load_lora(tmp_path / "out", MODEL)[name]
        assert (each.a == again.a).all() and (each.b == again.b).all()


@pytest.mark.parametrize("how, said", [({"every": 120}, "did not arrive whole in 6 tries"), ({"deaf": True}, "silent")])
def test_a_line_that_is_too_bad_is_one_line(soc, tmp_path, monkeypatch, run, how, said):
    """What was there stays."""
    marked(tmp_path / "out", verb="collect")
    (tmp_path / "out" / "log.json").write_text("before")
    while not soc.hear(1 << 22).startswith("ready"):
        pass
    if "deaf" in how:
        monkeypatch.setattr("gradloom.boards.links.lines.SILENT_TRIES", 2)
    monkeypatch.setattr(serial, "Serial", lambda *_, **other: Line(soc, **how))
    code, _, err = run("card", "collect", "--port", "/dev/ttyUSB0", "-o", tmp_path / "out")
    assert code == 2 and said in err and err.strip().splitlines()[-1].startswith("gradloom: port=/dev/ttyUSB0: ")
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == [".gradloom", "log.json"]
    assert (tmp_path / "out" / "log.json").read_text() == "before"


def test_a_block_that_the_card_does_not_give_is_told(soc):
    while not soc.hear(1 << 22).startswith("ready"):
        pass
    file = opened(SerialCard(Line(soc)))
    file.seek(512 << 16)
    with pytest.raises(ValueError, match="cannot read block 65536 of its card: the card refuses to read"):
        file.read(10)
    file.seek(0)
    assert read_header(file.read(512))[0]


def test_requests_that_are_damaged_have_no_answer(soc):
    while not soc.hear(1 << 22).startswith("ready"):
        pass
    for request in (
        b"read 00000000 00000001 00000000\n",
        b"read 0000000g 00000001 4a59a55f\n",
        b"\n",
        b"x" * 99 + b"\n",
    ):
        soc.say(request)
        assert soc.spoken(600_000) == b""
    assert io.BytesIO(opened(SerialCard(Line(soc))).read(4)).read() == b"GLCD"


def test_a_prompt_without_a_job_is_refused(soc):
    while not soc.hear(1 << 22).startswith("ready"):
        pass
    with pytest.raises(ValueError, match="the board refuses the prompt: no job on the board answers prompts"):
        prompted(Lines(Line(soc, gap=60)), [1, 2, 3], 4, 0)


def test_a_card_whose_job_answers_no_prompts_is_told(soc, monkeypatch):
    while not soc.hear(1 << 22).startswith("ready"):
        pass
    monkeypatch.setattr(serial, "Serial", lambda *_, **how: Line(soc, gap=300))
    with pytest.raises(ValueError, match="port=/dev/ttyUSB0: the card's job answers no prompts: write it again"):
        ask_board("/dev/ttyUSB0", [1, 2])


@pytest.mark.parametrize(
    "asked, named",
    [
        (("--port", "/dev/none"), "prompt: is needed: the text to continue"),
        (("--port", "/dev/none", "--prompt", "a"), "port=/dev/none: no such port"),
        (("--port", "/dev/none", "--prompt", "a", "--adapter", "x"), "adapter=x: must be one of base, start, kept"),
        (("--port", "/dev/none", "--prompt", "a", "--tokens", "64"), "tokens=64: must be from 1 to 63"),
        (("--prompt", "a", "--baud", "9600"), "baud=9600: must be left out without --port"),
    ],
)
def test_a_wrong_request_is_one_line(run, asked, named):
    code, out, err = run("infer", "smollm2-135m", *asked)
    assert code == 2 and named in " ".join(err.split()) and out == "", err
