"""Words of a tensor as beats, and back."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["beats", "words"]


def beats(values: ArrayLike, data_bits: int) -> list[int]:
    """32-bit words as beats of ``data_bits``, the first word lowest."""
    raw, size = np.asarray(values).astype("<i4").tobytes(), data_bits // 8
    if len(raw) % size:
        raise ValueError(f"{len(raw) // 4} words: must fill whole beats of {data_bits} bits")
    return [int.from_bytes(raw[at : at + size], "little") for at in range(0, len(raw), size)]


def words(payloads: Sequence[int], data_bits: int) -> np.ndarray:
    """The 32-bit words of beats, signed."""
    raw = b"".join(each.to_bytes(data_bits // 8, "little") for each in payloads)
    return np.frombuffer(raw, "<i4").astype(np.int64)
