"""Tensors as memory holds them: codes of tiles, and how many there are."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gradloom.rtl.formats.tiles.codes import EDGE, LEAST, NARROW, REST, WIDE, ZERO, TileCoded, coded, spread
from gradloom.rtl.formats.tiles.element import LIFT

__all__ = ["Beside", "Counts", "Held", "columns", "joined"]

#: Exponent of a tile of zeros, below all others.
_NONE = LEAST - (1 << 12)


@dataclass
class Counts:
    """Codes that were stored, and what happened to them.

    ``zeroed``: values other than zero whose code is zero. ``lost``: products of tiles too small for their sum's unit.
    """

    stored: int = 0
    clipped: int = 0
    zeroed: int = 0
    lost: int = 0

    def coded(self, x: np.ndarray, bits: int) -> TileCoded:
        """Codes of values, counted."""
        made = coded(x, bits)
        self.stored += made.codes.size
        self.clipped += made.clipped
        self.zeroed += made.zeroed
        return made


class Held:
    """A tensor as memory holds it, in codes of either width.

    Codes are made once something reads them. ``exact``: the values that they are rounded from.
    """

    def __init__(self, exact: np.ndarray, counts: Counts) -> None:
        self.exact, self.counts = exact, counts

    @cached_property
    def narrow(self) -> TileCoded:
        """Codes of 8 bits, for products."""
        return self.counts.coded(self.exact, NARROW)

    @cached_property
    def wide(self) -> TileCoded:
        """Codes of 16 bits."""
        return self.counts.coded(self.exact, WIDE)

    @cached_property
    def rest(self) -> "Held":
        """What codes of 8 bits leave, as codes of 8 bits alone."""
        codes = self.counts.coded(self.exact, REST)
        made = Held(codes.values, self.counts)
        made.narrow = codes
        return made

    @cached_property
    def values(self) -> np.ndarray:
        """What the codes of 16 bits say."""
        return self.wide.values


class Beside(Held):
    """Columns of tiles of tensors side by side, whose codes they have: nothing is stored."""

    def __init__(self, *parts: tuple[Held, slice]) -> None:
        self.parts = parts
        features = [slice(EDGE * tiles.start, EDGE * tiles.stop) for _, tiles in parts]
        super().__init__(np.hstack([held.exact[:, span] for (held, _), span in zip(parts, features)]), Counts())

    @cached_property
    def narrow(self) -> TileCoded:
        """See :class:`Held`."""
        return _beside([columns(held.narrow, tiles) for held, tiles in self.parts])

    @cached_property
    def wide(self) -> TileCoded:
        """See :class:`Held`."""
        return _beside([columns(held.wide, tiles) for held, tiles in self.parts])


def _beside(parts: Sequence[TileCoded]) -> TileCoded:
    return TileCoded(np.hstack([x.codes for x in parts]), np.hstack([x.exponents for x in parts]))


def columns(x: TileCoded, tiles: slice) -> TileCoded:
    """Some tiles of columns."""
    return TileCoded(x.codes[:, EDGE * tiles.start : EDGE * tiles.stop], x.exponents[:, tiles])


def joined(*parts: tuple[TileCoded, slice]) -> np.ndarray:
    """Columns of tensors side by side.

    Codes of one tile are under the larger exponent of the tiles that they come from, with 8 bits more than a code.
    """
    values = np.hstack([x.values[:, columns] for x, columns in parts])
    spans = [np.where(x.exponents == ZERO, _NONE, x.exponents).repeat(EDGE, axis=1)[:, span] for x, span in parts]
    at = np.hstack(spans)
    whole = np.pad(at, ((0, 0), (0, -at.shape[1] % EDGE)), constant_values=_NONE)
    top = whole.reshape(len(at), -1, EDGE).max(axis=2)
    fine = at >= top.repeat(EDGE, axis=1)[:, : at.shape[1]] - LIFT
    if fine.all():
        return values
    unit = spread(np.exp2(top.astype(np.float64) - LIFT), values.shape)
    rounded = np.floor(values / unit + 0.5) * unit
    made: np.ndarray = np.where(fine.repeat(EDGE, axis=0)[: len(values)], values, rounded)
    return made
