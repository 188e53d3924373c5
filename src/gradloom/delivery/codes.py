"""Values as codes of 8, 4, 3 or 2 bits with a scale a block of 64.

Blocks are those of the frozen weights: 64 values along the flattened tensor. A scale is a bfloat16, rounded up. Codes
of 4, 3 and 2 bits are indices into NF4, NF3 and NF2; codes of 8 bits are two's complement times the scale. A value is
one product in float32, rounded once, so every machine decodes the same. 32 bits are the values themselves.
"""

import numpy as np

from gradloom.rtl.formats.codebook import NF2, NF3, NF4, Codebook

__all__ = ["BITS", "BLOCK", "decode", "encode", "encoded_bytes"]

BITS = (32, 8, 4, 3, 2)
BLOCK = 64
_BOOKS: dict[int, Codebook] = {4: NF4, 3: NF3, 2: NF2}


def encoded_bytes(count: int, bits: int) -> int:
    """Bytes of ``count`` values: scales, then codes."""
    return 4 * count if bits == 32 else 2 * -(-count // BLOCK) + -(-count * bits // 8)


def _scales(peaks: np.ndarray) -> np.ndarray:
    """bfloat16 bits of float32 values, rounded away from zero."""
    words = peaks.astype("<f4").view(np.uint32)
    # A peak within 1/256 of float32's end keeps its own bits; the code of 8 bits is clipped then.
    return np.minimum((words + np.uint32(0xFFFF)) >> 16, 0x7F7F).astype("<u2")


def _widened(scales: np.ndarray, count: int) -> np.ndarray:
    each = (scales.astype(np.uint32) << 16).view(np.float32)
    return np.repeat(each, BLOCK)[:count]


def encode(values: np.ndarray, bits: int) -> bytes:
    """Bytes of float32 values, flattened row-major.

    :class:`ValueError` where a value is not finite or ``bits`` is none of :data:`BITS`.
    """
    if bits not in BITS:
        raise ValueError(f"bits={bits}: must be one of {', '.join(map(str, BITS))}")
    flat = np.ascontiguousarray(values, "<f4").reshape(-1)
    if not np.isfinite(flat).all():
        raise ValueError(f"values: {int((~np.isfinite(flat)).sum())} are not finite; fine-tune again")
    if bits == 32:
        return flat.tobytes()
    blocks = np.pad(flat, (0, -flat.size % BLOCK)).reshape(-1, BLOCK)
    peaks = np.abs(blocks).max(axis=1)
    scales = _scales(peaks / np.float32(127) if bits == 8 else peaks)
    scale = _widened(scales, flat.size)
    unit = np.divide(flat, scale, out=np.zeros_like(flat), where=scale > 0)
    if bits == 8:
        codes = np.clip(np.rint(unit), -127, 127).astype(np.int8).view(np.uint8)
    else:
        codes = _BOOKS[bits].encode(np.clip(unit, -1, 1))
    return scales.tobytes() + _pack(codes, bits)


def decode(content: bytes, count: int, bits: int) -> np.ndarray:
    """``count`` float32 values of :func:`encode`'s bytes."""
    if bits not in BITS or len(content) != encoded_bytes(count, bits):
        raise ValueError(f"codes: {len(content)} bytes are not {count} values of {bits} bits")
    if bits == 32:
        return np.frombuffer(content, "<f4").astype(np.float32)
    split = 2 * -(-count // BLOCK)
    scale = _widened(np.frombuffer(content[:split], "<u2"), count)
    codes = _unpack(np.frombuffer(content[split:], np.uint8), count, bits)
    levels = codes.view(np.int8).astype(np.float32) if bits == 8 else _BOOKS[bits].decode(codes)
    with np.errstate(over="ignore", invalid="ignore"):
        return levels * scale


def _pack(codes: np.ndarray, bits: int) -> bytes:
    """The first code is in the highest bits of the first byte."""
    wide = np.unpackbits(codes.astype(np.uint8)[:, None], axis=1)[:, 8 - bits :]
    return np.packbits(wide.reshape(-1)).tobytes()


def _unpack(content: np.ndarray, count: int, bits: int) -> np.ndarray:
    wide = np.unpackbits(content)[: count * bits].reshape(count, bits)
    return np.packbits(np.pad(wide, ((0, 0), (8 - bits, 0))), axis=1).reshape(-1)
