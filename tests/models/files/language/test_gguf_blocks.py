"""Blocks of GGUF have the values that gguf's numpy code gives them, in every bit."""

import dataclasses

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradloom.models.files.language.checkpoint import open_checkpoint
from gradloom.models.files.language.gguf_blocks import BLOCK_KINDS, kind_named

from ...conftest import TINY
from .test_language import write_gguf

KINDS = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K") + (
    "IQ4_NL",
    "IQ4_XS",
    "MXFP4",
)


def equal(kind, data):
    """Compares all bits; a NaN equals a NaN."""
    known = gguf.GGMLQuantizationType[kind]
    with np.errstate(all="ignore"):
        ours = BLOCK_KINDS[known].decode(data.copy()).reshape(-1)
        theirs = np.asarray(gguf.quants.dequantize(data, known)).reshape(-1)
    assert ours.dtype == np.float32
    numbers = ~np.isnan(theirs)
    assert np.array_equal(numbers, ~np.isnan(ours))
    assert np.array_equal(ours[numbers].view(np.uint32), theirs[numbers].view(np.uint32))


def test_kinds_are_those_of_the_witness():
    assert sorted(each.name for each in BLOCK_KINDS.values()) == sorted(KINDS)
    for number, kind in BLOCK_KINDS.items():
        known = gguf.GGMLQuantizationType(number)
        assert (kind.name, (kind.elements, kind.size)) == (known.name, tuple(gguf.GGML_QUANT_SIZES[known]))
    for known in gguf.GGMLQuantizationType:
        assert kind_named(known) in (f"{known.name} ({known.value})", str(known.value))


@pytest.mark.parametrize("kind", KINDS)
def test_any_bytes_have_the_values_of_the_witness(kind):
    size = BLOCK_KINDS[gguf.GGMLQuantizationType[kind]].size
    equal(kind, np.random.default_rng(7).integers(0, 256, (2000, size), dtype=np.uint8))


@pytest.mark.parametrize("byte", [0, 1, 2, 254, 255])
def test_smallest_and_largest_exponents_of_mxfp4(byte):
    data = np.random.default_rng(8).integers(0, 256, (4, 17), dtype=np.uint8)
    data[:, 0] = byte
    equal("MXFP4", data)


@settings(max_examples=20, deadline=None)
@given(st.data(), st.sampled_from(KINDS))
def test_single_blocks_have_the_values_of_the_witness(data, kind):
    size = BLOCK_KINDS[gguf.GGMLQuantizationType[kind]].size
    equal(kind, np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), np.uint8).reshape(1, -1))


#: A model whose rows are whole blocks of 256, and others' kinds of its tensors in a file called Q4_K_M.
WIDE = dataclasses.replace(TINY, name="wide", hidden=256, inter=512, heads=4, kv_heads=2, head_dim=64, layers=7)
MIXTURE = {"embed_tokens": "Q6_K", "q_proj": "Q4_K", "k_proj": "Q5_K", "v_proj": "Q6_K", "o_proj": "Q5_0"} | {
    "gate_proj": "IQ4_NL",
    "up_proj": "MXFP4",
    "down_proj": "Q5_1",
}


def test_a_file_may_mix_kinds(tmp_path):
    random, path = np.random.default_rng(9), tmp_path / "mixed.gguf"
    tensors = {name: np.ones(shape, np.float32) for name, shape in WIDE.tensors.items()}
    one_64th = np.frombuffer(np.float16(1 / 64).tobytes(), np.uint8)

    def kind(name):
        return gguf.GGMLQuantizationType[MIXTURE[name.split(".")[-2]]]

    def blocks(name):
        """Any codes behind scales that are finite."""
        elements, size = gguf.GGML_QUANT_SIZES[kind(name)]
        data = random.integers(0, 256, (tensors[name].size // elements, size), dtype=np.uint8)
        for at in {"Q6_K": (208,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q5_1": (0, 2), "MXFP4": ()}.get(
            kind(name).name, (0,)
        ):
            data[:, at : at + 2] = one_64th
        if kind(name).name == "MXFP4":
            data[:, 0] = 120
        return data.reshape(len(tensors[name]), -1)

    write_gguf(path, tensors, kind=kind, encode=blocks, model=WIDE)
    checkpoint = open_checkpoint(path)
    held = {each.name: each for each in gguf.GGUFReader(path).tensors}
    assert {each.tensor_type.name for each in held.values()} == {*MIXTURE.values(), "F32"}
    for name, own in checkpoint.names.items():
        expected = gguf.quants.dequantize(held[own].data, held[own].tensor_type)
        assert np.array_equal(checkpoint.file.tensor(own), expected.reshape(tensors[name].shape)), name
        assert np.isfinite(checkpoint.tensor(name)).all()


@pytest.mark.parametrize("kind", ["IQ2_XXS", "IQ3_S", "NVFP4", "TQ1_0"])
def test_a_kind_that_is_not_read_is_refused_by_its_name(tmp_path, tensors, kind):
    known = gguf.GGMLQuantizationType[kind]
    path = tmp_path / "m.gguf"
    write_gguf(
        path,
        tensors,
        kind=lambda name: known if "embed" in name else gguf.GGMLQuantizationType.F32,
        encode=lambda name: (
            np.zeros((24, gguf.GGML_QUANT_SIZES[known][1]), np.uint8) if "embed" in name else tensors[name]
        ),
    )
    with pytest.raises(
        ValueError, match=rf"tensor token_embd\.weight is of type {kind} \({known.value}\): F32, .*MXFP4"
    ):
        open_checkpoint(path)
