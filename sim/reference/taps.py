"""Bit-exact taps of a recurrent network: sums of its codes, shifted."""

import numpy as np

from gradloom.rtl.formats.images import ACTIVATION
from gradloom.rtl.formats.rounding import saturate
from gradloom.rtl.models.recurrent.network import RecurrentNetwork
from gradloom.rtl.models.recurrent.taps import QUARTERS, TapSums

from .cell import Trace

__all__ = ["input_sums", "tap_sums", "tap_words"]


def tap_sums(network: RecurrentNetwork, x: np.ndarray, trace: Trace) -> np.ndarray:
    """Sums of codes, ``[n, elements]``.

    ``x``: codes of the input, ``[n, steps, channels]``.
    """
    cell = network.integers.cell
    squashed = cell.tables["squash"][trace.state.c - cell.state_range[0]]
    return np.concatenate([trace.state.h, squashed, trace.h.sum(axis=1), input_sums(x)], axis=1)


def input_sums(x: np.ndarray) -> np.ndarray:
    """Sums over quarters of the steps, ``[n, QUARTERS * channels]``.

    A quarter begins with the step ``quarter * steps // QUARTERS``.
    """
    starts = [quarter * x.shape[1] // QUARTERS for quarter in range(QUARTERS)]
    return np.add.reduceat(x, starts, axis=1).reshape(len(x), -1)


def tap_words(taps: TapSums, sums: np.ndarray) -> tuple[np.ndarray, int]:
    """Activations of the taps, and how many were clipped.

    The activations are Q8.16, ``[n, 1, rows, 16]``.
    """
    words, over = saturate(sums.astype(np.int64) << taps.shift_of_each(), ACTIVATION.lo, ACTIVATION.hi)
    full = np.zeros((len(words), int(np.prod(taps.shape))), np.int64)
    full[:, : words.shape[1]] = words
    return full.reshape(len(words), *taps.shape), int(np.sum(over))
