"""Adapters as words of the machine: their block byte by byte, and back."""

import struct

import numpy as np
import pytest

from gradloom.models.adapters.lora import Adapter, fresh_lora
from gradloom.models.adapters.words import pack_adapters, unpack_adapters

NAMES = ("model.layers.1.self_attn.q_proj", "model.layers.0.mlp.down_proj")


@pytest.fixture
def adapters(tiny):
    random = np.random.default_rng(2)
    fresh = fresh_lora(tiny, rank=3, alpha=6, targets=("q_proj", "down_proj"))
    return {
        name: Adapter(fresh[name].a, random.normal(0, 0.1, fresh[name].b.shape).astype(np.float32), 2.0)
        for name in NAMES
    }


def test_a_block_is_as_it_is_described(tiny, adapters):
    block = pack_adapters(tiny, adapters, tile=64)
    assert struct.unpack_from("<4s3I", block) == (b"GLAW", 2, 3, 64)
    # Two entries end at 80, and A and B begin at multiples of 64.
    at = 128
    for index, (name, number, inputs, outputs) in enumerate(((NAMES[0], 7, 64, 64), (NAMES[1], 6, 128, 64))):
        entry = struct.unpack_from("<3I2i2If", block, 16 + 32 * index)
        each = adapters[name]
        assert entry[:3] == (number, inputs, outputs) and entry[5:] == (at, at + 12 * inputs, 2.0)
        for values, frac, start in (
            (each.a, entry[3], entry[5]),
            (2 * each.b.T.astype(np.float64), entry[4], entry[6]),
        ):
            words = np.frombuffer(block, "<i4", values.size, start)
            # By tile of 64 features, then row.
            ordered = values.reshape(3, -1, 64).swapaxes(0, 1).ravel()
            np.testing.assert_array_equal(words, np.rint(np.ldexp(ordered.astype(np.float64), frac)))
            # As many bits as fit with one to spare.
            assert 1 << 29 <= np.abs(words.astype(np.int64)).max() < 1 << 30
        at += 12 * (inputs + outputs)
    assert len(block) == at and not any(block[80:128])
    found = unpack_adapters(tiny, block)
    assert list(found) == list(NAMES)
    for name, each in adapters.items():
        assert found[name].scale == 2.0 and found[name].a.dtype == found[name].b.dtype == np.float32
        np.testing.assert_allclose(found[name].a, each.a, rtol=0, atol=2.0**-33)
        # The least values have fewer bits than float32 has.
        np.testing.assert_allclose(found[name].b, each.b, rtol=0, atol=2.0**-29)


def test_parts_begin_at_multiples_of_64_bytes(tiny, adapters):
    name = NAMES[0]
    small = {name: Adapter(adapters[name].a[:1], adapters[name].b[:, :1], 2.0)}
    block = pack_adapters(tiny, small, tile=4)
    assert struct.unpack_from("<2I", block, 16 + 20) == (64, 320) and len(block) == 576
    np.testing.assert_allclose(unpack_adapters(tiny, block)[name].b, small[name].b, rtol=0, atol=2.0**-29)


def test_what_does_not_fit_is_one_line(tiny, adapters):
    q, down = (adapters[name] for name in NAMES)
    for given, tile, says in (
        ({}, 64, "adapters has ranks []: must be of one rank"),
        ({NAMES[0]: q, NAMES[1]: Adapter(down.a[:2], down.b[:, :2], 2.0)}, 64, "adapters has ranks [2, 3]: must be of"),
        ({"lm_head": q}, 64, "lm_head: tiny has no such linear"),
        ({NAMES[0]: q}, 48, f"{NAMES[0]}: A has 64 features: must be a multiple of 48"),
        ({NAMES[1]: down}, 128, f"{NAMES[1]}: B has 64 features: must be a multiple of 128"),
    ):
        with pytest.raises(ValueError) as refused:
            pack_adapters(tiny, given, tile=tile)
        assert str(refused.value).startswith(says)


def test_a_block_of_another_model_is_one_line(tiny, adapters):
    block = pack_adapters(tiny, adapters)
    for content in (block[:15], b"GLAX" + block[4:], b""):
        with pytest.raises(ValueError, match="^not a block of adapters$"):
            unpack_adapters(tiny, content)
    for number in (len(tiny.linears), 5):
        wrong = bytearray(block)
        struct.pack_into("<I", wrong, 16, number)
        with pytest.raises(ValueError, match=rf"^linear {number} has shape \[64, 64\]: tiny has no such linear$"):
            unpack_adapters(tiny, bytes(wrong))
    assert unpack_adapters(tiny, struct.pack("<4s3I", b"GLAW", 0, 3, 64)) == {}
