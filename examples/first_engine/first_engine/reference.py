"""Reference of the Scale engine, word for word."""
import numpy as np

from gradloom.rtl.formats.rounding import requantize, saturate
from gradloom.rtl.formats.weights.linear import ACTIVATION, half_up

from .commands import FACTOR


class ScaleReference:
    """The engine's memory of integers.

    ``factors``, the ``kept`` x and ``sums`` of ds; ``saturated`` counts clips.
    """

    def __init__(self, factors):
        self.factors, self.saturated = np.asarray(factors, np.int64), 0

    def forward(self, x):
        """y of ``x [rows, channels]``, which is kept."""
        self.kept = np.asarray(x, np.int64)
        return self._scaled(self.kept)

    def backward(self, dy, *, add=False, dx=True):
        """Sums of ds over the rows of ``dy``, and dx or None."""
        self.sums = (self.kept * dy).sum(axis=0) + (self.sums if add else 0)
        return self._scaled(dy) if dx else None

    def update(self, shift):
        """s - ds * 2**-shift."""
        ds = self._counted(*saturate(half_up(self.sums, shift), FACTOR.lo, FACTOR.hi))
        self.factors = self._counted(*saturate(self.factors - ds, FACTOR.lo, FACTOR.hi))

    def _scaled(self, words):
        return self._counted(*requantize(ACTIVATION, words * self.factors, ACTIVATION.frac + FACTOR.frac))

    def _counted(self, words, clipped):
        self.saturated += clipped
        return words
