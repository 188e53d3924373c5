"""Parameters of the product engine."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...shell.parameters import Resources, parameter
from ..tiles import RecordParameters

if TYPE_CHECKING:
    from ...formats.pair import Pair

__all__ = ["ProductParameters"]

#: Rows and columns of a tile. Formats import numpy, which a configuration does without.
_EDGE = 64


@dataclass(frozen=True, kw_only=True)
class ProductParameters(RecordParameters):
    """Products of tiles of 8-bit codes, two a DSP slice.

    Parameters
    ----------
    array_rows, array_columns : int
        Size of the array; a tile has 64 rows and columns. Halves of 32 columns have sums that begin and end by
        themselves, so an array has no more columns.
    x_slots : int
        Tiles of the streamed operand that have room.
    w_slots : int
        Tiles of the kept operand that have room.
    apart : int
        Bits between both products of a slice: 19 for a DSP48E2, 17 for a DSP48E1.
    """

    array_rows: int = parameter(64, 16, 64, power=True, known=True, mesh=True)
    array_columns: int = parameter(32, 16, 32, power=True, known=True, mesh=True)
    x_slots: int = parameter(32, 2, 64, power=True, known=True)
    w_slots: int = parameter(32, 2, 64, power=True, known=True)
    apart: int = parameter(19, 17, 19)

    @property
    def pair(self) -> "Pair":
        """Two codes in the wide operand of a slice."""
        from ...formats.pair import Pair

        return Pair(self.apart)

    @property
    def passes(self) -> int:
        """Passes of the array over the columns of a tile."""
        return _EDGE // self.array_columns

    def resources(self) -> Resources:
        """A slice for two products, and one a column that adds."""
        codes = _EDGE * _EDGE * 8
        return Resources(
            dsp={"products": self.array_rows * self.array_columns // 2, "alignment": self.array_columns},
            bits={
                "stream tiles": codes * self.x_slots,
                "kept tiles": codes * self.w_slots,
                "sums and results": 5 * 48 * _EDGE * _EDGE,
            },
        )
