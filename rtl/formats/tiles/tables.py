"""Sizes of the tables that the element engine looks functions up in, without numpy or Amaranth."""

from ..fixed import Fixed

__all__ = ["ARGUMENT", "BASE", "FIXED_TABLES", "INDEX", "SLOPE", "TABLES"]

#: Tables that a FUNCTION may name; the first are fixed, see :data:`.functions.FIXED`, and TABLE writes the others.
TABLES, FIXED_TABLES = 12, 4
#: A table has ``2**INDEX`` pieces; its argument is ``ARGUMENT`` bits of ``|x| / 2**range``.
INDEX, ARGUMENT = 9, 20
#: A piece is a word of 32 bits: a base and above it the rise over the piece.
BASE, SLOPE = Fixed(width=18, frac=16), Fixed(width=12, frac=16)
