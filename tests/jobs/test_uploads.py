"""A job that is cut while it is copied is there whole or not at all: a real agent, cut at any byte."""

import hashlib
import os
import random
import shlex
import shutil
import subprocess
import time
import zlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gradloom.firmware.jobs.frames import PIECE
from gradloom.firmware.jobs.job import FILES, JobPlan, JobStage, read_plan
from gradloom.firmware.jobs.remote import Agent, RemoteError

from .conftest import PYTHON, put_host

NAME = "job-1"


class Copying:
    """An agent whose jobs are in ``jobs``, and what a client sends to it to copy a job."""

    def __init__(self, folder):
        self.folder, self.host, self.jobs, self.job = (folder, folder / "firmware", folder / "jobs", folder / "job")
        put_host(self.host, None)
        self.job.mkdir()
        data = random.Random(1).randbytes(2 * PIECE + 4097)
        (self.job / "data.bin").write_bytes(data)
        stage = JobStage(((0, 0, len(data)),), (0, 2), ((0, 16),))
        design = {"name": "a", "table": "b", "data_bits": 128}
        plan = JobPlan(design, 4 * PIECE, (stage,), None, None, 0, len(data), hashlib.sha256(data).hexdigest(), {})
        (self.job / "job.json").write_text(plan.text())
        with self.client(f"tee {shlex.quote(str(folder / 'sent'))} |") as agent:
            agent.put(self.job, NAME)
        self.sent = (folder / "sent").read_bytes()
        shutil.rmtree(self.jobs)

    @property
    def command(self):
        return [PYTHON, "-m", "gradloom_host.agent", "--at", "nowhere", "--jobs", str(self.jobs)]

    def client(self, before=""):
        there = f"cd {shlex.quote(str(self.host))} && unset PYTHONPATH && {before} {shlex.join(self.command)}"
        return Agent(["sh", "-c", there], client="a test")

    def cut(self, at, kill, seconds):
        """Sends the first ``at`` bytes, then ends the connection, or kills the agent after ``seconds``."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with subprocess.Popen(
            self.command, cwd=self.host, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        ) as agent:
            agent.stdin.write(self.sent[:at])
            agent.stdin.flush()
            if kill:
                time.sleep(seconds)
                agent.kill()

    def there(self):
        """Names in the folder of jobs, hidden ones too."""
        return sorted(path.name for path in self.jobs.iterdir()) if self.jobs.exists() else []


@pytest.fixture(scope="module")
def copying(tmp_path_factory):
    return Copying(tmp_path_factory.mktemp("copying"))


def whole(copying):
    read_plan(copying.jobs / NAME)
    return all((copying.jobs / NAME / file).read_bytes() == (copying.job / file).read_bytes() for file in FILES)


@settings(max_examples=200 if os.environ.get("GRADLOOM_DEEP") else 4, deadline=None)
@given(share=st.floats(0, 1), kill=st.booleans(), seconds=st.floats(0, 0.3))
@example(share=0.0, kill=False, seconds=0.0)
@example(share=0.5, kill=True, seconds=0.3)
@example(share=0.9999999, kill=False, seconds=0.0)
@example(share=1.0, kill=False, seconds=0.0)
def test_a_job_that_is_cut_anywhere_is_whole_or_absent(copying, share, kill, seconds):
    shutil.rmtree(copying.jobs, ignore_errors=True)
    at = int(share * len(copying.sent))
    copying.cut(at, kill, seconds)
    visible = [name for name in copying.there() if not name.startswith(".")]
    assert visible in ([], [NAME]) and (at == len(copying.sent) or not visible)
    if not kill:
        # The agent clears up where the connection has ended; one that is killed leaves that to the next.
        assert copying.there() == ([NAME] if at == len(copying.sent) else [])
    with copying.client() as agent:
        assert list(agent.jobs()) == visible
        if visible:
            with pytest.raises(ValueError, match="there is one of this name on the board"):
                agent.put(copying.job, NAME)
        else:
            agent.put(copying.job, NAME)
    assert copying.there() == [NAME] and whole(copying)


def test_a_byte_that_changes_on_the_way_is_found(copying):
    """By the sum that the job has of its data, before it is there; and so are more bytes than were said."""
    shutil.rmtree(copying.jobs, ignore_errors=True)
    changed = bytearray(copying.job.joinpath("data.bin").read_bytes())
    changed[PIECE + 5] ^= 1
    other = copying.folder / "other"
    shutil.copytree(copying.job, other)
    (other / "data.bin").write_bytes(changed)
    with copying.client() as agent, pytest.raises(ValueError, match=r"data.bin has \d+ bytes that are not those of"):
        agent.put(other, NAME)
    assert copying.there() == []
    with copying.client() as agent, pytest.raises(RemoteError, match="is longer than was said"):
        agent.connection.ask({"do": "put", "name": NAME, "files": {"data.bin": 4, "job.json": 4}})
        with open(copying.job / "data.bin", "rb") as file:
            agent.connection.ask({"do": "piece", "file": "data.bin", "size": 5}, zlib.compress(file.read(5)))
    assert copying.there() == []
