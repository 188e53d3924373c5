"""Folders of others in 4 bits: bitsandbytes' codes are taken as they are, AWQ and GPTQ by their formulas."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from gradloom.models.files.language.checkpoint import open_checkpoint
from gradloom.models.files.quantized import quantize_tensor
from gradloom.models.files.tensors import CODES, write_safetensors
from gradloom.models.pack import PackedModel, write_pack
from gradloom.systems.text.quantized import Quantized

from ...conftest import TINY

GOLDEN = np.load(Path(__file__).parents[3] / "golden" / "nf4.npz")
LINEARS = [each.name for each in TINY.linears]
Q = LINEARS[0]
BITSANDBYTES = {
    "quant_method": "bitsandbytes",
    "_load_in_4bit": True,
    "_load_in_8bit": False,
    "load_in_4bit": True,
    "load_in_8bit": False,
    "bnb_4bit_compute_dtype": "bfloat16",
    "bnb_4bit_quant_storage": "uint8",
    "bnb_4bit_quant_type": "nf4",
    "bnb_4bit_use_double_quant": True,
    "llm_int8_threshold": 6.0,
    "llm_int8_skip_modules": None,
    "llm_int8_enable_fp32_cpu_offload": False,
    "llm_int8_has_fp16_weight": False,
}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True} | {
    "modules_to_not_convert": None,
    "backend": "autoawq",
    "do_fuse": False,
}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True, "damp_percent": 0.01}


@pytest.fixture(autouse=True)
def codes_of_int32(monkeypatch):
    """The writer takes words, as GPTQ's and AWQ's files have them."""
    monkeypatch.setitem(CODES, "int32", "I32")


@pytest.fixture
def saved(tmp_path, tensors, config):
    """Writes a folder: plain tensors of TINY but those of ``coded``, and the settings of a method."""

    def save(settings, coded, **more):
        folder = tmp_path / "model"
        folder.mkdir(exist_ok=True)
        names = {f"{name}.weight" for name in coded}
        held = {name: (each, "float32") for name, each in tensors.items() if name not in names}
        for parts in coded.values():
            held |= parts
        write_safetensors(folder / "model.safetensors", {key: each for key, each in (held | more).items() if each})
        (folder / "config.json").write_text(json.dumps(config | {"quantization_config": settings}))
        return folder

    return save


def nf4(name, values, *, double=True, block=64):
    parts, _ = quantize_tensor(name, values, "float32", double=double, block=block)
    return {f"{name}.weight{end}": each for end, each in parts.items()}


def golden(name, double):
    """bitsandbytes' own bytes of a matrix of 64 by 64."""
    case = {key.split(".")[1]: GOLDEN[key] for key in GOLDEN if key.startswith("gauss_64x64_b64.")}
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [64, 64]}
    parts = {"": (case["packed"][:, None], "uint8"), ".quant_map": (NF4_MAP, "float32")}
    if double:
        state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": float(case["dq_offset"])}
        parts |= {".absmax": (case["dq_absmax"], "uint8"), ".nested_absmax": (case["dq_absmax2"], "float32")}
        parts[".nested_quant_map"] = case["dq_code"], "float32"
    else:
        parts[".absmax"] = case["absmax"], "float32"
    parts[".quant_state.bitsandbytes__nf4"] = np.frombuffer(json.dumps(state).encode(), np.uint8), "uint8"
    return {f"{name}.weight{end}": each for end, each in parts.items()}, case


NF4_MAP = nf4("x", np.ones((1, 64), np.float32))["x.weight.quant_map"][0]


def nibbles(packed):
    return np.stack([packed >> 4, packed & 15], axis=-1).reshape(64, 64)


@pytest.mark.parametrize("double", [True, False])
def test_codes_of_bitsandbytes_are_packed_as_they_are(saved, tensors, tmp_path, double):
    parts, case = golden(Q, double)
    # A block without a code at either end: quantising its values again would make another scale.
    packed = parts[f"{Q}.weight"][0].copy()
    packed[:32, 0] = (np.arange(32) % 7 + 3) * 17
    parts[f"{Q}.weight"] = packed, "uint8"
    others = {name: nf4(name, tensors[f"{name}.weight"]) for name in LINEARS[1:-1]}
    folder = saved(BITSANDBYTES | {"bnb_4bit_use_double_quant": double}, {Q: parts} | others)
    checkpoint = open_checkpoint(folder)
    values = checkpoint.tensor(f"{Q}.weight")
    assert np.array_equal(values[1:], case["dq_dequant" if double else "dequant"][1:])
    (tmp_path / "pack").mkdir()
    write_pack(checkpoint, tmp_path / "pack")
    held = PackedModel(tmp_path / "pack").linear(Q)
    assert np.array_equal(held.codes, nibbles(packed.reshape(-1)))
    assert np.array_equal(held.scale_codes, case["dq_absmax"])
    assert np.array_equal(held.absmax2, case["dq_absmax2"]) and held.offset == case["dq_offset"]
    # A machine has heads of 64, which other groups of blocks would be in.
    assert np.array_equal(Quantized(checkpoint).tensor(f"{Q}.weight"), values)
    with pytest.raises(ValueError, match=f"{Q} is in NF4, whose groups of scales the fill of head_dim from 32 to 64"):
        Quantized(checkpoint).linear(Q)
    if double:
        assert np.array_equal(PackedModel(tmp_path / "pack").tensor(f"{Q}.weight"), values)
    # What was left in floats is quantised, and the rest is theirs.
    assert np.array_equal(checkpoint.tensor(f"{LINEARS[-1]}.weight"), tensors[f"{LINEARS[-1]}.weight"])
    for name in LINEARS[1:-1]:
        codes = PackedModel(tmp_path / "pack").linear(name).codes
        assert np.array_equal(codes, nibbles_of(others[name][f"{name}.weight"][0], codes.shape))
        if ".mlp." in name:
            assert np.array_equal(Quantized(checkpoint).linear(name).codes, codes)


@pytest.mark.parametrize("name", ["double", "plain"])
def test_a_folder_that_transformers_saved_keeps_its_bytes(tmp_path, name):
    """Values, codes and scales of every linear are bitsandbytes'."""
    folder = Path(__file__).parents[3] / "golden" / "bitsandbytes" / name
    checkpoint, stored, values = (
        open_checkpoint(folder),
        load_file(folder / "model.safetensors"),
        np.load(folder / "dequant.npz"),
    )
    write_pack(checkpoint, tmp_path)
    packed = PackedModel(tmp_path)
    assert set(values) == {each.name for each in checkpoint.model.linears}
    for linear in values:
        assert np.array_equal(checkpoint.tensor(f"{linear}.weight"), values[linear])
        held = packed.linear(linear)
        assert np.array_equal(held.codes, nibbles_of(stored[f"{linear}.weight"], held.codes.shape))
        if name == "double":
            assert np.array_equal(packed.tensor(f"{linear}.weight"), values[linear])
            assert np.array_equal(held.scale_codes, stored[f"{linear}.weight.absmax"])
            assert np.array_equal(held.absmax2, stored[f"{linear}.weight.nested_absmax"])


def nibbles_of(packed, shape):
    flat = packed.reshape(-1)
    return np.stack([flat >> 4, flat & 15], axis=-1).reshape(shape)


def words(nibbles):
    """Rows of 8 nibbles as 32-bit words, the first one lowest."""
    return (
        (nibbles.astype(np.uint32) << (4 * np.arange(8, dtype=np.uint32))).sum(axis=-1, dtype=np.uint32).view(np.int32)
    )


def drawn(name, seed, size=32, low=0):
    """Codes, zeros and scales of a linear, and the matrix that they stand for."""
    random = np.random.default_rng(seed)
    outputs, inputs = TINY.tensors[f"{name}.weight"]
    codes = random.integers(0, 16, (inputs, outputs))
    zeros = random.integers(low, 16, (inputs // size, outputs))
    scales = random.uniform(0.01, 0.05, zeros.shape).astype(np.float16)
    return codes, zeros, scales


def matrix(codes, zeros, scales, groups):
    made = np.empty(codes.shape, np.float32)
    for at, group in enumerate(groups):
        made[at] = (codes[at] - zeros[group]).astype(np.float32) * scales[group].astype(np.float32)
    return made.T


def awq_parts(name, seed):
    codes, zeros, scales = drawn(name, seed)
    # AutoAWQ puts neighbour 0, 2, 4, 6, 1, 3, 5, 7 into nibble 0 to 7.
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    parts = {
        f"{name}.{end}": (words(each.reshape(len(each), -1, 8)[..., order]), "int32")
        for end, each in (("qweight", codes), ("qzeros", zeros))
    }
    return parts | {f"{name}.scales": (scales, "float16")}, matrix(codes, zeros, scales, np.arange(len(codes)) // 32)


def gptq_parts(name, seed, *, second=False, order=False):
    codes, zeros, scales = drawn(name, seed, low=0 if second else 1)
    groups = np.arange(len(codes)) // 32
    if order:
        groups = np.random.default_rng(seed).permutation(groups)
    stored = zeros if second else zeros - 1
    parts = {
        f"{name}.qweight": (words(codes.reshape(-1, 8, codes.shape[1]).swapaxes(1, 2)), "int32"),
        f"{name}.qzeros": (words(stored.reshape(len(zeros), -1, 8)), "int32"),
        f"{name}.scales": (scales, "float16"),
        f"{name}.g_idx": (groups.astype(np.int32), "int32"),
        f"{name}.bias": (np.zeros(codes.shape[1], np.float16), "float16"),
    }
    return parts, matrix(codes, zeros, scales, groups)


@pytest.mark.parametrize(
    "settings, make",
    [
        (AWQ, awq_parts),
        (GPTQ, gptq_parts),
        (GPTQ | {"sym": False, "checkpoint_format": "gptq_v2"}, lambda *each: gptq_parts(*each, second=True)),
        (GPTQ | {"desc_act": True}, lambda *each: gptq_parts(*each, order=True)),
    ],
    ids=["awq", "gptq", "gptq_v2", "gptq desc_act"],
)
def test_codes_with_zeros_have_the_values_of_their_format(saved, settings, make, tmp_path):
    made = {name: make(name, seed) for seed, name in enumerate(LINEARS)}
    folder = saved(settings, {name: parts for name, (parts, _) in made.items()})
    checkpoint = open_checkpoint(folder)
    for name, (_, expected) in made.items():
        assert np.array_equal(checkpoint.tensor(f"{name}.weight"), expected), name
    (tmp_path / "pack").mkdir()
    assert len(write_pack(checkpoint, tmp_path / "pack")["linears"]) == len(LINEARS)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"quant_method": "hqq"}, 'quant_method="hqq": must be one of bitsandbytes, awq, gptq'),
        ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, 'quant_method="compressed-tensors"'),
        ([], "quantization_config=[]: must be an object"),
        (BITSANDBYTES | {"load_in_4bit": False, "load_in_8bit": True}, "load_in_4bit=false: must be true"),
        (BITSANDBYTES | {"bnb_4bit_quant_type": "fp4"}, 'bnb_4bit_quant_type="fp4": must be "nf4"'),
        (BITSANDBYTES | {"bnb_4bit_quant_storage": "bfloat16"}, 'bnb_4bit_quant_storage="bfloat16": must be "uint8"'),
        (BITSANDBYTES | {"bnb_5bit": 1}, "quantization_config.bnb_5bit=1: this key is not known"),
        (AWQ | {"bits": 3}, "quantization_config.bits=3: must be 4"),
        (AWQ | {"version": "gemv"}, 'version="gemv": must be "gemm"'),
        (GPTQ | {"bits": 8}, "bits=8: must be 4"),
        (GPTQ | {"group_size": 0}, "group_size=0: must be -1, or an integer from 1"),
        (GPTQ | {"checkpoint_format": "marlin"}, 'checkpoint_format="marlin": must be "gptq"'),
        ({"quant_method": "gptq"}, "bits=null: must be 4"),
    ],
)
def test_settings_that_are_not_understood_are_refused_by_name(saved, settings, message):
    folder = saved(settings, {})
    with pytest.raises(ValueError) as refused:
        open_checkpoint(folder)
    assert message in str(refused.value) and "quantization_config" in str(refused.value)


def state_of(parts, **change):
    key = f"{Q}.weight.quant_state.bitsandbytes__nf4"
    told = json.loads(parts[key][0].tobytes()) | change
    return {key: (np.frombuffer(json.dumps(told).encode(), np.uint8), "uint8")}


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda parts: {f"{Q}.weight.absmax": None}, "has no tensor model.layers.0.self_attn.q_proj.weight.absmax"),
        (lambda parts: state_of(parts, blocksize=128), "blocksize=128: must be 64"),
        (lambda parts: state_of(parts, shape=[64, 65]), "weight: has 2048 of uint8: must have 2080 of uint8"),
        (lambda parts: state_of(parts, shape=[128, 32]), "q_proj.weight has shape [128, 32]"),
        (lambda parts: state_of(parts, nested_offset="x"), 'nested_offset="x"'),
        (
            lambda parts: {f"{Q}.weight.quant_map": (NF4_MAP + np.float32(0.01), "float32")},
            "quant_map: is not bitsandbytes'",
        ),
        (
            lambda parts: {f"{Q}.weight.quant_state.bitsandbytes__nf4": (np.zeros(3, np.uint8), "uint8")},
            "is no JSON of",
        ),
        (lambda parts: {f"{Q}.weight.quant_state.bitsandbytes__fp4": (np.zeros(3, np.uint8), "uint8")}, "is FP4"),
        (lambda parts: {f"{Q}.weight.quant_state.bitsandbytes__nf4": None}, "q_proj.weight has shape [2048, 1]"),
    ],
)
def test_damaged_codes_of_bitsandbytes_are_refused(saved, change, message):
    parts, _ = golden(Q, True)
    folder = saved(BITSANDBYTES, {Q: parts}, **change(parts))
    with pytest.raises(ValueError) as refused:
        open_checkpoint(folder)
    assert message in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "settings, change, message",
    [
        (GPTQ, {f"{Q}.scales": None}, f"has no tensor {Q}.scales"),
        (GPTQ | {"group_size": 64}, {}, f"tensor {Q}.qzeros: is int32 [2, 8]: must be int32 [1, 8] with group_size=64"),
        (GPTQ | {"desc_act": True}, {f"{Q}.g_idx": None}, f"has no tensor {Q}.g_idx, which desc_act=true needs"),
        (GPTQ, {f"{Q}.bias": (np.ones(64, np.float16), "float16")}, f"tensor {Q}.bias (of 1 such) has no place"),
    ],
)
def test_damaged_codes_of_gptq_are_refused(saved, settings, change, message):
    folder = saved(settings, {Q: gptq_parts(Q, 1)[0]}, **change)
    with pytest.raises(ValueError) as refused:
        open_checkpoint(folder)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "change, message",
    [
        (
            {f"{Q}.g_idx": (np.arange(64, dtype=np.int32) % 2, "int32")},
            "g_idx: orders the inputs, but desc_act is false",
        ),
        ({f"{Q}.g_idx": (np.full(64, 2, np.int32), "int32")}, "g_idx: must be int32 [64] from 0 to 1"),
        ({f"{Q}.qzeros": (np.full((2, 8), -1, np.int32), "int32")}, "qzeros: has a zero of 0 less 1"),
    ],
)
def test_codes_of_gptq_that_readers_disagree_on_are_refused(saved, change, message):
    checkpoint = open_checkpoint(saved(GPTQ, {Q: gptq_parts(Q, 1)[0]}, **change))
    with pytest.raises(ValueError) as refused:
        checkpoint.tensor(f"{Q}.weight")
    assert message in str(refused.value) and "model: tensor" in str(refused.value)
