"""Word lengths of a quantised linear layer, and the rounding of its variable shifts."""
from dataclasses import dataclass

import numpy as np
from amaranth.hdl import Cat, Module, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..array.pe import Precision
from ..formats.blocks import dynamic_map
from ..formats.codebook import NF4
from ..formats.fixed import Fixed, saturate_hdl

__all__ = ["ACTIVATION", "WEIGHT", "MASTER", "LEVEL", "SCALE", "SCALE_GUARD", "SCALE_MAX", "DOT_GUARD", "PRECISION",
           "SUM", "LinearConfig", "Requantize", "half_up", "map_table", "level_table", "sign_extended"]

#: Operands that stream: activations and gradients. The exponent is a tensor's own and the program's business.
ACTIVATION = Fixed(width=24, frac=0)
#: Operands that stay: decoded weights, adapter words.
WEIGHT = Fixed(width=18, frac=0)
#: Adapter words, gradients and activations as they lie in memory.
MASTER = Fixed(width=32, frac=0)
#: A level of the codebook, a value of the dynamic map: both within [-1, 1], on the narrow side of a DSP slice.
LEVEL = Fixed(width=18, frac=16)
#: A block's scale has this many fraction bits more than a weight.
SCALE_GUARD = 6
SCALE = Fixed(width=24, frac=SCALE_GUARD)
#: Largest scale: its block's largest weight is the largest word.
SCALE_MAX = WEIGHT.hi << SCALE_GUARD
#: Fraction bits that the adapter's part gains before it is aligned with the base's.
DOT_GUARD = 8
#: Of the array.
PRECISION = Precision(x=ACTIVATION.width, w=WEIGHT.width)
#: Bits of a sum over a layer's whole input: 256 tiles of 64 products.
SUM = 56


@dataclass(frozen=True, kw_only=True)
class LinearConfig:
    """What is asked of the engine.

    Parameters
    ----------
    edge : int
        Rows of the array and edge of a tile of weights, 16, 32 or 64: the elements that share a scale. A beat
        of the bus is a tile's row, ``4 * edge`` bits.
    columns : int
        Columns of the array; a divisor of ``edge``. One more computes the adapter's product.
    rank : int
        Largest rank; even, at most ``2 * edge / columns`` so that h is complete after two tiles of outputs.
    tokens : int
        Largest number of tokens; a power of two.
    depth : int
        Words of operand memory a row: ``tokens`` words a tile of inputs.
    lane_depth : int
        Words of adapter memory a row: ``rank`` words a tile.
    groups : int
        Second-level scales of a weight tensor: one for 256 blocks.
    address_bits, outstanding, queue_depth, clock_mhz : int
        As in :class:`~gradloom.rtl.config.Config`.
    """

    edge: int = 64
    columns: int = 8
    rank: int = 8
    tokens: int = 64
    depth: int = 2048
    lane_depth: int = 1024
    groups: int = 1024
    address_bits: int = 32
    outstanding: int = 8
    queue_depth: int = 16
    clock_mhz: int = 200

    def __post_init__(self):
        if self.edge not in (16, 32, 64):
            raise ValueError(f"edge={self.edge}: must be 16, 32 or 64")
        if self.columns < 2 or self.edge % self.columns:
            raise ValueError(f"columns={self.columns}: must be a divisor of edge={self.edge}, at least 2")
        if self.rank < 2 or self.rank % 2 or self.rank > 2 * self.subtiles:
            raise ValueError(f"rank={self.rank}: must be even, 2 to {2 * self.subtiles}")
        for field, low, high in (("tokens", 2, 256), ("depth", 16, 65536), ("lane_depth", 16, 65536),
                                 ("groups", 2, 4096)):
            value = getattr(self, field)
            if not low <= value <= high or value & (value - 1):
                raise ValueError(f"{field}={value}: must be a power of two from {low} to {high}")

    @property
    def shell(self):
        """What the shell around the engines is asked for."""
        return {"rows": self.edge, "panels": 1, "rank": self.rank, "classes": 0, "data_bits": self.beat_bits,
                "addr_bits": self.address_bits, "slots": 64, "outstanding": self.outstanding,
                "depth": self.queue_depth}

    @property
    def subtiles(self):
        """Parts of a tile that the array holds at a time."""
        return self.edge // self.columns

    @property
    def beat_bits(self):
        """Bits of a beat: a row of codes."""
        return 4 * self.edge

    @property
    def beat_words(self):
        """32-bit words in a beat."""
        return self.edge // 8


def half_up(x, shift):
    """``x * 2**-shift`` to the nearest integer, ties up: one guard bit, and an increment."""
    x = np.asarray(x, np.int64)
    return ((x << 1 >> shift) + 1) >> 1


def map_table():
    """bitsandbytes' dynamic map in units of :data:`LEVEL`, by code."""
    return LEVEL.encode(dynamic_map())


def level_table(book=NF4):
    """A codebook's levels in units of :data:`LEVEL`, by code."""
    return book.level_table(LEVEL.frac)


def sign_extended(word):
    """``word`` as it lies in memory."""
    word = Value.cast(word)
    return Cat(word, word[-1].replicate(MASTER.width - len(word)))


class Requantize(wiring.Component):
    """Shifts, rounds half up and saturates; a word a cycle, :attr:`latency` cycles later.

    Members
    -------
    i, shift : word and shift, 0 to 63.
    o : result. saturated : whether it had to be clipped.
    """

    latency = 4

    def __init__(self, *, width, result):
        self.width = width
        self.result = result
        super().__init__({
            "i": In(signed(width)), "shift": In(6),
            "o": Out(signed(result)), "saturated": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        guarded = signed(self.width + 1)
        coarse, fine = Signal(guarded, reset_less=True), Signal(guarded, reset_less=True)
        small = Signal(3, reset_less=True)
        rounded = Signal(signed(self.width + 1), reset_less=True)
        clipped, over = saturate_hdl(rounded, signed(self.result))
        m.d.sync += [
            coarse.eq((self.i << 1) >> (self.shift & 0b111000)), small.eq(self.shift[:3]),
            fine.eq(coarse >> small),
            rounded.eq((fine + 1) >> 1),
            self.o.eq(clipped), self.saturated.eq(over),
        ]
        return m
