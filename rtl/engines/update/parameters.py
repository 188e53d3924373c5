"""Parameters of the update engine."""

from dataclasses import dataclass

from ...shell.parameters import Resources, block_rams, parameter
from ..tiles import TileParameters

__all__ = ["UPDATE_BEATS", "UpdateParameters"]

#: Beats of words that a command takes at most.
UPDATE_BEATS = 128


@dataclass(frozen=True, kw_only=True)
class UpdateParameters(TileParameters):
    """AdamW and SGD on adapter words.

    Parameters
    ----------
    packing : int
        1: knows how to write words and moments back as quantised blocks, and to read them again; 0 saves the unit.
    records : int
        1: gradients may be codes of tiles; then a beat of the bus has 256 bits.
    """

    packing: int = parameter(0, 0, 1)
    records: int = parameter(0, 0, 1)

    def check(self) -> None:
        """Refuses values that do not go together."""
        if self.records and self.edge != 64:
            raise ValueError(f"edge={self.edge}: must be 64 with records=1, whose beats have 256 bits")

    def resources(self) -> Resources:
        """Eight slices a lane; lanes take a quarter of a beat a cycle."""
        queue = block_rams(self.data_bits + 2, 4 * UPDATE_BEATS)
        return Resources(dsp={"updates": 8 * max(self.beat_words // 4, 1)}, block_rams={"update queues": 2 * queue})
