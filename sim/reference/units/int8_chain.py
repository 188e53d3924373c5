"""Integer reference of products of 8-bit tiles, added tile by tile."""

import numpy as np

from gradloom.rtl.formats.tiles.aligned import FRACTION, LOST

__all__ = ["drops", "int8_chain"]


def drops(x_exponent: np.ndarray, w_exponent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Powers of two of each token's sum, and how far its tiles are below.

    ``x_exponent [sums, tiles, m]``, ``w_exponent [sums, tiles]``. Returns ``(exponents [sums, m], drops [sums, tiles,
    m])``; a sum's unit is ``2**(exponent - FRACTION)``.
    """
    own = np.asarray(x_exponent, np.int64) + np.asarray(w_exponent, np.int64)[:, :, None]
    top = own.max(axis=1)
    return top, top[:, None] - own


def int8_chain(x: np.ndarray, w: np.ndarray, drop: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums of tokens over their tiles.

    Parameters
    ----------
    x : integer array [sums, tiles, m, rows]
    w : integer array [sums, tiles, rows, columns]
        The code -128 is taken as -127.
    drop : integer array [sums, tiles, m]
        Powers of two below the token's largest tile.

    Returns
    -------
    sums [sums, m, columns], lost [sums, m]
    """
    w = np.maximum(np.asarray(w, np.int64), -127)
    tiles = np.matmul(np.asarray(x, np.int64), w)
    drop = np.asarray(drop)[..., None]
    near = drop <= FRACTION
    sums = np.where(near, tiles << np.clip(FRACTION - drop, 0, FRACTION), 0).sum(axis=1)
    lost = (~near & (tiles != 0)).sum(axis=(1, 3))
    return sums, np.minimum(lost, (1 << LOST) - 1)
