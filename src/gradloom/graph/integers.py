"""A network as the tile machine holds it: codes of 8 bits for products, of 16 bits between them.

An emulation of the formats, before any program: what is rounded to codes is what the engines round, products and the
operations between them are exact. A tile's values have one power of two. With ``by_rows`` each row of a tile has its
own, except where a product sums over the rows; with ``by_columns`` each column of a tile of weights.
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from gradloom.rtl.formats.tiles.codes import EDGE, NARROW, WIDE, coded

from .base import Operation, Tensor
from .mathematics import FloatReading
from .network import Network
from .operations import Rearrange

__all__ = ["IntegerReading"]


class IntegerReading(FloatReading):
    """:class:`FloatReading` on codes.

    Parameters
    ----------
    network : Network
    by_rows : bool
        A power of two a row of a tile, for operands and tensors.
    by_columns : bool
        A power of two a column of a tile, for weights; those of the way back are codes of their own then.
    precise : mapping
        Layers that read codes of 16 bits; with 2 their weights have such codes, too.
    """

    def __init__(
        self,
        network: Network,
        *,
        by_rows: bool = False,
        by_columns: bool = False,
        precise: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        super().__init__(network, dtype=np.float64)
        self.by_rows, self.by_columns, self.precise = by_rows, by_columns, precise
        self.bits = self._bits_of_weight = NARROW
        self._coded: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def step(self, each: Operation, found: dict[str, np.ndarray]) -> None:
        """See :class:`FloatReading`."""
        codes = self.precise.get(getattr(each, "layer", ""), 0)
        self.bits, self._bits_of_weight = (WIDE if codes >= least else NARROW for least in (1, 2))
        super().step(each, found)

    def taken(self, inputs: Mapping[str, np.ndarray] | np.ndarray) -> dict[str, np.ndarray]:
        """See :class:`FloatReading`: codes of 16 bits."""
        return {name: self._codes(x, WIDE, self.by_rows) for name, x in super().taken(inputs).items()}

    def _codes(self, x: np.ndarray, bits: int, by_rows: bool) -> np.ndarray:
        """Values of codes of a tensor ``[samples, *sides, features]``, whose rows go on from sample to sample."""
        flat = x.reshape(-1, x.shape[-1])
        if not by_rows:
            return coded(flat, bits).values.reshape(x.shape)
        high, wide = flat.shape[0], -(-flat.shape[1] // EDGE)
        parts = np.pad(flat, ((0, 0), (0, wide * EDGE - flat.shape[1]))).reshape(high * wide, 1, EDGE)
        return coded(parts, bits).values.reshape(high, -1)[:, : flat.shape[1]].reshape(x.shape)

    def operand(self, x: np.ndarray, *, over_rows: bool = False) -> np.ndarray:
        """See :class:`FloatReading`: codes of 8 bits."""
        return self._codes(x, self.bits, self.by_rows and not over_rows)

    def held(self, each: Operation, x: np.ndarray) -> np.ndarray:
        """See :class:`FloatReading`: codes of 16 bits."""
        return x if isinstance(each, Rearrange) else self._codes(x, WIDE, self.by_rows)

    def returned(self, each: Operation, t: Tensor, dx: np.ndarray) -> np.ndarray:
        """See :class:`FloatReading`: codes of 16 bits."""
        return self.held(each, dx)

    def met(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """See :class:`FloatReading`: codes of 16 bits."""
        return self._codes(one + other, WIDE, self.by_rows)

    def weight(self, name: str, *, back: bool = False) -> np.ndarray:
        """See :class:`FloatReading`: codes of 8 bits of a matrix for each tap."""
        value, key = self.values[name], f"{name}{'<' * back}"
        kept = self._coded.get(key)
        if kept is None or kept[0] is not value:
            # A matrix's columns are what a product makes: outputs, or inputs on the way back.
            order = (2, 0, 1) if back else (2, 1, 0)
            matrices = value.reshape(*value.shape[:2], -1).transpose(order)
            made = (
                _by_columns(matrices, self._bits_of_weight)
                if self.by_columns
                else coded(matrices, self._bits_of_weight).values
            )
            kept = self._coded[key] = (value, made.transpose(np.argsort(order)).reshape(value.shape))
        return kept[1]


def _by_columns(matrices: np.ndarray, bits: int) -> np.ndarray:
    """Values of codes of ``[taps, inner, columns]``, a power of two for 64 values of a column."""
    taps, inner, columns = matrices.shape
    padded = np.pad(matrices, ((0, 0), (0, -inner % EDGE), (0, 0))).reshape(taps, -1, EDGE, columns)
    made = coded(padded.swapaxes(2, 3).reshape(-1, 1, EDGE), bits).values
    return made.reshape(taps, -1, columns, EDGE).swapaxes(2, 3).reshape(taps, -1, columns)[:, :inner]
