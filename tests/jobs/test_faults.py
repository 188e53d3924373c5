"""Faults of boards that other files have not, and the guide's list of them all."""

import json
import re
import shlex
import socket
from pathlib import Path

import pytest

from gradloom.firmware.device import registers
from gradloom.firmware.jobs import job_run
from gradloom.firmware.jobs.lock import InUseError, is_locked, locked
from gradloom.firmware.jobs.remote import Agent, RemoteError
from gradloom.jobs import on_board
from gradloom.preset import find_preset

from .conftest import PYTHON, put_host

PRESET = find_preset("instantft-kv260")
OPTIONS = PRESET.workload.options(PRESET.name, {"limit": 8, "epochs": 1, "batch": 4})
ROOT = Path(__file__).parents[2]
#: The agent on a machine that calls itself something else; without --at it looks for the board's own device.
_ELSEWHERE = """
import platform, runpy, sys
platform.machine = lambda: "riscv64"
sys.argv[:1] = ["agent"]
from gradloom_host import board_device
from pathlib import Path
board_device._LOCK = Path("lock")
runpy.run_module("gradloom_host.agent", run_name="__main__")
"""


def test_another_architecture_is_named(tmp_path):
    put_host(tmp_path, None)
    there = f"cd {shlex.quote(str(tmp_path))}; unset PYTHONPATH; exec {shlex.join([PYTHON, '-c', _ELSEWHERE])}"
    with Agent(["sh", "-c", there], client="a test") as agent:
        with pytest.raises(RemoteError, match="no memory barrier is known for riscv64: use a board with aarch64"):
            agent.open(None)
        # It has no board, and still answers.
        assert agent.jobs() == {}


def test_a_board_without_numpy_runs_a_job(make_board, tmp_path):
    board = make_board(PRESET.config, PRESET.name)
    (board.host / "numpy.py").write_text('raise ImportError("numpy: is not on this board")\n')
    on_board.write_job(PRESET, OPTIONS, tmp_path / "job")
    done = board.agent("run", str(tmp_path / "job"))
    assert (done.returncode, done.stderr) == (0, "") and (tmp_path / "job/result.bin").exists()


def test_a_job_folder_finds_another_design_loaded(make_board, machine_memory, tmp_path):
    """On the board itself, where nobody has looked before it was copied."""
    other = find_preset("lstm-kv260")
    on_board.write_job(other, other.workload.options(other.name, {"limit": 4, "epochs": 1}), tmp_path / "job")
    board = make_board(PRESET.config, PRESET.name)
    before = machine_memory(board)
    done = board.agent("run", str(tmp_path / "job"))
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and line.startswith("gradloom: the board has another design than lstm-kv260: ")
    assert json.loads((tmp_path / "job/failed.json").read_text())["message"] == line.removeprefix("gradloom: ")
    assert machine_memory(board) == before and not (tmp_path / "job/result.bin").exists()


@pytest.fixture
def machine_memory():
    """``machine_memory(board)``: the first bytes of the memory, which it fills where they are 0."""
    from gradloom.firmware.jobs.remote import Connection

    def read(board):
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(str(board.socket))
            ask = Connection(other.fileno(), other.fileno(), timeout=30, close=lambda: None).ask
            if ask({"do": "fetch", "offset": 0, "length": 64})[1] == bytes(64):
                ask({"do": "store", "offset": 0}, b"kept" * 16)
            return ask({"do": "fetch", "offset": 0, "length": 64})[1]

    return read


def test_each_fault_of_the_guide_has_its_test():
    guide = (ROOT / "docs/guides/boards/on-the-board.md").read_text()
    (section,) = re.findall(r"## What goes wrong\n(.*?)\n## ", guide, re.S)
    rows = [line for line in section.splitlines() if line.startswith("| ")][2:]
    named = [re.findall(r"`(test_\w+)`", row) for row in rows]
    assert len(rows) >= 12 and all(named)
    defined = set()
    for folder in ("boards", "firmware", "jobs"):
        for path in (ROOT / "tests" / folder).rglob("test_*.py"):
            defined |= set(re.findall(r"^def (test_\w+)", path.read_text(), re.M))
    assert {name for row in named for name in row} <= defined


class _Left:
    """A machine in which a program runs that nobody waits for; another bit of its status outlives a reset."""

    def __init__(self):
        self.written, self.status = [], (1 << 32) - 1

    def read32(self, address):
        return registers.CONSTANTS["ID"] if address == registers.ID else self.status

    def write32(self, address, value):
        self.written.append((address, value))
        self.status &= ~job_run._RUNS


def test_what_was_left_running_has_stopped_whatever_else_the_status_says(monkeypatch):
    monkeypatch.setattr(job_run, "_RESET_SECONDS", 0.0)
    left = _Left()
    for _ in range(2):
        job_run._stop_left(left)
    assert left.written == [(registers.CONTROL, 1 << registers.FIELDS["CONTROL.reset"][0])] and left.status


def test_a_file_is_locked_as_long_as_somebody_has_it(tmp_path):
    path = tmp_path / "lock"
    assert not is_locked(path)
    for number in range(2):
        with locked(path, f"holder {number}", "refused:"):
            assert is_locked(path)
            with pytest.raises(InUseError, match=f"^refused: holder {number}$"), locked(path, "another", "refused:"):
                pass
        assert path.is_file() and not is_locked(path)
