"""``gradloom energy --host``: the request reaches the board's own software by a shell in place of ssh."""

import json
import shlex
import sys

import numpy as np
import pytest

import gradloom
from gradloom.boards.firmware_files import firmware_files
from gradloom.preset import PRESETS

PRESET = "instantft-kv260"

#: The board's own software, except that its registers and its sensor are made up: a program ends at once.
BOARD = """
import json, pathlib, sys
from gradloom_host import measured, uio_transport, energy, host, registers
from gradloom_host.host import ProgramCounters

class Registers:
    window_base, window_size, clock_hz = 1 << 20, 64 << 20, 200e6
    def __init__(self): self.memory = bytearray(self.window_size)
    def __enter__(self): return self
    def __exit__(self, *error): pathlib.Path(sys.argv[1]).write_bytes(self.memory)

class Machine:
    def __init__(self, board, *, design): self.board, self.design = board, design
    def store(self, offset, content): self.board.memory[offset : offset + len(content)] = content
    def clear_cache(self): pass
    def run(self, offset, commands):
        told = [offset, commands, self.design.name, self.design.table]
        pathlib.Path(sys.argv[1] + ".json").write_text(json.dumps(told))
        return ProgramCounters(**dict.fromkeys(ProgramCounters.__annotations__, 0) | {"phases": {}, "cycles": 3736223})

uio_transport.UioTransport, measured.Accelerator = Registers, Machine
measured.IDLE_SECONDS = 0.01
energy.find_sensor = lambda: pathlib.Path("power1_input")
raise SystemExit(measured.main())
"""


@pytest.fixture
def board(tmp_path, tools, monkeypatch):
    """A home on the board with a flashed design; ``ssh`` and ``sudo`` are shells there."""
    home = tmp_path / "home"
    firmware = home / "gradloom-designs" / "gradloom" / "firmware"
    for name, text in firmware_files().items():
        path = firmware / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (firmware / "board.py").write_text(BOARD)
    (firmware / "power1_input").write_text("4500000\n")
    tools(
        "ssh", f'echo "$@" > {home}/asked; test "$3" = ubuntu@kria || exit 255; cd {home} && sh -c "$4"', version=None
    )
    run = f"exec {shlex.quote(sys.executable)} board.py {home}/window"
    tools("sudo", f'test "$*" = "-n python3 -m gradloom_host.measured" || exit 9; {run}', version=None)
    return home


def test_the_fine_tune_runs_on_the_board_and_joules_come_back(board):
    found = gradloom.energy(PRESET, host="ubuntu@kria", samples=4)
    assert (board / "asked").read_text().startswith("-o ConnectTimeout=10 ubuntu@kria cd gradloom-designs/gradloom/")
    assert (found["repeats"], found["samples"], found["epochs"]) == (100, 4, 10)
    assert found["idle_watts"] == pytest.approx(4.5) and found["cycles"] == [3736223] * 2
    assert found["gross_joules"] == pytest.approx(4.5 * found["seconds"]) and found["net_joules"] == pytest.approx(0)
    # What lies in the window is the program, whose end is where the request says, and its data.
    offset, commands, name, table = json.loads((board / "window.json").read_text())
    window = np.fromfile(board / "window", np.uint8)
    code = window[offset : offset + 32 * commands].reshape(-1, 32)
    assert commands > 100 and not code[-1][:2].any() and code[:-1].any(axis=1).all()
    assert name == PRESET and table.startswith(f"rows={PRESETS[PRESET].config.rows},")
    assert found["forecast_cycles"] > 10_000


def test_people_get_both_joules(board, run):
    code, out, _ = run("energy", PRESET, "--host", "ubuntu@kria", "--samples", "2")
    text = " ".join(out.split())
    assert code == 0 and "100 runs of 2 samples" in text and "mJ of the whole board" in text and "above idle" in text


def refused(run, *options):
    code, out, err = run("energy", *options)
    assert (code, out) == (2, "")
    return err.splitlines()[-1]


def test_what_goes_wrong_is_one_line(board, run, tools):
    at = (PRESET, "--samples", "2", "--host")
    assert "nobody@kria does not answer over ssh" in refused(run, *at, "nobody@kria")
    assert "host must be like user@machine" in refused(run, *at, "-oProxyCommand=x")
    tools("sudo", "echo 'sudo: a password is required' >&2; exit 1", version=None)
    assert "a password is required; sudo must not ask" in refused(run, *at, "ubuntu@kria")
    tools("sudo", "echo 'python3: No module named gradloom_host.measured' >&2; exit 1", version=None)
    assert "run gradloom flash again" in refused(run, *at, "ubuntu@kria")
    tools("sudo", "echo hello", version=None)
    assert "gave no result" in refused(run, *at, "ubuntu@kria")
    (board / "gradloom-designs").rename(board / "gone")
    line = refused(run, *at, "ubuntu@kria")
    assert line.endswith("run gradloom flash kv260 DIR first")


@pytest.mark.parametrize(
    "options, said",
    [
        (("edge-qlora-genesys2", "--host", "a@b"), "host=a@b: must be left out, genesys2 has no power sensor"),
        ((PRESET, "--host", "a@b", "--saif", "x.saif"), "saif=x.saif: must be left out with --host"),
        ((PRESET, "--host", "a@b", "--repeats", "99"), "repeats=99: must be at least 100"),
    ],
)
def test_what_no_board_measures_is_refused(run, options, said):
    assert said in refused(run, *options)
