"""Lifetimes: which steps need a tensor, places in common, and the walk that finds what was overwritten."""

import itertools

import numpy as np
import pytest

from gradloom.program.assembler import Assembler
from gradloom.program.lifetimes import Life, assigned, check, extent, lives, moved
from gradloom.rtl.shell.engines import CONTROL, LOAD, STORE
from gradloom.rtl.shell.signature import ControlOpcode

BEAT = 16
A, B, C = 0, 128, 256


def steps(*transfers):
    """``(kind, offset, beats)`` each, or None for a command of another engine."""
    program = Assembler()
    for each in transfers:
        if each is None:
            program.add(CONTROL, ControlOpcode.END)
        else:
            program.add(each[0], offset=each[1], beats=each[2])
    return program.instructions


def test_a_life_is_from_the_load_behind_which_its_store_begins_to_its_last_access():
    made = steps((LOAD, A, 4), None, (STORE, B, 4), (LOAD, B, 2), (LOAD, B + 32, 2), (STORE, C, 1))
    found = lives(made, {2: 0, 5: 3}, {"c": (C, 10), "a": (A, 64), "b": (B, 64), "unused": (512, 64)}, BEAT)
    assert found == [Life("a", A, 64, 0, 0, True), Life("b", B, 64, 0, 4, False), Life("c", C, 10, 3, 5, False)]
    # What lies between tensors is none's; a place ends at the next multiple of 64.
    assert lives(steps((LOAD, 64, 4)), {}, {"a": (A, 60), "b": (B, 64)}, BEAT) == []
    assert lives(steps((LOAD, A, 4)), {}, {"a": (A, 10)}, BEAT) == [Life("a", A, 10, 0, 0, True)]
    with pytest.raises(ValueError, match="a: a transfer reaches beyond its place"):
        lives(steps((LOAD, A, 5)), {}, {"a": (A, 60)}, BEAT)


def overlap(first, second, places):
    at, other = places[first.name], places[second.name]
    return at < other + -(-second.size // 64) * 64 and other < at + -(-first.size // 64) * 64


def test_lives_that_meet_have_places_of_their_own():
    """By chance, many times: and nothing is left between a place and what it stands on."""
    rng, shared = np.random.default_rng(1), 0
    for _ in range(50):
        found = []
        for name in "abcdefgh":
            begin, length = (int(each) for each in rng.integers(0, 12, 2))
            found.append(Life(name, 0, int(rng.integers(1, 300)), begin, begin + length, False))
        places, end = assigned(found)
        for first, second in itertools.combinations(found, 2):
            meet = first.begin <= second.end and second.begin <= first.end
            assert not (meet and overlap(first, second, places))
            shared += overlap(first, second, places)
        ends = {places[each.name] + -(-each.size // 64) * 64 for each in found}
        assert set(places.values()) <= {0, *ends} and end == max(ends)
    assert shared > 100


def test_the_largest_come_first_and_lowest():
    found = [Life("small", 0, 64, 0, 9, False), Life("large", 0, 128, 0, 3, False), Life("late", 0, 100, 4, 9, False)]
    assert assigned(found) == ({"large": 0, "late": 0, "small": 128}, 192)
    # The end of one is the begin of the other: both need their place in that step.
    assert assigned([Life("a", 0, 64, 0, 4, False), Life("b", 0, 64, 4, 9, False)])[1] == 128
    # A gap that is just large enough is taken.
    gap = [Life("a", 0, 192, 0, 1, False), Life("b", 0, 128, 2, 9, False), Life("c", 0, 64, 0, 9, False)]
    assert assigned([*gap, Life("d", 0, 64, 2, 9, False)])[0]["d"] == 128
    assert assigned([]) == ({}, 0)


def test_what_is_made_beat_by_beat_of_another_takes_its_place():
    found = [Life("x", 0, 64, 0, 4, False), Life("y", 0, 64, 4, 9, False), Life("z", 0, 64, 8, 9, False)]
    assert assigned(found, [("x", "y")]) == ({"x": 0, "y": 0, "z": 64}, 128)
    # Of unlike sizes neither is in place of the other.
    other = [found[0], Life("y", 0, 65, 4, 9, False)]
    assert assigned(other, [("x", "y")]) == ({"y": 0, "x": 128}, 192)
    assert assigned(found[:1], [("x", "y"), ("v", "x")]) == ({"x": 0}, 64)


def test_transfers_move_with_their_range():
    made = moved(
        steps((LOAD, A + 16, 1), None, (STORE, B + 60, 1), (LOAD, B + 64, 1), (LOAD, C, 1)),
        [(B, 60, 1024), (A, 64, 512)],
        BEAT,
    )
    assert [each.operands.get("offset") for each in made] == [528, None, 1084, B + 64, C]


def test_a_walk_finds_words_that_another_tensor_overwrote():
    planned = steps((STORE, A, 2), (STORE, B, 2), (LOAD, A, 2), (LOAD, B, 2))
    check(planned, {0: 0, 1: 0}, planned, BEAT)
    wrong = steps((STORE, A, 2), (STORE, A, 2), (LOAD, A, 2), (LOAD, A, 2))
    with pytest.raises(ValueError, match="step 2: it reads what another tensor overwrote"):
        check(planned, {0: 0, 1: 0}, wrong, BEAT)
    # One word of two is enough.
    near = steps((STORE, A, 2), (STORE, A + 16, 2), (LOAD, A, 2), (LOAD, A + 16, 2))
    with pytest.raises(ValueError, match="step 2: it reads what another tensor overwrote"):
        check(planned, {0: 0, 1: 0}, near, BEAT)


@pytest.mark.parametrize(
    "moved_to, needs, early",
    [
        (A, 1, False),  # begins behind the load of B, and so behind that of A
        (A, 0, False),  # made of A beat by beat, in its place
        (A + 16, 0, True),  # the same a beat further: the second beat is written before it is read
        (B, 0, True),  # B may not be read yet
        (B, 1, False),
        (B + 16, 1, True),
    ],
)
def test_a_walk_finds_stores_that_may_be_too_early(moved_to, needs, early):
    planned, made = (steps((LOAD, A, 2), (LOAD, B, 2), (STORE, at, 2)) for at in (C, moved_to))
    if not early:
        check(planned, {2: needs}, made, BEAT)
        return
    reader = 1 if moved_to >= B else 0
    with pytest.raises(ValueError, match=f"step 2: it may overwrite what step {reader} still reads"):
        check(planned, {2: needs}, made, BEAT)


def test_a_store_may_write_what_was_read_in_time_beside_what_stays():
    """The first beat was another tensor's and is read before; the second is at its planned place."""
    planned = steps((LOAD, 512, 1), (LOAD, 32, 1), (STORE, 16, 2))
    made = steps((LOAD, 16, 1), (LOAD, 32, 1), (STORE, 16, 2))
    check(planned, {2: 1}, made, BEAT)
    with pytest.raises(ValueError, match="step 2: it may overwrite what step 1 still reads"):
        check(planned, {2: 0}, made, BEAT)


def test_an_extent_is_whole_beats():
    (step,) = steps((LOAD, 48, 3))
    assert extent(step, BEAT) == (48, 96)
