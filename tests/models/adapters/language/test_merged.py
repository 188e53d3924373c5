"""A model with what was learnt in it: each tensor's values, and both files."""

import json
from dataclasses import replace

import numpy as np
import pytest

from gradloom.models.adapters.language.lora_xs import CoreAdapter, plain_adapters
from gradloom.models.adapters.language.merged import WEIGHTS, Merged, write_folder, write_gguf
from gradloom.models.adapters.language.vectors import Vector
from gradloom.models.adapters.lora import Adapter
from gradloom.models.files.language.checkpoint import open_checkpoint
from gradloom.models.files.language.gguf_blocks import q8_0_blocks, q8_0_values

from ...files.language.test_language import write_gguf as source_gguf

Q, DOWN, NORM = "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj", "model.norm"


def values(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


LORA = Adapter(values(2, 64), values(64, 2, seed=2), 1.5)
CORE = CoreAdapter(values(2, 64), values(64, 2, seed=2), values(2, 2, seed=3), 0.5)


def test_each_kind_of_module_changes_its_tensor(tiny, tensors):
    factors, norm = values(64, seed=4), values(64, seed=5)
    learnt = {Q: LORA, DOWN: Vector(values(128)), NORM: Vector(norm)}
    merged = Merged(tiny, tensors.__getitem__, learnt)
    base = tensors[f"{Q}.weight"]
    np.testing.assert_allclose(merged.values(f"{Q}.weight"), base + 1.5 * LORA.b @ LORA.a, rtol=1e-6, atol=1e-6)
    down = tensors[f"{DOWN}.weight"]
    np.testing.assert_array_equal(merged.values(f"{DOWN}.weight"), down * values(128))
    np.testing.assert_array_equal(merged.values(f"{NORM}.weight"), norm)
    other = "model.layers.0.self_attn.k_proj.weight"
    np.testing.assert_array_equal(merged.values(other), tensors[other])
    behind = Merged(tiny, tensors.__getitem__, {Q: Vector(factors)})
    np.testing.assert_array_equal(behind.values(f"{Q}.weight"), base * factors[:, None])
    cored = Merged(tiny, tensors.__getitem__, {Q: CORE}).values(f"{Q}.weight")
    np.testing.assert_allclose(cored, base + 0.5 * CORE.b @ CORE.r @ CORE.a, rtol=1e-5, atol=1e-6)
    assert plain_adapters({Q: CORE})[Q].scale == 0.5
    linears = {f"{each.name}.weight" for each in tiny.linears}
    assert merged.changed == linears | {f"{NORM}.weight"} and merged.error == 0


def test_a_bias_has_the_factors_of_its_linears_outputs():
    bias = values(64)
    for each, found in ((Vector(values(64, seed=2)), bias * values(64, seed=2)), (LORA, bias), (None, bias)):
        merged = Merged(None, {f"{Q}.bias": bias}.__getitem__, {} if each is None else {Q: each})
        np.testing.assert_array_equal(merged.values(f"{Q}.bias"), found)


def test_a_sum_beyond_float32_is_refused(tiny, tensors):
    large = Adapter(np.full((2, 64), 1e20, np.float32), np.full((64, 2), 1e20, np.float32), 1.0)
    with pytest.raises(ValueError, match=f"^{Q}.weight: is beyond float32 with the adapter merged; make its values or"):
        Merged(tiny, tensors.__getitem__, {Q: large}).values(f"{Q}.weight")


@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_gguf_file_has_the_values(tiny, tensors, tmp_path, weights):
    file_type = [lambda writer: writer.add_file_type(2)]
    source = open_checkpoint(source_gguf(tmp_path / "base.gguf", tensors, "F16", file_type))
    merged, told = Merged(source.model, source.tensor, {Q: LORA, NORM: Vector(values(64))}), []
    with (tmp_path / "m.gguf").open("wb") as file:
        write_gguf(file, source, merged, weights, lambda *each: told.append(each))
    found = open_checkpoint(tmp_path / "m.gguf")
    count = len(source.file.tensors)
    assert told == [(at, count, "writing") for at in range(count)] and list(found.file.tensors) == list(
        source.file.tensors
    )
    assert WEIGHTS == {"f32": (0, 0), "q8_0": (8, 7)}
    kind, of_file = WEIGHTS[weights]
    assert found.file.fields == source.file.fields | {"general.file_type": of_file}
    linears, lost, whole = {f"{each.name}.weight" for each in tiny.linears}, 0.0, 0.0
    for name, own in found.names.items():
        exact, entry = merged.values(name), found.file.tensors[own]
        if name in linears:
            assert entry.type == kind
            wanted = exact if weights == "f32" else q8_0_values(exact)
            lost, whole = lost + ((wanted - exact.astype(float)) ** 2).sum(), whole + (exact.astype(float) ** 2).sum()
        else:
            wanted = exact
            assert entry.type == (0 if name == f"{NORM}.weight" else source.file.tensors[own].type)
        if weights == "q8_0" and name.endswith(("q_proj.weight", "k_proj.weight")):
            # Blocks are along a row, and rows alone change places.
            assert found.tensor(name).shape == wanted.shape
        np.testing.assert_array_equal(found.tensor(name), wanted)
    assert merged.error == pytest.approx(0 if weights == "f32" else np.sqrt(lost / whole), rel=1e-9)
    assert weights == "f32" or 0 < merged.error < 0.01


def test_a_folder_has_the_values(tiny, tensors, tmp_path):
    merged, told = Merged(tiny, tensors.__getitem__, {Q: LORA}, {}), []
    write_folder(tmp_path, merged, lambda *each: told.append(each))
    found = open_checkpoint(tmp_path)
    assert replace(found.model, name="tiny") == tiny and told[-1] == (len(told) - 1, len(told), "writing")
    for name in tensors:
        np.testing.assert_array_equal(found.tensor(name), merged.values(name))
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["torch_dtype"] == "float32" and config["model_type"] == "llama"
    kept = config | {"eos_token_id": 7, "torch_dtype": "bfloat16", "quantization_config": {"x": 1}}
    write_folder(tmp_path, Merged(tiny, tensors.__getitem__, {}, kept), lambda *each: None)
    assert json.loads((tmp_path / "config.json").read_text()) == config | {"eos_token_id": 7}
    with pytest.raises(ValueError, match="^tiny: no config.json describes it$"):
        other = Merged(replace(tiny, context=7), tensors.__getitem__, {}, config)
        write_folder(tmp_path, other, lambda *each: None)


def test_q8_0_is_llama_cpps():
    """A scale of the largest over 127, codes rounded half away from zero."""
    row = np.zeros(64, np.float32)
    row[:4] = 127, -63.5, 0.5, -0.5
    blocks = q8_0_blocks(row.reshape(2, 32))
    assert blocks.shape == (2, 34) and blocks[0, :2].view("<f2")[0] == 1.0 and not blocks[1].any()
    assert blocks[0, 2:6].view(np.int8).tolist() == [127, -64, 1, -1]
    assert q8_0_values(row.reshape(2, 32))[0, :5].tolist() == [127, -64, 1, -1, 0]
    with pytest.raises(ValueError, match="^rows of 33: Q8_0 has blocks of 32$"):
        q8_0_blocks(np.zeros((2, 33), np.float32))
