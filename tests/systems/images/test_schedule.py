"""The order of samples and the first adapters: the same everywhere, for ever."""

from types import SimpleNamespace

import numpy as np
import pytest

from gradloom.systems.images.integers import records
from gradloom.systems.images.program.lowered import parameters
from gradloom.systems.images.program.lowering import lower
from gradloom.systems.images.program.schedule import batches, epoch_order, initial_adapters, steps_per_epoch
from gradloom.systems.images.simulated import learnt_words

from .conftest import SMALL, small_network


def test_an_epoch_visits_every_sample_once():
    for epoch in range(3):
        assert sorted(epoch_order(1024, epoch, 7)) == list(range(1024))


def test_epochs_and_seeds_differ_and_repeat():
    np.testing.assert_array_equal(epoch_order(50, 2, 3), epoch_order(50, 2, 3))
    assert not np.array_equal(epoch_order(50, 2, 3), epoch_order(50, 3, 3))
    assert not np.array_equal(epoch_order(50, 2, 3), epoch_order(50, 3, 2))


def test_the_order_is_the_one_that_results_were_published_with():
    assert epoch_order(10, 0, 0).tolist() == [4, 5, 3, 1, 8, 9, 2, 7, 0, 6]


def test_the_last_batch_may_be_shorter():
    sizes = [len(b) for b in batches(epoch_order(1024, 0, 0), 20)]
    assert sizes == [20] * 51 + [4] and len(sizes) == steps_per_epoch(1024, 20) == 52
    np.testing.assert_array_equal(np.concatenate(list(batches(np.arange(7), 3))), np.arange(7))


def test_adapters_start_at_the_base_network():
    (a, b), (a2, b2) = initial_adapters((4000, 100), 10, 4, 0)
    assert a.shape == (4, 4000) and b.shape == b2.shape == (10, 4) and a2.shape == (4, 100)
    assert not b.any() and not b2.any()
    assert abs(a.std() * np.sqrt(4000) - 1) < 0.03 and abs(a.mean() * np.sqrt(4000)) < 0.03


def test_a_taps_start_does_not_depend_on_other_taps():
    np.testing.assert_array_equal(initial_adapters((8, 5), 3, 2, 1)[1][0], initial_adapters((9, 5, 7), 2, 2, 1)[1][0])
    assert not np.array_equal(initial_adapters((8,), 3, 2, 1)[0][0], initial_adapters((8,), 3, 2, 2)[0][0])


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: epoch_order(0, 0, 0), "n=0"),
        (lambda: epoch_order(5, -1, 0), "epoch=-1"),
        (lambda: epoch_order(5, 0, -2), "seed=-2"),
        (lambda: list(batches([1], 0)), "batch=0"),
        (lambda: steps_per_epoch(5, 0), "batch=0"),
        (lambda: initial_adapters((5,), 10, 0, 0), "rank=0"),
        (lambda: initial_adapters((5, 0), 10, 1, 0), r"taps\[1\]=0"),
        (lambda: initial_adapters((5,), 1, 1, 0), "classes=1"),
    ],
)
def test_bad_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("wide", [True, False])
def test_a_sample_of_the_cache_is_scales_codes_and_logits(wide):
    """Of a block of 64 wide codes the upper halves lie in front of the lower ones; two halves a byte, the first above.

    A beat of scales has the number of its first block, and seven of them.
    """
    rng, blocks = np.random.default_rng(3), 9
    codes = rng.integers(0, 256 if wide else 16, (2, 64 * blocks), np.uint8)
    scales, logits = rng.integers(0, 1 << 16, (2, blocks), np.uint16), rng.integers(-99, 99, (2, 5))
    tap = SimpleNamespace(scale_beats=2, first_block=20)
    lowered = SimpleNamespace(taps=[tap], wide=wide, record_logits=2)
    found = records(lowered, SimpleNamespace(scales=[scales], codes=[codes], logits=logits))
    for sample in range(2):
        words = [20, *scales[sample, :7], 27, *scales[sample, 7:], 0, 0, 0, 0, 0]
        wanted = b"".join(int(word).to_bytes(2, "little") for word in words)
        for block in range(blocks):
            own = [int(code) for code in codes[sample, 64 * block : 64 * block + 64]]
            for part in ([code >> 4 for code in own], [code & 15 for code in own]) if wide else (own,):
                wanted += bytes(part[n] << 4 | part[n + 1] for n in range(0, 64, 2))
        wanted += b"".join(int(logit).to_bytes(4, "little", signed=True) for logit in [*logits[sample], 0, 0, 0])
        assert found[sample].tobytes() == wanted


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_adapters_come_back_from_their_words(rank):
    """A rank above the design's is in parts, which lie one behind another."""
    lowered, rng = lower(small_network(convs=1), SMALL, rank), np.random.default_rng(rank)
    given = [
        [rng.integers(-99, 99, shape) for shape in shapes]
        for shapes in zip(*(((rank, tap.elements), (lowered.classes, rank)) for tap in lowered.taps))
    ]
    made = parameters(lowered, *given)
    for matrices, back in zip(given, learnt_words(lowered, made["lanes"], made["head"]), strict=True):
        assert len(back) == len(lowered.taps) > 1
        for one, other in zip(matrices, back, strict=True):
            np.testing.assert_array_equal(one, other)
