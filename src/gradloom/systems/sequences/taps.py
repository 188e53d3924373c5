"""Bit-exact taps of a recurrent network: sums of its codes, shifted."""

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from gradloom.models.recurrent.network import RecurrentNetwork
from gradloom.models.recurrent.taps import (
    PARTS,
    QUARTERS,
    TapPart,
    TapSums,
    check_head,
    own_samples,
    parts_of,
    tap_channels,
)
from gradloom.rtl.formats.images import ACTIVATION
from gradloom.rtl.formats.rounding import saturate
from gradloom.sim.reference.cell import Trace

from ..images.program.schedule import initial_adapters

__all__ = ["Segment", "filled", "input_sums", "segments_of", "start_of", "tap_sums", "tap_words"]


def tap_sums(network: RecurrentNetwork, trace: Trace, parallel: int = 1) -> np.ndarray:
    """Sums of codes, ``[n, elements]``.

    ``parallel``: see :func:`~gradloom.models.recurrent.taps.parts_of`.
    """
    integers, found = network.integers, []
    for part in parts_of(network, parallel):
        cell, (hidden, state) = integers.layers[part.layer][part.way], trace.cells[part.layer][part.way]
        if part.kind == "h":
            made = state.h
        elif part.kind == "tanh c":
            made = cell.tables["squash"][state.c - cell.state_range[0]]
        else:
            made = hidden.sum(axis=1) if part.kind == "sum of h" else input_sums(network, trace.source, parallel)
        found.append(filled(made, part))
    return np.concatenate(found, axis=1)


def filled(made: np.ndarray, part: TapPart) -> np.ndarray:
    """A part with the zeros behind it."""
    return np.pad(made, ((0, 0), (0, part.size - made.shape[1])))


def input_sums(network: RecurrentNetwork, source: np.ndarray, parallel: int = 1) -> np.ndarray:
    """Sums over quarters of the steps, ``[n, QUARTERS * channels]``.

    ``source``: ``[n, samples, channels]``, what reaches the last convolution or the cell. A quarter begins with the
    step ``quarter * steps // QUARTERS``.
    """
    steps = source
    conv = network.last_conv
    if conv is not None:
        first, own = own_samples(network)
        at = np.arange(conv.steps(source.shape[1]))[:, None] * conv.stride + first + np.arange(own)
        steps = np.pad(source, ((0, 0), conv.pads, (0, 0)))[:, at].sum(axis=2)
    starts = [quarter * steps.shape[1] // QUARTERS for quarter in range(QUARTERS)]
    sums = np.add.reduceat(steps, starts, axis=1)
    return np.pad(sums, ((0, 0), (0, 0), (0, -sums.shape[2] % parallel))).reshape(len(sums), -1)


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Words of one cell among a sequence's taps.

    ``first``, ``beats``: its place, in beats; ``last``: zeros follow, to the end. ``shifts``: by fields of
    :data:`~gradloom.rtl.formats.cell.TapArgument`.
    """

    first: int
    beats: int
    last: bool
    shifts: dict[str, int]


#: Fields of the shifts by kind of part.
_FIELDS = dict(zip(PARTS, ("h", "squashed", "sum", "x")))


def segments_of(network: RecurrentNetwork, parallel: int, shifts: tuple[int, ...]) -> list[list[Segment]]:
    """Of each layer by direction, the words of its cell."""
    found: list[list[Segment]] = []
    parts, at = parts_of(network, parallel), 0
    for layer, pair in enumerate(network.layers):
        found.append([])
        for way in range(1 if pair[1] is None else 2):
            own = {
                part.kind: (part.size, shift)
                for part, shift in zip(parts, shifts)
                if (part.layer, part.way) == (layer, way)
            }
            beats = sum(size for size, _ in own.values()) // 4
            last = (layer, way) == (parts[-1].layer, parts[-1].way)
            by_field = {_FIELDS[kind]: shift for kind, (_, shift) in own.items()}
            found[-1].append(Segment(first=at, beats=beats, last=last, shifts=by_field))
            at += beats
    return found


def start_of(
    network: RecurrentNetwork, taps: TapSums, rank: int, seed: int, parallel: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Initial ``(A [rank, elements], B [classes, rank])``, float64.

    They are those of :func:`~..images.program.schedule.initial_adapters` for a design with ``parallel=1``, so that
    every design learns the same. A is 0 where taps are filled with zeros.
    """
    drawn = replace(taps, parts=parts_of(network, 1))
    ((a, b),) = initial_adapters([prod(drawn.shape)], len(check_head(network).bias), rank, seed)
    placed = np.zeros((rank, prod(taps.shape)))
    placed[:, _own(network, parallel)] = a[:, _own(network, 1)]
    return [(placed, b)]


def _own(network: RecurrentNetwork, parallel: int) -> np.ndarray:
    """Places of the elements that are no filling, in the same order for each ``parallel``."""
    found, at = [], 0
    for part in parts_of(network, parallel):
        cell = network.layers[part.layer][part.way]
        assert cell is not None
        own = np.arange(cell.units)
        if part.kind == "input":
            quarters = np.arange(QUARTERS)[:, None] * tap_channels(network, parallel)
            own = (quarters + np.arange(tap_channels(network))).ravel()
        found.append(at + own)
        at += part.size
    return np.concatenate(found)


def tap_words(taps: TapSums, sums: np.ndarray) -> tuple[np.ndarray, int]:
    """Activations of the taps, and how many were clipped.

    The activations are Q8.16, ``[n, 1, rows, 16]``.
    """
    words, over = saturate(sums.astype(np.int64) << taps.shift_of_each(), ACTIVATION.lo, ACTIVATION.hi)
    full = np.zeros((len(words), int(np.prod(taps.shape))), np.int64)
    full[:, : words.shape[1]] = words
    return full.reshape(len(words), *taps.shape), int(np.sum(over))
