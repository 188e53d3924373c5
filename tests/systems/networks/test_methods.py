"""All weights of a network learn, or taps of InstantFT: in the machine's integers and in floating point."""

import json
import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from safetensors.numpy import load_file

import gradloom
from gradloom.cli.main import main
from gradloom.graph.losses import cross_entropy
from gradloom.graph.onnx.load import load_network
from gradloom.models.adapters.peft_files import WEIGHTS
from gradloom.preset import PRESETS
from gradloom.program.memory import PAGE, rounded
from gradloom.sim.reference.tiles.program import TileMachine
from gradloom.sim.time.forecast import forecast
from gradloom.systems.networks import task
from gradloom.systems.networks.program.prepared import Prepared, learning_of
from gradloom.systems.networks.program.programs import runs
from gradloom.systems.networks.program.steps import MachineSteps

from .small import write_data, write_network

KEYWORDS = str(Path(__file__).parents[3] / "tests/golden/networks/mlperf_kws_dscnn.onnx")
CONFIG = PRESETS["tile-kv260"].config


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    return write_network(folder / "small.onnx"), write_data(folder / "d.npz")


def tuned(files, folder, method, engine="reference", **more):
    model, data = files
    given = {"board": "kv260", "data": data, "epochs": 6, "batch": 8, "lr": 0.02}
    return gradloom.finetune(model, method=method, engine=engine, output=folder, **(given | more))


@pytest.mark.parametrize("method", ["full", "instantft", "head"])
def test_integers_learn_as_floating_point_does(method, files, tmp_path):
    lr = 0.02 if method == "full" else 0.2
    made, exact = (tuned(files, tmp_path / engine, method, engine, lr=lr) for engine in ("reference", "float"))
    assert made["preset"] == "tile-kv260" and made["saturated"] == 0
    one, other = (np.array(each["loss"]) for each in (made, exact))
    assert np.abs(one - other).max() < 0.1 * other[0] and made["loss_after"] < 0.6 * made["loss_before"]
    assert made["accuracy_after"] > made["accuracy_before"] + 0.2
    network = load_network(files[0])
    assert (made["adapter_parameters"] == network.parameters) == (method == "full")
    back = gradloom.infer(files[0], board="kv260", data=files[1], adapter=tmp_path / "reference")
    assert back["accuracy"] == made["accuracy_after"]


def test_small_weights_may_become_large(files, tmp_path):
    proto = onnx.load(files[0])
    for each in proto.graph.initializer:
        if each.name == "b2":
            each.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(each) / 1000, "b2"))
    onnx.save(proto, tmp_path / "small.onnx")
    found = []
    for engine in ("reference", "float"):
        given = {"targets": "linear", "lr": 0.1, "epochs": 3}
        told = tuned((str(tmp_path / "small.onnx"), files[1]), tmp_path / engine, "bias", engine, **given)
        assert not told.get("saturated")
        found.append(load_file(tmp_path / engine / WEIGHTS)["base_model.model.w2.bias"])
    assert np.abs(found[1]).max() > 0.2 and np.abs(found[0] - found[1]).max() < 0.1


def test_all_weights_go_into_the_file(files, tmp_path):
    tuned(files, tmp_path / "run", "full", "float")
    told = gradloom.export(tmp_path / "run", tmp_path / "tuned.onnx", model=files[0])
    assert told["weights"] == 6
    session = onnxruntime.InferenceSession(tmp_path / "tuned.onnx")
    found = session.run(None, {"x": np.load(files[1])["x_test"]})[0]
    gradloom.infer(
        files[0], board="kv260", data=files[1], adapter=tmp_path / "run", engine="float", output=tmp_path / "out.npz"
    )
    np.testing.assert_allclose(found, np.load(tmp_path / "out.npz")["results"], atol=1e-4)


@pytest.mark.parametrize("engine", ["reference", "float"])
def test_what_is_judged_is_what_infer_answers(engine, files, tmp_path, monkeypatch):
    monkeypatch.setattr(task, "_JUDGED", 5)
    told = tuned(files, tmp_path / "run", "head", engine, epochs=2)
    given = {"adapter": tmp_path / "run", "engine": engine, "batch": 5, "output": tmp_path / "out.npz"}
    gradloom.infer(files[0], board="kv260", data=files[1], **given)
    found = np.load(tmp_path / "out.npz")["results"].reshape(-1, 3)
    loss, _ = cross_entropy(found, np.load(files[1])["y_test"])
    assert loss == pytest.approx(told["loss_after"], rel=1e-9 if engine == "reference" else 1e-5)


def test_weights_without_a_gradient_are_named_at_once():
    says = "weights have no gradient in the machine: kernels of channels in groups: .*, .*; let others learn: method"
    with pytest.raises(ValueError, match=says):
        gradloom.plan(KEYWORDS, board="kv260", method="full", batch=1)
    told = gradloom.plan(KEYWORDS, board="kv260", method="full", targets="last:1", batch=1)
    assert told["learnt"] == gradloom.plan(KEYWORDS, board="kv260", method="head", batch=1)["learnt"] > 0


def test_layers_of_a_kind_that_do_not_learn_are_told(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["plan", KEYWORDS, "--board", "kv260", "--targets", "conv", "--batch", "1"])
    said = " ".join(capsys.readouterr().out.split())
    (names,) = re.findall("do not learn, since their channels are in groups or they are transposed: (.*)$", said)
    assert len(names.split(", ")) == 4
    assert not gradloom.plan(KEYWORDS, board="kv260", targets="last:1", batch=1)["left_out"]


@pytest.mark.parametrize("method", ["full", "bias"])
def test_layers_that_are_named_learn_alone(method, files, tmp_path):
    told = tuned(files, tmp_path / "run", method, targets="w1,linear", epochs=1)
    parts = ("bias",) if method == "bias" else ("weight", "bias")
    learnt = load_file(tmp_path / "run" / WEIGHTS)
    assert set(learnt) == {f"base_model.model.{layer}.{part}" for layer in ("w1", "w2") for part in parts}
    back = gradloom.infer(files[0], board="kv260", data=files[1], adapter=tmp_path / "run")
    assert back["accuracy"] == told["accuracy_after"]


def test_taps_keep_means_and_logits_alone(files, tmp_path):
    """Of a sample: a row of each layer's input but the first's, in codes of 8 bits, and the logits in 16."""
    prepared = Prepared(learning_of(load_network(files[0]), "classes", "instantft", rank=2), "classes")
    assert sorted(t.features for t in prepared.parts.crossing) == [3, 8, 8]
    programs = prepared.programs(CONFIG, 8, prepared.rules(1e-2), batches=3)
    # A record has a beat for its exponent, then a row of 32 bytes for each sample; targets are as wide as logits.
    assert [size for _, size in programs.sets.areas] == 4 * [rounded(32 * (1 + 8))] and programs.sets.size == PAGE
    assert forecast(programs.step.program).total < forecast(programs.trunk.program).total
    planned = gradloom.plan(files[0], board="kv260", method="instantft", rank=2, batch=8)
    assert planned["once"]["bytes"] == programs.sets.size and planned["learnt"] == 2 * 2 * (8 + 3)
    assert planned["cycles"]["total"] == forecast(programs.step.program).total


def test_taps_learn_the_words_of_the_reference(files):
    """The program in the memory of models, over batches that are kept and one that shares the last place."""
    data = np.load(files[1])
    prepared = Prepared(learning_of(load_network(files[0]), "classes", "instantft", rank=3), "classes")
    programs = prepared.programs(CONFIG, 8, prepared.rules(1e-2), batches=2)
    steps = MachineSteps(programs, TileMachine(CONFIG, programs.length), prepared.integers(), "classes")
    from gradloom.compiler.integers.descent import IntegerDescent

    exact, rule = prepared.integers(), IntegerDescent(prepared.rules(1e-2))
    for name in exact.learners:
        exact.renewed(name, rule.begun(name, exact.matrix(name)))
    order = (0, 1, 2, 1, 0)
    for batch in order:
        rows = slice(8 * batch, 8 * batch + 8)
        given, wanted = prepared.inputs(data["x_train"][rows]), np.eye(3)[data["y_train"][rows]]
        found = exact.forward(given)
        loss, last = exact.falling("classes", found[exact.port.tensor.name], wanted)
        assert steps(given, wanted, batch) == loss
        learnt = rule({name: exact.matrix(name) for name in exact.learners}, exact.backward(found, last))
        for name, matrix in learnt.items():
            exact.renewed(name, matrix)
            np.testing.assert_array_equal(steps.matrices()[name], matrix, err_msg=name)
    assert len(steps.ran) == len(runs(programs, order)) == 9


def test_taps_are_files_that_know_their_layers(files, tmp_path):
    made = tuned(files, tmp_path / "run", "instantft", epochs=1, targets="last:1", rank=2)
    assert made["adapter_parameters"] == 2 * (8 + 3) and made["targets"] == "last:1"
    config = json.loads((tmp_path / "run/adapter_config.json").read_text())
    assert (config["gradloom_method"], config["gradloom_targets"], config["r"]) == ("instantft", "last:1", 2)
    back = gradloom.infer(files[0], board="kv260", data=files[1], adapter=tmp_path / "run")
    assert back["accuracy"] == made["accuracy_after"]
    with pytest.raises(ValueError, match="has taps of InstantFT, which are no weights of the network"):
        gradloom.export(tmp_path / "run", tmp_path / "tuned.onnx", model=files[0])
    with pytest.raises(ValueError, match=r"alpha=4\.0: must be left out with method=instantft"):
        tuned(files, tmp_path / "other", "instantft", alpha=4.0)
