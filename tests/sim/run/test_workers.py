"""Processes of a pool end with who started them."""

import os
import signal
import subprocess
import sys
import time

import pytest

from gradloom.sim.run.workers import processes

STARTS = """
from gradloom.sim.run.workers import processes
import os, time

def work(item):
    os.write(1, b"%d\\n" % os.getpid())  # at once: two processes write
    time.sleep(600)

if __name__ == "__main__":
    with processes(2) as run:
        list(run(work, [1, 2]))
"""


def alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_workers_end_when_their_starter_is_killed(tmp_path):
    (tmp_path / "starts.py").write_text(STARTS)
    starter = subprocess.Popen([sys.executable, tmp_path / "starts.py"], stdout=subprocess.PIPE, text=True)
    workers = [int(starter.stdout.readline()) for _ in range(2)]
    assert all(map(alive, workers))
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    until = time.monotonic() + 60
    while any(map(alive, workers)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(alive, workers))


@pytest.mark.parametrize("given", [None, "3"])
def test_a_worker_has_one_thread_unless_the_user_says_so(monkeypatch, given):
    name = "OPENBLAS_NUM_THREADS"
    monkeypatch.delenv(name, raising=False)
    if given:
        monkeypatch.setenv(name, given)
    with processes(1) as run:
        assert list(run(os.getenv, [name])) == [(name, given or "1")]
    assert os.environ.get(name) == given
