"""Sums of products of tiles that have different powers of two.

A token's tiles add up in units of the largest tile's power of two, less :data:`FRACTION` bits: a tile whose power is
``drop`` lower is added as ``sum << (FRACTION - drop)``, which is exact. A tile that is more than that below the largest
is *lost*: it is not added, and counted unless its sum is zero.
"""

__all__ = ["DROP", "FRACTION", "LOST", "TILES", "WIDTH"]

#: Bits below the unit of the largest tile.
FRACTION = 16
#: Bits of ``drop``; all above :data:`FRACTION` are the same.
DROP = 5
#: Bits of a sum, and most tiles of one: their sums of 64 products have at most 21 bits.
WIDTH, TILES = 48, 1 << 11
#: Bits of the count of lost tiles.
LOST = 16
