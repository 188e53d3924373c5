"""Losses of what is held out stand in the picture of a fine-tune's steps."""

from gradloom.systems.plots import plot_steps


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
