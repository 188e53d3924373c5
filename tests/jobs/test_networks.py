"""A network's fine-tune as a job: what is kept of its batches outlives a power cut."""

import dataclasses
import json
import os
import signal
import subprocess
import time

import pytest

from gradloom.jobs import on_board
from gradloom.preset import PRESETS

from ..systems.networks.small import write_data, write_network
from ..tiles import LEAST

PRESET = dataclasses.replace(PRESETS["tile-kv260"], name="small", config=LEAST)


@pytest.mark.parametrize("method", ["lora", "instantft"])
def test_a_job_leaves_the_words_of_the_reference(method, make_board, tmp_path):
    """Two batches, each of which the first layers see once; the board is cut off behind them, and empty then."""
    board = make_board(LEAST, "small")
    given = {"model": write_network(tmp_path / "n.onnx"), "data": write_data(tmp_path / "d.npz"), "method": method}
    options = PRESET.workload.options("small", {**given, "batch": 8, "limit": 16, "epochs": 3, "rank": 2, "lr": 0.02})
    folder = board.jobs / "one"
    written = on_board.write_job(PRESET, options, folder)
    assert written.resumes and written.stages == 2 + 3 * 2
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = board.command("run", str(folder), "--state-seconds", "0")
    with subprocess.Popen(command, cwd=board.host, env=environment, stdout=subprocess.DEVNULL) as run:
        end, state = time.monotonic() + 200, folder / "state.json"
        while not state.exists() or json.loads(state.read_text())["stage"] < 4:
            assert run.poll() is None and time.monotonic() < end
            time.sleep(0.01)
        run.send_signal(signal.SIGKILL)
    board.power_off()
    board.power_up()
    assert board.agent("run", str(folder)).returncode == 0
    assert "goes on at stage" in (folder / "log").read_text()
    made = on_board.collect_job(folder, output=tmp_path / "run", preset=PRESET, compare=True)
    assert made["equal_to_reference"]["losses"] == 6
    assert made["cycles"]["total"] == made["forecast"]["total"]
    assert made["loss_after"] < made["loss_before"]
