"""The stream of a linear gives back bitsandbytes' bytes, and lies in memory as its page says."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradloom.rtl.formats.codebook import NF4, pack_nibbles, unpack_nibbles
from gradloom.rtl.formats.weights.blocks import quantize_blocks, quantize_scales
from gradloom.rtl.formats.weights.weight_stream import (
    BOOKS,
    StreamShape,
    pack_codes,
    pack_stream,
    unpack_codes,
    unpack_stream,
)

NPZ = np.load(Path(__file__).parents[1] / "golden" / "nf4.npz")
CASES = sorted(
    name[:-2]
    for name in NPZ.files
    if name.endswith(".w") and NPZ[name].shape[1] % 64 == 0 and NPZ[f"{name[:-2]}.blocksize"] == 64
)


def made(shape, seed=0):
    random = np.random.default_rng(seed)
    return (
        random.integers(0, 1 << shape.bits, (shape.outputs, shape.inputs), dtype=np.uint8),
        random.integers(0, 256, shape.blocks, dtype=np.uint8),
        random.normal(size=shape.groups).astype(np.float32),
        np.float32(random.normal()),
    )


@pytest.mark.parametrize("name", CASES)
def test_bitsandbytes_bytes_survive(name):
    packed, scales, absmax2, offset = (
        NPZ[f"{name}.{part}"] for part in ("packed", "dq_absmax", "dq_absmax2", "dq_offset")
    )
    shape = StreamShape(outputs=NPZ[f"{name}.w"].shape[0], inputs=NPZ[f"{name}.w"].shape[1])
    stream = pack_stream(shape, unpack_nibbles(packed), scales, absmax2, offset)
    codes, *second = unpack_stream(shape, stream)
    np.testing.assert_array_equal(pack_nibbles(codes.reshape(-1)), packed)
    for found, wanted in zip(second, (scales, absmax2, offset)):
        np.testing.assert_array_equal(found, wanted)


def test_golden_cases_are_there():
    assert {"gauss_48x256_b64", "llm_rows_24x2048_b64"} <= set(CASES)


@settings(deadline=None, max_examples=40)
@given(
    outputs=st.integers(1, 200),
    blocks=st.integers(1, 6),
    bits=st.sampled_from([2, 3, 4]),
    tile=st.sampled_from([16, 32, 64]),
    span=st.sampled_from([1, 3, 5]),
    seed=st.integers(0, 99),
)
def test_whatever_goes_in_comes_out(outputs, blocks, bits, tile, span, seed):
    shape = StreamShape(outputs=outputs, inputs=tile * blocks, bits=bits, tile=tile, span=span)
    assert sorted(shape.places.flat) == list(range(shape.tiles[0] * shape.tiles[1]))
    stream = pack_stream(shape, *made(shape, seed))
    assert stream.dtype == np.uint8 and stream.size == shape.bytes
    for found, wanted in zip(unpack_stream(shape, stream), made(shape, seed)):
        np.testing.assert_array_equal(found, wanted)


def test_the_stream_lies_as_its_page_says():
    """Each field is looked up where docs/reference/weight-stream.md puts it."""
    shape = StreamShape(outputs=130, inputs=192)
    codes, scales, absmax2, offset = made(shape)
    stream = pack_stream(shape, codes, scales, absmax2, offset)
    assert shape.header_bytes == 32 and shape.tile_bytes == 2112 and shape.tiles == (3, 3)
    assert stream[:4].tobytes() == absmax2[:1].astype("<f4").tobytes()
    assert stream[8:12].tobytes() == offset.astype("<f4").tobytes()
    assert not stream[12:32].any()
    for n in (0, 63, 64, 129):
        for k in (0, 63, 64, 191):
            tile = 32 + 2112 * (n // 64 * 3 + k // 64)
            assert stream[tile + n % 64] == scales[3 * n + k // 64]
            byte = stream[tile + 64 + 32 * (n % 64) + k % 64 // 2]
            assert (byte & 15 if k % 2 else byte >> 4) == codes[n, k]
    padding = stream[32 + 2112 * 6 :].reshape(3, 2112)
    assert not padding[:, 2:64].any()
    assert (padding[:, 64 + 2 * 32 :] == NF4.zero_code * 17).all()


def test_tiles_of_panels_lie_in_the_order_of_their_products():
    shape = StreamShape(outputs=5 * 64, inputs=128, span=3)
    assert shape.places.tolist() == [[0, 3], [1, 4], [2, 5], [6, 8], [7, 9]]


@pytest.mark.parametrize("bits, tile, size", [(4, 64, 2112), (3, 64, 1600), (2, 64, 1088), (4, 32, 544), (4, 16, 144)])
def test_a_tile_is_whole_beats(bits, tile, size):
    shape = StreamShape(outputs=64, inputs=64, bits=bits, tile=tile)
    assert shape.tile_bytes == size and size % shape.beat == 0


def test_three_bits_are_packed_first_element_highest():
    assert pack_codes([1, 2, 3, 4, 5, 6, 7, 0], 3).tolist() == [0b00101001, 0b11001011, 0b10111000]
    assert unpack_codes([0b00101001, 0b11001011, 0b10111000], 3).tolist() == [1, 2, 3, 4, 5, 6, 7, 0]
    assert pack_codes([1, 2, 3, 0], 2).tolist() == [0b01101100]


@pytest.mark.parametrize("bits", BOOKS)
def test_rows_that_pad_decode_to_zero(bits):
    book = BOOKS[bits]
    assert book.decode(book.zero_code) == 0 and len(book.levels) == 1 << bits


@pytest.mark.parametrize("bits, frozen", [(4, 499.8e6), (3, 378.7e6), (2, 257.6e6)])
def test_frozen_bytes_count_codes_and_scales_alone(bits, frozen):
    from gradloom.models.language import BUILT_IN

    shapes = [
        StreamShape(outputs=each.outputs, inputs=each.inputs, bits=bits) for each in BUILT_IN["tinyllama-1.1b"].linears
    ]
    assert abs(sum(shape.frozen_bytes for shape in shapes) - frozen) < 0.05e6


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(inputs=100), "inputs=100: K must be a multiple of 64"),
        (dict(inputs=0), "inputs=0"),
        (dict(outputs=0), "outputs=0"),
        (dict(bits=5), "bits=5: must be one of 4, 3, 2"),
        (dict(tile=8), "tile=8: must be one of 16, 32, 64"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        StreamShape(**dict(outputs=64, inputs=64) | change)


def test_parts_that_do_not_fit_are_refused():
    shape = StreamShape(outputs=2, inputs=64, bits=3)
    parts = made(shape)
    for change, message in [
        ((parts[0][:1], *parts[1:]), "codes=64 values: the linear has 128"),
        ((parts[0] | 8, *parts[1:]), "3 bits hold up to 7"),
        ((parts[0], parts[1].astype(int), *parts[2:]), "scale_codes is int64"),
        ((*parts[:2], np.zeros(2, np.float32), parts[3]), "absmax2=2 values"),
    ]:
        with pytest.raises(ValueError, match=message):
            pack_stream(shape, *change)
    with pytest.raises(ValueError, match="stream=5 values"):
        unpack_stream(shape, np.zeros(5, np.uint8))


def test_a_quantised_matrix_decodes_the_same_from_the_stream():
    w = np.random.default_rng(1).normal(size=(70, 128)).astype(np.float32)
    codes, absmax = quantize_blocks(w)
    scales, absmax2, offset = quantize_scales(absmax)
    shape = StreamShape(outputs=70, inputs=128)
    assert shape.bytes == shape.header_bytes + 4 * 2112
    found = unpack_stream(shape, pack_stream(shape, codes, scales, absmax2, offset))
    np.testing.assert_array_equal(found[0].reshape(-1), codes)
