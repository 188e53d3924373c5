"""``gradloom run lstm``: arrays through the engine alone, beside the reference."""

import dataclasses

import numpy as np
import pytest

from gradloom.rtl.catalog import find_unit
from gradloom.sim.units.lstm import ADAPTER, Driven
from gradloom.sim.units.run import run_unit
from gradloom.sim.units.simulate import simulate, unpacked

from ...deep import deep

SIZES = {"hidden": 16, "inputs": 8, "sequences": 2}


def arrays(*, sequences=3, steps=5, hidden=13, inputs=7, scaled=False):
    """Three sequences are two commands of a design for two."""
    rng = np.random.default_rng(sequences)
    made = {
        "x": rng.integers(-32, 32, (sequences, steps, inputs)),
        "w": rng.integers(-127, 128, (4, hidden, inputs)),
        "u": rng.integers(-127, 128, (4, hidden, hidden)),
        "bias": rng.integers(-8000, 8001, (4, hidden)),
    }
    return made | ({"scale": rng.integers(200, 900, (4, hidden))} if scaled else {})


@pytest.mark.parametrize("scaled", [False, True], ids=["shifts", "multipliers"])
def test_arrays_from_a_file_equal_the_reference(tmp_path, scaled):
    given = arrays(scaled=scaled)
    np.savez(tmp_path / "in.npz", **given)
    told = run_unit(find_unit("lstm"), tmp_path / "in.npz", tmp_path / "out.npz", settings=SIZES, simulator="amaranth")
    assert told["equal"] and told["words"] == 3 * 13 * (5 + 1)
    with np.load(tmp_path / "out.npz") as found:
        assert len(np.unique(found["h"])) > 8 and len(np.unique(found["c"])) > 8


@deep
def test_words_are_the_same_under_stalls(tmp_path):
    """In Verilator; in Amaranth's simulator the engine's own tests stall it."""
    unit, given = find_unit("lstm"), arrays(sequences=2, steps=12)
    dut = Driven(unit.build(**SIZES))
    feed = dataclasses.replace(ADAPTER.feed(dut, given), stall=5)
    beats, _ = simulate(dut, feed, simulator="verilator", directory=tmp_path)
    found = ADAPTER.collect(dut, given, unpacked(dut, beats))
    expected = ADAPTER.reference(unit.settings(SIZES), given)
    for name, words in expected.items():
        np.testing.assert_array_equal(found[name], words)


@pytest.mark.parametrize(
    "changed, says",
    [
        ({"hidden": 17}, "does not fit a design with hidden=16: set hidden=32 .17 elements of a hidden state.$"),
        ({"inputs": 9}, "does not fit a design with inputs=8: set inputs=16 .9 of an input.$"),
        ({"steps": 1 << 16}, "x: has 65536 steps, must be at most 65535"),
    ],
    ids=["hidden", "inputs", "steps"],
)
def test_arrays_beyond_the_design_are_refused(tmp_path, changed, says):
    np.savez(tmp_path / "in.npz", **arrays(**changed))
    with pytest.raises(ValueError, match=says):
        run_unit(find_unit("lstm"), tmp_path / "in.npz", tmp_path / "out.npz", settings=SIZES, simulator="amaranth")
    assert not (tmp_path / "out.npz").exists()
