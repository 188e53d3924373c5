"""A folder that answers prompts: by the C runner and the agent in front of simulated RTL, as the reference does."""

import re
import subprocess
from dataclasses import replace

import pytest

from gradloom.jobs import on_board
from gradloom.preset import find_preset
from gradloom.systems.asked import Asked
from gradloom.systems.request import answered

from ..cli.conftest import here
from ..systems.text.conftest import CONFIG
from .test_c_runner import _native, built

__all__ = ["here"]

PRESET = replace(find_preset("edge-qlora-kv260"), config=CONFIG)
PROMPT, TOKENS = "the warp, the we", 8


def written(folder, **given):
    """A folder, and what the reference answers."""
    asked = Asked(name="small", preset=PRESET)
    given = {"model": "small", "prompt": PROMPT, "tokens": TOKENS, **given}
    options = PRESET.workload.options(PRESET.name, given, "infer")
    on_board.write_answers(asked, options, folder)
    return answered("infer", asked, replace(options, engine="reference"))


@pytest.fixture
def board(here, make_board):
    made = make_board(CONFIG, PRESET.name, 1 << 24)
    made.runner = built(here, _native()[0], made.design)
    return made


def run(board, *arguments):
    return subprocess.run(
        [str(board.runner), "--at", str(board.socket), "answer", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def said(done):
    """Tokens, programs, words that were clipped, and cycles."""
    assert done.returncode == 0, done.stderr
    told = re.fullmatch(r"(\d+) tokens by (\d+) programs, (\d+) cycles, (\d+) words clipped\n", done.stderr)
    tokens = [int(each) for each in done.stdout.split()]
    assert int(told[1]) == len(tokens)
    return tokens, int(told[2]), int(told[4]), int(told[3])


def test_an_answer_is_that_of_the_reference(here, board):
    wanted = written(here / "job")
    found = said(run(board, here / "job"))
    assert found[:3] == (wanted["tokens"], wanted["programs"], wanted["clipped"]) and found[3] > 10_000
    assert said(board.agent("answer", str(here / "job"))) == found
