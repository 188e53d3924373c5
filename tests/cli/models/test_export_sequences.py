"""A fine-tuned recurrent network as ONNX answers in onnxruntime as ``gradloom infer`` does."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from gradloom.models.adapters.peft import load_adapters
from gradloom.models.recurrent.stored import load_network
from gradloom.models.recurrent.taps import TapSums, parts_of, tap_network
from gradloom.models.sequences import fold_of, spar_model, spar_person
from gradloom.preset import PRESETS
from gradloom.rtl.formats.images import ACTIVATION
from gradloom.sim.reference import cell as reference
from gradloom.systems.images.mathematics import adapter_logits, cached_value
from gradloom.systems.sequences.taps import tap_sums, tap_words
from gradloom.systems.sequences.task import SHIFTS


def answers(path, x, units=64):
    """Logits of onnxruntime, which fuses no quantisers."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    zeros = np.zeros((len(x), units), np.float32)
    session = onnxruntime.InferenceSession(path, options)
    return session.run(["logits"], {"x": x, "h_init": zeros, "c_init": zeros})[0]


def exact(x, cache):
    """Logits in float64 of the machine's taps, as the forward cache decodes them."""
    network = load_network(spar_model(fold_of(2)))
    taps = TapSums(parts=parts_of(network, PRESETS["lstm-kv260"].config.parallel), shifts=SHIFTS)
    sums = tap_sums(network, reference.run(network, network.codes(x)), PRESETS["lstm-kv260"].config.parallel)
    values = ACTIVATION.decode(tap_words(taps, sums)[0]).reshape(len(x), -1)
    dense = tap_network(network, taps, x.shape[1])
    adapters, codes = load_adapters(Path("tuned"), dense)
    (layer,) = dense.layers
    return adapter_logits(adapters, [cached_value(values, codes)], values @ layer.weight.T + layer.bias)


@pytest.mark.parametrize("cache", ["nf4", "int8"])
def test_labels_and_logits_are_those_of_infer(run, tmp_path, monkeypatch, cache):
    monkeypatch.chdir(tmp_path)
    few = ("--engine", "reference", "--epochs", "3", "--cache", cache, "-o", "tuned")
    code, _, err = run("finetune", "lstm-kv260", "--person", "2", *few)
    assert code == 0, err
    code, out, err = run("export", "tuned", "-o", "tuned.onnx", "--json")
    assert code == 0, err
    told = json.loads(out)
    assert (told["codes"], told["steps"], told["bytes"]) == (cache, 100, Path("tuned.onnx").stat().st_size)
    assert run("infer", "lstm-kv260", "--adapter", "tuned", "-o", "answers.npz")[0] == 0
    with np.load("answers.npz") as file:
        wanted = dict(file)
    found = answers("tuned.onnx", spar_person(2).x_test)
    assert np.array_equal(found.argmax(axis=1), wanted["labels"])
    # The head's integers round; by the same codes in floating point all logits are the same.
    assert np.linalg.norm(found - wanted["logits"]) <= 5e-3 * np.linalg.norm(found)
    np.testing.assert_allclose(found, exact(spar_person(2).x_test, cache), atol=2e-4)
    # The adapter is in it, and changes labels.
    base = spar_model(fold_of(2))
    assert run("export", base, "-o", "base.onnx")[0] == 0
    plain = answers("base.onnx", spar_person(2).x_test)
    assert (plain.argmax(axis=1) != wanted["labels"]).any() and np.abs(plain - found).max() > 0.5


def test_what_cannot_be_is_refused_in_one_line(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few = ("--engine", "float", "--epochs", "1", "--limit", "10", "-o", "tuned")
    assert run("finetune", "lstm-kv260", *few)[0] == 0
    metrics = Path("tuned/metrics.json")
    told = json.loads(metrics.read_text())
    changes = (
        ({"request": told["request"] | {"model": "gone.onnx"}}, "model=gone.onnx: that of the run is not here; name"),
        ({"steps_a_sequence": None}, "tuned/metrics.json: lacks steps_a_sequence of a fine-tune"),
        ({"parameters": None}, "tuned/metrics.json: has no tap_shifts or parameters"),
    )
    for change, says in changes:
        metrics.write_text(json.dumps(told | change))
        code, out, err = run("export", "tuned", "-o", "a.onnx")
        assert (code, out, err.count("\n")) == (2, "", 1) and says in err and not Path("a.onnx").exists()
