"""After power was cut a fine-tune goes on bit for bit as if it had not been; DRAM comes back as noise."""

import os
import random
import shutil
from dataclasses import replace

import numpy as np
import pytest

from gradloom.firmware.chip.card import KEPT, read_header
from gradloom.firmware.chip.kept import Reason
from gradloom.firmware.chip.soc import Limits
from gradloom.program.descent import AdamW
from gradloom.rtl.shell.registers.regtable import REGISTERS
from gradloom.systems.text.card.course import qlora_course
from gradloom.systems.text.card.job import board_job

from ..conftest import CONFIG, TOKENS
from .power import Board, Reference, compiled

TEXTS = TOKENS, TOKENS[::-1]
DEEP = bool(os.environ.get("GRADLOOM_DEEP"))
STEPS, RULE, MEMORY = 6, AdamW(lr=1e-2), 1 << 22


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    if shutil.which("gcc") is None or shutil.which("g++") is None:
        pytest.skip("gcc is not installed")
    return compiled(tmp_path_factory.mktemp("power"), MEMORY)


@pytest.fixture(scope="module")
def references():
    """By layers: steps that were made once are known to all tests."""
    return {}


@pytest.fixture
def board(program, references, frozen, adapters, tmp_path, monkeypatch):
    monkeypatch.setattr("gradloom.systems.text.card.job._ERASED", 512)

    def make(layers=(1,), config=CONFIG, **how):
        used = {
            name: replace(each, b=np.zeros_like(each.b))
            for name, each in adapters.items()
            if int(name.split(".")[2]) in layers
        }
        made = board_job(
            qlora_course(frozen, TEXTS, used, [0, 1], RULE, STEPS), config, **({"every": 1, "cycles": 0} | how)
        )
        if layers not in references:
            references[layers] = Reference(made, frozen, used, [0, 1], RULE, TEXTS)
        return Board(program, tmp_path, made, references[layers], MEMORY)

    return make


def same(found, expected):
    assert (found.runs, found.words, found.log) == (expected.runs, expected.words, expected.log)


def cuts(length, blocks, how_many):
    """Settings of cuts: at boundaries of written blocks, inside them, before runs, and anywhere on the card's line."""
    chosen = random.Random(1)
    at_blocks = [{"card_cut": round(n * length / blocks)} for n in range(1, blocks)]
    inside = [{"card_cut": chosen.randrange(1, length)} for _ in range(how_many)]
    runs = [{"cut_runs": number} for number in range(1, STEPS + 1)]
    found = [*at_blocks, *inside, *runs]
    return found if len(found) <= how_many else [*runs[::2], *chosen.sample([*at_blocks, *inside], how_many - 3)]


@pytest.mark.parametrize("layers", [(1,), (0, 1)] if DEEP else [(1,)], ids=str)
def test_cuts_of_power_change_nothing(board, layers):
    """With adapters in the last layer alone, later steps begin at what the first step on a text kept in memory."""
    each = board(layers, every=2)
    lines, (cut, length, blocks, runs, line) = each.power()
    assert (cut, runs, lines[-2]) == (False, STEPS, "done")
    expected = each.kept()
    assert (expected.runs, expected.reason, len(expected.log)) == (STEPS, Reason.DONE, STEPS)
    losses = [record.loss for record in expected.log]
    assert losses == pytest.approx(each.reference.told(STEPS), rel=1e-4) and len(set(losses)) == STEPS
    resumed = 0
    wanted = [*cuts(length, blocks, 1000 if DEEP else 6), {"cut_bytes": line // 3}]
    for number, settings in enumerate(wanted, start=1):
        each.reset()
        lines, (cut, *_) = each.power(seed=number, card_seed=number, **settings)
        assert cut and "done" not in lines, settings
        before = each.kept()
        lines, (cut, *_) = each.power(seed=-number)
        assert not cut and lines[-2] == "done", settings
        assert (f"kept: goes on after run {before.runs}" in lines) if before else "kept: goes on" not in str(lines)
        resumed += before is not None
        same(each.kept(), expected)
    assert resumed > len(wanted) // 3


def test_power_may_go_again_and_again(board):
    each = board(every=1)
    each.power()
    expected = each.kept()
    each.reset()
    for number in range(1, 20):
        lines, (cut, *_) = each.power(seed=number, card_seed=number, card_cut=9000 + 3000 * number)
        if not cut:
            break
    assert lines[-2] == "done" and number > 2
    same(each.kept(), expected)
    # All is done: nothing runs, and nothing is written.
    lines, (_, _, stored, runs, _) = each.power()
    assert (runs, stored, lines[-2]) == (0, 0, "done")


def test_a_card_for_another_machine_does_not_run(board):
    """Neither a step nor a block of the card is written; a card for less than there is runs."""
    each = board(config=CONFIG.replace(features=2 * CONFIG.features))
    lines, (_, _, stored, runs, _) = each.power()
    said = f"features={CONFIG.features}, must be at least {2 * CONFIG.features} (--set features={2 * CONFIG.features})"
    assert (runs, stored, lines[-2]) == (0, 0, "failed") and f"error: the job is for another design: {said}" in lines
    lines, (_, _, _, runs, _) = board(config=CONFIG.replace(groups=CONFIG.groups // 2)).power()
    assert (runs, lines[-2]) == (STEPS, "done")


def test_limits_stop_a_job_where_it_goes_on_later(board):
    each = board(every=100)
    each.power()
    expected = each.kept()
    for limits, reason, steps in ((Limits(runs=2), Reason.RUNS, 3), (Limits(cycles=2500), Reason.CYCLES, 2)):
        again = board(every=100, limits=limits)
        told = "runs" if limits.runs else "cycles"
        for turn in range(1, steps + 1):
            lines, _ = again.power(seed=turn)
            last = turn == steps
            assert lines[-2] == ("done" if last else "stopped") and (last or f"stopped: limit of {told}" in lines)
            assert again.kept().reason == (Reason.DONE if last else reason)
        found = again.kept()
        assert (found.words, found.log) == (expected.words, expected.log)


def told(lines):
    """What is said of copies and pauses."""
    return [line for line in lines if line.startswith(("kept", "paused", "goes on"))]


def test_cycles_and_lost_mains_keep_a_job(board):
    """The cycles of a pause, which are more than the job's, do not count."""
    each = board(every=0, cycles=2500)
    lines, _ = each.power(mains=4)
    assert told(lines) == [
        "kept: after run 3",
        "kept: after run 4",
        "paused: mains power is gone",
        "goes on: mains power is back",
        "kept: after run 6",
    ]


def test_a_chip_that_is_too_warm_pauses_the_job(board):
    each = board(every=0, cycles=2500, limits=Limits(celsius=80))
    lines, _ = each.power(warm=2)
    assert told(lines) == [
        "kept: after run 2",
        "paused: the chip has 96 degrees",
        "goes on: the chip has 34 degrees",
        "kept: after run 5",
        "kept: after run 6",
    ]
    assert Limits(celsius=80).heat == 2870 and Limits().heat == 0


def test_what_runs_when_the_processor_starts_is_stopped(board):
    """The reset button starts the processor alone; a program or a request may be under way."""
    each = board(every=100, limits=Limits(runs=1))
    bits = {field.name: 1 << field.lsb for field in REGISTERS["STATUS"].fields}
    for status, stopped in ((0, False), (bits["busy"], True), (bits["request_busy"], True)):
        each.reset()
        lines, _ = each.power(status=status)
        assert ("accelerator: stopped" in lines) is stopped and lines[-2] == "stopped"


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"card_protect": 1}, "kept: error: the card is write-protected"),
        ({"card_bad": 0}, "kept: error: the card cannot write a block"),
        ({"card_spoil": 0, "card_spoils": 3}, "kept: error: blocks arrive at the card damaged"),
    ],
)
def test_a_card_that_does_not_store_stops_nothing(board, settings, said):
    """The job goes on, and what was kept before stays."""
    each = board(every=2, limits=Limits(runs=4))
    each.power()
    before = each.kept()
    assert before.runs == 4
    (area,) = (each for each in read_header(each.fresh[:512])[0] if each.kind == KEPT)
    first = area.start // 512
    settings = {name: value or first + 2 for name, value in settings.items()}
    lines, _ = each.power(**settings)
    assert said in lines and lines[-2] == "done"
    assert each.kept().runs in (4, STEPS)
