"""The self-test's clock: cycles of a model that takes time by a clock of its own."""

import types

import pytest

from gradloom.firmware.device import selftest
from gradloom.firmware.device.host import Accelerator

from .conftest import Machine


class Timed(Machine):
    """A model whose programs take ``each`` cycles a command of ``hz``, and whose host is ``late`` seconds late."""

    real_time = True

    def __init__(self, hz, *, each=20_000, late=3e-3):
        super().__init__(delay=0)
        self.hz, self.each, self.late, self.now = hz, each, late, 0.0

    def finish(self):
        super().finish()
        if self.outcome is None:
            return
        cycles = self.each * self.values["PROGRAM_COMMANDS"]
        self.now += cycles / self.hz + self.late
        self.values |= {"CYCLES_LO": cycles, "CYCLES_HI": 0} | {f"PHASE_CYCLES{i}": 0 for i in range(16)}
        self.values["PHASE_CYCLES0"] = cycles


@pytest.fixture
def check(monkeypatch):
    def run(machine):
        monkeypatch.setattr(selftest, "time", types.SimpleNamespace(perf_counter=lambda: machine.now))
        found = {name: (ok, detail) for name, ok, detail in selftest.run_selftest(Accelerator(machine))}
        assert all(ok for name, (ok, _) in found.items() if name != "clock"), found
        return found["clock"]

    return run


@pytest.mark.parametrize("hz, ok", [(200e6, True), (198.5e6, True), (197e6, False), (187.5e6, False), (203e6, False)])
def test_a_clock_that_is_more_than_a_hundredth_off_is_said(check, hz, ok):
    passed, detail = check(Timed(hz))
    assert passed is ok
    said = f"{hz / 1e6:.1f} MHz by the wall clock"
    assert detail.startswith(f"{said}, 200.0 expected" if ok else f"cycles pass at {said}, not 200.0")


def test_what_cannot_be_timed_is_said(check):
    slow = Timed(200e6)
    slow.real_time = False
    assert check(slow) == (True, "not checked: the accelerator is simulated")
    unknown = Timed(200e6)
    unknown.clock_hz = None
    assert check(unknown) == (True, "not checked: the clock is not known")
    assert check(Timed(200e6, each=10))[1].startswith("not checked: a window of 65536 bytes is too small")
