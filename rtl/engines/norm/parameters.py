"""Parameters of the norm engine."""

from dataclasses import dataclass

from ...shell.parameters import Resources, parameter
from ..tiles import RecordParameters

__all__ = ["NormParameters"]


@dataclass(frozen=True, kw_only=True)
class NormParameters(RecordParameters):
    """Norms and softmaxes on tiles.

    Parameters
    ----------
    norm_slots : int
        Tiles of either operand that the engine holds.
    norm_lanes : int
        Elements a cycle: 4, 8 or 16. Half of the lanes take twice the cycles.
    """

    norm_slots: int = parameter(16, 2, 16, power=True)
    norm_lanes: int = parameter(16, 4, 16, power=True)

    def resources(self) -> Resources:
        """Four slices a lane, the square and the root."""
        return Resources(
            dsp={"norms": 4 * self.norm_lanes + 4},
            bits={"norm operands": 2 * self.norm_slots * 64 * 64 * 16, "norm results": 4 * 64 * 64 * 48},
        )
