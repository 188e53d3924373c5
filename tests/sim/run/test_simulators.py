"""Every simulator there is says the same of a unit, word for word and cycle for cycle."""

import numpy as np
import pytest

from gradloom.rtl.catalog import UNITS
from gradloom.sim.run.builds.runner import find_icarus
from gradloom.sim.units.adapters import ADAPTERS
from gradloom.sim.units.run import run_unit

from ...deep import DEEP

#: Settings beside the defaults: 256 elements that are all equal take most of the time.
SETTINGS = {} if DEEP else {"mesh": {"rows": 3, "cols": 5}}
SIMULATORS = ["verilator", *(["icarus"] if find_icarus() else [])]


@pytest.fixture(scope="module")
def by_amaranth():
    """What Amaranth's own simulator says, once for all others: its verdict is kept by unit."""
    return {}


def result(unit, source, output, simulator):
    found = run_unit(unit, source, output, settings=SETTINGS.get(unit.name), simulator=simulator)
    with np.load(output) as file:
        return found["cycles"], found["equal"], {name: file[name] for name in file.files}


#: A third of the units; each is built. All with GRADLOOM_DEEP=1.
@pytest.mark.parametrize("name", list(ADAPTERS)[:: 1 if DEEP else 3])
@pytest.mark.parametrize("simulator", SIMULATORS)
def test_a_unit_is_the_same_on_every_simulator(simulator, name, vectors, by_amaranth, tmp_path):
    unit = UNITS[name]
    arrays = vectors(ADAPTERS[name].inputs(unit.settings(SETTINGS.get(name, {}))), np.random.default_rng(2))
    np.savez(tmp_path / "in.npz", **arrays)
    if name not in by_amaranth:
        by_amaranth[name] = result(unit, tmp_path / "in.npz", tmp_path / "amaranth.npz", "amaranth")
    cycles, equal, words = result(unit, tmp_path / "in.npz", tmp_path / "other.npz", simulator)
    assert equal and by_amaranth[name][1]
    assert cycles == by_amaranth[name][0]
    for array, values in by_amaranth[name][2].items():
        np.testing.assert_array_equal(words[array], values)
