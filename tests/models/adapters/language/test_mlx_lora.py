"""Adapters as mlx-lm reads them."""

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file

from gradloom.models.adapters.language.mlx_lora import write_mlx_lora
from gradloom.models.adapters.lora import Adapter, fresh_lora


@pytest.fixture
def adapters(tiny):
    random = np.random.default_rng(2)
    made = fresh_lora(tiny, rank=2, alpha=3, targets=("v_proj", "q_proj", "down_proj"), layers=[1])
    return {
        name: Adapter(each.a, random.normal(size=each.b.shape).astype(np.float32), 1.5) for name, each in made.items()
    }


def test_products_layers_and_modules_are_mlxs(tiny, adapters, tmp_path):
    last = list(adapters)[-1]
    adapters[last] = replace(adapters[last], scale=0.5)
    write_mlx_lora(tmp_path, tiny, adapters)
    tensors = load_file(tmp_path / "adapters.safetensors")
    assert len(tensors) == 6
    for name, each in adapters.items():
        a, b = tensors[f"{name}.lora_a"], tensors[f"{name}.lora_b"]
        assert a.dtype == b.dtype == np.float32 and a.shape == each.a.shape[::-1] and b.shape == each.b.shape[::-1]
        np.testing.assert_array_equal(a, each.a.T)
        np.testing.assert_allclose(1.5 * b, each.scale * each.b.T, rtol=1e-6)
    np.testing.assert_array_equal(tensors[f"{next(iter(adapters))}.lora_b"], next(iter(adapters.values())).b.T)
    text = (tmp_path / "adapter_config.json").read_text()
    assert text.endswith("}\n") and json.loads(text) == {
        "fine_tune_type": "lora",
        "model": "tiny",
        "num_layers": 1,
        "lora_parameters": {
            "rank": 2,
            "scale": 1.5,
            "dropout": 0.0,
            "keys": ["self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj"],
        },
    }
    write_mlx_lora(tmp_path, tiny, fresh_lora(tiny, rank=2))
    assert json.loads((tmp_path / "adapter_config.json").read_text())["num_layers"] == 2


def test_what_it_does_not_hold_is_one_line_and_leaves_nothing(tiny, adapters, tmp_path):
    first, second, *_ = adapters
    one, two = adapters[first], adapters[second]
    largest = np.full_like(two.b, 3e38)
    for given, says in (
        ({}, "adapters has none: at least 1 is needed"),
        (
            {first: one, second: Adapter(two.a[:1], two.b[:, :1], 1.5)},
            f"{second}: rank=1: must be 2 as of others, mlx-lm has one for all",
        ),
        ({first: one, second: Adapter(two.a, largest, 3.0)}, f"{second}: has a value that float32 does not hold"),
        ({first: Adapter(one.a * np.nan, one.b, 1.5)}, f"{first}: has a value that float32 does not hold"),
        ({first: Adapter(one.a, one.b * np.inf, 1.5)}, f"{first}: has a value that float32 does not hold"),
    ):
        with pytest.raises(ValueError) as refused:
            write_mlx_lora(tmp_path, tiny, given)
        assert str(refused.value) == says and not [*tmp_path.iterdir()]
    with pytest.raises(ValueError, match="an adapter of mlx-lm"):
        write_mlx_lora(tmp_path, replace(tiny, fused=True), adapters)
    write_mlx_lora(tmp_path, tiny, {first: one, second: Adapter(two.a, largest, 1.5)})
