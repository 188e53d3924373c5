"""Losses that a job reads while its program runs, from bytes written by hand."""

import struct
from fractions import Fraction

import pytest

from gradloom.firmware.jobs.job import Losses


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
