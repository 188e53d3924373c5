"""Parameters and adapters as beats of memory."""

from collections.abc import Sequence

import numpy as np

from .lowered import Lowered

__all__ = ["BEAT", "head_words", "parameters", "words16"]

#: Bytes of a beat of memory.
BEAT = 16


def words16(words: np.ndarray) -> bytes:
    """Rows of up to sixteen 16-bit words, two beats each."""
    out = np.zeros((len(words), 16), "<i2")
    out[:, : words.shape[1]] = words
    return out.tobytes()


def words32(words: np.ndarray, per_row: int) -> bytes:
    out = np.zeros((len(words), per_row), "<i4")
    out[:, : words.shape[1]] = words
    return out.tobytes()


def head_words(lowered: Lowered, b: Sequence[np.ndarray]) -> bytes:
    """B of all taps as LOAD and STORE have it: two beats a rank index."""
    words = np.zeros((lowered.k, 16), np.int64)
    for tap, matrix in enumerate(b):
        at = tap * lowered.parts * lowered.config.rank
        words[at : at + lowered.rank, : lowered.classes] = np.asarray(matrix).T
    return words16(words)


def parameters(lowered: Lowered, a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> dict[str, bytes]:
    """Frozen parameters and adapters in the form that LOAD takes.

    They are weights, biases, lanes (A), head (B).
    """
    lanes = [lowered.lanes_of(tap, a[tap]).reshape(-1, lowered.config.columns) for tap in range(len(lowered.taps))]
    return {
        "weights": words16(lowered.weight_words),
        "biases": words32(lowered.bias_words, 16),
        "lanes": words16(np.concatenate(lanes)),
        "head": head_words(lowered, b),
    }
