"""Comparisons with constants that need no carry chain."""

from amaranth.utils import exact_log2

__all__ = ["beyond"]


def beyond(value, limit):
    """``value > limit`` for a limit that is a power of two.

    It needs no carry chain of a comparison.
    """
    return value[exact_log2(limit) :].any() & (value != limit)
