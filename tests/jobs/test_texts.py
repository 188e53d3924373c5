"""A language model on a board: jobs of edge-qlora-kv260."""

import json
from dataclasses import replace

import pytest

from gradloom.firmware.device.registers import COMMAND_BYTES
from gradloom.firmware.jobs.job import read_plan
from gradloom.jobs import on_board
from gradloom.preset import find_preset
from gradloom.sim.run.counted import MismatchError
from gradloom.systems.asked import Asked
from gradloom.systems.request import answered

from ..cli.conftest import here
from ..deep import deep
from ..systems.text.conftest import CONFIG

__all__ = ["here"]

PRESET = replace(find_preset("edge-qlora-kv260"), config=CONFIG)
ASKED = {"model": "small", "data": "text.txt", "seq": 16, "rank": 2, "steps": 3, "generate": 0}


@pytest.fixture
def preset(monkeypatch):
    """The preset with its name, but small."""
    monkeypatch.setattr(on_board, "find_preset", lambda name: PRESET)
    return PRESET


def test_a_job_of_steps(here, preset):
    """Each step has its own program; what the board has learnt is not written again."""
    options = preset.workload.options(preset.name, ASKED)
    written = on_board.write_job(preset, options, here / "job")
    plan = read_plan(here / "job")
    assert written.stages == len(plan.stages) == 3 and not (here / "job" / "run").exists()
    sizes = [sum(length for *_, length in stage.writes) for stage in plan.stages]
    adapters = sum(length for _, length in plan.stages[0].reads)
    assert sizes[1] < sizes[0] and adapters > 10_000
    # The first step's values are all in the first stage's writes; others have tables, and changed commands.
    reads = {offset for offset, _ in plan.stages[0].reads}
    again = [length for offset, _, length in plan.stages[2].writes if offset in reads]
    assert sum(again) < adapters / 4, "adapters and moments stay on the board"
    assert all(commands * COMMAND_BYTES < plan.window for _, commands in (stage.program for stage in plan.stages))


def test_other_words_of_a_board_are_refused(here, preset):
    """A board whose machine has learnt nothing does not pass for one that has."""
    options = preset.workload.options(preset.name, {**ASKED, "steps": 1})
    on_board.write_job(preset, options, here / "job")
    plan = read_plan(here / "job")
    _ran(here / "job", plan)
    with pytest.raises(MismatchError, match="RTL and reference differ"):
        on_board.collect_job(here / "job", output=here / "out")
    assert not (here / "out").exists()


def _ran(folder, plan):
    """The results of a board whose memory stays zero."""
    import hashlib

    zeros = bytes(plan.result_bytes)
    (folder / "result.bin").write_bytes(zeros)
    from gradloom.jobs.programs import _zeros

    counters = [vars(_zeros(["idle"])) for _ in plan.stages]
    told = {"result_sha256": hashlib.sha256(zeros).hexdigest(), "data_sha256": plan.data_sha256, "counters": counters}
    (folder / "result.json").write_text(json.dumps(told))


def test_a_job_by_instantft(here, monkeypatch):
    """A text's cache is filled by a program of its own, once."""
    other = replace(find_preset("instantft-llm-kv260"), config=CONFIG)
    options = other.workload.options(other.name, {**ASKED, "steps": 6})
    on_board.write_job(other, options, here / "job")
    plan = read_plan(here / "job")
    text = (here / "text.txt").read_text()
    assert len(plan.stages) == 6 + len(text) // 16


@deep
@pytest.mark.parametrize("memory_bytes", [1 << 24])
def test_a_fine_tune_on_a_board(here, preset, make_board, memory_bytes):
    """By the agent in front of simulated RTL: adapters are those of the reference."""
    board = make_board(CONFIG, preset.name, memory_bytes)
    options = preset.workload.options(preset.name, ASKED)
    found = on_board.finetune_on(board.reach, preset, options, output=here / "found")
    from gradloom.systems.driver import finetune

    wanted = finetune(preset, replace(options, engine="reference"), output=here / "wanted")
    assert found["loss"] == wanted["loss"] and found["equal_to_reference"]["words"] > 10_000
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        assert (here / "found" / name).read_bytes() == (here / "wanted" / name).read_bytes()


@deep
def test_too_little_reserved_memory_is_refused(here, preset, make_board):
    board = make_board(CONFIG, preset.name, 1 << 16)
    options = preset.workload.options(preset.name, {**ASKED, "steps": 1})
    with pytest.raises(Exception, match=r"the job needs [0-9,]+ bytes of memory, the board has reserved 65,536"):
        on_board.finetune_on(board.reach, preset, options, output=here / "found")


def test_an_answer_of_a_board(here, preset, make_board):
    """By the agent in front of simulated RTL, token for token as the reference."""
    board = make_board(CONFIG, preset.name, 1 << 24)
    asked = Asked(name="small", preset=preset)
    options = preset.workload.options(preset.name, {"model": "small", "prompt": "th", "tokens": 2}, "infer")
    found = on_board.infer_on(board.reach, asked, options)
    wanted = answered("infer", asked, replace(options, engine="reference"))
    assert found["tokens"] == wanted["tokens"] and len(found["tokens"]) == 2
    assert found["text"] == wanted["text"] and found["clipped"] == wanted["clipped"] == 0
    assert found["cycles"] > 30_000 and found["forecast"] is None


def test_another_adapter_finds_the_model_in_memory(here, preset, make_board, monkeypatch):
    """An answer sends what the one before has not left: the adapter, and none of the frozen codes."""
    from gradloom.firmware.jobs import remote
    from gradloom.systems.driver import finetune

    monkeypatch.setattr(remote, "LARGE", 256)
    sent, ask = [], remote.Connection.ask

    def counted(connection, message, data=b""):
        sent.append(len(data))
        return ask(connection, message, data)

    monkeypatch.setattr(remote.Connection, "ask", counted)
    options = preset.workload.options(preset.name, {**ASKED, "steps": 2, "engine": "reference"})
    finetune(preset, options, output=here / "one")
    finetune(preset, replace(options, lr=0.1), output=here / "other")
    board, asked, totals, answers = make_board(CONFIG, preset.name, 1 << 24), Asked(name="small", preset=preset), [], []
    for name in ("one", "one", "other"):
        given = {"model": "small", "prompt": "th", "tokens": 2, "adapter": here / name}
        options = preset.workload.options(preset.name, given, "infer")
        sent.clear()
        answers.append(on_board.infer_on(board.reach, asked, options)["tokens"])
        totals.append(sum(sent))
        assert answers[-1] == answered("infer", asked, replace(options, engine="reference"))["tokens"]
    first, again, other = totals
    # Codes of four bits: q, o, gate, up and down, and k and v of half as many outputs.
    frozen = 2 * (5 * 128 + 2 * 64) * 128 // 2
    assert first - other >= frozen and again < other


def test_too_little_reserved_memory_for_an_answer_is_refused(here, preset, make_board):
    board = make_board(CONFIG, preset.name, 1 << 16)
    options = preset.workload.options(preset.name, {"model": "small", "prompt": "th"}, "infer")
    with pytest.raises(ValueError, match=r"tokens=33: .* need [\d,]+ bytes of memory, the board has reserved 65,536"):
        on_board.infer_on(board.reach, Asked(name="small", preset=preset), options)
