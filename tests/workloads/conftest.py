"""A small transformer, and a machine with every engine that is just wide enough for it, built once."""

import numpy as np
import pytest

from gradloom.rtl.machines.configs import LanguageConfig
from gradloom.rtl.models.language import LanguageModel
from gradloom.rtl.models.lora import Adapter, fresh_lora
from gradloom.rtl.models.pack import quantize_linear
from gradloom.sim.workloads.step import Frozen, StepMachine, Training

MODEL = LanguageModel(
    name="small",
    hidden=128,
    inter=192,
    layers=2,
    heads=2,
    kv_heads=1,
    head_dim=64,
    vocab=150,
    context=64,
    rope_theta=100.0,
    norm_eps=1e-5,
    tied=False,
)
TOKENS = (3, 14, 15, 9, 2, 6, 5, 3, 49)
CONFIG = LanguageConfig(columns=4, rank=2, tokens=16, depth=256, lane_depth=128, features=256, packing=1)
TARGETS = ("q_proj", "v_proj", "down_proj")


@pytest.fixture(scope="session")
def tensors():
    random = np.random.default_rng(3)
    return {
        name: random.normal(1, 0.2, shape) if len(shape) == 1 else random.normal(0, 0.1, shape)
        for name, shape in MODEL.tensors.items()
    }


@pytest.fixture(scope="session")
def frozen(tensors):
    return Frozen(
        MODEL, tensors.__getitem__, lambda name: quantize_linear(tensors[f"{name}.weight"].astype(np.float32))
    )


@pytest.fixture
def adapters():
    random = np.random.default_rng(4)
    return {
        name: Adapter(random.normal(0, 0.1, each.a.shape), random.normal(0, 0.1, each.b.shape), each.scale)
        for name, each in fresh_lora(MODEL, rank=2, targets=TARGETS).items()
    }


@pytest.fixture
def training(frozen, adapters):
    def make(layers=range(MODEL.layers), tokens=TOKENS, **options):
        used = {name: each for name, each in adapters.items() if int(name.split(".")[2]) in layers}
        return Training(frozen, tokens, used, layers, **options)

    return make


@pytest.fixture(scope="session")
def machine():
    machine = StepMachine(CONFIG, memory_bytes=1 << 24)
    yield machine
    machine.close()
