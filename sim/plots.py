"""Pictures of results."""
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["plot_loss", "plot_steps"]

_INK, _LINE, _SOFT = "#333333", "#1f6f8b", "#9fc5d1"


def plot_loss(path: Path, metrics: Mapping[str, Any]) -> None:
    """Loss of each step and its mean over an epoch; accuracy before and after; where the cycles went."""
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
        axes.plot(ends, [loss[end - size:end].mean() for end in ends], color=_LINE, marker="o", linewidth=1.8,
                  label="mean of an epoch")
    axes.set(xlabel="step", ylabel="cross-entropy", xlim=(0, len(loss) + 1))
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    axes.set_title(f"{metrics['model']}, rank {metrics['rank']}, {metrics['samples']} images: accuracy "
                   f"{100 * metrics['accuracy_before']:.1f} % before, {100 * metrics['accuracy_after']:.1f} % after "
                   f"({metrics['engine']})", fontsize=10, color=_INK, loc="left")
    if cycles:
        bar = grid[1, 0]
        left = 0.0
        parts = [(name, count) for name, count in cycles.items() if name != "total" and count]
        colours = ("#1f6f8b", "#63a4b8", "#9fc5d1", "#c9dfe6", "#d9b382", "#c98b5a", "#8f8f8f", "#c4c4c4")
        for (name, count), colour in zip(parts, colours):
            share = 100 * count / cycles["total"]
            bar.barh(0, share, left=left, color=colour, edgecolor="white", label=f"{name} {share:.0f} %")
            left += share
        bar.set(xlim=(0, 100), yticks=[], xlabel=f"share of {cycles['total']:,} cycles, in %")
        bar.legend(ncols=4, frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 2.1))
    _save(figure, path)


def plot_steps(path: Path, metrics: Mapping[str, Any]) -> None:
    """Loss of each step of a language model's fine-tune."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    loss = np.asarray(metrics["loss"], float)
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot(np.arange(1, len(loss) + 1), loss, color=_LINE, linewidth=1.8, marker="o" if len(loss) <= 64 else None)
    axes.set(xlabel="step", ylabel="cross-entropy, nats a token", xlim=(0, len(loss) + 1))
    axes.set_ylim(bottom=0)
    axes.set_title(f"{metrics['model']}, rank {metrics['rank']} on {', '.join(metrics['targets'])}, "
                   f"{metrics['tokens']:,} tokens: {metrics['loss_before']:.3f} before, {metrics['loss_after']:.3f} "
                   f"after ({metrics['engine']})", fontsize=10, color=_INK, loc="left")
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    for each in figure.axes:
        for side in ("top", "right"):
            each.spines[side].set_visible(False)
    figure.savefig(path, dpi=140)
