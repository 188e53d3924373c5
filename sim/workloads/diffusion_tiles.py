"""A UNet's products on 8-bit codes of tiles, in emulation.

Every operand of a product is rounded to codes -127 to 127 of tiles of 64×64, with a power of two a tile. Results,
logits and the residual stream have tiles of 16 bits. All else is
in float64, sums and moments too; adapters' masters are float32. Norms' factors and biases are not rounded.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from gradloom.rtl.plan.diffusion.operations import Operation

from .diffusion import FloatUNet

__all__ = ["EDGE", "TiledUNet", "rounded"]

#: Rows and columns of a tile.
EDGE = 64


def rounded(x: np.ndarray, bits: int) -> np.ndarray:
    """Values after their codes of ``bits``, by tiles of the last two axes.

    A tile's power of two is the least with which its largest magnitude needs no clipping, so that codes are from
    ``-(2**(bits - 1) - 1)`` to its opposite. A tile of zeros stays so.
    """
    most = (1 << (bits - 1)) - 1
    rows, columns = x.shape[-2:]
    padded = np.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, -rows % EDGE), (0, -columns % EDGE)])
    shape = padded.shape
    tiles = padded.reshape(*shape[:-2], shape[-2] // EDGE, EDGE, shape[-1] // EDGE, EDGE)
    peak = np.abs(tiles).max((-3, -1), keepdims=True)
    power = np.ceil(np.log2(np.where(peak > 0, peak, 1) / most))
    # Rounding of the logarithm may be one too few: what does not fit goes to the next power.
    power += peak / 2.0**power > most
    codes = np.clip(np.rint(tiles / 2.0**power), -most, most)
    return (codes * 2.0**power).reshape(shape)[..., :rows, :columns]


class TiledUNet(FloatUNet):
    """:class:`FloatUNet` with 8-bit operands and 16-bit results.

    Parameters
    ----------
    operations : sequence of Operation
    weights : mapping
        Frozen weights by diffusers' name; matrices become codes of tiles.
    bits, wide : int
        Of an operand's codes, and of a result's.
    """

    def __init__(
        self, operations: Sequence[Operation], weights: Mapping[str, np.ndarray], *, bits: int = 8, wide: int = 16
    ) -> None:
        self.bits, self.wide = bits, wide
        super().__init__(operations, weights, dtype=np.float64)
        for name, value in self.held.items():
            self.held[name] = rounded(value, bits) if value.ndim > 1 else value

    def operand(self, x: np.ndarray) -> np.ndarray:
        """What a product reads in place of ``x``."""
        return rounded(x, self.bits)

    def result(self, x: np.ndarray) -> np.ndarray:
        """What memory holds of ``x``."""
        return rounded(x, self.wide)
