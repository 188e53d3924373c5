"""Kernels whose matrices are mostly zeros: parts of several taps in a tile."""

import numpy as np
import pytest

from gradloom.compiler.commands.base import Kept
from gradloom.compiler.lowering import lower
from gradloom.compiler.weights.matrices import blocks
from gradloom.compiler.weights.packed import packed_codes, parts_of, place
from gradloom.graph.operations import Linear
from gradloom.program.tiles.layout import Tiles
from gradloom.rtl.formats.tiles.codes import NARROW, coded

from .nets import conv, headed, tensor
from .same import CONFIG, ORDERS, steps

#: Sides and features, and how a convolution is that has few parts in a tile.
KERNELS = {
    "a group a channel": ((7, 9), 130, {"kernel": 3, "pads": 1, "groups": 130}),
    "one half alone": ((5, 4), 40, {"kernel": 3, "pads": 1, "groups": 40, "bias": False}),
    "groups of parts": ((6, 6), 96, {"kernel": (1, 3), "pads": (0, 1), "groups": 3, "stride": (1, 2)}),
    "a transposed one": ((4, 5), 64, {"kernel": 2, "stride": 2, "groups": 64, "transposed": True}),
    "taps far from most rows": (
        (3, 40),
        64,
        {"kernel": (3, 2), "pads": (2, 0), "dilation": 2, "groups": 64, "bias": False},
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_few_parts_are_the_integers(name):
    sides, features, how = KERNELS[name]
    x = tensor("x", *sides, 7)
    first = Linear((x,), tensor("first", *sides, features), "first")
    second = conv(first.o, "second", features, positive=True, **how)
    network = headed([first, second], [x])
    steps(network, samples=2, order=ORDERS[1])
    steps(network, ("first.weight",), samples=3, loss="classes", order=ORDERS[0])


@pytest.mark.parametrize("empty", [0, 1])
def test_a_half_that_no_tap_makes(empty):
    """Weights of half of the channels are zeros, with a bias and without."""
    for bias in (False, True):
        x = tensor("x", 6, 5, 64)
        first = conv(x, "first", 64, 3, pads=1, groups=64, bias=bias)
        network = headed([first], [x])
        network.values["first.weight"][32 * empty : 32 * (empty + 1)] = 0
        steps(network, samples=3, order=ORDERS[0])


@pytest.mark.parametrize("whole", [1, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_parts_beside_whole_tiles(whole, bias):
    """Of three taps some have all values, others one part."""
    x = tensor("x", 1, 9, 64)
    first = conv(x, "first", 64, (1, 3), pads=(0, 1), bias=bias)
    network = headed([first], [x])
    for tap in range(whole, 3):
        network.values["first.weight"][32:, :, 0, tap] = 0
        network.values["first.weight"][:, :32, 0, tap] = 0
    steps(network, samples=3, order=ORDERS[1])


def test_parts_share_tiles_and_their_exponents():
    taps = np.zeros((9, 64, 64))
    random = np.random.default_rng(0)
    for tap in range(9):
        np.fill_diagonal(taps[tap], random.standard_normal(64) * 2.0**-tap)
    parts = parts_of(blocks(taps))
    assert [part.record for tap in range(9) for part in parts[tap, 0, 0]] == [n // 4 for n in range(18)]
    made, alone = packed_codes(taps), coded(taps, NARROW)
    assert made.exponents.ravel().tolist() == np.repeat(alone.exponents.ravel()[::2], 2)[:9].tolist()
    assert np.abs(made.values - taps).max() <= 2.0 ** made.exponents.max() / 2
    sizes = []

    def codes(values):
        sizes.append(Tiles(0, 1, *values.shape, NARROW).size)
        return Tiles(0, 1, *values.shape, NARROW)

    place(taps, codes)
    whole = Tiles(0, 9, 64, 64, NARROW).size
    assert sum(sizes) < 0.52 * whole


def test_records_reach_as_far_as_products_read():
    """Zeros at the end of a part are in the record: a slot has what was there before."""
    taps = np.zeros((1, 40, 40))
    np.fill_diagonal(taps[0], 1)
    taps[0, 39, 39] = 0
    sizes = []
    place(taps, lambda x: sizes.append(x.shape) or Tiles(0, 1, *x.shape, NARROW))
    assert sizes == [(32, 40)]


def test_tiles_with_more_parts_stay_whole():
    taps = np.ones((3, 64, 64))
    taps[1, 32:] = 0
    assert not parts_of(blocks(taps))
    taps[1, :, 32:] = 0
    assert list(parts_of(blocks(taps))) == [(1, 0, 0)]
    assert type(place(np.ones((2, 64, 64)), lambda x: Tiles(0, 2, 64, 64, NARROW))) is Kept


def test_depthwise_layers_read_half_of_the_beats():
    x = tensor("x", 6, 6, 128)
    network = headed([conv(x, "first", 128, 3, pads=1, groups=128)], [x])
    step = lower(CONFIG, network, samples=1)
    beats = sum(
        each.operands["beats"] for each in step.program.instructions if str(each.operands.get("dest")) == "product.w"
    )
    assert beats < 18 * 257 * 0.6
