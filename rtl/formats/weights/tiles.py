"""Layout of a linear layer's tensors in memory: tiles, then rows."""

import math

import numpy as np

__all__ = ["fraction_bits", "tile_rows", "untile_rows", "tile_moments", "untile_moments"]


def fraction_bits(values: np.ndarray, width: int, *, headroom: int = 0) -> int:
    """Fraction bits of a tensor's word of ``width`` bits.

    The largest value fits, with ``headroom`` bits to spare.
    """
    largest = float(np.abs(values).max(initial=0.0))
    return width - 1 - headroom - (math.frexp(largest)[1] if largest else 0)


def tile_rows(words: np.ndarray, edge: int) -> bytes:
    """``words [rows, features]`` as they lie in memory.

    The order is by tile of features, then row; 32 bits each.
    """
    rows, features = words.shape
    return words.reshape(rows, features // edge, edge).swapaxes(0, 1).astype("<i4").tobytes()


def untile_rows(data: bytes, rows: int, features: int, edge: int) -> np.ndarray:
    """``[rows, features]`` back from :func:`tile_rows`, ``int64``."""
    return (
        np.frombuffer(data, "<i4")
        .reshape(features // edge, rows, edge)
        .swapaxes(0, 1)
        .reshape(rows, features)
        .astype(np.int64)
    )


def tile_moments(m: np.ndarray, v: np.ndarray, edge: int) -> bytes:
    """AdamW's moments ``[rows, features]`` as they lie in memory.

    They are bits of float32; halves of beats of each alternate.
    """
    halves = [np.frombuffer(tile_rows(words, edge), "<u4").reshape(-1, edge // 16) for words in (m, v)]
    return np.stack(halves, axis=1).tobytes()


def untile_moments(data: bytes, rows: int, features: int, edge: int) -> tuple[np.ndarray, np.ndarray]:
    """``(m, v)`` back from :func:`tile_moments`.

    They are bits of float32 as ``int64``.
    """
    halves = np.frombuffer(data, "<u4").reshape(-1, 2, edge // 16).swapaxes(0, 1)
    m, v = (untile_rows(words.tobytes(), rows, features, edge) & 0xFFFFFFFF for words in halves)
    return m, v
