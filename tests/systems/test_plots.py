"""Pictures of fine-tunes: losses of what is held out stand in them, and titles whole."""

import pytest

from gradloom.systems.plots import headline, plot_steps


def test_held_out_losses_are_drawn(tmp_path, monkeypatch):
    from matplotlib.axes import Axes

    drawn, axes = {}, []
    plot = Axes.plot

    def noted(self, x, y, *more, **style):
        drawn[style["label"]] = (list(x), list(y))
        axes.append(self)
        return plot(self, x, y, *more, **style)

    monkeypatch.setattr(Axes, "plot", noted)
    metrics = {"loss": [3.0, 2.0], "loss_before": 3.0, "loss_after": 1.5, "engine": "float"}
    plot_steps(tmp_path / "a.png", metrics, "m", loss_unit="nats")
    assert set(drawn) == {"learnt"}
    held = [{"step": 0, "loss": 3.5}, {"step": 2, "loss": 2.5}]
    plot_steps(tmp_path / "b.png", metrics | {"held_out_losses": held}, "m", loss_unit="nats")
    assert drawn["held out"] == ([1, 3], [3.5, 2.5]) and drawn["learnt"] == ([1, 2], [3.0, 2.0])
    # Markers lie within the frame.
    assert axes[-1].get_xlim()[1] > 3 and axes[-1].get_ylim()[1] > 3.5


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize(
    "text",
    [
        "gemma2, rank 8 on down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj, 510 tokens: 8.270 before",
        "W" * 80 + ": 8.270 before, 7.662 after",
        "a $price$ in $dollars: 8.270 before",
    ],
)
def test_a_title_is_whole_within_its_part_of_the_figure(text, columns):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    figure = Figure(figsize=(9, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, columns, squeeze=False)[0]
    headline(axes[-1], text)
    figure.draw_without_rendering()
    title = next(each for each in axes[-1].get_children() if isinstance(each, Text) and each.get_text())
    box = title.get_window_extent()
    assert box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1 and box.height < figure.bbox.height / 4
    assert title.get_text().replace("\n", "").replace(" ", "") == text.replace(" ", "")
    # No dollar is taken for mathematics.
    assert not title.get_parse_math()
