"""Networks of others: results as the file's own runtime has them, and where a network is sent."""

import numpy as np
import onnx
import onnxruntime
import pytest

import gradloom
from gradloom.systems.asked import asked_for

from ...graph.made import Maker


def saved(g, path, *results):
    onnx.save(g.model(*results), path)
    return str(path)


def steps_of(path):
    """Shares of 3 classes for each of 10 steps, behind one another in the axis of channels."""
    g = Maker(13, 8, 10)
    x = g("Relu", g.conv(g.x, 8, 12, 3, sides=1, pads=[1, 1]))
    return saved(g, path, g("Softmax", g.conv(x, 12, 3, 1, sides=1), axis=1))


def mlp(path, end=None, features=20, classes=3, name="a"):
    g = Maker(13, features)
    y = g.gemm(g("Relu", g.gemm(g.x, features, 16, name)), 16, classes, f"{name}2")
    return saved(g, path, y if end is None else g(end, y))


def data(path, x, y=None):
    arrays = {"x": x} if y is None else {"x": x, "y": y, "x_train": x, "y_train": y, "x_test": x, "y_test": y}
    np.savez(path, **arrays)
    return path


def floats(*shape):
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def runtime(model, x):
    return onnxruntime.InferenceSession(model).run(None, {"x": x})[0]


def results(model, path, **more):
    gradloom.infer(model, board="kv260", data=path, output=path.with_name("out.npz"), **more)
    return np.load(path.with_name("out.npz"))["results"]


@pytest.mark.parametrize("end", [None, "Softmax", "Sigmoid", "LogSoftmax"])
@pytest.mark.parametrize("has_classes", [False, True])
def test_results_mean_the_same_with_classes_and_without(end, has_classes, tmp_path):
    model, x = mlp(tmp_path / "m.onnx", end), floats(32, 20)
    path = data(tmp_path / "d.npz", x, np.arange(32) % 3 if has_classes else None)
    np.testing.assert_allclose(results(model, path, engine="float"), runtime(model, x), atol=1e-5)
    assert np.abs(results(model, path) - runtime(model, x)).max() < 0.05


def test_results_have_the_shape_of_the_file(tmp_path):
    model, x = steps_of(tmp_path / "m.onnx"), floats(5, 8, 10)
    found = results(model, data(tmp_path / "d.npz", x), engine="float")
    assert found.shape == (5, 3, 10)
    np.testing.assert_allclose(found, runtime(model, x), atol=1e-5)


@pytest.mark.parametrize("loss", ["classes", "values"])
def test_results_of_an_adapter_are_those_of_the_exported_file(loss, tmp_path):
    model, x = mlp(tmp_path / "m.onnx", "Softmax"), floats(32, 20)
    y = np.arange(32) % 3
    path = data(tmp_path / "d.npz", x, y if loss == "classes" else np.eye(3, dtype=np.float32)[y])
    gradloom.finetune(model, board="kv260", data=path, epochs=3, lr=0.05, output=tmp_path / "run")
    gradloom.export(tmp_path / "run", output=tmp_path / "tuned.onnx", model=model)
    found = results(model, path, adapter=tmp_path / "run", engine="float")
    np.testing.assert_allclose(found, runtime(tmp_path / "tuned.onnx", x), atol=1e-5)
    assert np.abs(found - runtime(model, x)).max() > 0.01
    with pytest.raises(ValueError, match=f"loss=labels: must be {loss} or left out, the adapter has learnt by it"):
        results(model, path, adapter=tmp_path / "run", loss="labels")


def test_an_adapter_beside_a_layer_of_all_values_is_read_back(tmp_path):
    """The machine has it as a convolution of the whole image."""
    g = Maker(13, 6, 5)
    model = saved(g, tmp_path / "m.onnx", g.gemm(g("Flatten", g("Tanh", g.linear(g.x, 5, 1))), 6, 3))
    path = data(tmp_path / "d.npz", floats(32, 6, 5), np.arange(32) % 3)
    made = gradloom.finetune(model, board="kv260", data=path, epochs=2, lr=0.05, method="lora", output=tmp_path / "run")
    told = gradloom.infer(model, board="kv260", data=path, adapter=tmp_path / "run")
    assert told["accuracy"] == made["accuracy_after"]


def test_a_layer_whose_inputs_have_another_order_is_exported(tmp_path):
    """A shuffle of channels moves into the columns of the last layer; a layer in groups has no adapter by default."""
    g = Maker(13, 3, 4, 4)
    y = g("Reshape", g("Relu", g.conv(g.x, 3, 8, 3)), g.integers(-1, 2, 4, 2, 2))
    y = g("Reshape", g("Transpose", y, perm=[0, 2, 1, 3, 4]), g.integers(-1, 8, 2, 2))
    y = g("Tanh", g.conv(g("GlobalAveragePool", y), 8, 8, 1, group=8))
    model = saved(g, tmp_path / "m.onnx", g.gemm(g("Flatten", y), 8, 3))
    x = floats(24, 3, 4, 4)
    path = data(tmp_path / "d.npz", x, np.arange(24) % 3)
    for method in ("lora", "head"):
        run = {"method": method, "engine": "float", "epochs": 2, "lr": 0.05, "output": tmp_path / method}
        gradloom.finetune(model, board="kv260", data=path, **run)
        gradloom.export(tmp_path / method, output=tmp_path / "tuned.onnx", model=model)
        found = results(model, path, adapter=tmp_path / method, engine="float")
        np.testing.assert_allclose(found, runtime(tmp_path / "tuned.onnx", x), atol=1e-5)
        assert np.abs(found - runtime(model, x)).max() > 1e-3


def test_tables_that_learn_are_refused_by_name(tmp_path):
    g = Maker(13, 3, 5, 5)
    x = g("Mul", g("Tanh", g.x), g.near(3, 1, 1, name="gain"))
    model = saved(g, tmp_path / "m.onnx", g("GlobalMaxPool", g.conv(x, 3, 4, 3, pads=[1] * 4)))
    with pytest.raises(ValueError, match="no gradient in the machine: tables: gain; let others learn: method lora"):
        gradloom.plan(model, board="kv260", method="full", loss="values")


def test_a_row_of_results_is_one_row(tmp_path):
    """Cosines with four vectors, made one by one."""
    g = Maker(13, 6)
    x = g.axes("Unsqueeze", g.gemm(g.x, 6, 8), [1])
    y = g.axes("ReduceSum", g("Mul", x, g.w(1, 4, 8)), [2], keepdims=0)
    model, x = saved(g, tmp_path / "m.onnx", y), floats(32, 6)
    path = data(tmp_path / "d.npz", x, np.arange(32) % 4)
    np.testing.assert_allclose(results(model, path, engine="float"), runtime(model, x), atol=1e-5)
    assert "accuracy" in gradloom.infer(model, board="kv260", data=path)


def test_classes_have_the_order_of_the_file(tmp_path):
    g = Maker(13, 20)
    y = g("Reshape", g.gemm(g.x, 20, 6), g.integers(-1, 2, 3))
    model = saved(g, tmp_path / "m.onnx", g("Reshape", g("Transpose", y, perm=[0, 2, 1]), g.integers(-1, 6)))
    x = floats(32, 20)
    classes = runtime(model, x).argmax(1)
    path = data(tmp_path / "d.npz", x, classes)
    told = gradloom.infer(model, board="kv260", data=path, engine="float")
    assert told["labels"] == classes.tolist() and told["accuracy"] == 1
    made = gradloom.finetune(model, board="kv260", data=path, engine="float", epochs=1, output=tmp_path / "run")
    assert made["accuracy_before"] == 1


def test_a_network_goes_where_its_data_fit(tmp_path):
    model = mlp(tmp_path / "m.onnx", features=16)
    whole = data(tmp_path / "bytes.npz", (99 + 50 * floats(9, 4, 4)).astype(np.uint8), np.arange(9) % 3)
    real = data(tmp_path / "real.npz", floats(9, 16), np.arange(9) % 3)
    assert asked_for(model, board="kv260", given={"data": whole}).preset.name == "instantft-kv260"
    found = asked_for(model, board="kv260", given={"data": real})
    assert found.preset.name == "tile-kv260"
    assert found.why.endswith("; instantft-kv260 does not take it: x are float32, no bytes of pixels")
    found = asked_for(model, board="kv260", given={"data": whole, "targets": "last:1"})
    assert found.preset.name == "tile-kv260" and found.why.endswith("; instantft-kv260 has no --targets")
    (tmp_path / "taps").mkdir()
    (tmp_path / "taps/adapter_config.json").write_text('{"gradloom_method": "instantft", "gradloom_loss": "classes"}')
    given = {"data": whole, "adapter": tmp_path / "taps"}
    assert asked_for(model, board="kv260", method="instantft", verb="infer", given=given).preset.name == "tile-kv260"
    many = mlp(tmp_path / "many.onnx", features=16, classes=17)
    found = asked_for(many, board="kv260", given={"data": whole})
    assert found.preset.name == "tile-kv260" and "instantft-kv260 does not take it: " in found.why
    assert (
        gradloom.finetune(model, board="kv260", data=real, epochs=1, output=tmp_path / "run")["preset"] == "tile-kv260"
    )


def test_a_network_that_nobody_takes_is_refused_by_the_reader_of_networks(tmp_path):
    g = Maker(13, 3, 4, 4)
    model = saved(g, tmp_path / "m.onnx", g.gemm(g("Flatten", g("Cosh", g.conv(g.x, 3, 4, 3))), 16, 3))
    path = data(tmp_path / "d.npz", floats(4, 3, 4, 4), np.arange(4) % 3)
    with pytest.raises(ValueError, match=r"node '/net/Cosh_1' \(Cosh\): no such operation; taken are Abs, "):
        gradloom.finetune(model, board="kv260", data=path, output=tmp_path / "run")


def test_what_classes_mean_is_asked_where_nobody_can_know(tmp_path):
    model, x = mlp(tmp_path / "m.onnx", features=6, classes=6), floats(32, 6)
    path = data(tmp_path / "d.npz", x, np.arange(32) % 2)
    with pytest.raises(ValueError, match="loss: must be given, the network gives back what it takes"):
        gradloom.infer(model, board="kv260", data=path)
    assert "accuracy" in gradloom.infer(model, board="kv260", data=path, loss="classes")
    told = gradloom.infer(model, board="kv260", data=path, loss="values")
    assert "auc" in told and "error" in told and "accuracy" not in told


def test_one_result_and_classes(tmp_path):
    model = mlp(tmp_path / "m.onnx", "Sigmoid", classes=1)
    path = data(tmp_path / "d.npz", floats(32, 20), np.arange(32) % 2)
    with pytest.raises(ValueError, match="loss=classes: the last layer has one output; take loss=labels, or values"):
        gradloom.finetune(model, board="kv260", data=path, output=tmp_path / "run")
    told = gradloom.infer(model, board="kv260", data=path, loss="labels")
    assert told["error"] <= 1


def test_an_adapter_of_another_network(tmp_path):
    mine, other = mlp(tmp_path / "m.onnx"), mlp(tmp_path / "other.onnx", name="b")
    path = data(tmp_path / "d.npz", floats(32, 20), np.arange(32) % 3)
    for method in ("lora", "head"):
        gradloom.finetune(mine, board="kv260", data=path, method=method, epochs=1, output=tmp_path / method)
        with pytest.raises(ValueError, match="is of another network: it has .*a2; the network has b, b2$"):
            gradloom.infer(other, board="kv260", data=path, adapter=tmp_path / method)


def test_a_message_has_no_number_for_the_samples(tmp_path):
    g = Maker(13, 3, 4, 4)
    mask = g.constant(np.where(np.eye(4) > 0, -np.inf, 0))
    model = saved(g, tmp_path / "m.onnx", g("Softmax", g("Relu", g("Add", g.x, mask)), axis=1))
    with pytest.raises(ValueError, match="reads .*, which has minus infinity: only a softmax takes it"):
        gradloom.plan(model, board="kv260")
    g = Maker(13, 3, 4, 4)
    model = saved(g, tmp_path / "m.onnx", g("Reshape", g("Relu", g.x), g.integers(4, -1)))
    with pytest.raises(ValueError, match=r"from \[batch, 3, 4, 4\] to .*: the samples must stay axis 0"):
        gradloom.plan(model, board="kv260")
