"""``quantization_config`` of models in 4 bits: each key is understood, or refused by its name."""

import numpy as np
import pytest

from gradloom.models.files.language.four_bits import Nf4Codes, check_quantization

NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}


@pytest.mark.parametrize(
    ("config", "found"),
    [
        (None, None),
        (NF4, NF4 | {"quant_method": "bitsandbytes", "group_size": 128}),
        (
            NF4 | {"quant_method": "bitsandbytes", "bnb_4bit_use_double_quant": False, "llm_int8_threshold": 6.0},
            NF4
            | {"quant_method": "bitsandbytes", "bnb_4bit_use_double_quant": False}
            | {"llm_int8_threshold": 6.0, "group_size": 128},
        ),
        ({"quant_method": "awq", "bits": 4}, {"quant_method": "awq", "bits": 4, "group_size": 128}),
        (
            {"quant_method": "awq", "w_bit": 4, "q_group_size": 32},
            {"quant_method": "awq", "w_bit": 4, "q_group_size": 32, "group_size": 32},
        ),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, {"quant_method": "gptq", "bits": 4, "group_size": -1}),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 65536, "sym": False, "desc_act": True},
            {"quant_method": "gptq", "bits": 4, "group_size": 65536, "sym": False, "desc_act": True},
        ),
        ({"quant_method": "gptq", "bits": 4, "group_size": 1}, {"quant_method": "gptq", "bits": 4, "group_size": 1}),
    ],
)
def test_settings_that_are_understood(config, found):
    assert check_quantization(config) == found


SIZE = "must be -1, or an integer from 1 to 65536"
METHODS = "must be one of bitsandbytes, awq, gptq"


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ([], "=[]: must be an object of JSON"),
        ({}, f".quant_method=null: {METHODS}"),
        ({"quant_method": "hqq"}, f'.quant_method="hqq": {METHODS}'),
        ({"quant_method": "bitsandbytes"}, ".load_in_4bit=null: must be true"),
        (NF4 | {"load_in_4bit": False, "quant_method": "bitsandbytes"}, ".load_in_4bit=false: must be true"),
        (NF4 | {"bnb_4bit_quant_type": "fp4"}, '.bnb_4bit_quant_type="fp4": must be "nf4"'),
        (NF4 | {"bnb_4bit_quant_storage": "float16"}, '.bnb_4bit_quant_storage="float16": must be "uint8"'),
        (NF4 | {"magic": 1}, ".magic=1: this key is not known"),
        ({"quant_method": "awq"}, ".bits=null: must be 4"),
        ({"quant_method": "gptq"}, ".bits=null: must be 4"),
        ({"quant_method": "awq", "bits": 8}, ".bits=8: must be 4"),
        ({"quant_method": "awq", "bits": 4, "zero_point": False}, ".zero_point=false: must be true"),
        ({"quant_method": "awq", "bits": 4, "version": "gemv"}, '.version="gemv": must be "gemm"'),
        ({"quant_method": "awq", "bits": 4, "q_group_size": 0}, f".q_group_size=0: {SIZE}"),
        ({"quant_method": "gptq", "bits": 4, "group_size": -2}, f".group_size=-2: {SIZE}"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 65537}, f".group_size=65537: {SIZE}"),
        ({"quant_method": "gptq", "bits": 4, "group_size": True}, f".group_size=true: {SIZE}"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 64.0}, f".group_size=64.0: {SIZE}"),
        ({"quant_method": "gptq", "bits": 4, "lm_head": True}, ".lm_head=true: must be false"),
    ],
)
def test_settings_that_are_not_are_refused_by_name(config, says):
    with pytest.raises(ValueError) as refused:
        check_quantization(config)
    assert str(refused.value).startswith(f"quantization_config{says}")


def codes(rows, columns, double):
    random = np.random.default_rng(1)
    held = random.integers(0, 16, (rows, columns)).astype(np.uint8)
    blocks = -(-rows * columns // 64)
    if not double:
        return Nf4Codes(held, random.random(blocks).astype(np.float32))
    scales = random.integers(0, 256, blocks).astype(np.uint8)
    groups = random.random(-(-blocks // 256)).astype(np.float32)
    return Nf4Codes(held, None, scales, groups, np.float32(0.5))


@pytest.mark.parametrize("double", [False, True])
def test_rows_of_whole_blocks_have_the_values_of_the_whole(double):
    """A block has 64 elements, and a group of scales 256 blocks."""
    columns = 32 if not double else 4096
    whole = codes(11, columns, double)
    values, step = whole.values(), 2 if not double else 4
    for first, last in ((0, step), (step, 2 * step), (step, 11), (0, 11)):
        part = whole.part(slice(first, last))
        assert (part.absmax is None) == double
        np.testing.assert_array_equal(part.values(), values[first:last])
    for first, last in ((1, 11), (0, 1), (0, step + 1), (step, 2 * step + 1)):
        assert whole.part(slice(first, last)) is None
    size = whole.part(slice(step, 2 * step))
    assert len(size.scale_codes if double else size.absmax) == (256 if double else 1)
