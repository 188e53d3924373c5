"""Networks whose layers share weights, have names of a language of ours, or few results."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import gradloom
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.onnx.load import load_network
from gradloom.systems.networks.known import known
from gradloom.systems.networks.program.prepared import precise_of
from gradloom.systems.networks.requests import NetworkChoice
from gradloom.systems.networks.workload import NetworkOptions


def written(path, layers, shapes, results=("y",)):
    """A chain of matrices by their names, ``x`` to ``y``, with a tanh behind each but the last."""
    random = np.random.default_rng(4)
    held = [
        numpy_helper.from_array((random.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes, at = [], "x"
    for number, name in enumerate(layers):
        end = number == len(layers) - 1
        # A layer has the name of its initializer.
        nodes.append(helper.make_node("MatMul", [at, name], ["y" if end else f"h{number}"]))
        at = f"t{number}"
        if not end:
            nodes.append(helper.make_node("Tanh", [f"h{number}"], [at]))
    sizes = {"x": shapes[layers[0]][0], "y": shapes[layers[-1]][1], "t0": shapes[layers[0]][1]}
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", sizes[name]]) for name in ("x", *results)]
    graph = helper.make_graph(nodes, "own", ports[:1], ports[1:], held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return str(path)


def samples(path, features, y):
    x = np.random.default_rng(5).standard_normal((len(y), features)).astype(np.float32)
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
    return path


def learnt(model, data, folder, **more):
    return gradloom.finetune(model, board="kv260", data=data, epochs=2, lr=0.1, output=folder, **more)


CLASSES = np.arange(32) % 4
SHARED = {"a.weight": (6, 8), "m.weight": (8, 8), "b.weight": (8, 4)}


def test_a_layer_that_is_used_twice_is_folded_once(tmp_path):
    model = written(tmp_path / "m.onnx", ("a.weight", "m.weight", "m.weight", "b.weight"), SHARED)
    data = samples(tmp_path / "d.npz", 6, CLASSES)
    learnt(model, data, tmp_path / "run", targets="m*", rank=2)
    gradloom.export(tmp_path / "run", output=tmp_path / "out.onnx", model=model)
    before, after = (
        FloatReading(load_network(path)).forward(np.load(data)["x_test"]) for path in (model, tmp_path / "out.onnx")
    )
    given = {"board": "kv260", "data": data, "engine": "float", "output": tmp_path / "r.npz"}
    gradloom.infer(model, adapter=tmp_path / "run", **given)
    found, wanted = after["y"].reshape(32, 4), np.load(tmp_path / "r.npz")["results"]
    assert np.abs(before["y"].reshape(32, 4) - wanted).max() > 0.05
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("names", [("linear", "conv"), ("enc[0]", "out,1"), ("m.l*", "last:2")])
def test_an_adapter_is_read_back_by_the_very_names(names, tmp_path):
    model = written(tmp_path / "m.onnx", names, dict(zip(names, ((6, 8), (8, 4)))))
    data = samples(tmp_path / "d.npz", 6, CLASSES)
    made = learnt(model, data, tmp_path / "run", rank=2)
    assert (
        gradloom.infer(model, board="kv260", data=data, adapter=tmp_path / "run")["accuracy"] == made["accuracy_after"]
    )


def test_layers_of_few_results_have_adapters_of_less_rank(tmp_path):
    model = written(tmp_path / "m.onnx", ("a", "b"), {"a": (6, 8), "b": (8, 1)})
    data = samples(tmp_path / "d.npz", 6, (CLASSES > 1).astype(np.float32)[:, None])
    made = learnt(model, data, tmp_path / "run", loss="labels")
    assert (made["rank"], made["lesser_ranks"]) == (4, {"b": 1})
    config = json.loads((tmp_path / "run" / "adapter_config.json").read_text())
    assert (config["rank_pattern"], config["alpha_pattern"]) == ({"b": 1}, {"b": 2.0})
    assert gradloom.plan(model, board="kv260", loss="labels")["parameters"] == 6 * 8 + 8 + 4 * (6 + 8) + 8 + 1
    with pytest.raises(ValueError, match="rank=4: must be from 1 to 1 beside b"):
        learnt(model, data, tmp_path / "other", loss="labels", rank=4)
    given = {"board": "kv260", "data": data, "adapter": tmp_path / "run", "output": tmp_path / "r.npz"}
    labels = gradloom.infer(model, **given)["labels"]
    np.testing.assert_array_equal(labels, np.load(tmp_path / "r.npz")["results"][:, 0] > 0)
    assert 0 < sum(labels) < 32


def test_one_result_without_a_loss_has_no_label(tmp_path):
    model = written(tmp_path / "m.onnx", ("a", "b"), {"a": (6, 8), "b": (8, 1)})
    np.savez(tmp_path / "d.npz", x=np.zeros((3, 6), np.float32))
    assert "labels" not in gradloom.infer(model, board="kv260", data=tmp_path / "d.npz")


def test_as_many_classes_as_features_are_no_autoencoder(tmp_path):
    model = written(tmp_path / "m.onnx", ("a", "b"), {"a": (2, 8), "b": (8, 2)})
    answers = gradloom.infer(model, board="kv260", data=samples(tmp_path / "d.npz", 2, CLASSES % 2))
    assert "accuracy" in answers and "error" not in answers


def test_wrong_requests_are_named(tmp_path):
    model = written(tmp_path / "m.onnx", ("a", "b"), {"a": (6, 8), "b": (8, 4)})
    two = written(tmp_path / "two.onnx", ("a", "b"), {"a": (6, 8), "b": (8, 4)}, ("y", "t0"))
    data = samples(tmp_path / "d.npz", 6, CLASSES)
    with pytest.raises(ValueError, match="targets=,: names no layer"):
        learnt(model, data, tmp_path / "run", targets=",")
    for verb in (lambda: gradloom.infer(two, board="kv260", data=data), lambda: learnt(two, data, tmp_path / "run")):
        with pytest.raises(ValueError, match="model: has 2 results: targets are of one; export it with one"):
            verb()
    learnt(model, data, tmp_path / "run")
    with pytest.raises(ValueError, match=r"output=.*m\.onnx: is read by this run and would be replaced"):
        gradloom.export(tmp_path / "run", output=model, model=model)


def test_what_learnt_beside_a_shared_weight_is_not_exported(tmp_path):
    """Layers ``a`` and ``b`` have one initializer; only the last of them learns, as a weight of its own."""
    model = written(tmp_path / "m.onnx", ("s", "s"), {"s": (6, 6)})
    proto = onnx.load(model)
    for number, bias in enumerate("ab"):
        proto.graph.initializer.append(numpy_helper.from_array(np.full(6, number, np.float32), f"{bias}.bias"))
    first, tanh, last = proto.graph.node
    first.output[0], last.output[0] = "p", "q"
    adds = [helper.make_node("Add", ["p", "a.bias"], ["h0"]), helper.make_node("Add", ["q", "b.bias"], ["y"])]
    del proto.graph.node[:]
    proto.graph.node.extend([first, adds[0], tanh, last, adds[1]])
    onnx.save(proto, model)
    data = samples(tmp_path / "d.npz", 6, np.arange(32) % 6)
    learnt(model, data, tmp_path / "run", method="head")
    with pytest.raises(ValueError, match="or of one with another layer, so that a file cannot hold"):
        gradloom.export(tmp_path / "run", output=tmp_path / "out.onnx", model=model)


def test_answers_do_not_depend_on_others_that_are_asked(tmp_path):
    """The weights of a fine-tune lie beside what it learnt, and so do its layers of two codes."""
    model = written(tmp_path / "m.onnx", ("a", "b", "c"), {"a": (6, 8), "b": (8, 8), "c": (8, 4)})
    data = samples(tmp_path / "d.npz", 6, CLASSES)
    learnt(model, data, tmp_path / "run", rank=2, precise="ends")
    given = {"board": "kv260", "batch": 1, "adapter": tmp_path / "run", "output": tmp_path / "r.npz"}
    found = []
    for count in (32, 5):
        gradloom.infer(model, data=data, limit=count, **given)
        found.append(np.load(tmp_path / "r.npz")["results"])
    np.testing.assert_array_equal(found[0][:5], found[1])
    learnt(model, data, tmp_path / "other", rank=2)
    gradloom.infer(model, data=data, **given | {"adapter": tmp_path / "other"})
    assert (np.load(tmp_path / "r.npz")["results"] != found[0]).any()
    with pytest.raises(ValueError, match="precise=ends: must be left out with an adapter"):
        gradloom.infer(model, data=data, precise="ends", **given)


def test_layers_of_two_codes_have_them_of_weights_but_behind_inputs(tmp_path):
    network = load_network(written(tmp_path / "m.onnx", ["a", "b", "c"], {name: (4, 4) for name in "abc"}))
    assert precise_of(network, None) == {} and precise_of(network, "inputs:*, ends") == {"a": 2, "b": 1, "c": 2}
    assert precise_of(network, "ends,inputs:a") == {"a": 2, "c": 2}
    for asked, told in {" , ": "precise= , : names no layer", "inputs:d": "precise=d: no layer of this name"}.items():
        with pytest.raises(ValueError, match=told):
            precise_of(network, asked)


def test_a_model_is_a_network_if_it_is_an_onnx_file_that_recurs_nowhere(tmp_path, monkeypatch):
    path, other = tmp_path / "m.onnx", tmp_path / "m.txt"
    written(path, "a", {"a": (4, 4)})
    other.write_bytes(path.read_bytes())
    assert known(str(path)) == str(path) and known(str(other)) is None and known(str(tmp_path / "none.onnx")) is None
    monkeypatch.setattr("gradloom.systems.networks.known.has_recurrence", lambda model: True)
    assert known(str(path)) is None


def test_options_take_their_least_value_and_nothing_below():
    files = {"model": __file__, "data": __file__}
    assert NetworkOptions(**files, batch=1, scale=1e-3).check().batch == 1
    for kind, wrong in ((NetworkOptions, {"batch": 0}), (NetworkOptions, {"scale": 0}), (NetworkChoice, {"scale": 0})):
        with pytest.raises(ValueError, match=rf"{next(iter(wrong))}=0(\.0)?: must be"):
            kind(**files, **wrong).check()
