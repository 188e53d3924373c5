"""Pictures of fine-tunes."""

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gradloom.output import some

__all__ = ["GREY", "INK", "LINE", "SOFT", "headline", "plot_loss", "plot_steps", "save"]

INK, LINE, SOFT, GREY = "#333333", "#1f6f8b", "#9fc5d1", "#777777"
#: Share of a part of a figure that its axes have at least in width.
_WIDTH = 0.85
#: Colours of phases; where there are more phases, the colours come again with a pattern.
_PHASES = ("#1f6f8b", "#63a4b8", "#9fc5d1", "#c9dfe6", "#d9b382", "#c98b5a", "#8f8f8f", "#c4c4c4")


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
    axes.plot(steps, loss, color=SOFT, linewidth=0.9, label="a step")
    size = max(1, len(loss) // max(1, int(metrics["epochs"])))
    if len(loss) >= 2 * size:
        ends = np.arange(size, len(loss) + 1, size)
        axes.plot(
            ends,
            [loss[end - size : end].mean() for end in ends],
            color=LINE,
            marker="o",
            linewidth=1.8,
            label="mean of an epoch",
        )
    _held_out(axes, metrics)
    axes.set(xlabel="step", ylabel="cross-entropy", xlim=(0, _room(len(loss))))
    axes.locator_params(axis="x", integer=True)
    _from_zero(axes)
    axes.legend(frameon=False)
    headline(
        axes,
        f"{metrics['model']}, rank {metrics['rank']}, {some(metrics['samples'], 'sample')}: accuracy "
        f"{100 * metrics['accuracy_before']:.1f} % before, {100 * metrics['accuracy_after']:.1f} % after "
        f"({metrics['engine']})",
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
    save(figure, path)


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
    axes.plot(
        np.arange(1, len(loss) + 1),
        loss,
        color=LINE,
        linewidth=1.8,
        marker="o" if len(loss) <= 64 else None,
        label="learnt",
    )
    if _held_out(axes, metrics):
        axes.legend(frameon=False)
    axes.set(xlabel="step", ylabel=loss_unit, xlim=(0, _room(len(loss))))
    axes.locator_params(axis="x", integer=True)
    _from_zero(axes)
    headline(
        axes, f"{what}: {metrics['loss_before']:.3f} before, {_loss(metrics['loss_after'])} after ({metrics['engine']})"
    )
    save(figure, path)


def headline(axes: Any, text: str) -> None:
    """A title of as many lines as its part of the figure needs: names of models and lists of layers are of any length.

    Dollars are dollars, not mathematics.
    """
    title = axes.set_title("", fontsize=10, color=INK, loc="left", parse_math=False)
    room = _WIDTH * axes.figure.bbox.width / axes.get_gridspec().ncols
    measure, font = axes.figure.canvas.get_renderer().get_text_width_height_descent, title.get_fontproperties()
    lines = [""]
    for piece in re.split(r"(?<=[ /_.-])", text):
        for part in [piece] if measure(piece, font, False)[0] <= room else piece:
            if measure(lines[-1] + part.rstrip(), font, False)[0] > room:
                lines.append("")
            lines[-1] += part
    title.set_text("\n".join(line.rstrip() for line in lines))


def _held_out(axes: Any, metrics: Mapping[str, Any]) -> bool:
    """Draws the losses of what is held out, if there are any."""
    held = metrics.get("held_out_losses")
    if not held:
        return False
    # A loss after so many steps stands where the next step's loss would.
    places = [each["step"] + 1 for each in held]
    judged = np.array([each["loss"] for each in held], float)
    axes.plot(places, judged, color=INK, linewidth=1.2, marker="s", markersize=4, label="held out")
    return True


def _from_zero(axes: Any) -> None:
    """An axis from 0, with room for a marker above the largest value."""
    axes.set_ylim(bottom=0)
    drawn = np.concatenate([np.asarray(line.get_ydata(), float) for line in axes.lines])
    finite = drawn[np.isfinite(drawn)]
    if finite.size and finite.max() > 0:
        axes.set_ylim(top=1.08 * finite.max())


def _room(steps: int) -> float:
    """The end of an axis of steps, half a marker behind what is judged after the last."""
    return steps + max(1.5, 0.015 * steps)


def _loss(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3f}"


def save(figure: Any, path: Path | BinaryIO) -> None:
    """Writes a figure without the frame's upper and right edges."""
    for each in figure.axes:
        for side in ("top", "right"):
            each.spines[side].set_visible(False)
    figure.savefig(path, dpi=140)
