"""``gradloom sweep``: what it asks for, what it keeps, and how it goes on."""

import csv
import json
import os
import struct

import pytest

import gradloom
from gradloom.cli.design.sweep import FIGURES, KEYS, measure, plan_points
from gradloom.cli.main import main
from gradloom.output import marked
from gradloom.sweeping.picture import plot_pareto
from gradloom.sweeping.run import SweepTable, pareto, sweep

NOTHING = {
    "rank": None,
    "mesh": None,
    "codes": None,
    "settings": (),
    "area": "count",
    "accuracy": False,
    "limit": None,
    "epochs": None,
    "seed": 0,
}


def points(*presets, **asked):
    return plan_points(presets or ("digits-ulx3s",), **NOTHING | asked)


def run(*arguments):
    with pytest.raises(SystemExit) as done:
        main(["sweep", *map(str, arguments)])
    return done.value.code


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_sweep_is_measured_kept_drawn_and_goes_on(tmp_path, capsys):
    folder = tmp_path / "sweep"
    asked = ("digits-ulx3s", "--mesh", "12x4,12x8", "-o", folder, "--jobs", 1)
    assert run(*asked, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    fits, large = rows
    # As report.json of the preset with 12 rows forecasts it.
    assert (fits["cycles"], fits["units"], fits["dsp"], fits["note"]) == (732_943, 144 * 40, 107, None)
    assert large["cycles"] is None and "156 DSP slices" in large["note"]
    assert (folder / "pareto.png").read_bytes().startswith(b"\x89PNG")

    kept = (folder / "sweep.csv").read_text()
    (folder / "sweep.csv").write_text(kept.replace("732943", "17"))
    assert run(*asked, "--rank", "4,2") == 0
    said = capsys.readouterr()
    assert "points: 4 of 4" in said.err and "sweep.csv" in said.out.replace("\n", "")
    assert {(row["rank"], row["cycles"]) for row in read(folder / "sweep.csv") if row["mesh"] == "12x4"} == {
        ("4", "17"),
        ("2", "585260"),
    }


def test_accuracy_is_the_references(tmp_path):
    (point,) = points(accuracy=True, limit=30, epochs=1, rank="2")
    found = measure(point)
    assert 0 < found["accuracy"] < 1 and found["cycles"]
    (point,) = points(accuracy=True, limit=30, epochs=1, rank="2", codes="int8")
    assert "activation_bits" in measure(point)["note"]


@pytest.mark.parametrize(
    ("preset", "says"),
    [
        ("lstm-kv260", "which has no measure"),
        ("tile-kv260", "'tile-kv260': ships no fine-tune that a sweep could measure; gradloom plan and choose take"),
    ],
)
def test_a_preset_without_a_measure_is_not_swept(preset, says, tmp_path, capsys):
    assert run(preset, "-o", tmp_path / "out") == 2
    assert says in " ".join(capsys.readouterr().err.split()) and not list(tmp_path.iterdir())


def test_a_diffusion_models_points_are_bounds_of_a_whole_step():
    plan = gradloom.plan("sd-v1.5")
    narrow, wide = (measure(point) for point in points("cdm-qta-kv260", mesh="64x16,64x32"))
    assert (wide["cycles"], wide["units"]) == (plan["step"]["cycles"], 1) and narrow["cycles"] > wide["cycles"]
    assert wide["memory_bytes"] == sum(plan["memory"].values())
    (large,) = points("cdm-qta-kv260", mesh="64x64")
    assert "array_columns=64: must be a power of two from 16 to 32" in measure(large)["note"]
    with pytest.raises(ValueError, match="codes=nf4: must be one of int8"):
        points("cdm-qta-kv260", codes="nf4")


def test_a_language_model_has_cycles_of_its_linears_and_memory_of_all(tmp_path):
    (point,) = points("edge-qlora-genesys2")
    found = measure(point)
    # Both as simulated RTL counted them, docs/explanation/language-machine.md.
    assert found["cycles"] == 447_085 + 456_795
    (narrow,) = points("edge-qlora-genesys2", codes="nf2")
    fewer = measure(narrow)
    assert fewer["memory_bytes"] < found["memory_bytes"] and "4 bits" in fewer["note"]


def test_instantft_of_a_language_model_has_its_own_figures():
    """Memory as its plan counts it, and cycles of a later step, as docs/explanation/language-machine.md has them."""
    (point,) = points("instantft-llm-genesys2")
    found = measure(point)
    assert found["memory_bytes"] == gradloom.plan("smollm2-135m", method="instantft")["total_bytes"]
    assert (found["cycles"], found["units"], found.get("note")) == (7_954_172, 64, None)


@pytest.mark.parametrize(
    "asked, note",
    [
        ({"codes": "nf2"}, "codes=nf2: the machine reads codes of 4 bits"),
        ({"mesh": "32x8"}, "mesh=32x8: must have 64 rows for instantft-llm-genesys2"),
        ({"rank": "33", "settings": ["tokens=32"]}, "rank=33: must be from 1 to 32; give --rank 32"),
    ],
)
def test_instantft_that_cannot_be_says_why(asked, note):
    (point,) = points("instantft-llm-genesys2", **asked)
    found = measure(point)
    assert note in found["note"] and "cycles" not in found


def test_a_sweep_of_nothing_that_can_be_built_has_no_table(tmp_path, capsys):
    assert run("edge-qlora-genesys2", "--rank", "9", "-o", tmp_path / "sweep") == 2
    said, error = capsys.readouterr()
    assert "points: none of 1 can be built" in error
    assert "edge-qlora-genesys2: no point has cycles" in said and "rank=9: the machine must be larger" in said
    assert "dsp" not in said


@pytest.mark.parametrize(
    "asked, said",
    [
        ({"codes": "nf4"}, "bits=nf4: must be like W8A6C8"),
        ({"codes": "W8A9C8"}, "activations=9: must be from 2 to 8"),
        ({"rank": "4"}, "rank=4: must be left out, lstm-zcu104 answers"),
        ({"accuracy": True, "epochs": 2}, "epochs=2: must be left out"),
        ({"model": "m.onnx"}, "model=m.onnx: needs --data too"),
        ({"model": "m.onnx", "data": "d.npz"}, "model=m.onnx: no such file"),
    ],
)
def test_wrong_requests_of_widths_are_refused(asked, said):
    with pytest.raises(ValueError, match=said):
        points("lstm-zcu104", **asked)
    with pytest.raises(ValueError, match="data=d.npz: must be left out, digits-ulx3s sweeps"):
        points("digits-ulx3s", data="d.npz")


def test_a_network_of_widths_that_does_not_fit_says_why():
    (point,) = points("lstm-ulx3s", codes="W8A6C8")
    assert "with hidden=32: set hidden=64 (64 elements of a hidden state)" in measure(point)["note"]


def test_points_are_all_combinations():
    made = points(
        "digits-ulx3s",
        "instantft-kv260",
        rank="2,4",
        codes="nf4,int8",
        settings=["outstanding=4"],
        mesh="12x4,25x16,9x4",
    )
    assert len(made) == 24 and len({tuple(point.values()) for point in made}) == 24
    assert all(tuple(point) == KEYS for point in made)
    assert points("instantft-kv260", settings=["clock_mhz=100,200"])[1]["settings"] == "clock_mhz=200"


@pytest.mark.parametrize(
    "arguments, says",
    [
        (("weaver",), "weaver"),
        (("digits-ulx3s", "digits-ulx3s"), "twice"),
        (("digits-ulx3s", "--rank", "0"), "rank=0"),
        (("digits-ulx3s", "--rank", "2,two"), "rank=two"),
        (("digits-ulx3s", "--rank", "2,2"), "different values"),
        (("digits-ulx3s", "--mesh", "15"), "mesh=15"),
        (("digits-ulx3s", "--codes", "nf3"), "nf4, int8"),
        (("edge-qlora-genesys2", "--codes", "int8"), "nf4, nf3, nf2"),
        (("digits-ulx3s", "--set", "colour=1"), "colour"),
        (("digits-ulx3s", "--set", "clock_mhz=fast"), "a number"),
        (("digits-ulx3s", "--set", "rows=9"), "--mesh"),
        (("digits-ulx3s", "--set", "taps"), "KEY=VALUE"),
        (("digits-ulx3s", "--limit", "5"), "--accuracy"),
        (("edge-qlora-kv260", "--accuracy"), "accuracy: must be left out, a sweep judges no fine-tune of edge-qlora"),
        (("digits-ulx3s", "--scheduler", "nonsense://nowhere"), "scheduler=nonsense"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments, says, tmp_path, capsys):
    assert run(*arguments, "-o", tmp_path / "sweep") == 2
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("points:")]
    assert len(said) == 1 and says in said[0] and said[0].startswith("gradloom: ")
    assert not (tmp_path / "sweep").exists()


def test_results_that_are_no_table_of_a_sweep_are_refused(tmp_path, capsys):
    marked(tmp_path, verb="sweep")
    (tmp_path / "sweep.csv").write_text("a,b\n1,2\n")
    assert run("digits-ulx3s", "-o", tmp_path) == 2
    assert "columns are a, b" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert run("digits-ulx3s", "-o", tmp_path / "file") == 2


def test_an_interrupted_sweep_says_that_it_goes_on(tmp_path, monkeypatch, capsys):
    add = SweepTable.add

    def interrupted(table, row):
        add(table, row)
        raise KeyboardInterrupt

    monkeypatch.setattr(SweepTable, "add", interrupted)
    assert run("digits-ulx3s", "--mesh", "12x4,12x8", "-o", tmp_path / "sweep", "--jobs", 1) == 130
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"interrupted; {tmp_path / 'sweep' / 'sweep.csv'} has 1 point; the same command continues"


def test_a_row_is_kept_whole_or_not_at_all(tmp_path, monkeypatch):
    table = SweepTable(tmp_path / "t.csv", ("a",), ("b",))
    table.add({"a": 1, "b": 2})
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            table.add({"a": 2, "b": 3})
    assert SweepTable(tmp_path / "t.csv", ("a",), ("b",)).rows == [{"a": "1", "b": "2"}]
    # Somebody's editor, or a copy that was cut short.
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3")
    again = SweepTable(tmp_path / "t.csv", ("a",), ("b",))
    assert again.has({"a": 1}) and not again.has({"a": 3})


def test_a_cluster_measures_the_same(tmp_path):
    distributed = pytest.importorskip("distributed")
    wanted = points(mesh="12x4,12x8")
    table = SweepTable(tmp_path / "t.csv", KEYS, FIGURES)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        sweep(wanted, measure, table, jobs=1, scheduler=cluster.scheduler_address)
    assert table.row(wanted[0])["cycles"] == str(measure(wanted[0])["cycles"]) and "DSP" in table.row(wanted[1])["note"]


def test_without_dask_a_scheduler_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(ValueError, match="make cluster in the clone"):
        sweep(
            points(), measure, SweepTable(tmp_path / "t.csv", KEYS, FIGURES), jobs=1, scheduler="tcp://127.0.0.1:8786"
        )


def test_the_front_is_what_nothing_beats():
    assert pareto([(3, 1), (1, 3), (2, 2), (2, 3), (3, 3), (1, 4), (1, 3)]) == [1, 2, 0]
    assert pareto([]) == []


def test_a_plot_of_nothing_is_a_plot(tmp_path):
    plot_pareto(tmp_path / "none.png", [])
    assert (tmp_path / "none.png").stat().st_size


def test_a_plot_has_a_row_a_preset(tmp_path):
    row = {"cycles": "9", "cycles_a_unit": "9", "lut": "", "dsp": "3", "accuracy": "", "memory_bytes": "5"}
    row |= {"codes": "nf4", "rank": "2", "mesh": "4x4"}
    for count in (1, 2):
        picture = tmp_path / f"{count}.png"
        plot_pareto(picture, [row | {"preset": f"preset {number // 2}"} for number in range(2 * count)])
        width, height = struct.unpack(">II", picture.read_bytes()[16:24])
        assert height / width == pytest.approx(4.6 * count / 12, rel=1e-2)


def test_the_example_of_the_help_works_as_printed(tmp_path, monkeypatch, capsys):
    """Only that it takes fewer images and epochs here."""
    monkeypatch.setenv("COLUMNS", "200")
    run("--help")
    example = next(line for line in capsys.readouterr().out.splitlines() if "digits-ulx3s" in line)
    arguments = example.split("gradloom sweep ")[1].split()
    monkeypatch.chdir(tmp_path)
    assert run(*arguments, "--limit", "8", "--epochs", "1", "--jobs", "1") == 0
    rows = read(tmp_path / "sweep" / "sweep.csv")
    assert len(rows) == 6 and all(row["cycles"] and row["accuracy"] and not row["note"] for row in rows)
