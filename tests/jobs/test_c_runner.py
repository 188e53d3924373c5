"""The Linux program in C runs a job folder as the agent does: here, and for the board's processor under qemu."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from gradloom.boards.firmware_files import firmware_files
from gradloom.jobs import on_board
from gradloom.preset import find_preset
from gradloom.sim.run.builds.designs import design_entry

from ..tiles import LEAST
from .test_interrupted import Steps, equal, results, steps_in

PRESET = find_preset("instantft-kv260")
OPTIONS = PRESET.workload.options(PRESET.name, {"limit": 12, "epochs": 2, "batch": 4})
STRICT = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror")


def built(folder, compiler, design):
    """``gradloom_run`` of a design's driver."""
    for path, text in firmware_files(design).items():
        if path.startswith("driver/"):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    sources = [path for name in ("linux_*.c", "gradloom*.c") for path in sorted((folder / "driver").glob(name))]
    program = folder / "gradloom_run"
    command = [*compiler, *STRICT, "-o", str(program), *map(str, sources)]
    subprocess.run(command, check=True)
    return program


def _native():
    if shutil.which("cc") is not None:
        return ["cc"], []
    return [sys.executable, "-m", "ziglang", "cc"], []


def _aarch64():
    if (qemu := shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")) is None:
        pytest.skip("qemu-aarch64 is not installed (apt install qemu-user): the board's own build of the C runner")
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang is not installed (make firmware): the board's own build of the C runner")
    return [sys.executable, "-m", "ziglang", "cc", "--target=aarch64-linux-musl"], [qemu]


@pytest.fixture(params=["native", "aarch64"])
def tools(request):
    """A compiler, and what runs its programs."""
    return {"native": _native, "aarch64": _aarch64}[request.param]()


def run(program, before, board, folder):
    return subprocess.run(
        [*before, str(program), "--at", str(board.socket), "job", str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def same_results(one, other):
    assert (one / "result.bin").read_bytes() == (other / "result.bin").read_bytes()
    assert json.loads((one / "result.json").read_text()) == json.loads((other / "result.json").read_text())
    said = [[re.sub(r"^\S+ \S+ ", "", line) for line in steps_in(each)] for each in (one, other)]
    assert said[0] == said[1] and said[0]


def test_a_fine_tune_is_that_of_the_agent(make_board, tools, tmp_path):
    """Words, counters and losses, then the adapter, which is compared with the reference."""
    board = make_board(PRESET.config, PRESET.name)
    program = built(tmp_path, tools[0], board.design)
    on_board.write_job(PRESET, OPTIONS, tmp_path / "ours")
    shutil.copytree(tmp_path / "ours", tmp_path / "theirs")
    assert board.agent("run", str(tmp_path / "theirs")).returncode == 0
    done = run(program, tools[1], board, tmp_path / "ours")
    assert (done.returncode, done.stderr) == (0, "")
    same_results(tmp_path / "ours", tmp_path / "theirs")
    on_board.collect_job(tmp_path / "ours", output=tmp_path / "run", compare=True)
    assert not (tmp_path / "ours/result.part").exists() and not list((tmp_path / "ours").glob("*.new"))
    assert "done already" in run(program, tools[1], board, tmp_path / "ours").stdout
    # The agent knows it for what it is.
    assert "done already" in board.agent("run", str(tmp_path / "ours")).stdout


@pytest.fixture(scope="module")
def steps():
    return Steps()


@pytest.fixture
def small(make_board, steps, tmp_path):
    """A board with a small machine for diffusion, a program for it, and a job of several programs."""
    board = make_board(LEAST, "small")
    steps.write(board.jobs / "ours")
    return board, built(tmp_path, _native()[0], board.design), board.jobs / "ours"


def test_a_job_of_several_programs_is_that_of_the_agent(small, steps, tmp_path):
    board, program, folder = small
    steps.write(board.jobs / "theirs")
    assert board.agent("run", str(board.jobs / "theirs")).returncode == 0
    # What an interrupted run of the agent has left is in nobody's way.
    (folder / "state.json").write_text("{}")
    (folder / "result.part").write_text("half")
    done = run(program, [], board, folder)
    assert (done.returncode, done.stderr) == (0, "")
    same_results(folder, board.jobs / "theirs")
    equal(results(steps, folder, tmp_path), results(steps, board.jobs / "theirs", tmp_path))
    assert not list(folder.glob("state*.json")) or not (folder / "state.json").exists()


def test_a_program_that_stops_is_told_as_the_agent_does(small, tmp_path):
    board, program, folder = small
    found = json.loads((folder / "job.json").read_text())
    found["stages"] = found["stages"][:1]
    found["stages"][0]["program"][1] //= 2
    (folder / "job.json").write_text(json.dumps(found))
    shutil.copytree(folder, board.jobs / "theirs")
    assert board.agent("run", str(board.jobs / "theirs")).returncode == 2
    done = run(program, [], board, folder)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    ours, theirs = (json.loads((each / "failed.json").read_text()) for each in (folder, board.jobs / "theirs"))
    assert ours == theirs and done.stderr == f"gradloom: {theirs['message']}\n"
    assert not (folder / "result.bin").exists()


CHANGES = {
    "job.json: format: must be an integer from 2 to 2": {"format": 1},
    "job.json: window: must be an integer from 1": {"window": 0},
    "job.json: has a field that is unknown": {"more": 1},
    "job.json: state: is missing": {"state": ...},
    "job.json: stages: must be a list of one or more": {"stages": []},
    "job.json: stages: must have writes, program and reads": {"stages": [{"writes": [], "reads": [], "more": 1}]},
    "job.json: stages.writes: must be an integer from 0": {
        "stages": [{"writes": [[0, 1 << 28, 1 << 20]], "program": None, "reads": []}]
    },
    "job.json: stages.program.commands: must be": {"stages": [{"writes": [], "program": [0, 0], "reads": []}]},
    "job.json: losses: must be sums or tiles": {"losses": {"kind": "other"}},
    "the board has another design than small: rows is as usual, must be 1": {
        "design": {"name": "small", "table": "rows=1;", "data_bits": 256}
    },
    "the board has another design than small: data_bits=256, must be 128; run gradloom flash again": {
        "design": design_entry("small", LEAST) | {"data_bits": 128}
    },
    # Its STORE would take operands of forwards for those of memory.
    "the board has another design than small: forwards is as usual, must be 0 (--set forwards=0); run gradloom flash": {
        "design": design_entry("small", LEAST.replace(forwards=0))
    },
    "the job needs: 4294967295 bytes of memory, the board has reserved": {"window": (1 << 32) - 1},
    "data.bin: has bytes that are not those of job.json": {"data_sha256": "0" * 64},
}


def test_what_is_refused(small):
    """By the field, and nothing is written; a folder in use, and a board in use by another program."""
    board, program, folder = small
    whole = (folder / "job.json").read_text()
    for said, change in CHANGES.items():
        found = {name: value for name, value in (json.loads(whole) | change).items() if value is not ...}
        (folder / "job.json").write_text(json.dumps(found))
        done = run(program, [], board, folder)
        assert done.returncode == 2 and done.stderr.startswith(f"gradloom: {said}"), (said, done.stderr)
        assert len(done.stderr.splitlines()) == 1 and not (folder / "result.json").exists()
    (folder / "job.json").write_text(whole[:-20])
    assert run(program, [], board, folder).stderr == "gradloom: job.json: is no JSON object\n"
    (folder / "job.json").write_text(whole)
    assert "is no job folder" in run(program, [], board, folder / "nowhere").stderr
    with on_board.connected(board.reach) as agent, agent.open(None):
        done = run(program, [], board, folder)
        assert done.returncode == 2 and re.match(r"gradloom: the board is in use by: \S+@\S+ \(process", done.stderr)
    os.remove(folder / "data.bin")
    assert "data.bin: No such file" in run(program, [], board, folder).stderr
