"""Picture of a sweep."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from gradloom.output import some
from gradloom.systems.plots import GREY, INK, LINE, SOFT, headline, save

from .run import pareto

__all__ = ["plot_pareto"]

#: Points of a sweep that may all be named.
_NAMED = 40


def plot_pareto(path: Path | BinaryIO, rows: Sequence[Mapping[str, str]]) -> None:
    """Plots a sweep over cycles, a row of plots a preset.

    The axes are area, and accuracy where it was judged, else memory.

    Points that no other point dominates in both figures are joined and named; at the others their rank stands alone.
    ``rows``: as a sweep's table keeps them.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    whole = [row for row in rows if row["cycles"]]
    presets = list(dict.fromkeys(row["preset"] for row in whole)) or [""]
    figure = Figure(figsize=(12, 4.6 * len(presets)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(presets), 2, squeeze=False)
    for (left, right), preset in zip(grid, presets):
        points = [row for row in whole if row["preset"] == preset]
        synthesised = any(row["lut"] for row in points)
        _front(
            left,
            points,
            "lut" if synthesised else "dsp",
            "LUTs, open synthesis" if synthesised else "DSP slices, by count",
        )
        if any(row["accuracy"] for row in points):
            _front(right, points, "accuracy", "accuracy by the reference, %", sign=-1, factor=100)
        else:
            _front(right, points, "memory_bytes", "memory, MB", factor=1e-6)
        headline(left, f"{preset}: {some(len(points), 'point')}")
    save(figure, path)


def _front(
    axes: Any, rows: Sequence[Mapping[str, str]], name: str, label: str, *, sign: int = 1, factor: float = 1
) -> None:
    """Plots ``name`` over cycles, a marker a kind of code.

    ``sign`` is -1 where more is better.
    """
    rows = [row for row in rows if row[name]]
    cycles = [float(row["cycles_a_unit"]) for row in rows]
    millions = max(cycles, default=0) >= 1e7
    pairs = [(each / 1e6 if millions else each, factor * float(row[name])) for each, row in zip(cycles, rows)]
    for codes, marker in zip(dict.fromkeys(row["codes"] for row in rows), itertools.cycle("osD^")):
        chosen = [pair for pair, row in zip(pairs, rows) if row["codes"] == codes]
        axes.scatter(*zip(*chosen), color=SOFT, edgecolor=LINE, marker=marker, label=codes, zorder=2)
    best = pareto((each, sign * value) for each, value in pairs)
    axes.plot(
        [pairs[n][0] for n in best],
        [pairs[n][1] for n in best],
        color=LINE,
        linewidth=1.6,
        zorder=3,
        drawstyle="steps-post",
        label="best of both",
    )
    # Names of what lies close together would cover each other: every other one stands below.
    for place, n in enumerate(best):
        row, above = rows[n], place % 2 == 0
        axes.annotate(
            f"rank {row['rank']}, {row['mesh']}",
            pairs[n],
            (4, 7 if above else -13),
            fontsize=7.5,
            textcoords="offset points",
            color=INK,
            zorder=4,
        )
    if len(rows) <= _NAMED:
        others = {pair: row["rank"] for n, (pair, row) in enumerate(zip(pairs, rows)) if n not in best}
        for pair in set(others) - {pairs[n] for n in best}:
            axes.annotate(others[pair], pair, (6, -3), fontsize=7, textcoords="offset points", color=GREY, zorder=4)
    unit = "million cycles" if millions else "cycles"
    axes.set(xlabel=f"{unit} an image and epoch, or a token; forecast", ylabel=label)
    axes.margins(0.14)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.tick_params(labelsize=8)
    if rows:
        axes.legend(frameon=False, fontsize=8)
