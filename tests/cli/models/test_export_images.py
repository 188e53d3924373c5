"""A fine-tuned network of images as ONNX answers in onnxruntime as ``gradloom infer`` does."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from gradloom.models.datasets import digits_split


@pytest.fixture
def tuned(run, tmp_path, monkeypatch):
    """Output folder of a fine-tune of the shipped network of digits, and images."""
    monkeypatch.chdir(tmp_path)
    words = ("finetune", "digits-ulx3s", "--engine", "float", "--limit", "60", "--epochs", "2", "-o", "tuned")
    code, _, err = run(*words)
    assert code == 0, err
    data = digits_split(60, 100, degrees=90.0)
    np.savez("images.npz", x=data.x_test[:100])
    return data.x_test[:100]


def test_labels_and_logits_are_those_of_infer(run, tuned):
    code, out, err = run("export", "tuned", "-o", "tuned.onnx", "--json")
    assert code == 0, err
    told = json.loads(out)
    assert (told["format"], told["codes"], told["bytes"]) == ("onnx", "nf4", Path("tuned.onnx").stat().st_size)
    words = ("infer", "digits-ulx3s", "--adapter", "tuned", "--data", "images.npz", "--engine", "float")
    assert run(*words, "-o", "answers.npz")[0] == 0
    with np.load("answers.npz") as file:
        answers = dict(file)
    session = onnxruntime.InferenceSession("tuned.onnx")
    shape = [-1, *session.get_inputs()[0].shape[1:]]
    (logits,) = session.run(None, {"pixels": (tuned.astype(np.float32) / np.float32(255)).reshape(shape)})
    assert np.array_equal(logits.argmax(axis=1), answers["labels"])
    assert np.linalg.norm(logits - answers["logits"]) <= 1e-4 * np.linalg.norm(answers["logits"])
    # The adapter is in it.
    assert run("infer", "digits-ulx3s", "--data", "images.npz", "--engine", "float", "-o", "base.npz")[0] == 0
    with np.load("base.npz") as file:
        base = file["logits"]
    assert np.linalg.norm(base - logits) > 1e-2 * np.linalg.norm(logits)


def test_what_cannot_be_is_refused_in_one_line(run, tuned):
    metrics = Path("tuned/metrics.json")
    told = json.loads(metrics.read_text())

    def refused(*words):
        code, out, err = run("export", "tuned", *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        return err

    assert "to=gguf: must be onnx, tuned holds a network's adapter" in refused("-o", "a.gguf")
    metrics.write_text(json.dumps(told | {"request": told["request"] | {"model": "gone.onnx"}}))
    assert "model=gone.onnx: that of the run is not here; name it by --model" in refused("-o", "a.onnx")
    metrics.unlink()
    assert "model: must be given" in refused("-o", "a.onnx")
