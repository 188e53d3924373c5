"""Windows of tensors: what a convolution or a pool reads of each, and where its gradients go.

Tensors are ``[samples, *sides, channels]``, windows ``[samples, *places, taps, channels]``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product as every

import numpy as np

__all__ = ["PaddedWindows"]


@dataclass(frozen=True)
class PaddedWindows:
    """Windows of ``sides``, as many as ``places`` say; those in pads or beyond read ``filling``.

    Pads below 0 leave out values in front of the first window.
    """

    sides: tuple[int, ...]
    places: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]

    @property
    def taps(self) -> int:
        """Values of a window, a channel."""
        return int(np.prod(self.kernel))

    def _padded(self) -> list[tuple[int, int]]:
        """Values before and behind each side, such that all windows lie inside."""
        last = [(o - 1) * s + d * (k - 1) + 1 for o, s, d, k in self._each()]
        return [(max(low, 0), max(0, end - side - low)) for end, side, (low, _) in zip(last, self.sides, self.pads)]

    def _each(self) -> Iterator[tuple[int, int, int, int]]:
        return zip(self.places, self.stride, self.dilation, self.kernel)

    def _spans(self) -> Iterator[tuple[slice, ...]]:
        """Places of a padded tensor that each tap reads."""
        starts = [max(-low, 0) for low, _ in self.pads]
        for tap in every(*map(range, self.kernel)):
            firsts = (start + t * d for start, t, d in zip(starts, tap, self.dilation))
            yield tuple(slice(n, n + (o - 1) * s + 1, s) for n, (o, s, _, _) in zip(firsts, self._each()))

    def read(self, x: np.ndarray, filling: float = 0.0) -> np.ndarray:
        """All windows of a tensor."""
        padded = np.pad(x, [(0, 0), *self._padded(), (0, 0)], constant_values=filling)
        inner = padded[(slice(None), *(slice(max(-low, 0), None) for low, _ in self.pads))]
        # What lies beside each other in a window does so in the tensor: a copy takes as many values at once as it can.
        first, *steps, last = inner.strides
        whole = np.lib.stride_tricks.as_strided(
            inner,
            (len(x), *self.places, *self.kernel, x.shape[-1]),
            (first, *np.multiply(steps, self.stride), *np.multiply(steps, self.dilation), last),
            writeable=False,
        )
        return whole.copy("C").reshape(len(x), *self.places, self.taps, x.shape[-1])

    def added(self, windows: np.ndarray) -> np.ndarray:
        """The tensor whose values are the sums of what windows have at their place."""
        lows = [low for low, _ in self._padded()]
        sizes = [side + low + high for side, (low, high) in zip(self.sides, self._padded())]
        made = np.zeros((len(windows), *sizes, windows.shape[-1]), windows.dtype)
        for tap, span in enumerate(self._spans()):
            made[(slice(None), *span)] += windows[..., tap, :]
        return made[(slice(None), *(slice(low, low + side) for low, side in zip(lows, self.sides)))]

    def counts(self, counted: bool) -> np.ndarray:
        """How many values of each window are a mean's, ``[*places, 1]``; pads are where ``counted``."""
        pads = self.pads if counted else ((0, 0),) * len(self.sides)
        inner = np.zeros([low + side + high for side, (low, high) in zip(self.sides, self._widest())], np.float64)
        where: Sequence[slice] = [
            slice(low - own[0], low + side + own[1]) for side, (low, _), own in zip(self.sides, self._widest(), pads)
        ]
        inner[tuple(where)] = 1
        return sum((inner[span] for span in self._spans()), np.zeros(self.places))[..., None]

    def _widest(self) -> list[tuple[int, int]]:
        return [(low, max(high, own)) for (low, high), (_, own) in zip(self._padded(), self.pads)]
