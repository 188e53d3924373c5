"""Parameters of all engines on tiles of words, and of those on records."""

from dataclasses import dataclass

from ..shell.parameters import Parameters, parameter

__all__ = ["RecordParameters", "TileParameters"]


@dataclass(frozen=True, kw_only=True)
class TileParameters(Parameters):
    """Tiles of ``edge`` features by up to ``tokens`` tokens.

    A beat is a row of codes.

    Parameters
    ----------
    edge : int
        Rows and columns of a tile of weights, 16, 32 or 64: the elements of a quantised block. A beat of the bus is a
        tile's row, ``4 * edge`` bits.
    """

    edge: int = parameter(64, 16, 64, power=True, known=True, mesh=True)

    @property
    def data_bits(self) -> int:
        """Bits of a beat: a row of codes."""
        return 4 * self.edge

    @property
    def beat_words(self) -> int:
        """32-bit words in a beat."""
        return self.edge // 8

    @property
    def row_beats(self) -> int:
        """Beats of a row of a tile in 32-bit words."""
        return self.edge // self.beat_words


@dataclass(frozen=True, kw_only=True)
class RecordParameters(Parameters):
    """Records of tiles of codes, :class:`~gradloom.rtl.formats.tiles.records.TileRecord`."""

    @property
    def data_bits(self) -> int:
        """Bits of a beat: 32 codes of 8 bits, or 16 of 16."""
        return 256
