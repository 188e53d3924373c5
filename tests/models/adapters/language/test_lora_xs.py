"""Files of LoRA-XS, and its frozen factors."""

import json

import numpy as np
import pytest

from gradloom.delivery.installed import read_content
from gradloom.delivery.keys import make_keys, read_signer
from gradloom.delivery.package import make_package
from gradloom.models.adapters.language.lora_xs import CoreAdapter, fresh_cores, load_cores, save_cores
from gradloom.models.language import BUILT_IN

from ....systems.text.conftest import MODEL


def weights(seed=3):
    random = np.random.default_rng(seed)
    return {name: random.normal(0, 0.1, shape).astype(np.float32) for name, shape in MODEL.tensors.items()}


def test_factors_are_the_best_of_their_rank():
    held = weights()
    made = fresh_cores(MODEL, held.__getitem__, rank=8, targets=("k_proj",), layers=(1,))
    ((name, each),) = made.items()
    w = held[f"{name}.weight"].astype(np.float64)
    values = np.linalg.svd(w)[1]
    error = np.linalg.norm(w - each.b.astype(np.float64) @ each.a) ** 2
    assert error == pytest.approx((values[8:] ** 2).sum(), rel=1e-4)
    assert (each.a[np.arange(8), np.abs(each.a).argmax(axis=1)] > 0).all() and not each.r.any()
    plain = each.taking({"r": np.eye(8)}).plain
    np.testing.assert_allclose(plain.b, each.b)
    with pytest.raises(ValueError, match="rank=65: must be at most 64, the smaller side of .*k_proj; give a smaller"):
        fresh_cores(MODEL, held.__getitem__, rank=65, targets=("k_proj",))


def test_files_go_round(tmp_path):
    held, random = weights(), np.random.default_rng(1)
    made = fresh_cores(MODEL, held.__getitem__, rank=2, layers=(1,))
    made = {name: each.taking({"r": random.normal(size=(2, 2)).astype(np.float32)}) for name, each in made.items()}
    save_cores(tmp_path, MODEL, made)
    found = load_cores(tmp_path, MODEL, held.__getitem__)
    assert found.keys() == made.keys()
    for name, each in found.items():
        np.testing.assert_array_equal(each.r, made[name].r)
        np.testing.assert_array_equal(each.plain.b, made[name].plain.b)
    path = tmp_path / "adapter_config.json"
    config = json.loads(path.read_text())
    for change, named in (
        ({"r": 3}, "shape"),
        ({"peft_type": "LORA"}, 'peft_type="LORA": must be "LORA_XS"'),
        ({"target_modules": ["norm"]}, "target_modules="),
        ({"layers_to_transform": [0]}, "has no .*layers.0.self_attn"),
    ):
        path.write_text(json.dumps(config | change))
        with pytest.raises(ValueError, match=named):
            load_cores(tmp_path, MODEL, held.__getitem__)


def test_a_signed_package_of_smollm2s_has_the_size_that_is_said(tmp_path):
    """Rank 8 on q and v of 30 layers; the size does not depend on values."""
    pytest.importorskip("monocypher")
    model, random = BUILT_IN["smollm2-135m"], np.random.default_rng(0)
    made = {
        f"model.layers.{layer}.self_attn.{name}": CoreAdapter(
            np.zeros((8, 576), np.float32), np.zeros((outputs, 8), np.float32), random.normal(size=(8, 8)), 2.0
        )
        for layer in range(30)
        for name, outputs in (("q_proj", 576), ("v_proj", 192))
    }
    save_cores(tmp_path, model, made)
    make_keys(tmp_path / "key")
    content, signer = read_content(tmp_path), read_signer(tmp_path / "key")
    assert [len(make_package(content, signer, base=bytes(32), version=1, bits=bits)[0]) for bits in (32, 8, 4)] == [
        16448,
        5048,
        3128,
    ]


def test_ranks_up_to_the_smaller_side_and_the_usual_scale():
    held = weights()
    (each,) = fresh_cores(MODEL, held.__getitem__, rank=64, targets=("k_proj",), layers=(1,)).values()
    assert each.rank == 64 and each.a.shape[0] == each.b.shape[1] == 64 and each.scale == 2.0
    (one,) = fresh_cores(MODEL, held.__getitem__, rank=1, alpha=3, targets=("k_proj",), layers=(0,)).values()
    assert (one.rank, one.scale) == (1, 3.0)
    with pytest.raises(ValueError, match="^rank=0: must be at least 1$"):
        fresh_cores(MODEL, held.__getitem__, rank=0)
    told = []
    fresh_cores(MODEL, held.__getitem__, rank=1, layers=(0,), tell=lambda *each: told.append(each))
    assert told == [(0, 2, "singular values"), (1, 2, "singular values")]
