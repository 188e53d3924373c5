"""Products of integer matrices, exact and as fast as floating point."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["matmul"]

#: Integers up to this, and all sums of integers that stay within it, are exact in float64 in any order.
_EXACT = 1 << 53


def matmul(x: ArrayLike, w: ArrayLike) -> NDArray[np.int64]:
    """``x [M, K] @ w [K, N]`` of integers, ``int64``.

    :class:`ValueError` where a sum may need more than 63 bits.

    Float64 multiplies blocks of the K, each so short that no sum can leave its 53 bits: 24 by 18 bits reach 2**40, so
    8,192 products are one block.
    """
    x, w = np.asarray(x), np.asarray(w)
    largest = _largest(x) * _largest(w)
    if largest * x.shape[1] >> 63:
        raise ValueError(f"{x.shape[1]} products of up to {largest}: sums may need more than 63 bits")
    if largest > _EXACT:
        return x.astype(np.int64) @ w.astype(np.int64)
    block = _EXACT // max(largest, 1)
    total = np.zeros((x.shape[0], w.shape[1]), np.int64)
    for start in range(0, x.shape[1], block):
        part = x[:, start : start + block].astype(np.float64) @ w[start : start + block].astype(np.float64)
        total += part.astype(np.int64)
    return total


def _largest(values: NDArray) -> int:
    return max(abs(int(values.max())), abs(int(values.min()))) if values.size else 0
