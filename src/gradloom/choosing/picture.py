"""The picture of a choice."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradloom.output import some
from gradloom.systems.plots import headline

__all__ = ["plot_choice"]

#: The line of the loss before stands where it is at most so many times the finalists' spread away.
_NEAR = 6
#: Times over so many times the least have a logarithmic axis.
_WIDE = 5
#: In points: half a dot, a letter, a line of a label, and where it may stand below or above its dot.
_DOT, _LETTER, _HEIGHT, _OFFSETS = 4, 4.4, 9, (-12, 5, -22, 15, -4)
#: Of what a loss is the mean, by what a result has.
_EACH = {"images": "an image", "samples": "a sample"}
#: Left, lower, right and upper edge.
_Box = tuple[float, float, float, float]
_INK, _LINE, _SOFT, _GREY = "#333333", "#1f6f8b", "#9fc5d1", "#bbbbbb"


def plot_choice(path: Path, result: Mapping[str, Any]) -> None:
    """Memory over time of candidates, and loss over time of finalists.

    The chosen finalist is filled. The loss is that of an image or a sample where ``result`` has some, else of a token.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    each = next((name for key, name in _EACH.items() if key in result), "a token")
    figure = Figure(figsize=(12, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for within, colour, label in ((False, _GREY, "beyond a budget"), (True, _SOFT, "within the budgets")):
        rows = [row for row in result["offers"] if row["within"] is within]
        if rows:
            left.scatter(
                [row["seconds"] for row in rows],
                [row["beside_frozen_bytes"] / 1e6 for row in rows],
                s=14,
                color=colour,
                label=label,
            )
    rows = [row for row in result["finalists"] if row["held_out"] is not None]
    left.scatter(
        [row["seconds"] for row in rows],
        [row["beside_frozen_bytes"] / 1e6 for row in rows],
        s=40,
        facecolor="none",
        edgecolor=_LINE,
        label="finalists",
    )
    left.set(xlabel="seconds of the fine-tune, forecast", ylabel="MB beside the frozen model")
    times = [row["seconds"] for row in result["offers"]]
    if max(times) > _WIDE * min(times):
        left.set_xscale("log")
        left.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        left.xaxis.set_minor_locator(NullLocator())
        left.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    headline(left, f"{result['model']} on {result['board']}: {some(result['candidates'], 'candidate')}")
    left.legend(frameon=False, fontsize=8)
    before, losses = result["held_out_before"], [row["held_out"] for row in rows]
    near = not losses or before - min(losses) < _NEAR * (max(losses) - min(losses) or 1)
    if near:
        right.axhline(before, color=_GREY, linewidth=1, linestyle="--", label="before")
    for row in rows:
        chosen = row is result["finalists"][0]
        right.scatter(row["seconds"], row["held_out"], s=60, facecolor=_LINE if chosen else "white", edgecolor=_LINE)
    right.set(xlabel="seconds of the fine-tune, forecast", ylabel=f"held-out loss after the short run, nats {each}")
    right.margins(0.2)
    title = "finalists, the chosen one filled"
    headline(right, title if near else f"{title}; before: {before:.4g}")
    if near:
        right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.draw_without_rendering()
    _label(right, rows)
    figure.savefig(path, dpi=140)


def _label(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Names finalists beside their points, where there is room."""
    places = (
        axes.transData.transform([(row["seconds"], row["held_out"]) for row in rows]) * 72 / axes.figure.dpi
    ).tolist()
    taken = [(x - _DOT, y - _DOT, x + _DOT, y + _DOT) for x, y in places]
    for (x, y), row in zip(places, rows, strict=True):
        left, right = x + 2 * _DOT, x + 2 * _DOT + _LETTER * len(row["learns"])
        boxes = [(left, y + offset, right, y + offset + _HEIGHT) for offset in _OFFSETS]
        box = next((box for box in boxes if not any(_meet(box, other) for other in taken)), boxes[0])
        taken.append(box)
        axes.annotate(
            row["learns"],
            (row["seconds"], row["held_out"]),
            (box[0] - x, box[1] - y),
            textcoords="offset points",
            fontsize=8,
            color=_INK,
        )


def _meet(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
