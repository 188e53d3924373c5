"""A board that learns by itself gets other digits by its UART, and gives the adapter back: host, firmware and RTL."""

import json
import random
import zlib

import numpy as np
import pytest

import gradloom
from gradloom import boards
from gradloom.boards.links.lines import Lines
from gradloom.boards.links.tuner import PIECE, TunerError, TunerPort
from gradloom.jobs.by_port import finetune_by
from gradloom.models.datasets import digits_split
from gradloom.models.onnx_import import load_pretrained
from gradloom.preset import PRESETS
from gradloom.program.memory import BLOCK
from gradloom.rtl.formats.images import PARAMETER
from gradloom.sim.bench.tuner import SimulatedTuner, build_tuner
from gradloom.sim.run.counted import MismatchError
from gradloom.systems.asked import asked_for
from gradloom.systems.driver import finetune, prepared
from gradloom.systems.images import alone
from gradloom.systems.images.answer import infer as answer
from gradloom.systems.images.program.digits import digits_plan
from gradloom.systems.images.program.lowering import lower
from gradloom.systems.images.program.onchip import plan_answers_onchip
from gradloom.systems.images.program.schedule import initial_adapters
from gradloom.systems.images.requests import ImageAnswers
from gradloom.systems.images.workload import DIGITS, ImageOptions
from gradloom.workload import silent

from ...deep import DEEP, deep
from ...soc.cable import Line

PRESET, BOARD = PRESETS["digits-ulx3s"], boards.find("ulx3s")
#: Two seconds of the board, shortened; and what the simulated bitstream brings.
PAUSE = 12_000_000
#: Bits last as long as the processor takes for what it hears: talk is most of the time.
BIT = 16
SHIPPED = {"train_blocks": 1, "test_blocks": 1, "epochs": 1}


def cable(tuner, every=0, silence=500_000):
    """A silence of the port is longer than the board takes for the sum of its memory."""
    return Line(tuner, every=every, gap=10 * BIT, silence=silence)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuner")
    plan = digits_plan(PRESET.config, pause=PAUSE, **SHIPPED)
    return build_tuner(PRESET.config, plan, folder, memory_bytes=BOARD.memory_bytes, divisor=BIT), folder


@pytest.fixture
def tuner(built, monkeypatch):
    """A board whose bitstream has two blocks of digits."""
    monkeypatch.setattr(alone, "digits_plan", lambda config: digits_plan(config, pause=PAUSE, **SHIPPED))
    tuner = SimulatedTuner(*built, bit=BIT)
    list(tuner.told(1 << 24))
    yield tuner
    tuner.close()


@pytest.fixture
def data(tmp_path):
    """Other digits than the bitstream's, and in another order of classes."""
    digits = digits_split(400, 80, degrees=0)
    path = tmp_path / "mine.npz"
    parts = {"x_train": digits.x_train[300:312], "y_train": digits.y_train[300:312]}
    parts |= {"x_test": digits.x_test[40:51], "y_test": digits.y_test[40:51]}
    np.savez(path, **{name: 9 - each if name[0] == "y" else each for name, each in parts.items()})
    return path


def tuned(line, data, folder, **options):
    told = []

    def heard(done, total, text):
        told.append(text)

    asked = ImageOptions(data=data, **options)
    metrics = finetune_by(TunerPort(line, heard), PRESET, asked, output=folder, compare=True, progress=heard)
    assert metrics == json.loads((folder / "metrics.json").read_text())
    assert (folder / "adapter_model.safetensors").is_file()
    return metrics, told


def test_a_board_learns_what_comes_by_its_uart(tuner, data, tmp_path):
    """Losses and adapter are the reference's."""
    metrics, told = tuned(cable(tuner), data, tmp_path / "run", epochs=2, lr=0.05)
    assert (metrics["samples"], metrics["batch"], metrics["epochs"], len(metrics["loss"])) == (8, 8, 2, 2)
    assert metrics["equal_to_reference"]["words"] > 1888 and metrics["cycles"]["total"] > 0
    assert any(text.startswith("epoch") for text in told) and "sending data to the board" in told
    # The network, its programs and what blocks do not use are there already.
    assert metrics["bytes_sent"] < BOARD.memory_bytes // 6


def labelled(port, **options):
    """Answers of a board, with the reference's compared."""
    asked = {"adapter": None, "limit": None} | options
    output = asked.pop("output", None)
    named = asked_for("digits-ulx3s", verb="infer")
    found = answer(named, ImageAnswers(**asked, engine="rtl", output=output), silent, port)
    wanted = gradloom.infer("digits-ulx3s", **asked)
    assert found["labels"] == wanted["labels"] and found["accuracy"] == wanted["accuracy"]
    return found


@deep
def test_a_board_labels_what_comes_by_its_uart(tuner, data, tmp_path, monkeypatch):
    """By an adapter that it has just learnt from data by its UART; no whole number of blocks."""
    folder = tmp_path / "run"
    tuned(cable(tuner), data, folder, epochs=1, lr=0.05)
    port = TunerPort(cable(tuner))
    found = labelled(port, data=data, adapter=folder, output=tmp_path / "found.npz")
    assert len(set(found["labels"])) > 2 and found["cycles"] > 0 and found["forecast"] is None
    sent = port.sent
    assert found["bytes_sent"] == PIECE * sent < BOARD.memory_bytes
    logits = np.load(tmp_path / "found.npz")["logits"]
    np.testing.assert_allclose(np.exp(logits).sum(axis=1), 1, atol=1e-3)
    if not DEEP:
        return
    # Two images more than have room: a second memory like the first.
    one = plan_answers_onchip(*_one_image(), memory=BOARD.memory_bytes, pause=PAUSE)
    monkeypatch.setattr(alone, "MEMORY_BYTES", len(one.image))
    again = labelled(port, data=data, limit=one.samples + 2)
    assert again["labels"] != found["labels"][: len(again["labels"])]
    assert port.sent - sent < 1.5 * len(one.image) / PIECE


def _one_image():
    network = load_pretrained(DIGITS.network)
    lowered = lower(network, PRESET.config, 1)
    a, b = (
        [PARAMETER.encode(each[part]) for each in initial_adapters(network.taps, network.classes, 1, 0)]
        for part in (0, 1)
    )
    return lowered, np.zeros((1, *network.input_shape), np.int64), a, b


def test_a_line_may_lose_bytes_and_change_them(tuner):
    """What is damaged changes nothing; all that is asked comes to be, and what the board refuses is named."""
    line = cable(tuner, every=1500, silence=60_000)
    port, wanted = TunerPort(line), random.Random(1).randbytes(2 * PIECE)
    port._send(bytes(BLOCK) + wanted, range(BLOCK, BLOCK + 2 * PIECE, PIECE))
    assert port.fetch(BLOCK, 2 * PIECE) == wanted and line.hurt > 2
    assert port.told()[-1] == "done"
    line.every, lines = 0, Lines(line)
    for request, said in (
        (("data", BLOCK, "AAAA"), "fault 00001000 no piece"),
        (("data", BLOCK + 4, "A" * 683 + "="), "fault 00001004 outside the memory"),
        (("give", 1 << 17), "fault 00020000 outside the memory"),
        (("told", 4096), "fault 00001000 outside the lines"),
        (("stop", 0), "fault 00000000 no such request"),
    ):
        lines.ask(*request)
        answer = lines.hear(("fault",))
        assert f"{answer.word} {answer.rest}" == said
    line.write(b"\ndata 00001000 AAAA 00000000\n")
    assert lines.hear(("fault",)).rest == "00000000 damaged"
    assert port.fetch(BLOCK, PIECE) == wanted[:PIECE]
    with pytest.raises(TunerError, match="the board refuses give 0x20000: outside the memory"):
        port.fetch(1 << 17, 4)


def test_a_reset_takes_what_has_come(tuner, built):
    """Power goes after the data came: the board has the bitstream's again, and starts nothing else.

    To add up its memory takes it millions of cycles, so the header says here that a tenth of it is used.
    """
    image = bytearray(digits_plan(PRESET.config, pause=PAUSE, **SHIPPED).image[: BLOCK + PIECE])
    image[4:8] = len(image).to_bytes(4, "little")
    image[BLOCK] ^= 1
    TunerPort(cable(tuner))._send(bytes(image), [BLOCK])
    again = SimulatedTuner(*built, bit=BIT)
    try:
        list(again.told(1 << 24))
        port = TunerPort(cable(again))
        port._send(bytes(image), [0])
        assert port._starts(bytes(image)) is False
        port._send(bytes(image), [BLOCK])
        assert port._starts(bytes(image)) is True
    finally:
        again.close()


class Played(TunerPort):
    """A board whose part the reference plays, with one bit of the adapter changed or none."""

    def __init__(self, task, flipped):
        super().__init__(Deaf())
        made = alone.expected_run(task.chip, task.dataset)
        words = bytearray(alone.adapter_words(task.chip, made.reference))
        words[100] ^= flipped
        said = f"adapter: {len(words) // 4} words, sum 0x{zlib.crc32(words):08x}"
        self.made, self.words = [*made.lines[:-2], said, "cycles: 9", "done"], bytes(words)

    def told(self):
        return self.made[:1]

    def run(self, image, changed, *, epochs):
        self.image = image
        return self.made

    def fetch(self, offset, length):
        return self.image[offset : offset + length] if length == 4 else self.words


@pytest.mark.parametrize("flipped", [0, 1])
def test_another_word_than_the_references_is_a_mismatch(tmp_path, data, flipped):
    options = ImageOptions(data=data, epochs=2, engine="rtl")
    task, _ = prepared(PRESET, options, tmp_path / "none", lambda *said: None, TunerPort(Deaf()))
    asked = {"output": tmp_path / "run", "host": Played(task, flipped), "compare": True}
    if flipped:
        with pytest.raises(MismatchError, match="words"):
            finetune(PRESET, options, **asked)
        assert not (tmp_path / "run").exists()
        return
    metrics = finetune(PRESET, options, **asked)
    assert sorted(path.name for path in (tmp_path / "run").iterdir() if path.name[0] != ".") == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "loss.png",
        "metrics.json",
        "report.html",
    ]
    assert metrics["cycles"] == {"total": 9} and len(metrics["loss"]) == 2 and metrics["accuracy_after"] >= 0


class Deaf:
    """A port at which nobody answers."""

    def read(self, size):
        return b""

    def write(self, data):
        return len(data)


def test_what_cannot_be_is_refused(tmp_path, data, run, monkeypatch):
    small = tmp_path / "small.npz"
    np.savez(small, **{name: each[:7] for name, each in np.load(data).items()})
    many = digits_split(400, 80, degrees=0)
    large = tmp_path / "large.npz"
    np.savez(large, x_train=many.x_train, y_train=many.y_train, x_test=many.x_test, y_test=many.y_test)
    for options, said in (
        ({"data": data}, "the board does not answer: is it switched on"),
        ({"data": small}, "x_train: has fewer than 8 images"),
        ({"data": large}, "x_train: has 400 images in whole blocks of 8, the board has room for 144 .* --limit 136"),
        ({"data": data, "momentum": 0.5}, "momentum=0.5: must be 0 on a board that learns by itself"),
        ({"data": data, "schedule": "linear"}, "schedule=linear: must be constant on a board that learns by itself"),
        ({"data": data, "cache": "none"}, "cache=none: must be nf4 or int8"),
        ({"data": data, "class_weights": "balanced"}, "class_weights=balanced: must be none on a board that learns"),
    ):
        with pytest.raises(ValueError, match=said):
            finetune_by(TunerPort(Deaf()), PRESET, ImageOptions(**options), output=tmp_path / "run")
        assert not (tmp_path / "run").exists()
    code, _, err = run("finetune", "instantft-kv260", "--port", "/dev/none", "-o", tmp_path / "run")
    assert code == 2 and "port=/dev/none: kv260 takes no data by UART; must be left out but for ulx3s" in " ".join(
        err.split()
    )
    code, _, err = run("finetune", "digits-ulx3s", "--baud", "9600", "-o", tmp_path / "run")
    assert code == 2 and "baud=9600: must be left out without --port" in " ".join(err.split())
    for words, said in (
        (("digits-ulx3s", "--engine", "float"), "engine=float: must be left out with --port, whose board has integers"),
        (("instantft-kv260",), "port=/dev/none: kv260 takes no data by UART; must be left out but for ulx3s"),
        (("digits-ulx3s",), "port=/dev/none: no such port"),
    ):
        code, out, err = run("infer", *words, "--port", "/dev/none")
        assert (code, out) == (2, "") and said in " ".join(err.split())
