"""A board that runs alone answers what comes by its UART: host, firmware and RTL."""

from dataclasses import replace

import numpy as np
import pytest

import gradloom
from gradloom import boards
from gradloom.boards.links.tuner import TunerError, TunerPort
from gradloom.models.sequences import FOLDS, spar_model, spar_windows
from gradloom.preset import PRESETS
from gradloom.sim.bench.tuner import SimulatedTuner, build_tuner
from gradloom.sim.run.counted import MismatchError
from gradloom.systems.alone import identity
from gradloom.systems.asked import asked_for
from gradloom.systems.sequences import alone as sequences
from gradloom.systems.sequences.answers import infer as answer
from gradloom.systems.sequences.program.onchip import answers_plan, shipped_answers
from gradloom.systems.sequences.requests import SequenceAnswers
from gradloom.workload import silent

from ...deep import deep
from ...soc.cable import Line

MEMORY = boards.find("ulx3s").memory_bytes
#: Two seconds of the board, shortened.
PAUSE = 12_000_000
MODEL = spar_model(0, 32)


@pytest.fixture
def board(tmp_path):
    """``board(preset, plan)`` is the port of a board with a bitstream."""
    made = []

    def make(preset, plan):
        folder = tmp_path / "tuner"
        made.append(SimulatedTuner(build_tuner(preset.config, plan, folder, memory_bytes=MEMORY), folder))
        list(made[0].told(1 << 24))
        return TunerPort(Line(made[0], every=0, gap=240, silence=500_000))

    yield make
    for each in made:
        each.close()


@deep
def test_windows_of_a_user_are_answered(board, tmp_path, monkeypatch):
    """Twice as many as the board has room for; blocks as in the bitstream, for few pieces to send."""
    preset = PRESETS["lstm-ulx3s"]
    x, y = spar_windows(FOLDS[0])
    np.savez(tmp_path / "mine.npz", x=x[100:104], y=y[100:104])
    small = shipped_answers(preset.config, memory=MEMORY, pause=PAUSE)
    small = answers_plan(small.network, small.codes[:2], small.labels[:2], preset.config, memory=MEMORY, pause=PAUSE)
    monkeypatch.setattr(sequences, "shipped_answers", lambda config, memory: small)
    room = boards.find("ulx3s")
    given = {"model": MODEL, "data": tmp_path / "mine.npz"}
    named = asked_for(str(MODEL), board="ulx3s", verb="infer")
    port = board(preset, small)
    monkeypatch.setattr(sequences.boards, "find", lambda name: replace(room, memory_bytes=len(small.image)))
    found = answer(named, SequenceAnswers(**given, engine="rtl", output=tmp_path / "found.npz"), silent, port)
    monkeypatch.undo()
    wanted = gradloom.infer(str(MODEL), board="ulx3s", data=given["data"], output=tmp_path / "wanted.npz")
    assert found["labels"] == wanted["labels"] and found["accuracy"] == wanted["accuracy"] and found["cycles"] > 0
    arrays = [np.load(tmp_path / f"{name}.npz") for name in ("found", "wanted")]
    assert (arrays[0]["logits"] == arrays[1]["logits"]).all()


class Other:
    """A board whose words differ from the reference's, or whose design does."""

    sent = 0

    def __init__(self, config):
        self.config = config

    def finished(self):
        pass

    def told(self):
        return [identity(self.config)]

    def run(self, image, changed, *, epochs):
        self.image = image
        return [*self.told(), "class: 9 9", "cycles: 9", "done"]

    def fetch(self, offset, length):
        return self.image[offset : offset + 4]


def test_another_word_or_another_design_is_told(tmp_path):
    x, _ = spar_windows(FOLDS[0])
    np.savez(tmp_path / "mine.npz", x=x[:2])
    named = asked_for(str(MODEL), board="ulx3s", verb="infer")
    options = SequenceAnswers(model=MODEL, data=tmp_path / "mine.npz", engine="rtl")
    with pytest.raises(MismatchError, match=r"classes\[0\] is 9"):
        answer(named, options, silent, Other(named.preset.config))
    with pytest.raises(TunerError, match="the board has gradloom: .*window=64.*, the design gradloom: .*: flash it"):
        answer(named, options, silent, Other(named.preset.config.replace(window=64)))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--board", "kv260", "--port", "/dev/none"), "port=/dev/none: kv260 takes no data by UART; must be left out"),
        (("--board", "ulx3s", "--port", "/dev/none"), "port=/dev/none: no such port"),
        (("--board", "ulx3s", "--baud", "9600"), "baud=9600: must be left out without --port"),
        (("--board", "ulx3s", "--port", "/dev/none", "--stream"), "stream=True: must be left out with --port"),
    ],
)
def test_what_a_port_does_not_have_is_refused(run, tmp_path, arguments, said):
    np.savez(tmp_path / "mine.npz", x=np.zeros((1, 50, 6)))
    code, _, err = run("infer", MODEL, "--data", tmp_path / "mine.npz", *arguments)
    assert code == 2 and said in " ".join(err.split())
