"""A board tries installed words on its held-out text, and takes them back if their loss is above the bound."""

import hashlib
import math
import re
import shutil

import numpy as np
import pytest

from gradloom.delivery.board import make_board_package
from gradloom.delivery.keys import Signer
from gradloom.firmware.chip.delivered import Area, DeliveryRequest
from gradloom.program.descent import AdamW
from gradloom.rtl.formats.weights.tiles import untile_rows
from gradloom.systems.text.card.course import qlora_course
from gradloom.systems.text.card.job import STATE, board_job
from gradloom.systems.text.card.trial import HELD, evaluated
from gradloom.systems.text.operations.blocks.head import LOSS, TARGETS
from gradloom.systems.text.operations.learnt.rechosen import FRACS
from gradloom.systems.text.program.step import lower
from gradloom.systems.text.reference.integers import IntegerStep
from gradloom.systems.text.run.training import Training, encoded

from ..conftest import CONFIG, TOKENS
from .power import Board, compiled

TEXT, MEMORY = (7, 1, 99, 20, 4, 140, 3, 3, 8), 1 << 22


class Trial:
    """An accelerator that runs the trial's program alone, with the words that are in memory."""

    def __init__(self, made, frozen, adapters):
        self.made, self.losses, self.number = made, [], 0
        self.training = Training(frozen, TEXT, adapters, [0, 1])

    def run(self, memory, offset):
        """Leaves the loss; the program must be the one that a host would lower for these exponents."""
        made, training = self.made, self.training
        names = tuple(made.exponents.constants)
        state = np.frombuffer(memory.fetch(made.layout[STATE], 48 * len(names)), "<i4").reshape(-1, 12)
        frac = dict(made.frac)
        for name, row in zip(names, state.tolist(), strict=True):
            frac |= {f"{name}.{which}": bits for which, bits in zip(FRACS, row)}
        description = np.frombuffer(memory.fetch(made.job.trial, 28), "<u4").tolist()
        assert offset == description[3]
        layout = made.layout.copy()
        for name in (training.step.input.name, TARGETS, *(each.name for each in made.course.cached)):
            layout.offsets[name] = layout[HELD + name]
        expected = lower(evaluated(training), frac, layout, CONFIG, share=True).code
        assert memory.fetch(offset, len(expected)) == expected
        words = {}
        for name in names:
            for which in "ab":
                key = f"{name}.{which}"
                data = memory.fetch(made.layout[key], made.layout.sizes[key])
                rows = untile_rows(data, 2, len(data) // 8, CONFIG.edge)
                words[key] = rows if which == "a" else rows.T
        starts = {name: encoded(each, frac[name], tensor.form) for name, (tensor, each) in training.starts.items()}
        step = IntegerStep(starts, training.tables(frac) | words, training.frozen.matrix, frac=frac)
        step.run(evaluated(training))
        self.losses.append(step.mean_loss)
        total = round(step.loss / math.log(2) * 65536)
        memory.store(made.layout[LOSS], np.array([total, step.foretold], "<u8").tobytes())
        return 0


@pytest.fixture(scope="module")
def signer():
    monocypher = pytest.importorskip("monocypher")
    return Signer(monocypher.generate_signing_key_pair()[0])


@pytest.fixture
def board(signer, frozen, adapters, tmp_path, tmp_path_factory, monkeypatch):
    if shutil.which("gcc") is None or shutil.which("g++") is None:
        pytest.skip("gcc is not installed")
    monkeypatch.setattr("gradloom.systems.text.card.job._ERASED", 512)
    used = {name: each for name, each in adapters.items() if ".layers.1." in name}
    made = board_job(qlora_course(frozen, (TOKENS,), used, [0, 1], AdamW(lr=1e-2), 2), CONFIG, held_out=TEXT)
    program = compiled(tmp_path_factory.mktemp("trial"), MEMORY, signer.public)
    return Board(program, tmp_path, made, Trial(made, frozen, used), MEMORY)


def words_of(board):
    """Those that the card came with, and how many are no exponents."""
    data = next(each for each in board.made.sections if each.name == "adapters, texts").parts[0]
    layout = board.made.layout
    exact = layout[STATE] // 4
    return np.frombuffer(data, "<i4", exact + -(-layout.sizes[STATE] // 64) * 16).copy(), exact


def offered(board, signer, words, exact, version, bound):
    """Puts signed words into the inbox, and returns those that they become."""
    base = hashlib.sha256(board.fresh[:512]).digest()
    package, made = make_board_package(words, signer, base=base, version=version, bits=8, exact=exact, bound=bound)
    with board.card.open("r+b") as file:
        Area.of(file).ask(file, DeliveryRequest.INSTALL, version, package)
    return made


def state_of(board):
    with board.card.open("rb") as file:
        return Area.of(file).state(file)


def started(board, runs):
    """Lines of a start that ends before the job's first step: power goes then."""
    lines, _ = board.power(cut_runs=runs + 1)
    return [line for line in lines if line.startswith(("install", "kept"))]


def test_worse_words_are_taken_back_and_others_stay(board, signer):
    first, exact = words_of(board)
    held = board.memory.fetch
    better = first.copy()
    better[:exact] //= 2
    better = offered(board, signer, better, exact, 1, 10.0)
    # Power goes in the middle of the trial: the next start makes it again.
    assert len(started(board, 1)) == 1 and state_of(board).trial
    board.reference.losses.clear()
    (said,) = started(board, 2)
    after, before = board.reference.losses
    said, told = said.split(": "), [float(each) for each in re.findall(r"\d+\.\d+", said)]
    assert said[0] == "install" and said[-1] == "version 1" and told == pytest.approx([before, after], rel=1e-4)
    assert held(0, 4 * len(better)) == better.tobytes()
    worse = first.copy()
    worse[:exact] = np.random.default_rng(2).integers(-(1 << 30), 1 << 30, exact)
    offered(board, signer, worse, exact, 2, 1e-3)
    board.reference.losses.clear()
    said = started(board, 2)[-1]
    after, before = board.reference.losses
    assert after > before * 1.01 and said.endswith("after, above its bound: back to version 1")
    assert held(0, 4 * len(better)) == better.tobytes()
    # It does not come again, not even by a rollback, and nothing more is tried.
    assert started(board, 0) == []
    state = state_of(board)
    assert (state.current.version, state.older, state.highest, state.trial) == (1, None, 2, False)
    # Without a bound the loss is only told.
    made = offered(board, signer, worse, exact, 3, 0.0)
    assert started(board, 2)[-1].endswith("after: version 3") and held(0, 4 * len(made)) == made.tobytes()
