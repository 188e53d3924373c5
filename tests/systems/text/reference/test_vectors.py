"""Norm tuning and (IA)³ in floating point against PEFT's own curves and learnt values."""

import json
from pathlib import Path

import numpy as np
import pytest

from gradloom.models.adapters.language.methods import IA3, LAYERNORM
from gradloom.models.adapters.language.vectors import Vector, load_vectors
from gradloom.systems.text.reference.descent import fine_tune
from gradloom.systems.text.reference.llama import KeyValueCache, Llama
from gradloom.systems.text.reference.optimizers import FloatAdamW

from ....models.conftest import TINY

GOLDEN = Path(__file__).parents[3] / "golden" / "peft_methods"
CURVE = json.loads((GOLDEN / "curve.json").read_text())
METHODS = {"layernorm": LAYERNORM, "layernorm_last": LAYERNORM, "ia3": IA3, "ia3_pattern": IA3}


@pytest.fixture(scope="module")
def tensors():
    random = np.random.default_rng(5)
    return {
        name: random.normal(1 if len(shape) == 1 else 0, 0.1, shape).astype(np.float32)
        for name, shape in TINY.tensors.items()
    }


@pytest.mark.parametrize("name", METHODS)
def test_losses_and_learnt_values_are_pefts(tensors, name):
    llama, tokens = Llama(TINY, tensors.__getitem__), CURVE["tokens"]
    start, end = (load_vectors(GOLDEN / name / each, TINY, METHODS[name]) for each in ("init", "learnt"))
    vectors = {module: Vector(each.values.copy()) for module, each in start.items()}
    losses = fine_tune(llama, [tokens], vectors, FloatAdamW(lr=CURVE["lr"]), len(CURVE["loss"][name]))
    np.testing.assert_allclose(losses, CURVE["loss"][name], rtol=2e-6)
    for module, each in end.items():
        np.testing.assert_allclose(vectors[module].values, each.values, atol=2e-5)
        assert np.abs(each.values - start[module].values).max() > 0.05


@pytest.mark.parametrize("name", METHODS)
def test_gradients_are_differences_of_the_loss(tensors, name):
    llama = Llama(TINY, tensors.__getitem__, dtype=np.float64)
    vectors = {
        module: Vector(each.values.astype(np.float64))
        for module, each in load_vectors(GOLDEN / name / "init", TINY, METHODS[name]).items()
    }
    tokens = CURVE["tokens"]
    loss, gradients = llama.gradients(tokens, vectors)
    assert loss == llama.loss(tokens, vectors) and set(gradients) == set(vectors)
    for module, (gradient,) in gradients.items():
        at = int(np.argmax(np.abs(gradient)))
        values = vectors[module].values
        kept, size = values[at], 1e-6
        found = []
        for sign in (1, -1):
            values[at] = kept + sign * size
            found.append(llama.loss(tokens, vectors))
        values[at] = kept
        assert (found[0] - found[1]) / (2 * size) == pytest.approx(gradient[at], rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("name", ["layernorm", "ia3"])
def test_a_cache_of_keys_and_values_changes_nothing(tensors, name):
    llama = Llama(TINY, tensors.__getitem__, dtype=np.float64)
    vectors, tokens = load_vectors(GOLDEN / name / "init", TINY, METHODS[name]), CURVE["tokens"]
    whole, cache = llama.logits(tokens, vectors), KeyValueCache()
    np.testing.assert_allclose(llama.expect(tokens[:9], cache, vectors), whole[8], rtol=1e-10)
    np.testing.assert_allclose(llama.expect(tokens[9:10], cache, vectors), whole[9], rtol=1e-10)
    assert np.abs(whole - llama.logits(tokens)).max() > 1e-3


def test_norms_merge_into_the_model_without_loss(tensors):
    vectors = load_vectors(GOLDEN / "layernorm" / "learnt", TINY, LAYERNORM)
    merged = tensors | {f"{name}.weight": each.values for name, each in vectors.items()}
    beside, within = (Llama(TINY, each.__getitem__) for each in (tensors, merged))
    np.testing.assert_array_equal(beside.logits(CURVE["tokens"], vectors), within.logits(CURVE["tokens"]))
