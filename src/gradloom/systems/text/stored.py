"""Adapters and moments that are stored as codes between steps."""

import numpy as np
from numpy.typing import NDArray

from gradloom.sim.reference.units import packed

from .program.packed import PackedStore

__all__ = ["packed_words", "rebased", "unpacked_words"]

Words = NDArray[np.int64]


def packed_words(stored: PackedStore, words: Words, number: int) -> NDArray[np.uint8]:
    """Bytes of words ``[rank, features]`` after update ``number``.

    The words may also be m and v, ``[2, rank, features]``.
    """
    sides = words if stored.moments else words[None]
    blocks = np.stack([_blocks(each, stored.shape.edge) for each in sides], axis=1)
    data = packed.pack(
        blocks.reshape(-1, stored.shape.edge),
        wide=stored.wide,
        moments=stored.moments,
        seeds=np.array(stored.seeds(number)),
    )
    return np.frombuffer(data, np.uint8)


def unpacked_words(stored: PackedStore, data: NDArray[np.uint8]) -> tuple[Words, int]:
    """The words again, and how many of them were clipped."""
    edge = stored.shape.edge
    made = packed.unpack(
        data.tobytes(), blocks=stored.shape.blocks, edge=edge, wide=stored.wide, moments=stored.moments
    )
    sides = made.words.reshape(-1, 2 if stored.moments else 1, edge).swapaxes(0, 1)
    rows = [each.reshape(-1, stored.rank, edge).swapaxes(0, 1).reshape(stored.rank, -1) for each in sides]
    return np.stack(rows) if stored.moments else rows[0], made.saturated


def rebased(stored: PackedStore, data: NDArray[np.uint8], octaves: int) -> NDArray[np.uint8]:
    """The same numbers times ``2**octaves``.

    It is for words of a step that have other fraction bits than those of the last.
    """
    made, at, shape = data.copy(), 0, stored.shape
    for count in shape.groups:
        at += shape.codes(count) * shape.beat
        top = made[at : at + 4].view("<u2")
        top[:] = np.where(top == 0, 0, np.clip(top.astype(np.int64) + 16 * octaves, 0, 4095))
        at += shape.record * shape.beat
    return made


def _blocks(words: Words, edge: int) -> Words:
    """Rows of tiles, in the order of memory."""
    return words.reshape(len(words), -1, edge).swapaxes(0, 1).reshape(-1, edge)
