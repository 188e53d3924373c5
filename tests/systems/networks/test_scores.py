"""Weights of classes, and scores of samples that are of two kinds."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import gradloom
from gradloom.systems.held_out import ClassOptions
from gradloom.systems.networks.data import NetworkSamples
from gradloom.systems.networks.scores import auc, ranked

ROOT = Path(__file__).parents[3]
RESNET = str(ROOT / "tests/golden/networks/mlperf_resnet8.onnx")


@pytest.mark.parametrize("seed", range(4))
def test_the_area_is_the_share_of_pairs_in_order(seed):
    random = np.random.default_rng(seed)
    values, positive = random.integers(0, 9, 40) / 7, random.random(40) < 0.3
    pairs = np.sign(values[positive][:, None] - values[~positive])
    assert auc(values, positive) == pytest.approx((pairs + 1).mean() / 2, abs=1e-12)
    assert auc(values, ~positive) == pytest.approx(1 - auc(values, positive))


def test_samples_rank_where_they_are_of_two_kinds():
    random = np.random.default_rng(0)
    x, found = np.zeros((6, 1)), random.standard_normal((6, 1, 2))
    y = np.array([0, 1, 1, 0, 1, 0])
    difference = found[:, 0, 1] - found[:, 0, 0]
    assert ranked("classes", found, NetworkSamples(x, y)) == auc(difference, y == 1)
    assert ranked("labels", difference.reshape(6, 1, 1), NetworkSamples(x, y.astype(float))) == auc(difference, y == 1)
    assert ranked("classes", found, NetworkSamples(x, 0 * y)) is None
    assert ranked("classes", random.standard_normal((6, 1, 3)), NetworkSamples(x, y)) is None
    assert ranked("labels", difference.reshape(6, 1, 1), NetworkSamples(x, y / 2)) is None
    # The larger its error, the more a sample is an anomaly.
    wanted = random.standard_normal((6, 2))
    odd = NetworkSamples(x, wanted, y == 1)
    assert ranked("values", (wanted + y[:, None]).reshape(6, 1, 2), odd) == 1
    assert ranked("values", (wanted + 1 - y[:, None]).reshape(6, 1, 2), odd) == 0


def test_balanced_weights_make_classes_count_the_same():
    samples = NetworkSamples(np.zeros((8, 1)), np.array([0, 0, 0, 0, 0, 3, 3, 1]))
    weights = ClassOptions(class_weights="balanced").weights(samples.y, 4)
    sums = [weights[each] * np.sum(samples.y == each) for each in (0, 1, 3)]
    np.testing.assert_allclose(sums, 8 / 3)
    assert ClassOptions(class_weights="1,2,3,0.5").weights(samples.y, 4) == [1, 2, 3, 0.5]
    assert ClassOptions().weights(samples.y, 4) is None
    # As the loss of torch has them: the mean of targets' sums is 1.
    made = samples.wanted("classes", 4, np.arange(8), 0.1, weights)
    assert made.sum(1).mean() == pytest.approx(1, abs=0.1) and made[5].sum() > 2 * made[0].sum()
    for wrong in ("1,2", "1,2,3,0", "1,2,3,x", "1,2,3,nan"):
        with pytest.raises(ValueError, match="must be none, balanced, or 4 numbers above 0"):
            ClassOptions(class_weights=wrong).weights(samples.y, 4)


@pytest.fixture(scope="module")
def rare(tmp_path_factory):
    """Images of two classes, of which one is rare."""
    random, path = np.random.default_rng(0), tmp_path_factory.mktemp("data") / "d.npz"
    y = (np.arange(48) % 8 == 0).astype(np.int64)
    x = random.integers(0, 120, (48, 3, 32, 32)) + 60 * y[:, None, None, None]
    np.savez(path, x_train=x[:32].astype(np.uint8), y_train=y[:32], x_test=x[32:].astype(np.uint8), y_test=y[32:])
    return path


def test_weights_of_classes_are_learnt_alike(rare, tmp_path):
    """In both arithmetics, and others than without."""
    given = dict(board="kv260", data=rare, scale=1, epochs=3, lr=0.02, method="head")
    made = {
        engine: gradloom.finetune(
            RESNET, **given, class_weights="balanced", engine=engine, output=tmp_path / engine
        ).metrics
        for engine in ("reference", "float")
    }
    for name in ("loss", "loss_before", "loss_after"):
        np.testing.assert_allclose(made["reference"][name], made["float"][name], rtol=0.2, err_msg=name)
    plain = gradloom.finetune(RESNET, **given, engine="float", output=tmp_path / "plain")
    assert plain["class_weights"] is None and len(made["float"]["class_weights"]) == 10
    assert abs(plain["loss"][0] - made["float"]["loss"][0]) > 0.1


@pytest.fixture(scope="module")
def autoencoder(tmp_path_factory):
    random, path = np.random.default_rng(4), tmp_path_factory.mktemp("model") / "autoencoder.onnx"
    values = {"a": random.standard_normal((6, 24)) / 5, "b": random.standard_normal((24, 6)) / 2.5}
    nodes = [
        helper.make_node("Gemm", given, [made], transB=1) for given, made in ((["x", "a"], "h"), (["h", "b"], "y"))
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 24]) for name in "xy"]
    held = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in values.items()]
    graph = helper.make_graph(nodes, "autoencoder", ports[:1], ports[1:], held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    return str(path)


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """Sounds that a few parts make, and such of other parts."""
    random, path = np.random.default_rng(2), tmp_path_factory.mktemp("sounds") / "d.npz"
    usual, other = random.standard_normal((2, 3, 24))
    x = (random.standard_normal((96, 3)) @ usual).astype(np.float32)
    odd = (random.standard_normal((24, 3)) @ other).astype(np.float32)
    np.savez(path, x_train=x[:72], x_test=np.concatenate([x[72:], odd]), y_test=np.repeat([0, 1], 24))
    return path


def test_anomalies_are_told_by_what_the_network_cannot_give_back(autoencoder, machines, tmp_path):
    """Its targets are the samples themselves; the loss is that of the usual ones."""
    given = dict(board="kv260", data=machines, method="lora", loss="values", targets="linear", lr=0.02, epochs=6)
    made = gradloom.finetune(autoencoder, **given, batch=8, output=tmp_path / "run")
    assert made["auc_after"] > 0.95 and made["auc_before"] < 0.6
    assert made["loss_after"] < 0.1 * made["loss_before"] and "accuracy_after" not in made
    assert made.held_out[-1].auc == made["auc_after"]
    # The folder says which preset's adapter it has: a chain of layers is another one's, too.
    back = gradloom.infer(autoencoder, board="kv260", data=machines, adapter=tmp_path / "run")
    assert back["preset"] == "tile-kv260" and back["auc"] == made["auc_after"]
    assert back["error"] == pytest.approx(made["loss_after"])


def test_samples_that_are_no_values_are_refused(autoencoder, machines, tmp_path):
    found = dict(np.load(machines))
    faults = {
        r"y_train has 0 or 1 for each sample: must be left out": {"y_train": np.arange(72) % 2},
        r"y_test has shape \[48\]: must have 0 or 1 for each of 48 samples, and both": {"y_test": 0 * found["y_test"]},
    }
    for says, arrays in faults.items():
        np.savez(tmp_path / "d.npz", **(found | arrays))
        with pytest.raises(ValueError, match=says):
            gradloom.finetune(
                autoencoder,
                board="kv260",
                data=tmp_path / "d.npz",
                method="lora",
                loss="values",
                output=tmp_path / "run",
            )
    x = np.zeros((4, 3, 32, 32))
    np.savez(tmp_path / "d.npz", x_train=x, x_test=x)
    with pytest.raises(ValueError, match=r"y_train is missing: the network makes \[10\] of \[3, 32, 32\]"):
        gradloom.finetune(RESNET, board="kv260", data=tmp_path / "d.npz", loss="values", output=tmp_path / "run")
    assert not (tmp_path / "run").exists()
