"""Which rows a convolution reads, and the operands that make the product engine read them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .codes import EDGE
from .product import SIDE, SOURCE

__all__ = ["Pixels", "taps"]

_MOST = 1 << SIDE


@dataclass(frozen=True)
class Pixels:
    """Images of a convolution's result and of its source: a row a pixel, line by line.

    A result's pixel ``(y, x)`` reads beside its own place, by ``(dy, dx)``. Its place is ``(y, x)`` times ``stride``.
    With ``divide`` there are ``stride`` places for a pixel of the source, as behind an upsampling by nearest
    neighbours; with ``every`` all but the first of them are zeros, as in the gradient of a convolution with a stride.

    Parameters
    ----------
    count : int
        Images.
    result, source : (int, int)
        Lines and pixels in a line, 1 to 1,024; one line for a sequence.
    stride : (int, int)
        Down and to the right, 1 to 4.
    """

    count: int
    result: tuple[int, int]
    source: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    divide: bool = False
    every: bool = False

    def __post_init__(self) -> None:
        for name, most in (("result", _MOST), ("source", _MOST), ("stride", 4)):
            given = getattr(self, name)
            if not all(1 <= each <= most for each in given):
                raise ValueError(f"{name}={given[0]}x{given[1]}: must be 1 to {most}; use other sides")
        if self.every and not self.divide:
            raise ValueError("every=True: needs places that are divided; set divide")
        if max(self._ends) >= 2 * _MOST:
            raise ValueError(f"source={self.source}: times {self.stride} must be {2 * _MOST} places at most a side")

    @property
    def _ends(self) -> tuple[int, int]:
        y, x = (side * (by if self.divide else 1) - 1 for side, by in zip(self.source, self.stride))
        return y, x

    def rows(self, dy: int, dx: int) -> np.ndarray:
        """Source row of each result row, -1 for a row of zeros."""
        found, inside = self._split(np.arange(self.count * self.result[0] * self.result[1]), dy, dx)
        made: np.ndarray = np.where(inside, found, -1)
        return made

    def _split(self, rows: np.ndarray, dy: int, dx: int) -> tuple[np.ndarray, np.ndarray]:
        """Addresses of result rows, and which are in their image."""
        (height, width), inside = self.result, np.ones(rows.shape, bool)
        found = rows // (height * width)
        sides = zip((rows // width % height, rows % width), (dy, dx), self.stride, self._ends, self.source)
        for at, by, stride, end, side in sides:
            place = at + by if self.divide else at * stride + by
            inside = inside & (place >= 0) & (place <= end)
            if self.every:
                inside &= place % stride == 0
            found = found * side + (place // stride if self.divide else place)
        return found, inside

    @property
    def shape(self) -> dict[str, int]:
        """Operands of a SCAN."""
        (height, width), (below, along) = self.result, self.stride
        line, lines = self.source[1], self.source[0]
        if self.divide:
            # Lines and pixels of the source between a side's ends.
            tall, back, pitch = (height - 1) // below, (width - 1) // along, line
        else:
            tall, back, pitch = (height - 1) * below, (width - 1) * along, line * below
        rests = {"rest_x": (width - 1) % along, "rest_y": (height - 1) % below} if self.divide else {}
        return {
            "width": width - 1,
            "height": height - 1,
            "end_x": self._ends[1],
            "end_y": self._ends[0],
            "stride_x": along - 1,
            "stride_y": below - 1,
            "divide": int(self.divide),
            "every": int(self.every),
            "same": -back % (1 << SOURCE),
            "below": (pitch - back) % (1 << SOURCE),
            "image": ((lines - tall) * line - back) % (1 << SOURCE),
        } | rests

    def place(self, row: int, dy: int, dx: int, tile: int) -> dict[str, int]:
        """Operands of a PRODUCT from result row ``row`` on.

        ``tile``: number of the source's row tile in its first slot.
        """
        for name, by in (("dy", dy), ("dx", dx)):
            if not -64 <= by < 64:
                raise ValueError(f"{name}={by}: must be -64 to 63; use a smaller kernel, dilation or padding")
        height, width = self.result
        found, _ = self._split(np.array(row), dy, dx)
        return {
            "column": row % width,
            "line": row // width % height,
            "dx": dx,
            "dy": dy,
            "source": (int(found) - EDGE * tile) % (1 << SOURCE),
        }


def taps(
    kernel: Sequence[int], pads: Sequence[int], dilation: Sequence[int] = (1, 1), *, back: bool = False
) -> list[tuple[int, int]]:
    """``(dy, dx)`` of a kernel's elements, line by line.

    ``pads``: zeros in front of each side. ``back``: those of the gradient, which reads the convolution's result.
    """
    sign = -1 if back else 1
    y, x = ([sign * (n * by - pad) for n in range(count)] for count, pad, by in zip(kernel, pads, dilation))
    return [(dy, dx) for dy in y for dx in x]
