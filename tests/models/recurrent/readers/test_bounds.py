"""Bounds of layers in front of the recurrent node: at the bound, and one beyond it."""

import pytest

from gradloom.models.recurrent.readers import layers, planes
from gradloom.models.recurrent.readers.native import load_native

from ..models import saved
from .graphs import AROUND, made, refusal

#: A plane of 2 x 3 of 2 channels, of 1 x 5 of 4 features; and a mean of 4 channels.
PLANE = made(AROUND["p"].replace("@", "b = Conv(u, f_2_1_3_3)"))
MEAN = made(AROUND["n"].replace("@", "b = AveragePool<kernel_shape=[3]>(a)"))
SQUARE = made(AROUND["1"].replace("@", "a = Relu(h); b = Mul(a, K3)"))


def test_weights_over_steps_alone_have_a_bound(monkeypatch, tmp_path):
    elements = 2 * 2 * 1 * 4 * 3
    monkeypatch.setattr(planes, "_MOST", elements)
    assert load_native(saved(PLANE, tmp_path)).front[0].weight.size == elements
    monkeypatch.setattr(planes, "_MOST", elements - 1)
    said = "node 'b': over steps alone its weights have 48 elements: at most 47"
    assert refusal(PLANE, tmp_path) == said


@pytest.mark.parametrize(("model", "name", "count"), [(MEAN, "b' (AveragePool)", 4), (SQUARE, "b' (Mul)", 3)])
def test_a_square_of_weights_has_a_bound(model, name, count, monkeypatch, tmp_path):
    monkeypatch.setattr(layers, "_MOST_CHANNELS", count)
    assert refusal(model, tmp_path) is None
    monkeypatch.setattr(layers, "_MOST_CHANNELS", count - 1)
    assert refusal(model, tmp_path) == f"node '{name}: it has {count} channels: at most {count - 1} here"


def test_the_bounds_are_those_that_are_documented():
    assert (planes._MOST, layers._MOST_CHANNELS) == (1 << 26, 1 << 12)


def test_an_input_without_a_shape_is_refused(tmp_path):
    model = made("y, h, s = LSTM<hidden_size=3>(x, W, U, B)")
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert refusal(model, tmp_path) == "node 'y' (LSTM): its input 'x' must be a value with 3 dimensions"
