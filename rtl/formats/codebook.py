"""Codebooks: up to 16 levels and the thresholds between them."""

from dataclasses import dataclass

import numpy as np
from amaranth.hdl import signed, unsigned

__all__ = ["Codebook", "NF4", "NF3", "NF2", "FP4", "INT4", "INT8_HIGH", "INT8_LOW", "CODEBOOKS"]

MAX_LEVELS = 16


@dataclass(frozen=True, kw_only=True)
class Codebook:
    """A table of ascending levels, each a fraction of its block's absmax.

    The code of a value is how many thresholds lie *strictly* below it, so a value on a threshold
    takes the lower code (bitsandbytes' ``torch.bucketize``).

    Parameters
    ----------
    name : str
    levels : tuple of float
        2 to 16 values in [-1, 1], strictly ascending; code ``n`` stands for ``levels[n]``. FP4's
        two zeros are therefore one level here, and codes are ordered by value.
    thresholds : tuple of float, optional
        One fewer than levels, ascending. Without it: the float32 midpoints of neighbours.
    """

    name: str
    levels: tuple[float, ...]
    thresholds: tuple[float, ...] | None = None

    def __post_init__(self):
        levels = np.asarray(self.levels, np.float64)
        if levels.ndim != 1 or not 2 <= levels.size <= MAX_LEVELS:
            raise ValueError(f"levels={len(self.levels)} values: a codebook holds 2 to {MAX_LEVELS}")
        if not (np.diff(levels) > 0).all():
            raise ValueError(f"levels={self.levels}: must be strictly ascending")
        if not (np.abs(levels) <= 1).all():
            raise ValueError(f"levels={self.levels}: must lie within [-1, 1]")
        if self.thresholds is None:
            f32 = levels.astype(np.float32)
            mid = (f32[1:] + f32[:-1]) / np.float32(2)
            object.__setattr__(self, "thresholds", tuple(float(t) for t in mid))
        thresholds = np.asarray(self.thresholds, np.float64)
        if thresholds.shape != (levels.size - 1,):
            raise ValueError(
                f"thresholds={len(self.thresholds)} values: {levels.size} levels have {levels.size - 1} between them"
            )
        if not ((thresholds > levels[:-1]) & (thresholds < levels[1:])).all():
            raise ValueError(f"thresholds={self.thresholds}: each must lie between its two levels")

    # Shapes.

    @property
    def code(self):
        """Amaranth shape of a stored code.

        It is a nibble for every book, so that the memory layout is the same.
        """
        return unsigned(4)

    def level_shape(self, frac_bits=7):
        """Amaranth shape of a level with ``frac_bits`` fraction bits.

        1.0 itself needs the extra bit.
        """
        return signed(frac_bits + 2)

    def threshold_shape(self, frac_bits=16):
        """Amaranth shape of a threshold with ``frac_bits`` fraction bits.

        It includes the end mark.
        """
        return signed(frac_bits + 2)

    # What the hardware's tables hold.

    @property
    def levels_fixed(self):
        """Levels in units of ``2**-7``: see :meth:`fixed_levels`."""
        return self.fixed_levels()

    @property
    def thresholds_fixed(self):
        """Thresholds in units of ``2**-16``: see :meth:`fixed_thresholds`."""
        return self.fixed_thresholds()

    def fixed_levels(self, frac_bits=7):
        """Levels in units of ``2**-frac_bits``, ``int64``.

        They are rounded to nearest (ties to even).
        """
        return np.rint(np.asarray(self.levels, np.float64) * 2.0**frac_bits).astype(np.int64)

    def fixed_thresholds(self, frac_bits=16):
        """Thresholds in units of ``2**-frac_bits``, ``int64``.

        They are rounded to nearest (ties to even).

        16 bits: with the sign and the end mark of :meth:`threshold_table` that is 18 bits, the narrow
        side of a DSP slice, so more would cost a second slice. A threshold is then off by at most
        ``2**-17`` of absmax, 1/128 of the step of a level (frac 7), and the error of the
        scale (``2**-8`` absolute) is larger for every absmax below 512, thus always.
        """
        return np.rint(np.asarray(self.thresholds, np.float64) * 2.0**frac_bits).astype(np.int64)

    def level_table(self, frac_bits=7):
        """All 16 entries of a decoder's table.

        Codes that no encoder makes repeat the last level.
        """
        levels = self.fixed_levels(frac_bits)
        return np.concatenate([levels, np.repeat(levels[-1:], MAX_LEVELS - levels.size)])

    def threshold_table(self, frac_bits=16):
        """All 15 entries of an encoder's table.

        Unused ones are just under 2.0, which no value reaches.
        """
        thresholds = self.fixed_thresholds(frac_bits)
        end = (1 << (frac_bits + 1)) - 1
        return np.concatenate([thresholds, np.full(MAX_LEVELS - 1 - thresholds.size, end)])

    @property
    def zero_code(self):
        """The code of 0.0, which pads a short block."""
        return int(self.encode(np.float32(0)))

    # Float arithmetic.

    def encode(self, x) -> np.ndarray:
        """Code (``uint8``) of each ``x``, a float32 fraction of absmax."""
        return np.searchsorted(np.asarray(self.thresholds, np.float32), np.asarray(x, np.float32), side="left").astype(
            np.uint8
        )

    def decode(self, codes) -> np.ndarray:
        """Level (``float32``) of each code."""
        return np.asarray(self.levels, np.float32)[np.asarray(codes)]


# bitsandbytes' own constants. Its thresholds are not all the float32 midpoints of its levels.
NF4 = Codebook(
    name="nf4",
    levels=(
        -1.0,
        -0.6961928009986877,
        -0.5250730514526367,
        -0.39491748809814453,
        -0.28444138169288635,
        -0.18477343022823334,
        -0.09105003625154495,
        0.0,
        0.07958029955625534,
        0.16093020141124725,
        0.24611230194568634,
        0.33791524171829224,
        0.44070982933044434,
        0.5626170039176941,
        0.7229568362236023,
        1.0,
    ),
    thresholds=(
        -0.8480964004993439,
        -0.6106329262256622,
        -0.4599952697753906,
        -0.33967943489551544,
        -0.23460740596055984,
        -0.13791173323988914,
        -0.045525018125772476,
        0.03979014977812767,
        0.1202552504837513,
        0.2035212516784668,
        0.2920137718319893,
        0.3893125355243683,
        0.5016634166240692,
        0.6427869200706482,
        0.8614784181118011,
    ),
)

# QLoRA's construction for k = 3 and 2: quantiles of the normal distribution, an exact zero.
NF3 = Codebook(
    name="nf3",
    levels=(
        -1.0,
        -0.5350227355957031,
        -0.24693143367767334,
        0.0,
        0.1833374798297882,
        0.38199394941329956,
        0.6229857206344604,
        1.0,
    ),
)
NF2 = Codebook(name="nf2", levels=(-1.0, 0.0, 0.4358181655406952, 1.0))

# The 15 values of E2M1 (MXFP4), as a fraction of the largest.
E2M1 = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
FP4 = Codebook(name="fp4", levels=tuple(v / 6 for v in (*(-v for v in reversed(E2M1)), 0.0, *E2M1)))
INT4 = Codebook(name="int4", levels=tuple(v / 7 for v in range(-7, 8)))

# An 8-bit code is two nibbles, each with a book of its own; their levels add up to (code - 128) / 128.
INT8_HIGH = Codebook(name="int8-high", levels=tuple((n - 8) / 8 for n in range(16)))
INT8_LOW = Codebook(name="int8-low", levels=tuple(n / 128 for n in range(16)))

CODEBOOKS = {book.name: book for book in (NF4, NF3, NF2, FP4, INT4)}


def pack_nibbles(codes, *, pad: int = NF4.zero_code) -> np.ndarray:
    """Packs two codes a byte along the last axis.

    The first code is in the high nibble; an odd end gets ``pad``.
    """
    codes = np.asarray(codes, np.uint8)
    if codes.shape[-1] % 2:
        codes = np.concatenate([codes, np.full((*codes.shape[:-1], 1), pad, np.uint8)], axis=-1)
    return (codes[..., ::2] << 4) | codes[..., 1::2]


def unpack_nibbles(packed, count: int | None = None) -> np.ndarray:
    """The codes that :func:`pack_nibbles` packed.

    At most ``count`` along the last axis.
    """
    packed = np.asarray(packed, np.uint8)
    codes = np.stack([packed >> 4, packed & 15], axis=-1).reshape(*packed.shape[:-1], -1)
    return codes[..., :count]
