"""Adapters as 32-bit master words in the machine's layout.

A block is a header of 16 bytes (magic ``GLAW``, linears, rank, tile as 32-bit words), an entry of 32 bytes a linear
(its number among the model's linears, inputs, outputs, fraction bits of A's words and of B's, bytes from the block's
start to A and to B, alpha / rank as a float32), then A ``[rank, inputs]`` and B transposed ``[rank, outputs]`` of each,
by tile of features, then row, from multiples of 64 bytes on. B holds the factor alpha / rank.
"""

import struct
from collections.abc import Mapping

import numpy as np

from gradloom.rtl.formats.weights.linear import MASTER
from gradloom.rtl.formats.weights.tiles import fraction_bits, tile_rows, untile_rows

from ..language import LanguageModel
from .lora import Adapter

__all__ = ["pack_adapters", "unpack_adapters"]

_MAGIC = b"GLAW"
_HEAD, _ENTRY = struct.Struct("<4s3I"), struct.Struct("<3I2i2If")
_ALIGN = 64
#: Bits that a word may grow while it learns.
_HEADROOM = 1


def pack_adapters(model: LanguageModel, adapters: Mapping[str, Adapter], *, tile: int = 64) -> bytes:
    """The block of ``adapters``, which have one rank, by linear.

    :class:`ValueError` names what does not fit.
    """
    ranks = {adapter.rank for adapter in adapters.values()}
    if len(ranks) != 1:
        raise ValueError(f"adapters has ranks {sorted(ranks)}: must be of one rank")
    numbers = {linear.name: number for number, linear in enumerate(model.linears)}
    at = _aligned(_HEAD.size + _ENTRY.size * len(adapters))
    head, body = _HEAD.pack(_MAGIC, len(adapters), ranks.pop(), tile), b""
    for name, adapter in adapters.items():
        if name not in numbers:
            raise ValueError(f"{name}: {model.name} has no such linear")
        starts, fracs = [], []
        for which, values in (("A", adapter.a), ("B", adapter.scale * adapter.b.T.astype(np.float64))):
            if values.shape[1] % tile:
                raise ValueError(f"{name}: {which} has {values.shape[1]} features: must be a multiple of {tile}")
            frac = fraction_bits(values, MASTER.width, headroom=_HEADROOM)
            data = tile_rows(np.rint(np.ldexp(values.astype(np.float64), frac)).astype(np.int64), tile)
            starts.append(at + len(body))
            fracs.append(frac)
            body += data + bytes(-len(data) % _ALIGN)
        head += _ENTRY.pack(numbers[name], adapter.a.shape[1], adapter.b.shape[0], *fracs, *starts, adapter.scale)
    return head.ljust(at, b"\0") + body


def unpack_adapters(model: LanguageModel, block: bytes) -> dict[str, Adapter]:
    """Adapters by linear, of a block of :func:`pack_adapters`.

    The block may also be of a machine that has trained them.
    """
    if len(block) < _HEAD.size or block[:4] != _MAGIC:
        raise ValueError("not a block of adapters")
    _, count, rank, tile = _HEAD.unpack_from(block)
    adapters = {}
    for index in range(count):
        number, inputs, outputs, frac_a, frac_b, at_a, at_b, scale = _ENTRY.unpack_from(
            block, _HEAD.size + index * _ENTRY.size
        )
        linear = model.linears[number] if number < len(model.linears) else None
        if linear is None or (linear.inputs, linear.outputs) != (inputs, outputs):
            raise ValueError(f"linear {number} has shape [{outputs}, {inputs}]: {model.name} has no such linear")
        a, b = (
            np.ldexp(untile_rows(block[at : at + 4 * rank * features], rank, features, tile), -frac)
            for at, features, frac in ((at_a, inputs, frac_a), (at_b, outputs, frac_b))
        )
        adapters[linear.name] = Adapter(a.astype(np.float32), (b.T / scale).astype(np.float32), scale)
    return adapters


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
