"""Result slots of an engine on tiles, as STORE reads them."""

from dataclasses import dataclass, field
from typing import ClassVar

from amaranth.hdl import signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..formats.tiles.codes import EDGE, WORD
from ..formats.tiles.records import STEP, TileArgument
from ..shell.engines import StorePort

__all__ = ["EXPONENT", "PEAK", "WORDS", "ResultSignature", "TileRead", "TileStorePort"]

#: Words that are read at a time.
WORDS = STEP
#: Bits of a word's exponent, and of that of the leading bit of the largest.
EXPONENT, PEAK = 11, 12
#: 16 words of a row that are read.
TileRead = data.StructLayout({"en": 1, "row": range(EDGE), "column": range(EDGE // WORDS)})


class ResultSignature(wiring.Signature):
    """Result slots of an engine.

    The engine has it as ``In(ResultSignature(banks))``.

    Parameters
    ----------
    banks : int
        With 2, words of an even column and those of the odd one behind it are there side by side.

    Members
    -------
    asked : slot of a record that may be asked for. refuse : there is none of this number, in the same cycle.
    peak, some : exponent of the leading bit of its largest word, a cycle later; a word is not 0.
    slot, read : 16 words of a record in the next cycle: ``en``, ``row``, ``column`` in words of 16.
    words, exponent : in the cycle after ``read``; the exponent is the row's.
    """

    def __init__(self, banks=1):
        self.banks = banks
        super().__init__(
            {
                "asked": Out(8),
                "refuse": In(1),
                "slot": Out(8),
                "peak": In(signed(PEAK)),
                "some": In(1),
                "read": Out(TileRead),
                "words": In(data.ArrayLayout(data.ArrayLayout(signed(WORD), WORDS), banks)),
                "exponent": In(signed(EXPONENT)),
            }
        )


@dataclass(frozen=True)
class TileStorePort(StorePort):
    """A store port of records of result slots.

    The engine has a :class:`ResultSignature` in its place; the records are made outside, once for all engines.

    Parameters
    ----------
    banks : int
        Of the :class:`ResultSignature`: 1 or 2.
    """

    ahead: ClassVar = True
    arg: data.StructLayout = field(default_factory=lambda: TileArgument)
    banks: int = 1

    @property
    def codes(self) -> int:
        """Codes that STORE makes of its words in a cycle, a beat at most."""
        return WORDS * self.banks

    def signature(self, data_bits: int) -> wiring.Signature:
        """Of the engine's member."""
        return ResultSignature(self.banks)
