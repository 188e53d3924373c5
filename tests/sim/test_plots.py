"""Pictures of results: what stands at their axes."""

import pytest

from gradloom.sweeping import picture
from gradloom.systems import plots


@pytest.fixture
def drawn(monkeypatch):
    """Figures, drawn and not saved."""
    figures = []

    def save(figure, path):
        figure.canvas.draw()
        figures.append(figure)

    monkeypatch.setattr(plots, "save", save)
    monkeypatch.setattr(picture, "save", save)
    return figures


def marks(axis):
    return [(place, label.get_text()) for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels())]


@pytest.mark.parametrize("cycles", [(161.2,), (160.1, 161.2), (3.1e6, 3.9e6)])
def test_a_sweeps_marks_are_where_their_labels_say(drawn, cycles):
    rows = [
        {"preset": "p", "rank": "2", "mesh": "4x4", "codes": "nf4", "lut": "", "accuracy": "0.5", "dsp": str(60 + at)}
        | {"cycles": "1", "cycles_a_unit": str(each), "memory_bytes": "4"}
        for at, each in enumerate(cycles)
    ]
    picture.plot_pareto("unused", rows)
    (figure,) = drawn
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            assert all(float(text.replace(",", "")) == pytest.approx(place, rel=1e-9) for place, text in marks(axis))


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_steps_are_whole(drawn, steps):
    metrics = {"loss": [2.0] * steps, "loss_before": 2.0, "loss_after": None, "engine": "float"}
    plots.plot_steps("unused", metrics, "a text", loss_unit="nats a token")
    images = {"loss": [2.0] * steps, "epochs": 1, "model": "m", "rank": 4, "samples": 9, "engine": "float"}
    plots.plot_loss("unused", images | {"accuracy_before": 0.1, "accuracy_after": 0.9})
    for figure in drawn:
        (axes,) = figure.axes
        assert all(place == int(place) for place, _ in marks(axes.xaxis))


@pytest.mark.parametrize("phases", [3, 9, 20])
def test_every_phase_has_a_bar_of_its_own(drawn, phases):
    cycles = {f"phase{n}": 5 for n in range(phases)} | {"none": 0, "total": 5 * phases}
    images = {"loss": [2.0, 1.0], "epochs": 1, "model": "m", "rank": 4, "samples": 9, "engine": "rtl"}
    plots.plot_loss("unused", images | {"accuracy_before": 0.1, "accuracy_after": 0.9, "cycles": cycles})
    bars = drawn[0].axes[1].patches
    assert sum(bar.get_width() for bar in bars) == pytest.approx(100)
    assert len({(bar.get_facecolor(), bar.get_hatch()) for bar in bars}) == len(bars) == phases


def test_a_curve_that_hardly_falls_has_room_above_it(drawn):
    metrics = {"loss": [4.2, 4.19, None], "loss_before": 4.2, "loss_after": 4.19, "engine": "float"}
    plots.plot_steps("unused", metrics, "a text", loss_unit="nats a token")
    assert drawn[0].axes[0].get_ylim() == pytest.approx((0, 1.08 * 4.2))


@pytest.mark.parametrize("steps", [4, 210, 5000])
def test_the_last_marker_is_whole(drawn, steps):
    images = {"loss": [2.0] * steps, "epochs": 2, "model": "m", "rank": 4, "samples": 9, "engine": "float"}
    plots.plot_loss("unused", images | {"accuracy_before": 0.1, "accuracy_after": 0.9})
    (axes,) = drawn[0].axes
    last, edge = axes.transData.transform([(steps, 1), (axes.get_xlim()[1], 1)])[:, 0]
    markers = axes.lines[1]
    assert edge - last >= markers.get_markersize() / 2 * drawn[0].dpi / 72
