"""Words of a board's adapter as groups of 64 with a mark each.

A group is zero, its words as they are, or codes of 8 or 4 bits in two's complement, shifted left. The firmware
(``soc_package.c``) reads the same.
"""

import numpy as np

__all__ = ["BITS", "GROUP", "decode", "encode"]

BITS = (32, 8, 4)
#: Words of a group.
GROUP = 64
_ZERO, _PLAIN, _CODES = 0x00, 0xFF, {8: 0x80, 4: 0x40}


def encode(words: np.ndarray, bits: int, exact: int = 0) -> bytes:
    """Bytes of int32 words, a multiple of 16.

    Groups that reach beyond word ``exact`` are kept as they are; 0: none.
    """
    if bits not in BITS:
        raise ValueError(f"bits={bits}: must be one of {', '.join(map(str, BITS))} for a board")
    chunks = []
    for at in range(0, len(words), GROUP):
        group = words[at : at + GROUP].astype(np.int64)
        if not group.any():
            chunks.append(bytes([_ZERO]))
        elif bits == 32 or (exact and at + GROUP > exact):
            chunks.append(bytes([_PLAIN]) + group.astype("<i4").tobytes())
        else:
            chunks.append(_coded(group, bits))
    return b"".join(chunks)


def _coded(group: np.ndarray, bits: int) -> bytes:
    most = (1 << bits - 1) - 1
    shift = max(int(np.abs(group).max()).bit_length() - (bits - 1), 0)
    codes: np.ndarray = np.clip(np.rint(group / (1 << shift)), -most, most).astype(np.int8).view(np.uint8)
    if bits == 4:
        codes = (codes[::2] & 15) | (codes[1::2] & 15) << 4
    return bytes([_CODES[bits] | shift]) + codes.astype(np.uint8).tobytes()


def decode(payload: bytes, count: int) -> np.ndarray:
    """``count`` int32 words; :class:`ValueError` if the payload has others."""
    words, at = np.zeros(count, np.int64), 0
    wrong = ValueError("payload: has other words than the card; name the card that it was signed for")
    for start in range(0, count, GROUP):
        if at >= len(payload):
            raise wrong
        mark, size = payload[at], min(GROUP, count - start)
        at += 1
        taken = 0 if mark == _ZERO else 4 * size if mark == _PLAIN else size if mark & _CODES[8] else size // 2
        data = np.frombuffer(payload[at : at + taken], np.uint8)
        if len(data) != taken:
            raise wrong
        at += taken
        if mark == _PLAIN:
            words[start : start + size] = data.view("<i4")
        elif mark != _ZERO:
            codes = data if mark & _CODES[8] else np.stack([data & 15, data >> 4], axis=1).reshape(-1)
            half = 128 if mark & _CODES[8] else 8
            words[start : start + size] = ((codes.astype(np.int64) ^ half) - half) << (mark & 31)
    if at != len(payload):
        raise wrong
    return words.astype(np.int32)
