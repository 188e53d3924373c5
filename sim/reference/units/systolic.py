"""Integer reference of the systolic array; equals the RTL word for word."""

import numpy as np

from ..array import SUM_BITS, matmul_exact

__all__ = ["weight_stationary", "output_stationary", "mesh_utilisation"]


def _checked(sums) -> np.ndarray:
    limit = 1 << (SUM_BITS - 1)
    if sums.size and (sums.min() < -limit or sums.max() >= limit):
        raise ValueError(f"sums reach {np.abs(sums).max()}: the array's are {SUM_BITS} bits")
    return sums


def weight_stationary(x, w) -> np.ndarray:
    """Sums of a run of tiles, each with its own activation rows.

    Parameters
    ----------
    x : integer array [tiles, m, rows]
    w : integer array [tiles, rows, columns]

    Returns
    -------
    int64 array [tiles, m, columns]
    """
    x, w = np.asarray(x), np.asarray(w)
    if x.ndim != 3 or w.ndim != 3 or x.shape[0] != w.shape[0] or x.shape[2] != w.shape[1]:
        raise ValueError(f"x {x.shape}, w {w.shape}: want [tiles, m, rows] and [tiles, rows, columns]")
    return _checked(np.stack([matmul_exact(a, b) for a, b in zip(x, w, strict=True)]))


def output_stationary(x, w) -> np.ndarray:
    """Sums that stay in their PE while operands pass: one panel, one pass.

    Parameters
    ----------
    x : integer array [rows, n]
        Row r's operands.
    w : integer array [n, columns]
        Column c's operands.

    Returns
    -------
    int64 array [rows, columns]
    """
    x, w = np.asarray(x), np.asarray(w)
    if x.ndim != 2 or w.ndim != 2 or x.shape[1] != w.shape[0]:
        raise ValueError(f"x {x.shape}, w {w.shape}: want [rows, n] and [n, columns]")
    return _checked(matmul_exact(x, w))


def mesh_utilisation(*, cycles, tiles, m) -> float:
    """Part of a mesh's PE cycles that multiply.

    Every PE is busy for one cycle an activation row.
    """
    return tiles * m / cycles
