"""Places of adapters and moments that are stored as codes."""

import zlib

import pytest

from gradloom.systems.text.operations.learnt.updates import Unpack
from gradloom.systems.text.operations.tensors import AdapterTensors, Codes
from gradloom.systems.text.program.engines.updates import place_packed
from gradloom.systems.text.program.layout import Layout
from gradloom.systems.text.program.packed import tensors

from ..conftest import CONFIG

#: Rank, and inputs and outputs of each linear.
RANK, SIZES = 2, {"p": (128, 64), "q": (192, 256)}


def operations(wide):
    for name, (inputs, outputs) in SIZES.items():
        for moments in (False, True):
            yield Unpack(AdapterTensors(name, RANK), Codes(name, outputs, inputs), wide, moments=moments)


@pytest.mark.parametrize("wide", [True, False])
def test_moments_share_a_place_and_all_else_has_its_own(wide):
    layout = Layout()
    place_packed(list(operations(wide)), layout, CONFIG)
    # As large as the largest: m and v of each word.
    shared = {which: (layout[f"moments.{which}"], layout.sizes[f"moments.{which}"]) for which in "ab"}
    assert [size for _, size in shared.values()] == [4 * RANK * 192 * 2, 4 * RANK * 256 * 2]
    for name, sides in SIZES.items():
        for which, features in zip("ab", sides, strict=True):
            assert layout[f"{name}.m{which}"] == shared[which][0] and layout.sizes[f"{name}.m{which}"] == 0
            assert layout.sizes[f"{name}.{which}"] == 4 * RANK * features
            codes, moments = layout.sizes[f"{name}.p{which}"], layout.sizes[f"{name}.pm{which}"]
            assert codes >= RANK * features // (1 if wide else 2) and codes < 4 * RANK * features
            assert 1.5 * codes < moments <= 2 * codes
    taken = sorted(area for area in layout.areas.values() if area[1])
    assert all(one + size <= other for (one, size), (other, _) in zip(taken, taken[1:]))


def test_a_machine_without_packing_has_no_adapters_in_codes():
    with pytest.raises(ValueError, match="^packing: the machine must have it"):
        place_packed(list(operations(True)), Layout(), CONFIG.replace(packing=0))
    place_packed([], layout := Layout(), CONFIG.replace(packing=0))
    assert not layout.offsets


def test_groups_have_seeds_of_their_own():
    """Of a tensor, an update and a group; never 0, from which a generator makes nothing."""
    held = tensors("p", RANK, 64 * 64, 128, wide=True, moments=True)
    seeds = [seed for each in held for number in (1, 2) for seed in each.seeds(number)]
    assert 0 not in seeds and len(set(seeds)) == len(seeds)
    assert held[0].seeds(3)[0] == zlib.crc32(b"p.ma 3 0")
