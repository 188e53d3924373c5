"""Blocks of GGUF's tensors, and their values as float32.

A block of 32 elements, or of 256 for kinds called _K, has its scales and codes side by side. Layouts are those of
ggml's ``ggml-common.h``; values equal the numpy code of PyPI's ``gguf`` in every bit, NaN and infinities included.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["BLOCK_KINDS", "BlockKind", "kind_named", "q8_0_blocks", "q8_0_values"]

#: Elements of a block, and of one of the kinds called _K.
BLOCK, LARGE = 32, 256
#: Levels of IQ4_NL, in units of the block's scale.
_IQ4_NL = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
#: Magnitudes of MXFP4 (E2M1), twice as large; the scale is half as large.
_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12], np.float32)
# The code of -0 stands for 0 in ggml.
_MXFP4 = np.concatenate([_E2M1, np.float32(0) - _E2M1])


def _half(data: np.ndarray, at: int) -> np.ndarray:
    """The float16 at a byte of each block, as ``[blocks, 1]``."""
    return np.ascontiguousarray(data[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(codes: np.ndarray) -> np.ndarray:
    # The first half of a block is in the low nibbles, the second in the high ones.
    return np.concatenate(_halves(codes), axis=1)


def _fifth(data: np.ndarray, at: int) -> np.ndarray:
    """Codes of 5 bits: 4 bytes have bit 4 of each, 16 the nibbles."""
    high = np.unpackbits(data[:, at : at + 4], axis=1, bitorder="little")
    return _nibbles(data[:, at + 4 : at + 20]) | high << 4


def _q4_0(data: np.ndarray) -> np.ndarray:
    return _half(data, 0) * (_nibbles(data[:, 2:]).astype(np.float32) - 8)


def _q4_1(data: np.ndarray) -> np.ndarray:
    return _half(data, 0) * _nibbles(data[:, 4:]).astype(np.float32) + _half(data, 2)


def _q5_0(data: np.ndarray) -> np.ndarray:
    return _half(data, 0) * (_fifth(data, 2).astype(np.float32) - 16)


def _q5_1(data: np.ndarray) -> np.ndarray:
    return _half(data, 0) * _fifth(data, 4).astype(np.float32) + _half(data, 2)


def _q8_0(data: np.ndarray) -> np.ndarray:
    return data[:, 2:].view(np.int8).astype(np.float32) * _half(data, 0)


def _six_bits(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eight scales and eight minima of 6 bits each, from 12 bytes.

    The first four of each are the low bits of bytes 0 to 3 and 4 to 7; the last four have their low nibbles in bytes 8
    to 11 and their upper two bits on top of the first ones.
    """
    first, second, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, (rest & 15) | first >> 6 << 4], axis=1)
    return scales, np.concatenate([second & 63, rest >> 4 | second >> 6 << 4], axis=1)


def _of_scales_and_minima(data: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Values of ``codes [blocks, 8, 32]`` behind two float16 and 12 bytes."""
    scales, minima = _six_bits(data[:, 4:16])
    scale = (_half(data, 0) * scales.astype(np.float32))[:, :, None]
    least = (_half(data, 2) * minima.astype(np.float32))[:, :, None]
    return scale * codes.astype(np.float32) - least


def _eight_rows(nibbles: np.ndarray) -> np.ndarray:
    """Codes ``[blocks, 8, 32]`` of 128 bytes: 32 of them have two rows."""
    pairs = nibbles.reshape(-1, 4, 1, 32)
    return np.concatenate([pairs & 15, pairs >> 4], axis=2).reshape(-1, 8, 32)


def _q4_k(data: np.ndarray) -> np.ndarray:
    return _of_scales_and_minima(data, _eight_rows(data[:, 16:]))


def _q5_k(data: np.ndarray) -> np.ndarray:
    # Bit i of a byte is the fifth one of row i.
    high = np.unpackbits(data[:, 16:48, None], axis=2, bitorder="little").swapaxes(1, 2)
    return _of_scales_and_minima(data, _eight_rows(data[:, 48:]) | high << 4)


def _q6_k(data: np.ndarray) -> np.ndarray:
    # Of each half of a block: 64 bytes of low nibbles, 32 bytes with two upper bits of four rows.
    low, high = data[:, :128].reshape(-1, 2, 1, 64), data[:, 128:192].reshape(-1, 2, 1, 32)
    low = np.concatenate([low & 15, low >> 4], axis=2).reshape(-1, 2, 4, 32)
    high = np.concatenate([high >> bit & 3 for bit in (0, 2, 4, 6)], axis=2)
    codes = (low | high << 4).astype(np.float32).reshape(-1, 16, 16) - 32
    scales = data[:, 192:208].view(np.int8).astype(np.float32)
    return (_half(data, 208) * scales)[:, :, None] * codes


def _two_bits(data: np.ndarray) -> np.ndarray:
    """Codes ``[blocks, 16, 16]`` of 64 bytes; four rows share 32 bytes."""
    quarters = data.reshape(-1, 2, 1, 32)
    return np.concatenate([quarters >> bit & 3 for bit in (0, 2, 4, 6)], axis=2).reshape(-1, 16, 16)


def _q2_k(data: np.ndarray) -> np.ndarray:
    # A byte has the scale of 16 elements below their minimum.
    scale = (_half(data, 80) * (data[:, :16] & 15).astype(np.float32))[:, :, None]
    least = (_half(data, 82) * (data[:, :16] >> 4).astype(np.float32))[:, :, None]
    return scale * _two_bits(data[:, 16:80]).astype(np.float32) - least


def _q3_k(data: np.ndarray) -> np.ndarray:
    # 16 scales of 6 bits: nibbles in 8 bytes, then two upper bits of each in 4 bytes; 32 stands for 0.
    high = np.concatenate([data[:, 104:108] >> bit & 3 for bit in (0, 2, 4, 6)], axis=1)
    scales = (_nibbles(data[:, 96:104]) | high << 4).astype(np.float32) - 32
    # Bit i of 32 bytes is of row i; where it is 0, the code is 4 less.
    kept = np.unpackbits(data[:, :32, None], axis=2, bitorder="little").swapaxes(1, 2).reshape(-1, 16, 16)
    codes = _two_bits(data[:, 32:96]).astype(np.float32) - 4 * (1 - kept.astype(np.float32))
    return (_half(data, 108) * scales)[:, :, None] * codes


def _iq4_xs(data: np.ndarray) -> np.ndarray:
    # 8 scales of 6 bits: two upper bits of each in 16 bits, nibbles in 4 bytes; 32 stands for 0.
    upper = np.ascontiguousarray(data[:, 2:4]).view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & np.uint16(3)
    lower = np.stack([data[:, 4:8] & 15, data[:, 4:8] >> 4], axis=2).reshape(-1, 8)
    scales = (lower | upper.astype(np.uint8) << 4).astype(np.float32) - 32
    levels = _IQ4_NL[np.concatenate(_halves(data[:, 8:].reshape(-1, 8, 16)), axis=2)]
    return (_half(data, 0) * scales)[:, :, None] * levels


def _halves(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return codes & 15, codes >> 4


def _iq4_nl(data: np.ndarray) -> np.ndarray:
    return _half(data, 0) * _IQ4_NL[_nibbles(data[:, 2:])]


def _mxfp4(data: np.ndarray) -> np.ndarray:
    exponent = data[:, :1].astype(np.uint32)
    # Half of 2 to the power of exponent - 127; the two smallest are subnormal.
    bits = np.where(exponent < 2, np.uint32(1 << 21) << exponent, (exponent - np.uint32(1)) << 23)
    return bits.astype(np.uint32).view(np.float32) * _MXFP4[_nibbles(data[:, 1:])]


def _bf16(data: np.ndarray) -> np.ndarray:
    return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)


@dataclass(frozen=True)
class BlockKind:
    """A type of GGUF's tensors.

    ``size`` bytes hold ``elements``; ``decode`` takes uint8 ``[blocks, size]``, and its float32 are in the order of the
    elements.
    """

    name: str
    elements: int
    size: int
    decode: Callable[[np.ndarray], np.ndarray]


#: By ggml's number.
BLOCK_KINDS: Mapping[int, BlockKind] = {
    0: BlockKind("F32", 1, 4, lambda data: data.view("<f4").astype(np.float32)),
    1: BlockKind("F16", 1, 2, lambda data: data.view("<f2").astype(np.float32)),
    30: BlockKind("BF16", 1, 2, _bf16),
    2: BlockKind("Q4_0", BLOCK, 18, _q4_0),
    3: BlockKind("Q4_1", BLOCK, 20, _q4_1),
    6: BlockKind("Q5_0", BLOCK, 22, _q5_0),
    7: BlockKind("Q5_1", BLOCK, 24, _q5_1),
    8: BlockKind("Q8_0", BLOCK, 34, _q8_0),
    10: BlockKind("Q2_K", LARGE, 84, _q2_k),
    11: BlockKind("Q3_K", LARGE, 110, _q3_k),
    12: BlockKind("Q4_K", LARGE, 144, _q4_k),
    13: BlockKind("Q5_K", LARGE, 176, _q5_k),
    14: BlockKind("Q6_K", LARGE, 210, _q6_k),
    20: BlockKind("IQ4_NL", BLOCK, 18, _iq4_nl),
    23: BlockKind("IQ4_XS", LARGE, 136, _iq4_xs),
    39: BlockKind("MXFP4", BLOCK, 17, _mxfp4),
}
#: Names of types that are not read, by ggml's number.
_OTHERS = {
    **{9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S"},
    **{21: "IQ3_S", 22: "IQ2_S", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M"},
    **{34: "TQ1_0", 35: "TQ2_0", 40: "NVFP4"},
}


def kind_named(number: int) -> str:
    """Name of a type with its number, known here or not."""
    kind = BLOCK_KINDS.get(number)
    name = kind.name if kind else _OTHERS.get(number)
    return str(number) if name is None else f"{name} ({number})"


def q8_0_blocks(values: np.ndarray) -> np.ndarray:
    """Bytes of float32 values as Q8_0, ``[blocks, 34]``.

    They are llama.cpp's: a scale as float16, then codes, halves away from zero. :class:`ValueError` where rows are no
    whole blocks.
    """
    if values.shape[-1] % BLOCK:
        raise ValueError(f"rows of {values.shape[-1]}: Q8_0 has blocks of {BLOCK}")
    blocks = np.ascontiguousarray(values, np.float32).reshape(-1, BLOCK)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    unit = blocks * inverse
    codes = np.trunc(unit + np.copysign(np.float32(0.5), unit)).astype(np.int8)
    return np.concatenate([scale.astype("<f2").view(np.uint8), codes.view(np.uint8)], axis=1)


def q8_0_values(values: np.ndarray) -> np.ndarray:
    """Values as Q8_0 has them."""
    return _q8_0(q8_0_blocks(values)).reshape(values.shape)
