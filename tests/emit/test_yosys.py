"""Yosys in a process of its own."""

import signal
import time

import pytest

from gradloom.rtl.emit.yosys import Yosys, YosysError


def test_an_interrupt_ends_what_runs():
    """Whoever waits for a long pass may give it up."""

    def interrupted(number, frame):
        raise KeyboardInterrupt

    before, began = signal.signal(signal.SIGALRM, interrupted), time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 1)
        with pytest.raises(KeyboardInterrupt), Yosys() as yosys:
            yosys.run(["exec -- sleep 60"])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert yosys._process.returncode == -signal.SIGKILL and time.monotonic() - began < 30


def test_a_command_that_fails_is_told():
    with pytest.raises(YosysError, match="No such command: no_such_command"), Yosys() as yosys:
        yosys.run(["no_such_command"])
