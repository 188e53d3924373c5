"""Commands and formats of the Scale engine."""
from enum import IntEnum

from amaranth.lib import data

from gradloom.rtl.formats.fixed import Fixed

#: A factor: Q2.16.
FACTOR = Fixed(width=18, frac=16)
#: A sum of ds, which 2**16 rows cannot wrap.
SUM = Fixed(width=64, frac=0)


class ScaleOpcode(IntEnum):
    """Opcodes."""

    FORWARD = 0     #: y = s * x, and x is kept
    BACKWARD = 1    #: sums of ds = x * dy over the rows of dy, and dx = s * dy
    UPDATE = 2      #: s = s - ds * 2**-shift


#: Operands: ``beats`` of x or dy, rows of ``groups`` beats each. ``add``: ds continues the sums of the BACKWARD before;
#: ``dx``: BACKWARD sends dx.
ScaleOperands = data.StructLayout({"beats": 16, "groups": 8, "shift": 6, "add": 1, "dx": 1, "_reserved": 128})
