"""Pictures of results."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .sweep import pareto

__all__ = ["plot_loss", "plot_pareto", "plot_steps"]

_INK, _LINE, _SOFT, _GREY = "#333333", "#1f6f8b", "#9fc5d1", "#777777"
#: Colours of phases; where there are more phases, the colours come again with a pattern.
_PHASES = ("#1f6f8b", "#63a4b8", "#9fc5d1", "#c9dfe6", "#d9b382", "#c98b5a", "#8f8f8f", "#c4c4c4")
#: Points of a sweep that may all be named.
_NAMED = 40


def plot_loss(path: Path, metrics: Mapping[str, Any]) -> None:
    """Plots loss, accuracy and cycles of a fine-tune on images.

    Loss of each step and its mean over an epoch; accuracy before and after; cycles by phase.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    loss = np.asarray(metrics["loss"], float)
    cycles = metrics.get("cycles")
    figure = Figure(figsize=(9, 4.2 if not cycles else 5.4), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(2 if cycles else 1, 1, height_ratios=[4, 1] if cycles else None, squeeze=False)
    axes = grid[0, 0]
    steps = np.arange(1, len(loss) + 1)
    axes.plot(steps, loss, color=_SOFT, linewidth=0.9, label="a step")
    size = max(1, len(loss) // max(1, int(metrics["epochs"])))
    if len(loss) >= 2 * size:
        ends = np.arange(size, len(loss) + 1, size)
        axes.plot(
            ends,
            [loss[end - size : end].mean() for end in ends],
            color=_LINE,
            marker="o",
            linewidth=1.8,
            label="mean of an epoch",
        )
    axes.set(xlabel="step", ylabel="cross-entropy", xlim=(0, _room(len(loss))))
    axes.locator_params(axis="x", integer=True)
    _from_zero(axes, loss)
    axes.legend(frameon=False)
    axes.set_title(
        f"{metrics['model']}, rank {metrics['rank']}, {metrics['samples']} samples: accuracy "
        f"{100 * metrics['accuracy_before']:.1f} % before, {100 * metrics['accuracy_after']:.1f} % after "
        f"({metrics['engine']})",
        fontsize=10,
        color=_INK,
        loc="left",
    )
    if cycles:
        bar = grid[1, 0]
        left = 0.0
        parts = [(name, count) for name, count in cycles.items() if name != "total" and count]
        for (name, count), (hatch, colour) in zip(parts, itertools.product(("", "///", "..."), _PHASES)):
            share = 100 * count / cycles["total"]
            bar.barh(0, share, left=left, color=colour, edgecolor="white", hatch=hatch, label=f"{name} {share:.0f} %")
            left += share
        bar.set(xlim=(0, 100), yticks=[], xlabel=f"share of {cycles['total']:,} cycles, in %")
        bar.legend(ncols=4, frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 2.1))
    _save(figure, path)


def plot_steps(path: Path, metrics: Mapping[str, Any], what: str, *, loss_unit: str) -> None:
    """Plots the loss of each step.

    ``what`` was fine-tuned is in the title, ``loss_unit`` beside the axis.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    loss = np.asarray(metrics["loss"], float)
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot(np.arange(1, len(loss) + 1), loss, color=_LINE, linewidth=1.8, marker="o" if len(loss) <= 64 else None)
    axes.set(xlabel="step", ylabel=loss_unit, xlim=(0, _room(len(loss))))
    axes.locator_params(axis="x", integer=True)
    _from_zero(axes, loss)
    axes.set_title(
        f"{what}: {metrics['loss_before']:.3f} before, {_loss(metrics['loss_after'])} after ({metrics['engine']})",
        fontsize=10,
        color=_INK,
        loc="left",
    )
    _save(figure, path)


def _from_zero(axes: Any, values: np.ndarray) -> None:
    """An axis from 0, with room for a marker above the largest value."""
    axes.set_ylim(bottom=0)
    finite = values[np.isfinite(values)]
    if finite.size and finite.max() > 0:
        axes.set_ylim(top=1.08 * finite.max())


def _room(steps: int) -> float:
    """The end of an axis of steps, half a marker behind the last."""
    return steps + max(1, 0.01 * steps)


def _loss(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3f}"


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
        left.set_title(f"{preset}: {len(points)} points", fontsize=10, color=_INK, loc="left")
    _save(figure, path)


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
        axes.scatter(*zip(*chosen), color=_SOFT, edgecolor=_LINE, marker=marker, label=codes, zorder=2)
    best = pareto((each, sign * value) for each, value in pairs)
    axes.plot(
        [pairs[n][0] for n in best],
        [pairs[n][1] for n in best],
        color=_LINE,
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
            color=_INK,
            zorder=4,
        )
    if len(rows) <= _NAMED:
        others = {pair: row["rank"] for n, (pair, row) in enumerate(zip(pairs, rows)) if n not in best}
        for pair in set(others) - {pairs[n] for n in best}:
            axes.annotate(others[pair], pair, (6, -3), fontsize=7, textcoords="offset points", color=_GREY, zorder=4)
    unit = "million cycles" if millions else "cycles"
    axes.set(xlabel=f"{unit} an image and epoch, or a token; forecast", ylabel=label)
    axes.margins(0.14)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.tick_params(labelsize=8)
    if rows:
        axes.legend(frameon=False, fontsize=8)


def _save(figure: Any, path: Path | BinaryIO) -> None:
    for each in figure.axes:
        for side in ("top", "right"):
            each.spines[side].set_visible(False)
    figure.savefig(path, dpi=140)
