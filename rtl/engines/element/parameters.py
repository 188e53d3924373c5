"""Parameters of the element engine."""

from dataclasses import dataclass

from ...formats.tiles.tables import BASE, INDEX, SLOPE, TABLES
from ...shell.parameters import Resources, parameter
from ..tiles import RecordParameters

__all__ = ["ElementParameters"]


@dataclass(frozen=True, kw_only=True)
class ElementParameters(RecordParameters):
    """Elementwise operations on tiles of 16-bit codes.

    Parameters
    ----------
    element_slots : int
        Tiles that each operand has room for.
    element_results : int
        Tiles of results.
    """

    element_slots: int = parameter(8, 2, 64, power=True)
    element_results: int = parameter(4, 2, 16, power=True)

    def resources(self) -> Resources:
        """Three slices a lane; slots of operands of 16 bits, of results of 48; tables for two lanes each."""
        tile = 64 * 64
        return Resources(
            dsp={"element engine": 3 * 8},
            bits={
                "element operands": 3 * 16 * tile * self.element_slots,
                "element results": 48 * tile * self.element_results,
                "element tables": 4 * (BASE.width + SLOPE.width) * TABLES << INDEX,
            },
        )
