"""Learnt vectors: PEFT's files are read, ours are as PEFT writes them, others' are refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from gradloom.models.adapters.language.methods import IA3, LAYERNORM
from gradloom.models.adapters.language.vectors import Vector, fresh_vectors, load_vectors, peft_method, save_vectors
from gradloom.models.language import BUILT_IN

GOLDEN = Path(__file__).parents[3] / "golden" / "peft_methods"
KINDS = [("layernorm", LAYERNORM), ("layernorm_last", LAYERNORM), ("ia3", IA3), ("ia3_pattern", IA3)]


@pytest.mark.parametrize("name, method", KINDS)
def test_what_is_written_is_what_peft_wrote(tiny, tmp_path, name, method):
    folder = GOLDEN / name / "learnt"
    assert peft_method(folder) is method
    found = load_vectors(folder, tiny, method)
    save_vectors(tmp_path, tiny, method, found)
    ours, theirs = (load_file(each / "adapter_model.safetensors") for each in (tmp_path, folder))
    assert set(ours) == set(theirs)
    for each, values in theirs.items():
        assert ours[each].dtype == np.float32 and ours[each].shape == values.shape
        np.testing.assert_array_equal(ours[each], values)
    again = load_vectors(tmp_path, tiny, method)
    assert (
        list(again) == list(found) == [each for each in method.modules(tiny, method.targets, (0, 1)) if each in found]
    )


def test_fresh_vectors_change_nothing(tiny, tensors):
    norms = fresh_vectors(tiny, LAYERNORM, tensors.__getitem__)
    assert len(norms) == 5
    for name, each in norms.items():
        np.testing.assert_array_equal(each.values, tensors[f"{name}.weight"])
    factors = fresh_vectors(tiny, IA3, tensors.__getitem__, targets=("down_proj", "k_proj"), layers=(1,))
    assert {name: each.values.tolist() for name, each in factors.items()} == {
        "model.layers.1.self_attn.k_proj": [1.0] * 32,
        "model.layers.1.mlp.down_proj": [1.0] * 128,
    }


@pytest.fixture
def changed(tmp_path):
    """A folder of PEFT's with fields of its config changed."""

    def change(name, tensors=None, **fields):
        shutil.copytree(GOLDEN / name / "init", tmp_path / "changed")
        file = tmp_path / "changed" / "adapter_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | fields))
        if tensors is not None:
            weights = file.with_name("adapter_model.safetensors")
            save_file(tensors(load_file(weights)), weights)
        return file.parent

    return change


@pytest.mark.parametrize(
    "name, method, fields, message",
    [
        ("ia3", LAYERNORM, {}, 'peft_type="IA3": must be "LN_TUNING"'),
        ("layernorm", LAYERNORM, {"modules_to_save": ["lm_head"]}, "modules_to_save="),
        ("layernorm", LAYERNORM, {"target_modules": ["norm"]}, r"input_layernorm.* \(4 that .* has no place"),
        ("layernorm", LAYERNORM, {"target_modules": ["q_proj"]}, r"target_modules=.*: must be of input_layer"),
        ("layernorm", LAYERNORM, {"target_modules": None}, "target_modules=null: must be names or a pattern"),
        ("layernorm", LAYERNORM, {"target_modules": "norm("}, "is no pattern"),
        ("ia3", IA3, {"feedforward_modules": []}, r"feedforward_modules=\[\]: must be down_proj"),
        ("ia3", IA3, {"feedforward_modules": ["down_proj", "k_proj"]}, "must be down_proj"),
        ("ia3", IA3, {"fan_in_fan_out": True}, "fan_in_fan_out=true"),
    ],
)
def test_another_kind_is_refused(tiny, changed, name, method, fields, message):
    with pytest.raises(ValueError, match=message):
        load_vectors(changed(name, **fields), tiny, method)


def test_another_base_is_refused(tiny, changed):
    with pytest.raises(ValueError, match=r"has no .*layers.10.*\(84 are missing\)"):
        load_vectors(GOLDEN / "ia3" / "init", BUILT_IN["smollm2-135m"], IA3)

    def flat(tensors):
        return {name: values.reshape(-1) for name, values in tensors.items()}

    with pytest.raises(ValueError, match=r"k_proj.ia3_l has shape \[32\]: expected \[32, 1\]"):
        load_vectors(changed("ia3", flat), tiny, IA3)


def test_what_pefts_config_cannot_say_is_not_written(tiny, tmp_path, tensors):
    fresh = fresh_vectors(tiny, IA3, tensors.__getitem__)
    some = {name: fresh[name] for name in list(fresh)[:-1]}
    wrong = fresh | {"model.layers.0.self_attn.k_proj": Vector(np.ones(5, np.float32))}
    for vectors, message in [({}, "has none"), (some, "in 2 layers are 6"), (wrong, r"expected \[32\]")]:
        with pytest.raises(ValueError, match=message):
            save_vectors(tmp_path / "out", tiny, IA3, vectors)
    assert not (tmp_path / "out").exists()
