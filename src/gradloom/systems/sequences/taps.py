"""Bit-exact taps of a recurrent network: sums of its codes, shifted."""

import numpy as np

from gradloom.models.recurrent.network import RecurrentNetwork
from gradloom.models.recurrent.taps import QUARTERS, TapSums, own_samples
from gradloom.rtl.formats.images import ACTIVATION
from gradloom.rtl.formats.rounding import saturate
from gradloom.sim.reference.cell import Trace

__all__ = ["input_sums", "tap_sums", "tap_words"]


def tap_sums(network: RecurrentNetwork, trace: Trace, parallel: int = 1) -> np.ndarray:
    """Sums of codes, ``[n, elements]``.

    ``parallel``: see :func:`~gradloom.models.recurrent.taps.sizes_of`.
    """
    cell = network.integers.cell
    squashed = cell.tables["squash"][trace.state.c - cell.state_range[0]]
    sums = input_sums(network, trace.source, parallel)
    return np.concatenate([trace.state.h, squashed, trace.h.sum(axis=1), sums], axis=1)


def input_sums(network: RecurrentNetwork, source: np.ndarray, parallel: int = 1) -> np.ndarray:
    """Sums over quarters of the steps, ``[n, QUARTERS * channels]``.

    ``source``: ``[n, samples, channels]``, what reaches the last convolution or the cell. A quarter begins with the
    step ``quarter * steps // QUARTERS``.
    """
    steps = source
    conv = network.last_conv
    if conv is not None:
        first, own = own_samples(network)
        at = np.arange(conv.steps(source.shape[1]))[:, None] * conv.stride + first + np.arange(own)
        steps = np.pad(source, ((0, 0), conv.pads, (0, 0)))[:, at].sum(axis=2)
    starts = [quarter * steps.shape[1] // QUARTERS for quarter in range(QUARTERS)]
    sums = np.add.reduceat(steps, starts, axis=1)
    return np.pad(sums, ((0, 0), (0, 0), (0, -sums.shape[2] % parallel))).reshape(len(sums), -1)


def tap_words(taps: TapSums, sums: np.ndarray) -> tuple[np.ndarray, int]:
    """Activations of the taps, and how many were clipped.

    The activations are Q8.16, ``[n, 1, rows, 16]``.
    """
    words, over = saturate(sums.astype(np.int64) << taps.shift_of_each(), ACTIVATION.lo, ACTIVATION.hi)
    full = np.zeros((len(words), int(np.prod(taps.shape))), np.int64)
    full[:, : words.shape[1]] = words
    return full.reshape(len(words), *taps.shape), int(np.sum(over))
