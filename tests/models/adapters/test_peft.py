"""Adapters saved are the adapters loaded; files that do not fit are refused."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from gradloom.models.adapters.peft import load_adapters
from gradloom.models.adapters.peft_files import save_adapters
from gradloom.models.network import ConvLayer, DenseLayer, LayerNetwork

RANK = 2


@pytest.fixture(scope="module")
def net():
    random = np.random.default_rng(1).standard_normal
    return LayerNetwork(
        name="small",
        input_shape=(1, 4, 4),
        layers=(
            ConvLayer(weight=random((2, 1, 3, 3)), bias=random(2), name="features.0"),
            DenseLayer(weight=random((3, 8)), bias=random(3)),
        ),
    )


@pytest.fixture
def adapters(net):
    random = np.random.default_rng(2).integers
    return [(random(-32768, 32768, (RANK, n)) / 4096, random(-32768, 32768, (3, RANK)) / 4096) for n in net.taps]


def test_words_survive_exactly(tmp_path, net, adapters):
    save_adapters(tmp_path / "new" / "folder", net, adapters)
    for (a, b), (a2, b2) in zip(adapters, load_adapters(tmp_path / "new" / "folder", net)[0], strict=True):
        np.testing.assert_array_equal(a2, a)
        np.testing.assert_array_equal(b2, b)


@pytest.mark.parametrize("codes", ["nf4", "int8", "none"])
def test_the_codes_are_kept(codes, tmp_path, net, adapters):
    save_adapters(tmp_path, net, adapters, codes=codes)
    assert load_adapters(tmp_path, net)[1] == codes


def test_the_layout_is_pefts(tmp_path, net, adapters):
    weights, config = save_adapters(tmp_path, net, adapters)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    tensors = load_file(weights)
    assert {k: v.shape for k, v in tensors.items()} == {
        "base_model.model.features.0.lora_A.weight": (2, 16),
        "base_model.model.features.0.lora_B.weight": (3, 2),
        "base_model.model.fc1.lora_A.weight": (2, 8),
        "base_model.model.fc1.lora_B.weight": (3, 2),
    }
    config = json.loads(config.read_text())
    assert config["peft_type"] == "LORA" and config["r"] == config["lora_alpha"] == 2
    assert config["target_modules"] == ["features.0", "fc1"] and config["gradloom_topology"] == "direct-to-output"


def test_files_are_identical_from_run_to_run(tmp_path, net, adapters):
    first = [p.read_bytes() for p in save_adapters(tmp_path / "a", net, adapters)]
    assert first == [p.read_bytes() for p in save_adapters(tmp_path / "b", net, adapters)]


def test_alpha_scales_what_is_loaded(tmp_path, net, adapters):
    _, config = save_adapters(tmp_path, net, adapters)
    config.write_text(config.read_text().replace('"lora_alpha": 2', '"lora_alpha": 8'))
    np.testing.assert_array_equal(load_adapters(tmp_path, net)[0][0][1], adapters[0][1] * 4)


@pytest.mark.parametrize(
    "field, value, message",
    [
        ("r", 3, r"has shape .*: expected \[3, 8\], the rank"),
        ("r", 0, "r=0: must be"),
        ("r", True, "r=true"),
        ("r", None, "r=null"),
        ("lora_alpha", "x", 'lora_alpha="x"'),
        ("target_modules", ["fc1"], r'target_modules=\["fc1"\]: small has'),
        ("gradloom_codes", "nf3", 'gradloom_codes="nf3": must be one of nf4, int8, none'),
        ("gradloom_topology", None, 'gradloom_topology=null: expected "direct-to-output"'),
    ],
)
def test_a_config_that_does_not_fit_is_refused(tmp_path, net, adapters, field, value, message):
    _, path = save_adapters(tmp_path, net, adapters)
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises(ValueError, match=message):
        load_adapters(tmp_path, net)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"base_model.model.fc1.lora_A.weight": None}, "has no base_model.model.fc1.lora_A.weight"),
        ({"extra": np.zeros(1, np.float32)}, "unknown extra"),
        ({"base_model.model.fc1.lora_B.weight": np.zeros((4, 2), np.float32)}, r"shape \[4, 2\]: expected \[3, 2\]"),
        ({"base_model.model.fc1.lora_B.weight": np.zeros((3, 2), np.int32)}, "is I32, must be F16"),
        ({"base_model.model.fc1.lora_B.weight": np.full((3, 2), np.nan, np.float32)}, "6 values that are NaN"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(tmp_path, net, adapters, change, message):
    path, _ = save_adapters(tmp_path, net, adapters)
    save_file({k: v for k, v in {**load_file(path), **change}.items() if v is not None}, path)
    with pytest.raises(ValueError, match=message):
        load_adapters(tmp_path, net)


def test_missing_and_truncated_files_are_refused(tmp_path, net, adapters):
    with pytest.raises(ValueError, match="adapter_config.json: no such file"):
        load_adapters(tmp_path, net)
    weights, config = save_adapters(tmp_path, net, adapters)
    weights.write_bytes(weights.read_bytes()[:-5])
    with pytest.raises(ValueError, match="adapter_model.safetensors: cannot be read .* truncated"):
        load_adapters(tmp_path, net)
    config.write_text(config.read_text()[:30])
    with pytest.raises(ValueError, match="adapter_config.json: not JSON"):
        load_adapters(tmp_path, net)


def test_adapters_of_another_network_are_not_saved(tmp_path, net, adapters):
    with pytest.raises(ValueError, match="1 pairs: small has 2 layers"):
        save_adapters(tmp_path, net, adapters[:1])
    with pytest.raises(ValueError, match=r"expected \[2, 8\]"):
        save_adapters(tmp_path, net, [adapters[0], adapters[0]])
    with pytest.raises(ValueError, match="NaN"):
        save_adapters(tmp_path, net, [(adapters[0][0] * np.nan, adapters[0][1]), adapters[1]])
    assert not list(tmp_path.iterdir())
