"""Kernels that learn, tap by tap and line by line, in codes."""

from collections.abc import Sequence

import numpy as np

from gradloom.rtl.formats.tiles.codes import EDGE, NARROW, ZERO, TileCoded, coded
from gradloom.sim.reference.tiles.products import sums, transposed

from ..commands.gathers import runs
from ..weights.matrices import TapRows
from .summands import columns

__all__ = ["SAME", "came", "shifted", "taps_of"]

#: A tile that changes nothing.
SAME = coded(np.eye(EDGE), NARROW)


def taps_of(codes: TileCoded, shape: tuple[int, ...], rows: TapRows) -> TileCoded:
    """Matrices ``[taps, inputs, outputs]`` among codes of matrices that lie behind one another.

    ``shape``: outputs and inputs.
    """
    outputs, inputs = shape
    taps, wide = len(rows.counts), -(-outputs // EDGE)
    made = np.zeros((taps, outputs, inputs))
    exponents = np.full((taps, wide, codes.exponents.shape[1]), ZERO)
    for tap, (begin, first, count) in enumerate(rows):
        some = min(count, outputs - first)
        made[tap, first : first + some] = codes.codes[begin : begin + some]
        if count:
            exponents[tap] = codes.exponents[begin // EDGE : begin // EDGE + wide]
    return transposed(TileCoded(made, exponents))


def came(x: TileCoded, tile: TileCoded, rows: TapRows, sources: np.ndarray) -> tuple[np.ndarray, int]:
    """What comes to rows by each tap, side by side, and how many products are lost.

    ``tile`` makes it of rows of ``x``, which are those ``sources`` ``[taps, rows]``.
    """
    made, lost = np.zeros((sources.shape[1], rows.total)), 0
    for start in range(0, rows.total, EDGE):
        # Taps and features that a tile of columns has.
        taps = [n for n, (begin, _, count) in enumerate(rows) if begin < start + EDGE and start < begin + count]
        own = [(rows.begins[tap] - start, rows.firsts[tap], rows.counts[tap]) for tap in taps]
        deep = -own[0][0] // EDGE if own[0][0] < 0 else 0
        some = columns(x, slice(deep, deep + 1))
        kept = np.zeros((len(taps), some.codes.shape[1], min(EDGE, rows.total - start)))
        for matrix, (begin, first, count) in zip(kept, own):
            low, high = max(begin, 0), min(begin + count, EDGE)
            part = tile.codes[: len(matrix), first : first + high - low]
            matrix[: len(part), low:high] = part
        exponents = np.broadcast_to(tile.exponents, (len(taps), 1, 1))
        found = sums((some, sources[taps], TileCoded(kept, exponents)))
        made[:, start : start + kept.shape[2]], lost = found.values, lost + found.lost
    return made, lost


def shifted(
    x: TileCoded, line: TileCoded, rows: TapRows, sources: Sequence[np.ndarray]
) -> list[tuple[TileCoded, TileCoded]]:
    """Pairs whose products over rows are the transposed gradient of a kernel.

    ``line``: what comes to rows by the taps of a line. ``sources``: rows of it, by line. A pair has the first part of
    each tile of rows that reads neighbours, the next pair the second.
    """
    assert rows.line is not None
    one, made = transposed(x), list[tuple[TileCoded, TileCoded]]()
    high, wide = one.exponents.shape[1], -(-rows.total // EDGE)
    for begin, own in zip(rows.lines.begins, sources):
        found = runs(own)
        number = [sum(other.tile == run.tile for other in found[:n]) for n, run in enumerate(found)]
        for count in range(max(number, default=-1) + 1):
            codes, exponents = np.zeros((len(line.codes), rows.total)), np.full((high, wide), ZERO)
            for run in (run for run, n in zip(found, number) if n == count):
                at = EDGE * run.tile + np.arange(run.first, run.last + 1)
                codes[at, begin : begin + rows.line.total] = line.codes[at + run.shift]
                exponents[run.tile, begin // EDGE] = line.exponents[run.source, 0]
            made.append((one, TileCoded(codes, exponents)))
    return made
