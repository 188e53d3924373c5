"""The passes of the norm engine's commands."""

from amaranth.hdl import Cat

from ...formats.tiles.norm import NormOpcode
from .lane import Kind

__all__ = ["FIRST", "GO_ON", "GROUPS", "ROWS", "SUMS", "WHOLE", "any_of"]

#: The first pass of each opcode.
FIRST = {
    NormOpcode.SUMS: Kind.SUMS,
    NormOpcode.NORM: Kind.NORM,
    NormOpcode.BACK_SUMS: Kind.BACK_SUMS,
    NormOpcode.BACK: Kind.BACK,
    NormOpcode.SOFTMAX: Kind.LARGEST,
    NormOpcode.SOFTMAX_BACK: Kind.PULLS,
    NormOpcode.LARGEST: Kind.LARGEST,
    NormOpcode.POWERS: Kind.POWERS,
    NormOpcode.SHARES: Kind.SHARES,
    NormOpcode.PULLS: Kind.PULLS,
    NormOpcode.SOFT_BACK: Kind.SOFT_BACK,
}
#: Opcodes whose passes follow one another, up to the one of which results come.
WHOLE = (NormOpcode.SOFTMAX, NormOpcode.SOFTMAX_BACK)
#: Passes that others of a softmax may follow, and all of which sums come.
GO_ON = (Kind.LARGEST, Kind.POWERS, Kind.PULLS)
SUMS = (Kind.SUMS, Kind.BACK_SUMS, *GO_ON)
#: What is gathered of groups, and of rows of a softmax.
GROUPS = (NormOpcode.SUMS, NormOpcode.BACK_SUMS)
ROWS = (NormOpcode.LARGEST, NormOpcode.POWERS, NormOpcode.PULLS)


def any_of(value, kinds):
    """Whether it is one of them."""
    return Cat(value == kind for kind in kinds).any()
