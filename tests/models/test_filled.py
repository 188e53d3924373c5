"""A model that is filled to whole tiles is the same model, and what is new in it is zero."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.models.adapters.lora import Adapter, fresh_lora
from gradloom.models.filled import Filled, cut, fill, filled, filled_shapes, shapes_of, source_of
from gradloom.models.language import BUILT_IN, PROJECTIONS, LanguageModel, Scaling
from gradloom.systems.text.reference.llama import Llama

#: Like llama2.c's stories15M.
STORIES = LanguageModel(
    name="stories",
    hidden=288,
    inter=168,
    layers=2,
    heads=6,
    kv_heads=6,
    head_dim=48,
    vocab=150,
    context=64,
    rope_theta=100.0,
    norm_eps=0.01,
    tied=True,
)
#: Like Phi-3-mini, whose linears are fused, with a part of each head that positions turn.
PHI = replace(
    STORIES,
    hidden=160,
    inter=100,
    heads=2,
    kv_heads=2,
    head_dim=96,
    tied=False,
    turned=72,
    fused=True,
    scaling=Scaling(original=16, divisors=tuple(np.linspace(1, 3, 36)), size=1.2),
)
#: Like Qwen 3, with norms of heads, and what Qwen 2 and Gemma 3 have beside them.
QWEN = replace(
    STORIES, hidden=96, inter=84, heads=4, kv_heads=2, head_norms=True, biases=True, norms="both", gate="gelu_tanh"
)
#: Like OLMo 2, whose norms take all heads together.
OLMO = replace(STORIES, hidden=96, inter=84, heads=4, kv_heads=2, joint_norms=True, norms="after")
MODELS = {"llama": STORIES, "phi3": PHI, "qwen3": QWEN, "olmo2": OLMO}
TOKENS = (3, 14, 15, 9, 2, 6, 5, 3, 49)


class Drawn:
    """A checkpoint of random tensors in float64."""

    path = None

    def __init__(self, model, seed=3):
        random, self.model = np.random.default_rng(seed), model
        self.tensors = {
            name: random.normal(1, 0.2, shape) if name.endswith("norm.weight") else random.normal(0, 0.1, shape)
            for name, shape in model.tensors.items()
        }

    def tensor(self, name):
        return self.tensors[name]


@pytest.fixture(params=MODELS)
def drawn(request):
    return Drawn(MODELS[request.param])


def widened(model, name, adapter, which=fill):
    outputs, inputs = shapes_of(name)
    return Adapter(which(model, adapter.a, None, inputs), which(model, adapter.b, outputs, None), adapter.scale)


def test_logits_and_gradients_are_those_of_the_model(drawn):
    whole = Filled(drawn)
    assert all(getattr(whole.model, shape) % 64 == 0 for shape in ("hidden", "inter", "head_dim"))
    assert whole.model.tensors == {name: whole.tensor(name).shape for name in drawn.tensors}
    exact, found = (Llama(each.model, each.tensor, dtype=np.float64) for each in (drawn, whole))
    np.testing.assert_allclose(found.logits(TOKENS), exact.logits(TOKENS), rtol=1e-10, atol=1e-12)
    random = np.random.default_rng(4)
    adapters = {
        name: Adapter(random.normal(0, 0.1, each.a.shape), random.normal(0, 0.1, each.b.shape), each.scale)
        for name, each in fresh_lora(drawn.model, rank=3, targets=PROJECTIONS).items()
    }
    more = {name: widened(whole.model, name, each) for name, each in adapters.items()}
    (loss, wanted), (same, gradients) = exact.gradients(TOKENS, adapters), found.gradients(TOKENS, more)
    assert same == pytest.approx(loss, rel=1e-12)
    for name, pair in gradients.items():
        made = widened(whole.model, name, Adapter(*wanted[name], 1.0))
        for g, each in zip(pair, (made.a, made.b), strict=True):
            np.testing.assert_allclose(g, each, rtol=0, atol=1e-11 * np.abs(each).max())
            # What is new has no gradient at all.
            assert not g[each == 0].any()


def test_what_is_filled_is_cut_again(drawn):
    model = filled(drawn.model)
    for name, module in PROJECTIONS.items():
        values = drawn.tensor(f"model.layers.0.{module}.{name}.weight")
        whole = fill(model, values, *shapes_of(name))
        assert whole.shape == model.shape(name) and np.count_nonzero(whole) == values.size
        np.testing.assert_array_equal(cut(model, whole, *shapes_of(name)), values)
    assert source_of(model) == drawn.model and filled(model) is model
    assert source_of(replace(model, layers=1)) == drawn.model


def test_whole_tiles_stay_as_they_are():
    for name, model in BUILT_IN.items():
        whole = name != "phi-3-mini"
        assert (filled(model) is model) == whole and source_of(filled(model)) is model
        assert filled_shapes(model) == ({} if whole else {"head_dim": [96, 128]})
    drawn = Drawn(replace(STORIES, hidden=320, inter=192, head_dim=64))
    assert all(Filled(drawn).tensor(name) is values for name, values in drawn.tensors.items())
    assert filled_shapes(QWEN) == {"hidden": [96, 128], "inter": [84, 128], "head_dim": [48, 64]}
