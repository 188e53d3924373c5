"""A user's network and data: learnt, asked, planned and exported."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import gradloom
from gradloom.graph.onnx.load import load_network
from gradloom.systems.networks.program.prepared import Prepared, learning_of
from gradloom.systems.networks.program.steps import MachineSteps

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "tests/golden"

RESNET, KEYWORDS = (str(FOLDER / f"networks/mlperf_{name}.onnx") for name in ("resnet8", "kws_dscnn"))
AUTOENCODER = str(FOLDER / "networks/mlperf_ad01.onnx")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Images of two colours, which a network that has never seen them can learn to tell."""
    random, path = np.random.default_rng(0), tmp_path_factory.mktemp("data") / "d.npz"
    y = random.integers(0, 2, 96)
    x = random.integers(0, 60, (96, 3, 32, 32)) + 150 * y[:, None, None, None] * np.array([1, 0, 0])[:, None, None]
    x = x.astype(np.uint8)
    np.savez(path, x_train=x[:64], y_train=y[:64], x_test=x[64:], y_test=y[64:])
    return path


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    made = gradloom.finetune(RESNET, board="kv260", data=data, scale=1, epochs=4, lr=0.03, output=folder)
    return folder, made


def test_a_network_of_branches_learns_what_it_has_not_seen(run, data, tmp_path):
    folder, made = run
    assert made["preset"] == "tile-kv260" and made["targets"] == "last:2" and made["steps"] == 16
    assert made["accuracy_before"] < 0.7 and made["accuracy_after"] > 0.95
    assert made["loss_after"] < 0.2 * made["loss_before"]
    for when in ("before", "after"):
        counts = np.array(made[f"confusion_{when}"])
        assert counts.shape == (10, 10) and counts.sum() == counts[:2].sum() == 32
        assert np.trace(counts) / 32 == made[f"accuracy_{when}"]
    planned = gradloom.plan(RESNET, board="kv260")
    # Four batches, each of which is learnt four times.
    assert made["forecast"]["total"] == 16 * planned["cycles"]["total"] + 4 * planned["once"]["cycles"]
    assert made["saturated"] == 0
    answers = gradloom.infer(RESNET, board="kv260", data=data, scale=1, adapter=folder)
    assert answers["accuracy"] == made["accuracy_after"]
    exact = gradloom.infer(RESNET, board="kv260", data=data, scale=1, adapter=folder, engine="float")
    assert exact["accuracy"] > 0.95
    before = gradloom.infer(RESNET, board="kv260", data=data, scale=1)
    assert before["accuracy"] == made["accuracy_before"]


def test_integers_learn_as_floating_point_does(run, data, tmp_path):
    """From the same adapters, in the same order; the losses of all steps."""
    _, made = run
    exact = gradloom.finetune(
        RESNET, board="kv260", data=data, scale=1, epochs=4, lr=0.03, engine="float", output=tmp_path / "run"
    )
    one, other = (np.array(each["loss"]) for each in (made, exact))
    assert np.abs(one - other)[:6].max() < 0.1 * other[0]
    assert exact["cycles"] is None and exact["accuracy_after"] > 0.95


def test_smoothed_targets_are_learnt_alike(data, tmp_path):
    """In both arithmetics, whose losses stay above those of one class alone."""
    made = [
        gradloom.finetune(
            RESNET,
            board="kv260",
            data=data,
            scale=1,
            smoothing=0.2,
            epochs=1,
            lr=0.03,
            engine=engine,
            output=tmp_path / engine,
        )["loss"]
        for engine in ("reference", "float")
    ]
    np.testing.assert_allclose(made[0], made[1], rtol=0.1)
    plain = gradloom.finetune(
        RESNET, board="kv260", data=data, scale=1, epochs=1, lr=0.03, engine="float", output=tmp_path / "plain"
    )
    assert abs(made[1][0] - plain["loss"][0]) > 0.1


def test_the_exported_file_answers_as_the_network_does(run, data, tmp_path):
    folder, _ = run
    out, results = tmp_path / "tuned.onnx", tmp_path / "out.npz"
    told = gradloom.export(folder, out, model=RESNET)
    assert told["weights"] == 2
    gradloom.infer(RESNET, board="kv260", data=data, scale=1, adapter=folder, engine="float", output=results)
    session = onnxruntime.InferenceSession(out)
    x = np.load(data)["x_test"].astype(np.float32)
    found = session.run(None, {session.get_inputs()[0].name: x})[0]
    shares = np.load(results)["results"]
    np.testing.assert_allclose(found, shares, atol=1e-5)


@pytest.mark.parametrize("method", ["head", "bias"])
def test_the_last_layer_or_biases_learn(method, data, tmp_path):
    made = gradloom.finetune(
        RESNET, board="kv260", data=data, scale=1, method=method, epochs=1, lr=0.01, limit=32, output=tmp_path / "run"
    )
    assert made["loss_after"] < made["loss_before"] and made["rank"] is None
    back = gradloom.infer(RESNET, board="kv260", data=data, scale=1, adapter=tmp_path / "run")
    assert back["accuracy"] == made["accuracy_after"]


def test_values_are_learnt_by_their_squares(tmp_path):
    random = np.random.default_rng(1)
    x = random.standard_normal((48, 640)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x_train=x, y_train=x)
    made = gradloom.finetune(
        AUTOENCODER,
        board="kv260",
        data=tmp_path / "d.npz",
        held_out=0.25,
        method="lora",
        targets="linear",
        rank=2,
        lr=0.01,
        output=tmp_path / "run",
    )
    assert made["loss_after"] < 0.8 * made["loss_before"] and "accuracy_after" not in made


def test_the_guide_says_what_plans_do():
    """Every row of its table, by the options that the row has."""
    text = (ROOT / "docs/guides/networks.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    names = {"ResNet-8": "resnet8", "DS-CNN": "kws_dscnn", "MobileNetV1-0.25": "vww_mobilenet", "autoencoder": "ad01"}
    seen = 0
    for name, options, cycles, once in (row for row in rows if len(row) == 4):
        file = names.get(name.split(",")[0])
        if file is None:
            continue
        words = options.strip("`").split()
        given = {key.removeprefix("--"): value for key, value in zip(words[::2], words[1::2])}
        given |= {"batch": int(given["batch"])} if "batch" in given else {}
        found = gradloom.plan(str(FOLDER / f"networks/mlperf_{file}.onnx"), board="kv260", **given)
        assert found["preset"] == "tile-kv260" and f"{found['cycles']['sample']:,}" == cycles, name
        assert ("" if found["once"] is None else f"{found['once']['sample']:,}") == once, name
        seen += 1
    assert seen == 9


def test_a_plan_says_where_cycles_go():
    """Figures of the machine that the presets have; forward passes and a step."""
    most = {RESNET: 25_000, KEYWORDS: 20_000}
    for model, cycles in most.items():
        found = gradloom.plan(model, board="kv260", method="none", batch=1)
        assert found["cycles"]["total"] < cycles and found["learnt"] == 0
    found = gradloom.plan(RESNET, board="kv260")
    assert found["cycles"]["sample"] < 75_000 and found["batch"] == 16 and found["learnt"] == 680
    assert 0 < found["share"] < 1 and sum(each["products"] for each in found["operations"]) > found["multiplications"]


def test_the_forecast_of_a_plan_is_that_of_the_program():
    """A step in memory of the models: the plan's program runs, with the number of commands that it was planned with."""
    prepared = Prepared(learning_of(load_network(KEYWORDS), "classes", "head"), "classes")
    config = gradloom.preset.PRESETS["tile-kv260"].config
    programs = prepared.programs(config, 2, prepared.rules(1e-3))
    from gradloom.sim.reference.tiles.program import TileMachine

    steps = MachineSteps(programs, TileMachine(config, programs.length), prepared.integers(), "classes")
    x = np.load(Path(KEYWORDS).with_suffix(".npz"))["x"][:2]
    exact = prepared.integers()
    given, wanted = prepared.inputs(x), np.eye(12)[:2]
    found = exact.forward(given)
    assert steps(given, wanted) == exact.falling("classes", found[exact.port.tensor.name], wanted)[0]


BAD = {
    "no classes": (dict(y_train=np.zeros((4, 2))), {"loss": "classes"}, "classes must be integers"),
    "a class beyond": (dict(y_train=np.array([0, 1, 10, 0])), {}, r"y_train\[2\] is 10: classes must be from 0 to 9"),
    "another shape": (dict(x_train=np.zeros((4, 3, 8, 8))), {}, r"samples of \[3, 8, 8\]: the network takes"),
    "not finite": (dict(x_train=np.full((4, 3, 32, 32), np.nan)), {}, "12288 values that are NaN"),
    "labels beyond": (
        {f"{x}_{part}": np.full((4, 640), 2.0) for x in "xy" for part in ("train", "test")},
        {"loss": "labels", "model": AUTOENCODER},
        "values from 2 to 2: labels must be from 0 to 1",
    ),
    "labels of classes": (
        dict(y_train=np.full((4, 10), 2.0), y_test=np.zeros((4, 10))),
        {"loss": "labels"},
        "loss=labels: the network ends with a softmax; take loss=classes",
    ),
    "smoothed values": (
        dict(y_train=np.zeros((4, 10)), y_test=np.zeros((4, 10))),
        {"smoothing": 0.1},
        r"smoothing=0\.1: must be left out with loss=values",
    ),
    "few targets": (dict(y_train=np.array([0])), {}, "y_train has 1 targets: there are 4 samples"),
    "no layer": ({}, {"targets": "nothing"}, "targets=nothing: no layer of this name; there are t0, t1"),
    "a rank above": ({}, {"targets": "t0", "rank": 30}, "rank=30: must be from 1 to 16 beside t0"),
    "an adapter's option": ({}, {"method": "head", "rank": 2}, "rank=2: must be left out with method=head"),
    "too many": ({}, {"limit": 5}, "limit=5: must be from 1 to 4"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_refused(name, tmp_path):
    arrays, options, says = BAD[name]
    options = {"model": RESNET, **options}
    usual = {"x_train": np.zeros((4, 3, 32, 32)), "y_train": np.array([0, 1, 2, 3])}
    usual |= {"x_test": usual["x_train"], "y_test": usual["y_train"]}
    np.savez(tmp_path / "d.npz", **(usual | arrays))
    with pytest.raises(ValueError, match=says):
        gradloom.finetune(board="kv260", data=tmp_path / "d.npz", output=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()
