"""Units on the command line: generated, described, run on vectors from a file."""

import json

import numpy as np
import pytest

from gradloom.rtl.catalog import UNITS
from gradloom.sim.units.adapters import ADAPTERS

from ...deep import deep


def test_a_unit_is_generated_with_a_report(run, tmp_path):
    code, out, _ = run("generate", "optimizer", "--set", "lanes=2", "-o", tmp_path / "out", "--json")
    report = json.loads(out)
    assert code == 0 and report["parameters"]["lanes"] == 2 and report["unit"] == "optimizer"
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == report
    ports = {port["name"]: port["width"] for port in report["ports"]}
    assert ports["i_payload"] == 2 * (16 + 27 + 48) and {"clk", "rst", "i_valid", "i_ready"} <= set(ports)


def test_a_unit_that_is_not_there_yet_is_not_offered():
    for unit in UNITS.values():
        unit.build()


@pytest.mark.parametrize("unit", UNITS.values(), ids=lambda unit: unit.name)
def test_bounds_of_a_parameter_hold(unit):
    for parameter in unit.parameters:
        assert parameter.parse(str(parameter.default)) == parameter.default
        if parameter.low is not None:
            with pytest.raises(ValueError, match=f"{parameter.name}={parameter.low - 1}"):
                parameter.parse(str(parameter.low - 1))
        if parameter.high is not None:
            with pytest.raises(ValueError, match=f"{parameter.name}={parameter.high + 1}"):
                parameter.parse(str(parameter.high + 1))


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_unit_equals_its_reference_on_vectors_from_a_file(run, vectors, tmp_path, name, seed):
    arrays = vectors(ADAPTERS[name].inputs(UNITS[name].settings({})), np.random.default_rng(seed))
    np.savez(tmp_path / "in.npz", **arrays)
    code, out, err = run(
        "run",
        name,
        "--input",
        tmp_path / "in.npz",
        "--output",
        tmp_path / "out.npz",
        "--simulator",
        "amaranth",
        "--json",
    )
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert result["equal"] and result["cycles"] > 0
    with np.load(tmp_path / "out.npz") as found:
        assert found["cycles"] == result["cycles"]
        described = [array.name for array in ADAPTERS[name].outputs(UNITS[name].settings({}))]
        for array in described:
            np.testing.assert_array_equal(found[array], found[f"reference_{array}"])
        figures = {"cycles", "utilisation"} & set(result)
        assert set(found.files) == {*figures, *described, *(f"reference_{each}" for each in described)}


@pytest.mark.parametrize("edge, tiles", [(8, 128), pytest.param(16, 64, marks=deep)])
def test_a_mesh_is_95_percent_busy_in_rtl(run, tmp_path, edge, tiles):
    """As many activation rows in each tile as the mesh has; counted by the simulation, from the first word offered to
    the last result taken."""
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "in.npz",
        x=rng.integers(-1 << 23, 1 << 23, (tiles, edge, edge)),
        w=rng.integers(-1 << 17, 1 << 17, (tiles, edge, edge)),
    )
    size = ("--set", f"rows={edge}", "--set", f"cols={edge}")
    code, out, _ = run("run", "mesh", *size, "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz", "--json")
    result = json.loads(out)
    assert code == 0 and result["equal"] and result["words"] == tiles * edge * edge
    assert result["utilisation"] == tiles * edge / result["cycles"] >= 0.95
    with np.load(tmp_path / "out.npz") as found:
        assert found["utilisation"] == result["utilisation"] and found["cycles"] == result["cycles"]
    assert result["cycles"] == UNITS["mesh"].build(rows=edge, cols=edge).cycles(tiles, edge)


@pytest.mark.parametrize("name", ADAPTERS)
def test_describe_names_every_array(run, name):
    code, out, _ = run("run", name, "--describe", "--json")
    described = json.loads(out)
    assert code == 0 and described["inputs"] and described["outputs"]
    assert all(array["units"] and array["shape"] for array in described["inputs"] + described["outputs"])
    assert run("run", name, "--describe")[0] == 0


@pytest.mark.parametrize(
    ("to", "says"),
    [
        (None, "missing"),
        (np.zeros((2, 4)), "integer"),
        (np.zeros(3, int), "has shape (3,), must have 2 dimensions: beats, 4"),
        (np.zeros((2, 5), int), "must be"),
        (np.zeros((77, 4), int), "beats"),
        (np.full((8, 4), 99999), "-32768 to 32767"),
        (np.zeros((0, 4), int), "empty"),
    ],
    ids=["missing", "float", "dimensions", "lanes", "beats", "bounds", "empty"],
)
def test_an_array_that_does_not_fit_is_named(run, tmp_path, to, says):
    arrays = {"w": to, "v": np.zeros((8, 4), int), "g": np.zeros((8, 4), int)}
    if says == "empty":
        arrays["v"] = arrays["g"] = to
    np.savez(tmp_path / "in.npz", **{name: value for name, value in arrays.items() if value is not None})
    code, _, err = run(
        "run", "optimizer", "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz", "--simulator", "amaranth"
    )
    assert code == 2 and says in err and not (tmp_path / "out.npz").exists()


def test_a_truncated_file_is_refused(run, tmp_path):
    np.savez(tmp_path / "in.npz", x=np.arange(1000))
    whole = (tmp_path / "in.npz").read_bytes()
    (tmp_path / "in.npz").write_bytes(whole[: len(whole) // 2])
    code, _, err = run("run", "nf4-encode", "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
    assert code == 2 and "is a ZIP archive that is cut short" in err


@pytest.mark.parametrize(
    "text, bounds",
    [
        ("from 1 to 16", (1, 16)),
        ("from 0 to below 1", (0, 1, False, True)),
        ("above 0 and at most 16", (0, 16, True)),
        ("at least 1", (1,)),
        ("a finite number", ()),
        ("from 0 to 2**63", (0, 1 << 63)),
    ],
)
def test_bounds_are_said_as_they_hold(text, bounds):
    from gradloom.options import Bounds

    made = Bounds(*bounds)
    assert str(made) == text and not made.hold(float("nan")) and not made.hold(float("inf"))
    low, high = (bounds + (None, None))[:2]
    open_low, open_high = (*bounds[2:], False, False)[:2]
    assert low is None or (made.hold(low) != open_low and not made.hold(low - 1))
    assert high is None or (made.hold(high) != open_high and not made.hold(2 * high + 1))
