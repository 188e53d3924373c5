"""The plan of a job: which program answers at a position, and losses from bytes written by hand."""

import struct
from fractions import Fraction

import pytest

from gradloom.firmware.jobs.job import AnsweringProgram, AnswerPlan, Losses


def answering(rows, positions, counts, vocabulary=128):
    programs = tuple(
        AnsweringProgram(start, count, (0, 1), 0, (0, 0), 0, (), 0)
        for start in range(0, positions, rows)
        for count in counts
    )
    return AnswerPlan((1,), 4, (), positions, rows, vocabulary, 1, 0, 0, 1, programs)


@pytest.mark.parametrize("rows, positions", [(64, 200), (8, 16), (64, 40)])
def test_at_a_position_the_largest_program_answers_that_has_room(rows, positions):
    """Of the position's tile: within it, within the context, and of no more tokens than are asked for."""
    counts = (4, 1, 8)
    plan = answering(rows, positions, counts)
    for position in range(positions):
        first = position - position % rows
        for most in (1, 3, 4, 5, 8, 64):
            found = plan.at(position, most)
            room = min(most, first + rows - position, positions - position)
            assert (found.position, found.count) == (first, max(each for each in counts if each <= room))
        assert plan.at(position) == plan.at(position, 64)


def test_logits_have_whole_tiles():
    assert [answering(64, 64, (1,), vocabulary).logit_tiles for vocabulary in (1, 64, 65, 128)] == [1, 1, 2, 2]


def test_sums_are_means_of_samples_up_to_the_first_that_is_not_there():
    """A step that has not ended has no samples yet; what lies behind it does not count."""
    places = Losses(kind="sums", offset=64, count=4, scale=256)
    assert places.length == 4 * 16
    entries = [(3 << 40, 3), (512, 4), (7, 0), (256, 1)]
    content = b"".join(struct.pack("<QII", total, samples, 0xFFFFFFFF) for total, samples in entries)
    assert places.of(content) == [float(1 << 32), 0.5]
    assert places.of(content[:16]) == [float(1 << 32)] and places.of(bytes(64)) == places.of(b"") == []


@pytest.mark.parametrize("bits, form", [(8, "b"), (16, "h")])
def test_tiles_are_a_mean_of_squares_each_with_its_exponent(bits, form):
    """Exponents and codes have a sign; the rest of a record's first beat is no code."""
    places = Losses(kind="tiles", offset=0, count=2, scale=7, rows=2, row_bytes=16, bits=bits)
    assert places.length == 2 * (32 + 32)
    count, total, content = 32 * 8 // bits, Fraction(0), b""
    for exponent, first in ((-9, -100), (3, 20)):
        codes = [first + 3 * n for n in range(count)]
        content += struct.pack("b", exponent) + b"\xa5" * 31 + struct.pack(f"<{count}{form}", *codes)
        total += Fraction(4) ** exponent * sum(code * code for code in codes)
    assert places.of(content) == [float(total / 7)]
