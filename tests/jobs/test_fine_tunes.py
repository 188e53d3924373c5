"""Fine-tunes of KV260 presets by the agent are those of simulated RTL, byte for byte."""

import dataclasses
import json
import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

import gradloom
from gradloom.firmware.device.selftest import CHECKS
from gradloom.firmware.jobs.job import JobError
from gradloom.firmware.jobs.lock import InUseError
from gradloom.firmware.jobs.remote import ConnectionLost, RemoteError
from gradloom.jobs import on_board
from gradloom.preset import find_preset
from gradloom.systems.asked import asked_for
from gradloom.systems.diffusion.requests import Pictures
from gradloom.systems.driver import finetune
from gradloom.systems.images.requests import ImageAnswers
from gradloom.systems.networks.answer import infer as answered
from gradloom.systems.networks.requests import NetworkAnswers
from gradloom.workload import silent

from ..deep import deep
from ..tiles import LEAST

PRESET = find_preset("instantft-kv260")
OPTIONS = PRESET.workload.options(PRESET.name, {"limit": 12, "epochs": 2, "batch": 4})
#: Long enough to be met while it runs.
LONG = dataclasses.replace(OPTIONS, epochs=40)


@pytest.fixture(scope="module")
def direct(tmp_path_factory):
    """The same fine-tunes in simulated RTL, each made once."""
    made = {}

    def make(options):
        if options not in made:
            made[options] = tmp_path_factory.mktemp("direct") / "run"
            finetune(PRESET, options, output=made[options])
        return made[options]

    return make


@pytest.fixture
def board(make_board):
    return make_board(PRESET.config, PRESET.name)


def same(one: Path, other: Path) -> None:
    """Every file is equal; only simulated RTL knows the cycles of every command."""
    assert sorted(path.name for path in one.iterdir()) == sorted(path.name for path in other.iterdir())
    for path in one.iterdir():
        if path.name == "metrics.json":
            found, wanted = (json.loads((each / path.name).read_text()) for each in (other, one))
            assert found["equal_to_reference"].pop("commands") == 0 < wanted["equal_to_reference"].pop("commands")
            assert found == wanted
        elif path.name == "report.html":
            one_page, other_page = (
                [line for line in (each / path.name).read_text().splitlines() if "reference.commands" not in line]
                for each in (one, other)
            )
            assert one_page == other_page
        else:
            assert path.read_bytes() == (other / path.name).read_bytes(), path.name


def jobs_on(board):
    with on_board.connected(board.reach) as agent:
        return agent.jobs()


def test_a_fine_tune_over_ssh_is_that_of_simulated_rtl(board, direct, monkeypatch, tmp_path):
    lines, told, agents, connected = [], [], [], on_board.connected
    monkeypatch.setattr(on_board, "connected", lambda reach: agents.append(connected(reach)) or agents[-1])
    on_board.finetune_on(
        board.reach,
        PRESET,
        OPTIONS,
        output=tmp_path / "run",
        compare=True,
        progress=lambda *each: told.append(each),
        say=lines.append,
    )
    same(direct(OPTIONS), tmp_path / "run")
    wanted = json.loads((tmp_path / "run/metrics.json").read_text())["loss"]
    losses = [float(line.split()[-1]) for line in lines if ": loss " in line]
    assert len(losses) == 6 and losses == pytest.approx(wanted, abs=1e-6)
    said = [int(each.replace(",", "")) for each in re.findall(r"[\d,]+(?= bytes went| came back)", lines[-1])]
    counts = [sum(getattr(each.connection.channel, way) for each in agents[1:3]) for way in ("sent", "received")]
    assert said == pytest.approx(counts, abs=100)
    assert said == pytest.approx([190_000, 49_000], rel=0.1)
    assert any(total == 6 and done == 6 for done, total, _ in told)
    assert jobs_on(board) == {} and list(board.jobs.iterdir()) == []


def test_the_self_test_passes_over_ssh(board):
    results = on_board.selftest_on(board.reach)
    assert [name for name, ok, _ in results if ok] == [name for name, _ in CHECKS]


def test_a_job_folder_runs_on_the_board_by_itself(board, direct, tmp_path):
    written = on_board.write_job(PRESET, OPTIONS, tmp_path / "job")
    assert written.stages == 1 and written.bytes_there == (tmp_path / "job/data.bin").stat().st_size
    done = board.agent("run", str(tmp_path / "job"))
    assert done.returncode == 0, done.stderr
    assert "step 6 of 6: loss" in (tmp_path / "job/log").read_text()
    assert "done already" in board.agent("run", str(tmp_path / "job")).stdout
    on_board.collect_job(tmp_path / "job", output=tmp_path / "run", compare=True)
    same(direct(OPTIONS), tmp_path / "run")
    # Without the comparison only its own entries are missing, and what the reference alone counts.
    alone = on_board.collect_job(tmp_path / "job", output=tmp_path / "alone")
    whole = json.loads((tmp_path / "run/metrics.json").read_text())
    found = json.loads((tmp_path / "alone/metrics.json").read_text())
    assert found == alone and "equal_to_reference" not in found
    del whole["equal_to_reference"]
    for each in (whole, found):
        each["units"] = {name: unit for name, unit in each["units"].items() if name.split(".")[-1] in ("loss", "total")}
        each["last_epoch"] = each["last_epoch"]["loss"]
        # The reference is judged in between, too.
        each["held_out_losses"] = [each["held_out_losses"][n] for n in (0, -1)]
    assert found == whole
    weights = "adapter_model.safetensors"
    assert (tmp_path / "alone" / weights).read_bytes() == (tmp_path / "run" / weights).read_bytes()
    other = find_preset("cdm-qta-kv260")
    with pytest.raises(JobError, match="is a job of instantft-kv260, not of cdm-qta-kv260"):
        on_board.collect_job(tmp_path / "job", output=tmp_path / "other", preset=other)
    with pytest.raises(JobError, match="holds a job that has run"):
        on_board.write_job(PRESET, OPTIONS, tmp_path / "job")


def test_results_are_taken_for_no_other_request(board, tmp_path):
    on_board.write_job(PRESET, OPTIONS, tmp_path / "job")
    assert board.agent("run", str(tmp_path / "job")).returncode == 0
    path = tmp_path / "job/job.json"
    path.write_text(path.read_text().replace('"seed":0', '"seed":1'))
    with pytest.raises(JobError, match="is of another request"):
        on_board.collect_job(tmp_path / "job", output=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_lost_connection_does_not_end_a_job(board, direct, tmp_path):
    started = on_board.start_on(board.reach, PRESET, LONG)
    with on_board.connected(board.reach) as agent:
        status, _ = next(agent.follow(started.name))
        assert status["state"] == "running"
        agent._process.kill()
    with board.halted():
        with pytest.raises(InUseError, match=rf"the board is in use by job {started.name} of .*@"):
            on_board.selftest_on(board.reach)
        assert jobs_on(board)[started.name]["state"] == "running"
    # The same request again finds the same job.
    assert on_board.start_on(board.reach, PRESET, LONG).name == started.name
    on_board.attach(board.reach, started.name, output=tmp_path / "run", compare=True)
    same(direct(LONG), tmp_path / "run")


@pytest.mark.parametrize("power", ["stays", pytest.param("goes", marks=deep)])
def test_a_job_that_is_killed_begins_again(board, direct, tmp_path, power):
    """Its program still runs in the machine where the power stays."""
    started = on_board.start_on(board.reach, PRESET, LONG)
    end = time.monotonic() + 60
    while not (status := jobs_on(board)[started.name])["text"].endswith("commands"):
        assert status["state"] == "running" and time.monotonic() < end
    os.kill(status["process"], signal.SIGKILL)
    end = time.monotonic() + 20
    while jobs_on(board)[started.name]["state"] != "interrupted":
        assert time.monotonic() < end
    if power == "goes":
        board.power_off()
        board.power_up()
    on_board.attach(board.reach, started.name, output=tmp_path / "run", compare=True)
    same(direct(LONG), tmp_path / "run")


def test_a_second_client_is_refused_by_name(board):
    with on_board.connected(board.reach) as first, first.open(None):
        with pytest.raises(InUseError, match=r"the board is in use by \S+@\S+ \(process \d+\)"):
            on_board.start_on(board.reach, PRESET, OPTIONS)
    assert jobs_on(board) == {}
    # It is free again.
    assert all(ok for _, ok, _ in on_board.selftest_on(board.reach))


def test_another_design_is_refused_before_anything_is_copied_or_written(board, make_board):
    other = find_preset("lstm-kv260")
    options = other.workload.options(other.name, {"limit": 4, "epochs": 1})
    with on_board.connected(board.reach) as agent, agent.open(None) as transport:
        transport.write_memory(0, b"kept" * 4)
    with pytest.raises(RemoteError, match="the board has another design than lstm-kv260: .*run gradloom flash again"):
        on_board.start_on(board.reach, other, options)
    assert not board.jobs.exists()
    with on_board.connected(board.reach) as agent, agent.open(None) as transport:
        assert transport.read_memory(0, 16) == b"kept" * 4


def test_too_little_memory_is_refused(make_board):
    board = make_board(PRESET.config, PRESET.name, memory_bytes=1 << 16)
    with pytest.raises(RemoteError, match=r"the job needs [\d,]+ bytes of memory, the board has reserved 65,536"):
        on_board.start_on(board.reach, PRESET, OPTIONS)
    assert not board.jobs.exists()


def test_a_full_disk_leaves_no_part_of_a_job(make_board):
    board = make_board(PRESET.config, PRESET.name, before="ulimit -f 64")
    with pytest.raises(RemoteError, match="no room to write on the board .*: make room there"):
        on_board.start_on(board.reach, PRESET, OPTIONS)
    assert list(board.jobs.iterdir()) == []


def test_an_agent_of_another_version_is_refused(board):
    path = board.host / "gradloom_host/frames.py"
    path.write_text(path.read_text().replace("PROTOCOL = 2", "PROTOCOL = 3"))
    with pytest.raises(RemoteError, match="speaks protocol 3, this gradloom 2: run gradloom flash again"):
        on_board.connected(board.reach)
    path.unlink()
    with pytest.raises(ConnectionLost, match="No module named 'gradloom_host.frames'; .*run gradloom flash again"):
        on_board.connected(board.reach)
    (board.home / "gradloom-designs").rename(board.home / "gone")
    with pytest.raises(ConnectionLost, match="run gradloom flash kv260 DIR first"):
        on_board.connected(board.reach)


@pytest.mark.parametrize(
    "before, said",
    [
        ("echo Welcome to Ubuntu", "'Welcome to Ubuntu' arrived in place of a frame"),
        ("echo 'sudo: a password is required' >&2; exit 1", "sudo must not ask for a password there"),
        ("exit 255", "ubuntu@kria does not answer over ssh"),
        (
            "echo 'ubuntu@kria: Permission denied (publickey,password).' >&2; exit 255",
            "host=ubuntu@kria: refuses the login: run ssh-copy-id ubuntu@kria once",
        ),
    ],
)
def test_what_stands_in_the_way_is_one_line(make_board, before, said):
    board = make_board(PRESET.config, PRESET.name, before=before)
    with pytest.raises(ConnectionLost) as refused:
        on_board.connected(board.reach)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_a_host_that_does_not_answer_is_told_before_the_job_is_written(make_board, monkeypatch):
    board = make_board(PRESET.config, PRESET.name, before="exit 255")
    monkeypatch.setattr(on_board, "_recorded", lambda *_: pytest.fail("a job was written"))
    with pytest.raises(ConnectionLost, match="ubuntu@kria does not answer over ssh"):
        on_board.start_on(board.reach, PRESET, OPTIONS)


def test_boards_without_linux_are_refused(tmp_path):
    other = find_preset("digits-ulx3s")
    with pytest.raises(ValueError, match="ulx3s has no Linux that an agent could run on"):
        on_board.write_job(other, other.workload.options(other.name, {}), tmp_path / "job")
    floating = dataclasses.replace(OPTIONS, engine="float")
    with pytest.raises(ValueError, match="engine=float: must be left out for a board"):
        on_board.write_job(PRESET, floating, tmp_path / "job")
    assert not (tmp_path / "job").exists()


def test_images_are_answered_over_ssh_as_in_simulated_rtl(board, direct, tmp_path):
    """With what a job has learnt; no forecast, as the memory's latencies are not known of a board."""
    options = ImageAnswers(adapter=direct(OPTIONS), limit=5, output=tmp_path / "found.npz")
    found = on_board.infer_on(board.reach, asked_for(PRESET.name, verb="infer"), options)
    wanted = gradloom.infer(PRESET.name, adapter=direct(OPTIONS), limit=5, engine="rtl", output=tmp_path / "wanted.npz")
    assert found.pop("forecast") is None and wanted.pop("forecast") == found["cycles"] > 0 and found == wanted
    arrays = [np.load(tmp_path / name) for name in ("found.npz", "wanted.npz")]
    assert arrays[0].files == arrays[1].files and all((arrays[0][n] == arrays[1][n]).all() for n in arrays[0])


def test_a_users_network_learns_and_answers_over_ssh(make_board, tmp_path):
    """Preset tile-kv260 with a small array: steps and answers are those of simulated RTL and of the reference."""
    preset = dataclasses.replace(find_preset("tile-kv260"), config=LEAST)
    board = make_board(LEAST, preset.name)
    random, model = np.random.default_rng(0), tmp_path / "mine.onnx"
    weights = {"a": (8, 20), "b": (20, 3)}
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("MatMul", ["x", "a"], ["h"]),
            onnx.helper.make_node("Relu", ["h"], ["r"]),
            onnx.helper.make_node("MatMul", ["r", "b"], ["y"]),
        ],
        "mine",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 8))],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 3))],
        [onnx.numpy_helper.from_array(random.standard_normal(n).astype("f"), name) for name, n in weights.items()],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), model)
    x, y = random.standard_normal((24, 8)).astype("f"), random.integers(0, 3, 24)
    np.savez(tmp_path / "d.npz", x_train=x[:16], y_train=y[:16], x_test=x[16:], y_test=y[16:])
    given = {"model": model, "data": tmp_path / "d.npz"}
    options = preset.workload.options(preset.name, given | {"batch": 8, "epochs": 1, "rank": 2, "engine": "rtl"})
    on_board.finetune_on(board.reach, preset, options, output=tmp_path / "found", compare=True)
    finetune(preset, options, output=tmp_path / "wanted")
    same(tmp_path / "wanted", tmp_path / "found")
    asked = dataclasses.replace(asked_for(str(model), board="kv260", verb="infer"), preset=preset)
    answers = NetworkAnswers(**given, adapter=tmp_path / "found", batch=3)
    found = on_board.infer_on(board.reach, asked, answers)
    wanted = answered(asked, dataclasses.replace(answers, adapter=tmp_path / "wanted"), silent)
    assert found.pop("engine") == "rtl" and wanted.pop("engine") == "reference"
    assert found.pop("cycles") > 0 and found.pop("forecast") is None and found == wanted


@deep
def test_steps_of_a_diffusion_model_are_those_of_simulated_rtl(make_board, tmp_path):
    """The shipped model on the preset's own machine."""
    preset = find_preset("cdm-qta-kv260")
    options = preset.workload.options(preset.name, {"batch": 1, "steps": 2, "generate": 0, "engine": "rtl"})
    board = make_board(preset.config, preset.name)
    on_board.finetune_on(board.reach, preset, options, output=tmp_path / "found", compare=True)
    finetune(preset, options, output=tmp_path / "wanted")
    same(tmp_path / "wanted", tmp_path / "found")
    asked = {"prompt": "a 3 .", "adapter": tmp_path / "wanted", "count": 1, "steps": 2}
    pictures = Pictures(**asked, output=tmp_path / "found.png")
    found = on_board.infer_on(board.reach, asked_for(preset.name, verb="infer"), pictures)
    gradloom.infer(preset.name, **asked, engine="reference", output=tmp_path / "wanted.png")
    assert found["cycles"] > 0 and (tmp_path / "found.png").read_bytes() == (tmp_path / "wanted.png").read_bytes()
