"""Block quantisation in numpy, bit for bit as in bitsandbytes.

Blocks with their absmax, packed nibbles, double quantisation.
"""

from functools import lru_cache

import numpy as np

from ..codebook import NF4, Codebook

__all__ = [
    "BLOCK_SIZES",
    "GROUP",
    "quantize_blocks",
    "dequantize_blocks",
    "dynamic_map",
    "quantize_scales",
    "dequantize_scales",
]

BLOCK_SIZES = (32, 64, 128, 256, 512, 1024, 2048, 4096)
GROUP = 256  # scales that share one second-level scale
TINY = np.float32(1e-38)  # bitsandbytes divides by no less than this


def check_block(block):
    """Refuses a block size that bitsandbytes does not know."""
    if block not in BLOCK_SIZES:
        raise ValueError(f"block={block}: must be one of {', '.join(map(str, BLOCK_SIZES))}")


def quantize_blocks(w, *, book: Codebook = NF4, block: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """``(codes, absmax)`` of a float array, flattened row-major.

    ``codes`` is uint8, one an element, flat; ``absmax`` is float32, one a block. A short last
    block is divided, a full one multiplied with the reciprocal: that is what bitsandbytes does,
    and the last bit of the quotient decides codes near a threshold.
    """
    check_block(block)
    w = np.ascontiguousarray(w, np.float32).reshape(-1)
    if not w.size:
        raise ValueError("w has no elements: at least 1 is needed")
    if not np.isfinite(w).all():
        raise ValueError(f"w[{int(np.argmin(np.isfinite(w)))}] is not finite")
    full = w.size - w.size % block
    body = w[:full].reshape(-1, block)
    absmax = np.abs(body).max(axis=1, initial=0)
    unit = body * (np.float32(1) / np.maximum(absmax, TINY))[:, None]
    unit = unit.reshape(-1)
    if full < w.size:
        tail = np.maximum(np.abs(w[full:]).max(), TINY)
        absmax = np.append(absmax, tail)
        unit = np.append(unit, w[full:] / tail)
    return book.encode(np.clip(unit, -1, 1)), absmax


def dequantize_blocks(codes, absmax, *, book: Codebook = NF4, block: int = 64) -> np.ndarray:
    """Flat float32 values: each code's level times its block's absmax."""
    codes = np.asarray(codes).reshape(-1)
    scale = np.repeat(np.asarray(absmax, np.float32).reshape(-1), block)
    if scale.size - codes.size not in range(block):
        raise ValueError(
            f"absmax={np.size(absmax)} scales: {codes.size} codes in blocks of {block} need {-(-codes.size // block)}"
        )
    return book.decode(codes) * scale[: codes.size]


@lru_cache(maxsize=1)
def dynamic_map() -> np.ndarray:
    """The 256 values of bitsandbytes' signed dynamic data type, ascending.

    They are float32.

    Seven decades; each has half as many steps as the one above, evenly spread in it.
    """
    values = [0.0, 1.0]
    for i in range(7):
        edges = linspace32(0.1, 1.0, 2**i + 1)
        means = (edges[:-1] + edges[1:]) / np.float32(2)
        decade = np.float32(10.0 ** (i - 6)) * means
        values += [*decade.tolist(), *(-decade).tolist()]
    table = np.sort(np.array(values, np.float32))
    table.flags.writeable = False
    return table


def linspace32(start, stop, count):
    """float32 points from both ends towards the middle, as in torch.

    Each point is rounded once.
    """
    start, stop = np.float32(start), np.float32(stop)
    step = float((stop - start) / np.float32(count - 1))
    i = np.arange(count)
    points = np.where(i < count // 2, float(start) + step * i, float(stop) - step * (count - 1 - i))
    return points.astype(np.float32)


@lru_cache(maxsize=1)
def dynamic_lookup() -> np.ndarray:
    """Code of each of 65,536 evenly spaced values of [-1, 1].

    bitsandbytes looks codes up in such a table.
    """
    table = dynamic_map()
    mid = (table[1:] + table[:-1]) / np.float32(2)
    points = np.float32(-1) + np.float32(2) * np.arange(65536, dtype=np.float32) / np.float32(65535)
    return np.searchsorted(mid, points, side="left").astype(np.uint8)


def quantize_scales(absmax, offset=None) -> tuple[np.ndarray, np.ndarray, np.float32]:
    """Double quantisation of a tensor's scales.

    Returns ``(codes, absmax2, offset)``.

    ``offset`` defaults to their float32 mean. bitsandbytes uses torch's summation order, which can
    differ in the last bit.
    """
    absmax = np.asarray(absmax, np.float32).reshape(-1)
    offset = absmax.mean(dtype=np.float32) if offset is None else np.float32(offset)
    rest = absmax - offset
    groups = -(-rest.size // GROUP)
    padded = np.pad(rest, (0, groups * GROUP - rest.size)).reshape(groups, GROUP)
    absmax2 = np.abs(padded).max(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = padded * (np.float32(1) / absmax2)[:, None]
        index = (unit + np.float32(1)) * np.float32(0.5) * np.float32(65535) + np.float32(0.5)
    # A group of equal scales: bitsandbytes multiplies 0 by infinity there and ends with code 0.
    index = np.where(absmax2[:, None] > 0, index, 0).astype(np.uint16)
    codes = np.where(absmax2[:, None] > 0, dynamic_lookup()[index], 0).astype(np.uint8)
    return codes.reshape(-1)[: rest.size], absmax2, offset


def dequantize_scales(codes, absmax2, offset) -> np.ndarray:
    """float32 scales back from :func:`quantize_scales`."""
    codes = np.asarray(codes)
    group = np.repeat(np.asarray(absmax2, np.float32), GROUP)[: codes.size]
    return dynamic_map()[codes] * group + np.float32(offset)
