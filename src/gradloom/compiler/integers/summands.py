"""What sums of products are of, as tensors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gradloom.graph.operations import Convolution, Linear
from gradloom.rtl.formats.tiles.codes import EDGE, TileCoded

from ..commands.gathers import depths_of, tiles_of_rows
from ..weights.matrices import among
from .held import Held, columns

__all__ = ["Summand"]


@dataclass(frozen=True)
class Summand:
    """Products that are added to a tensor: of pairs of tensors and kernels by address, and of own rows in ``more``.

    ``each``: whose they are, with its ``rows`` by tap. ``deep``: of pairs, tiles of what is summed over; None: all.
    """

    each: Linear | Convolution
    more: Sequence[tuple[TileCoded, TileCoded]]
    rows: np.ndarray | None = None
    pairs: Sequence[tuple[Held, str]] = ()
    deep: range | None = None

    def cut(self, counts: Sequence[int]) -> "list[Summand]":
        """The same as several by depth, where that reads less; ``counts``: tiles of each tap."""
        if self.rows is None:
            return [self]
        tensors = self._tensors
        parts = depths_of(self.rows, max(map(_wide, tensors)), counts, len(tensors))
        if len(parts) == 1:
            return [self]
        return [replace(self, more=() if n else self.more, deep=deep) for n, deep in enumerate(parts)]

    def within(self, x: TileCoded, kernel: TileCoded, taps: slice) -> tuple[TileCoded, TileCoded]:
        """What counts of a tensor, and of some taps of a kernel."""
        own = among(x.exponents.shape[1], self.deep)
        some = TileCoded(
            kernel.codes[taps, EDGE * own.start : EDGE * own.stop], kernel.exponents[taps, own.start : own.stop]
        )
        return columns(x, slice(own.start, own.stop)), some

    @property
    def streamed(self) -> int:
        """Tiles of tensors that a tile of the result takes at most."""
        reach = 0 if self.rows is None else tiles_of_rows(self.rows)
        wide = sum(len(among(_wide(x), self.deep)) for x in self._tensors)
        return reach * wide + sum(x.exponents.shape[1] for x, _ in self.more)

    @property
    def _tensors(self) -> list[Held]:
        """Those of the pairs."""
        return list({id(x): x for x, _ in self.pairs}.values())


def _wide(x: Held) -> int:
    return -(-x.exact.shape[1] // EDGE)
