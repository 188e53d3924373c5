"""A job of several programs goes on from its state after a power cut, and its results are the same."""

import configparser
import io
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest

from gradloom.firmware.jobs.job import JobError, JobPlan
from gradloom.firmware.jobs.remote import JobFailed
from gradloom.jobs import on_board
from gradloom.jobs.programs import JobRecorder, JobResults
from gradloom.program.memory import AreaKind
from gradloom.rtl.formats.tiles.codes import coded
from gradloom.sim.run.builds.designs import design_entry
from gradloom.sim.run.machine import MachineRunner
from gradloom.systems.diffusion.program.step import Stepper, losses_of, lowered
from gradloom.systems.diffusion.small import SmallDiffusion, small_unet

from ..tiles import LEAST

STEPS = 4


class Steps:
    """Steps of a small UNet on any machine."""

    def __init__(self):
        shapes = small_unet(size=8, channels=(16, 16), attends=(False, True), text=16, groups=4)
        self.small = SmallDiffusion.drawn(shapes, text=4, rank=2)
        self.step = lowered(LEAST, self.small.network, self.small.learnt, images=1, lr=1e-3)

    def on(self, host):
        """Losses, all words of the adapters after the last step, and counters."""
        stepper = Stepper(self.step, MachineRunner(host), self.small.learnt)
        made = [stepper(*self.small.inputs(1, number)) for number in range(1, STEPS + 1)]
        return [loss for loss, _ in made], made[-1][1], [each.counters for each in stepper.ran]

    def write(self, folder, state=True):
        folder.mkdir(parents=True)
        design = design_entry("small", LEAST)
        with open(folder / "data.bin", "wb") as data:
            recorder = JobRecorder(data, design["table"])
            recorder.describe(
                losses=losses_of(self.step), state=self.step.program.memory.of(AreaKind.LEARNT) if state else None
            )
            self.on(recorder)
            recorder.finished()
            plan = recorder.plan(design, {})
        (folder / "job.json").write_text(plan.text())
        return plan


@pytest.fixture(scope="module")
def steps():
    return Steps()


@pytest.fixture(scope="module")
def direct(steps):
    with MachineRunner.simulated(LEAST) as machine:
        return steps.on(machine.host)


@pytest.fixture
def board(make_board):
    return make_board(LEAST, "small")


def results(steps, folder, tmp_path):
    plan = JobPlan.parse((folder / "job.json").read_bytes())
    with open(tmp_path / "again.bin", "wb") as data:
        host = JobResults(folder, plan, data)
        host.describe(losses=plan.losses, state=plan.state)
        found = steps.on(host)
        host.finished()
    return found


def equal(found, wanted):
    assert found[0] == wanted[0] and found[2] == wanted[2]
    assert found[1].keys() == wanted[1].keys()
    assert all((found[1][key] == wanted[1][key]).all() for key in wanted[1])


def begun(board, folder, *arguments):
    return subprocess.Popen(
        board.command("run", str(folder), *arguments),
        cwd=board.host,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        stdout=subprocess.PIPE,
        text=True,
    )


def steps_in(folder):
    return [line for line in (folder / "log").read_text().splitlines() if ": loss " in line]


def test_a_job_goes_on_after_each_power_cut(steps, direct, board, tmp_path):
    """Cut at random; memory is empty after each."""
    folder = board.jobs / "small"
    plan = steps.write(folder)
    assert plan.state_bytes and len(plan.stages) == STEPS
    cuts, rng = 0, random.Random(3)
    while not (folder / "result.json").exists():
        before = json.loads((folder / "state.json").read_text())["stage"] if cuts else 0
        with begun(board, folder, "--state-seconds", "0") as run:
            losses = 0
            for line in run.stdout:
                losses += ": loss " in line
                # In the second run a state has been stored by then.
                if cuts < 2 and losses > cuts:
                    time.sleep(rng.uniform(0, 0.3))
                    run.send_signal(signal.SIGKILL)
                    board.power_off()
                    board.power_up()
                    cuts += 1
                    break
        if (folder / "state.json").exists():
            assert json.loads((folder / "state.json").read_text())["stage"] >= before
    assert cuts == 2
    log = (folder / "log").read_text()
    assert "goes on at stage" in log and len(steps_in(folder)) < 4 * STEPS
    equal(results(steps, folder, tmp_path), direct)
    assert not list(folder.glob("state*"))


def test_a_job_whose_state_is_not_known_begins_again(steps, direct, board, tmp_path):
    folder = board.jobs / "small"
    steps.write(folder, state=False)
    with begun(board, folder, "--state-seconds", "0") as run:
        assert any("step 2 of" in line for line in run.stdout)
        run.kill()
    # At the start of the board; the program that still runs is stopped first.
    done = board.agent("continue")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(steps_in(folder)) >= STEPS + 2 and "goes on" not in (folder / "log").read_text()
    equal(results(steps, folder, tmp_path), direct)


def test_a_disk_that_fills_keeps_the_state_before(steps, direct, board, tmp_path):
    """The largest file that is allowed is smaller than the results; more is allowed later."""
    folder = board.jobs / "small"
    plan = steps.write(folder)
    blocks = plan.state_bytes // 512 + 2
    assert plan.result_bytes > 512 * blocks
    command = ["sh", "-c", f'ulimit -f {blocks}; exec "$@"', "sh", *board.command("run", str(folder))]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*command, "--state-seconds", "0"], cwd=board.host, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"gradloom: {folder}: no room to write (") and "make room and run it again" in line
    assert json.loads((folder / "failed.json").read_text())["error"] == "JobError"
    assert 0 < json.loads((folder / "state.json").read_text())["stage"] < STEPS
    assert board.agent("run", str(folder)).returncode == 0
    assert not (folder / "failed.json").exists() and "goes on at stage" in (folder / "log").read_text()
    equal(results(steps, folder, tmp_path), direct)


def test_a_program_that_stops_tells_code_and_address(steps, board, tmp_path):
    """Here one that ends early, without its END."""
    folder = board.jobs / "small"
    plan = steps.write(folder)
    stage = plan.stages[0]
    assert stage.program is not None
    found = json.loads(plan.text())
    found["stages"] = found["stages"][:1]
    found["stages"][0]["program"] = [stage.program[0], stage.program[1] // 2]
    (folder / "job.json").write_text(json.dumps(found))
    done = board.agent("run", str(folder))
    assert done.returncode == 2
    told = json.loads((folder / "failed.json").read_text())
    assert (told["error"], told["name"]) == ("ProgramError", "PROGRAM_UNENDED")
    assert told["command"] == stage.program[1] // 2
    assert done.stderr.strip() == f"gradloom: {told['message']}" and "PROGRAM_UNENDED at command" in told["message"]
    # The same from a computer.
    with on_board.connected(board.reach) as agent:
        agent.put(folder, "other")
        agent.start("other")
        with pytest.raises(JobFailed) as failed:
            list(agent.follow("other"))
    assert (failed.value.code, failed.value.name, failed.value.command, failed.value.address) == (
        told["code"],
        told["name"],
        told["command"],
        told["address"],
    )
    assert str(failed.value) == told["message"]


def test_what_differs_of_a_program_is_written_and_nothing_else(steps, tmp_path):
    plan = steps.write(tmp_path / "job")
    code = 32 * plan.stages[-1].program[1]
    later = [sum(length for _, _, length in stage.writes) for stage in plan.stages[1:]]
    assert all(length < code // 4 for length in later)
    # What the recorder has left out is in memory: written one after another, stages make each step's own code.
    memory, data = bytearray(plan.window), (tmp_path / "job/data.bin").read_bytes()
    number = 0
    for stage in plan.stages:
        for offset, at, length in stage.writes:
            memory[offset : offset + length] = data[at : at + length]
        if stage.program is not None:
            number += 1
            assert bytes(memory[stage.program[0] :][:code]) == bytes(steps.step.written(number).code)
    assert number == STEPS


def test_data_that_are_not_whole_are_refused(steps, board):
    folder = board.jobs / "small"
    steps.write(folder)
    content = (folder / "data.bin").read_bytes()
    (folder / "data.bin").write_bytes(content[:-1])
    done = board.agent("run", str(folder))
    assert done.returncode == 2 and "data.bin has" in done.stderr and "copy the job again" in done.stderr
    assert not (folder / "log").exists()


CHANGES = {
    "format=1: this agent reads format 2": {"format": 1},
    "window=0: must be an integer from 1": {"window": 0},
    "design: must be an object": {"design": []},
    "stages: must be a list of one or more": {"stages": []},
    "more: is unknown": {"more": 1},
    "watchdog=True: must be an integer": {"watchdog": True},
    "state: must be a list": {"state": 3},
    "stages[0]: must have writes, program and reads": {"stages": [{}]},
    "stages[0].writes[0].at=7: must be an integer": {"stages": [{"writes": [[0, 7, 8]], "program": None, "reads": []}]},
    "stages[0].reads[0].length=9: must be an integer": {
        "window": 8,
        "stages": [{"writes": [], "program": None, "reads": [[0, 9]]}],
    },
    "stages[0].program.commands=0: must be": {"stages": [{"writes": [], "program": [0, 0], "reads": []}]},
    "losses: must be sums or tiles": {"losses": {"kind": "other"}},
}


@pytest.mark.parametrize("said", CHANGES)
def test_a_job_that_is_not_understood_whole_is_refused(said):
    plan = {
        "format": 2,
        "design": {"name": "a", "table": "b", "data_bits": 128},
        "window": 4096,
        "stages": [{"writes": [[0, 0, 8]], "program": [0, 2], "reads": [[0, 8]]}],
        "state": None,
        "losses": None,
        "watchdog": 0,
        "data_bytes": 8,
        "data_sha256": "",
        "about": {},
        "answers": None,
    }
    made = JobPlan.parse(json.dumps(plan))
    assert JobPlan.parse(made.text()) == made and made.result_bytes == 8
    with pytest.raises(JobError) as refused:
        JobPlan.parse(json.dumps(plan | CHANGES[said]))
    assert said in str(refused.value)
    del plan["about"]
    with pytest.raises(JobError, match="about: is missing"):
        JobPlan.parse(json.dumps(plan))


def test_losses_on_the_board_are_those_of_the_host(steps, direct):
    """The mean square of tiles, from bytes alone."""
    tiles = steps.step.shown["error"]
    rng = np.random.default_rng(5)
    given = coded(rng.standard_normal((tiles.rows, tiles.features)), tiles.bits)
    (found,) = losses_of(steps.step).of(tiles.pack(given))
    assert found == pytest.approx(float(np.mean(np.square(given.values))), rel=1e-12)


def test_the_unit_for_systemd_runs_what_was_interrupted(steps, board):
    """Its command, with its working directory; systemd's own check where there is one."""
    load = board.host.parent / "load.sh"
    load.write_text("exit 0\n")
    text = board.agent("unit").stdout
    made = configparser.ConfigParser(interpolation=None, strict=True)
    made.optionxform = str
    made.read_string(text)
    service = made["Service"]
    assert shlex.split(service["ExecStartPre"]) == ["/bin/sh", str(load), "small"]
    folder = board.jobs / "small"
    steps.write(folder)
    with begun(board, folder) as run:
        assert any(": loss " in line for line in run.stdout)
        run.kill()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(shlex.split(service["ExecStart"]), cwd=service["WorkingDirectory"], env=environment, check=True)
    assert (folder / "result.json").exists()
    if (verify := shutil.which("systemd-analyze")) is not None:
        (board.folder / "gradloom.service").write_text(text)
        said = subprocess.run([verify, "verify", board.folder / "gradloom.service"], capture_output=True, text=True)
        assert "gradloom.service" not in said.stderr, said.stderr


@pytest.mark.parametrize(("size", "pages"), [(1, 1), (4096, 1), (4097, 2), (8192, 2), (8193, 3)])
def test_a_jobs_window_is_the_whole_pages_that_it_reaches(size, pages):
    design = design_entry("small", LEAST)
    recorder = JobRecorder(io.BytesIO(), design["table"])
    recorder.run(0, 0)
    recorder.fetch(size - 1, 1)
    recorder.finished()
    assert recorder.plan(design, {}).window == 4096 * pages
