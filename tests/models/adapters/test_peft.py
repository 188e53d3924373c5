"""Adapters saved are the adapters loaded; files that do not fit are refused."""

import hashlib
import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from gradloom.models.adapters.peft import check_names, checked_tensors, in_file, load_adapters, read_peft, read_record
from gradloom.models.adapters.peft_files import check_array, save_adapters, write_record
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
        ("gradloom_topology", None, 'gradloom_topology=null: must be "direct-to-output" of a network of images; name '),
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
    with pytest.raises(
        ValueError,
        match="adapter_config.json: no such file; name the output folder of a fine-tune, or a .gguf adapter$",
    ):
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


def test_a_record_holds_the_hashes_of_both_files(tmp_path, net, adapters):
    save_adapters(tmp_path, net, adapters)
    assert read_record(tmp_path) is None
    write_record(tmp_path, {"version": 3, "name": "x"})
    told = read_record(tmp_path)
    hashes = {
        name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        for name in ("adapter_model.safetensors", "adapter_config.json")
    }
    assert told == {"version": 3, "name": "x", "sha256": hashes} and len(load_adapters(tmp_path, net)[0]) == 2
    for name in hashes:
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content + b" ")
        with pytest.raises(ValueError, match=rf"{name}: its SHA-256 is not the one that gradloom_delivery.json has"):
            read_record(tmp_path)
        (tmp_path / name).unlink()
        assert read_record(tmp_path) == told
        (tmp_path / name).write_bytes(content)


@pytest.mark.parametrize(
    "record",
    [
        "{",
        "[]",
        "{}",
        '{"sha256": {}}',
        '{"sha256": 3}',
        '{"sha256": {"adapter_config.json": "a"}}',
        '{"sha256": {"adapter_config.json": "a", "adapter_model.safetensors": "b"}, "version": "1"}',
        '{"sha256": {"adapter_config.json": "a", "adapter_model.safetensors": "b"}, "keys_version": null}',
    ],
)
def test_what_is_no_record_is_refused(tmp_path, record):
    (tmp_path / "gradloom_delivery.json").write_text(record)
    with pytest.raises(ValueError, match="gradloom_delivery.json: not a record of gradloom's; apply the package"):
        read_record(tmp_path)


def test_arrays_must_be_floats_of_their_shape():
    check_array("a", np.ones((2, 3), np.float16), (2, 3))
    for array, says in (
        (np.ones((2, 3), int), "a has dtype int64: expected floating point"),
        (np.ones((3, 2)), r"a has shape \[3, 2\]: expected \[2, 3\]"),
        (np.array([[1, np.nan, np.inf], [1, 2, 3]]), "a has 2 values that are NaN or infinite"),
    ):
        with pytest.raises(ValueError, match=f"^{says}$"):
            check_array("a", array, (2, 3))


def test_what_is_not_of_the_network_is_not_saved(tmp_path, net, adapters):
    for given, codes, says in (
        (adapters, "nf5", "codes='nf5': must be one of nf4, int8, none"),
        (adapters[:1], "nf4", "adapters has 1 pairs: small has 2 layers"),
        ([adapters[0], adapters[0]], "nf4", r".*fc1.lora_A.weight has shape \[2, 16\]: expected \[2, 8\]"),
        ([(adapters[0][0], adapters[0][1][:2]), adapters[1]], "nf4", r".*0.lora_B.weight has shape \[2, 2\]: .*"),
    ):
        with pytest.raises(ValueError, match=f"^{says}$"):
            save_adapters(tmp_path / "new", net, given, codes=codes)
        assert not (tmp_path / "new").exists()


def test_a_folder_without_both_files_is_told_by_what_is_there(tmp_path, net, adapters):
    weights, config = save_adapters(tmp_path / "a", net, adapters)
    (tmp_path / "file").write_bytes(b"GGUF\x03")
    with pytest.raises(ValueError, match="file: is a GGUF file: an adapter is a folder with adapter_config"):
        read_peft(tmp_path / "file")
    (tmp_path / "other").write_bytes(b"hello, world")
    with pytest.raises(ValueError, match="other: is a file: an adapter is a folder with"):
        read_peft(tmp_path / "other")
    content = weights.read_bytes()
    weights.unlink()
    with pytest.raises(ValueError, match="a/adapter_model.safetensors: no such file$"):
        read_peft(tmp_path / "a")
    (tmp_path / "a" / "adapter_model.bin").write_bytes(b"\x80\x02}q\x00.")
    with pytest.raises(ValueError, match="no such file; adapter_model.bin beside it is a pickled PyTorch file"):
        read_peft(tmp_path / "a")
    weights.write_bytes(content)
    for text, says in (
        ("[1]", r"must be an object of JSON, not \[1\]"),
        ("{", r"not JSON \(.*\); is it truncated\?"),
        ("<html>", "is a page of HTML.*"),
    ):
        config.write_text(text)
        with pytest.raises(ValueError, match=f"adapter_config.json: {says}$"):
            read_peft(tmp_path / "a")


LORA = {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": ["q"]}
A, B = "base_model.model.q.lora_A.weight", "base_model.model.q.lora_B.weight"


@pytest.mark.parametrize("names", [(A, B), ("q.lora_A.weight", "q.lora_B.weight"), (A.replace("A.", "A.default."), B)])
def test_tensors_have_the_names_that_peft_saves_them_by(names):
    found = checked_tensors(LORA, dict(zip(names, (np.ones((2, 5)), np.ones((3, 2))))))
    assert {name: array.shape for name, array in found.items()} == {A: (2, 5), B: (3, 2)}


@pytest.mark.parametrize(
    ("held", "says"),
    [
        ({"q.weight": (2, 2)}, "has unknown q.weight: names of a LORA adapter end in lora_A.weight, lora_B.weight"),
        ({A: (2, 5), "q.lora_A.weight": (2, 5)}, "q.lora_A.weight: is there by two names; leave one"),
        (
            {A.replace("A.", "A.x."): (2, 5), B.replace("B.", "B.y."): (3, 2)},
            "has tensors of the adapters x, y: must be of one",
        ),
        ({A: (2, 5)}, f"has no {B}, but its other half"),
        ({B: (3, 2)}, f"has no {A}, but its other half"),
        ({A: (2, 5, 1), B: (3, 2)}, f"{A} has shape [2, 5, 1]: expected a matrix"),
        ({A: (3, 5), B: (3, 2)}, f"{A} has shape [3, 5]: expected [2, 5], the rank of adapter_config.json"),
        ({A: (2, 5), B: (3, 1)}, f"{B} has shape [3, 1]: expected [3, 2], the rank of adapter_config.json"),
    ],
)
def test_tensors_of_another_kind_are_refused(held, says):
    with pytest.raises(ValueError) as refused:
        checked_tensors(LORA, {name: np.ones(shape) for name, shape in held.items()})
    assert str(refused.value) == says
    with pytest.raises(ValueError, match=f"^{A} has 1 values that are NaN or infinite$"):
        checked_tensors(LORA, {A: np.array([[np.nan, 1], [1, 1]]), B: np.ones((3, 2))})


def test_a_file_of_a_model_without_its_head_has_shorter_names():
    own = ["model.layers.0.q", "model.norm"]
    assert in_file(["base_model.model.model.layers.0.q.x"], own) == dict(zip(own, own))
    assert in_file(["base_model.model.layers.0.q.x"], own) == dict(zip(own, ["layers.0.q", "norm"]))
    assert in_file(["base_model.model.norm.x"], own)["model.norm"] == "norm" and in_file([], own) == dict(zip(own, own))
    check_names(["a", "b"], ["b", "a"], "m")
    for held, says in (
        (["a"], "adapter_model.safetensors has no b (1 are missing)"),
        (["a", "b", "c", "d"], "adapter_model.safetensors has c (2 that adapter_config.json or m has no place for)"),
    ):
        with pytest.raises(ValueError) as refused:
            check_names(held, ["a", "b"], "m")
        assert str(refused.value) == says
