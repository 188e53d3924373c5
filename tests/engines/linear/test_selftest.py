"""The self-test of a machine for language models: the last check copies through the gradient engine's h."""

from gradloom.firmware.device.selftest import CHECKS, run_selftest


def test_the_selftest_passes_and_copies_through_h(machine):
    results = run_selftest(machine.host)
    assert [(name, ok) for name, ok, _ in results] == [(name, True) for name, _ in CHECKS], results
    assert any(said.endswith("bytes to gradient.hidden and back") for _, _, said in results), results
