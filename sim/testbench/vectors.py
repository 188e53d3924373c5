"""Numbers and payloads that vectors are made of."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..units.adapter import UnitArray, pack

__all__ = ["Parameters", "draw", "masked", "numbers", "packed", "payload"]

Parameters = Mapping[str, Any]


def payload(component: Any, path: str) -> Any:
    """Shape of a stream's payload; dots stand between parts of its path."""
    signature = component.signature
    for name in path.split("."):
        signature = signature.members[name].signature
    return signature.members["payload"].shape


def numbers(seed: str, array: UnitArray, extents: Mapping[str, int]) -> np.ndarray:
    """Integers of all sizes within an array's bounds.

    Both ends are among them. They are the same on every machine.

    ``extents``: its dimensions by their words.
    """
    shape = [extents[each] if isinstance(each, str) else each for each in array.shape]
    chance = random.Random(seed)
    bits = max(array.high, -array.low).bit_length()

    def number() -> int:
        kind = chance.random()
        if kind < 0.04:
            return array.low if kind < 0.02 else array.high
        value = array.low + int(chance.random() * (array.high - array.low + 1))
        return max(array.low, value >> int(chance.random() * bits))

    return np.array([number() for _ in range(int(np.prod(shape)))], np.int64).reshape(shape)


def signed(bits: int, *shape: int) -> UnitArray:
    half = 1 << bits - 1
    return UnitArray(name="", shape=shape, units="", description="", low=-half, high=half - 1)


def draw(seed: str, bits: int, *shape: int) -> np.ndarray:
    return numbers(seed, signed(bits, *shape), {})


def packed(component: Any, port: str, beats: Sequence[Any]) -> list[int]:
    """Payloads of an input stream from fields."""
    shape = payload(component, port)
    return [pack(shape, beat) for beat in beats]


def masked(component: Any, port: str, beats: Sequence[Any]) -> list[tuple[int, int]]:
    """Payloads of an output stream from fields, with their mask."""
    shape = payload(component, port)
    return [(pack(shape, beat), pack(shape, _ones(beat))) for beat in beats]


def _ones(value: Any) -> Any:
    """All bits of the fields that are there."""
    if isinstance(value, Mapping):
        return {name: _ones(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_ones(each) for each in value]
    return -1
