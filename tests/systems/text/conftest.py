"""A small transformer, and a machine with every engine that is just wide enough for it, built once."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.models.adapters.lora import Adapter, fresh_lora
from gradloom.models.filled import filled_shapes
from gradloom.models.language import Scaling
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.sim.run.device import MEMORY_BYTES
from gradloom.systems.text.reference.llama import Llama
from gradloom.systems.text.run.step import StepMachine
from gradloom.systems.text.run.training import Training
from gradloom.systems.text.small import SMALL, frozen_of, random_tensors

MODEL = SMALL
#: With Qwen2's biases, SmolLM3's layer without positions, Granite's factor of the scores, OLMo 2's norms behind
#: attention and feed-forward part and of all heads together, and Phi-4's heads, a part of which turns and grows.
FAMILIES = replace(
    SMALL,
    kv_heads=2,
    biases=True,
    unturned=(1,),
    score=0.3,
    norms="after",
    joint_norms=True,
    turned=48,
    scaling=Scaling(original=16, divisors=tuple(np.linspace(1, 3, 24)), size=1.2),
)
#: With heads of two tiles, Qwen3's norms of queries and keys, whose epsilon is not to be overlooked, and Gemma 3's
#: norms before and after, its activation and its layer with other angles. Rows of 192 part groups of scales.
LONG_HEADS = replace(
    SMALL,
    hidden=192,
    kv_heads=1,
    head_dim=128,
    biases=True,
    score=0.2,
    scaling=Scaling(factor=8.0, low=1.0, high=4.0, original=16),
    norm_eps=0.1,
    norms="both",
    head_norms=True,
    gate="gelu_tanh",
    local=(1,),
    local_theta=30.0,
)
TOKENS = (3, 14, 15, 9, 2, 6, 5, 3, 49)
CONFIG = LanguageConfig(columns=4, rank=2, tokens=16, depth=256, lane_depth=128, features=256, packing=1, gelu=1)
#: A short chat template.
TEMPLATE = (
    "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}a:{% endif %}"
)
TARGETS = ("q_proj", "v_proj", "down_proj")


@pytest.fixture(scope="session")
def model(request):
    """A test may ask for another one, indirectly."""
    return getattr(request, "param", MODEL)


@pytest.fixture(scope="session")
def tensors(model):
    return random_tensors(np.random.default_rng(3), model)


@pytest.fixture(scope="session")
def frozen(tensors, model):
    return frozen_of(tensors, model)


def exact_llama(frozen):
    """The model in float64, with the weights that are frozen."""
    model = frozen.model
    weights = {f"{linear.name}.weight": frozen.linear(linear.name).weight() for linear in model.linears}
    return Llama(model, lambda key: weights[key] if key in weights else frozen.tensor(key), dtype=np.float64)


@pytest.fixture
def adapters(model):
    """Of two ranks, or of an odd rank where shapes are no whole tiles either."""
    random, rank = np.random.default_rng(4), 1 if filled_shapes(model) else 2
    return {
        name: Adapter(random.normal(0, 0.1, each.a.shape), random.normal(0, 0.1, each.b.shape), each.scale)
        for name, each in fresh_lora(model, rank=rank, targets=TARGETS).items()
    }


@pytest.fixture
def training(frozen, adapters):
    def make(layers=range(MODEL.layers), tokens=TOKENS, **options):
        used = {name: each for name, each in adapters.items() if int(name.split(".")[2]) in layers}
        return Training(frozen, tokens, used, layers, **options)

    return make


@pytest.fixture(scope="session")
def machine():
    machine = StepMachine(CONFIG, memory_bytes=MEMORY_BYTES)
    yield machine
    machine.close()


@pytest.fixture
def fresh(machine):
    """Another machine on the same device, which overwrites what the first has in memory."""
    yield StepMachine(CONFIG, device=machine.device)
    machine.held.clear()
