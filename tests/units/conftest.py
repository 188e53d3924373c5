"""Drives a stream unit with random stalls and long holds on both sides."""

import pytest

from gradloom.sim.bench.engine import BenchLoad, BenchStore, EngineBench


@pytest.fixture
def run_stream():
    """``run(unit, payloads, count, read, stall, hold, setup)`` -> ``(payloads out, cycles from the first one in)``.

    ``stall`` and ``hold`` as in :meth:`~gradloom.sim.bench.engine.EngineBench.run`; ``setup`` comes first.
    """

    def run(unit, payloads, count, read, *, stall=0.3, hold=0, seed=1, setup=None):
        found = EngineBench(component=unit).run(
            *([setup] if setup else []),
            BenchLoad("i", payloads),
            BenchStore("o", count),
            stall=stall,
            hold=hold,
            seed=seed,
        )
        return [read(each) for each in found.words["o"]], [cycle - found.loaded["i"][0] for cycle in found.stored["o"]]

    return run
