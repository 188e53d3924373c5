"""Graphs with one number that is wrong: what onnxruntime refuses is refused, and what is taken is computed as there."""

import numpy as np
import onnxruntime.capi.onnxruntime_pybind11_state as errors
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import AttributeProto, numpy_helper

from gradloom.graph.mathematics import FloatReading
from gradloom.graph.onnx.load import network_of

from .corpus import CORPUS
from .made import Maker, agreement
from .test_nodes import TAKEN
from .test_random import DEEP, models

REFUSALS = (errors.Fail, errors.InvalidArgument, errors.InvalidGraph, errors.NotImplemented, errors.RuntimeException)


def resized(draw, value):
    """A constant with another size of an axis, or another axis."""
    if not value.ndim or draw(st.integers(0, 3)) == 0:
        return value[None] if draw(st.booleans()) else value.T.copy()
    axis = draw(st.integers(0, value.ndim - 1))
    if draw(st.booleans()) and value.shape[axis] > 1:
        return np.take(value, range(value.shape[axis] - 1), axis)
    return np.concatenate([value, np.take(value, [0], axis)], axis)


def taken(name):
    """A model of one node, or of some."""
    opset, shape, make = TAKEN[name]
    g = Maker(opset, *shape)
    return g.model(make(g))


@st.composite
def wrong(draw):
    """A model in which a weight has another shape, or a number of an attribute or of a shape is another."""
    one = st.sampled_from(sorted(TAKEN)).map(taken)
    operators = st.sampled_from(sorted(CORPUS)).map(lambda name: CORPUS[name]())
    model = draw(models() | one | operators)
    numbers = [
        each
        for node in model.graph.node
        for each in node.attribute
        if each.type in (AttributeProto.INT, AttributeProto.INTS)
    ]
    weights = list(model.graph.initializer)
    assume(numbers or weights)
    at = draw(st.integers(0, len(numbers) + len(weights) - 1))
    by = draw(st.sampled_from((-2, -1, 1, 2, 7)))
    if at < len(numbers):
        each = numbers[at]
        if each.type == AttributeProto.INT:
            each.i += by
        elif each.ints:
            place = draw(st.integers(0, len(each.ints) - 1))
            if draw(st.booleans()):
                each.ints[place] += by
            else:
                del each.ints[place]
    else:
        each = weights[at - len(numbers)]
        value = numpy_helper.to_array(each).copy()
        if value.dtype.kind == "i" and value.size and draw(st.booleans()):
            value.flat[draw(st.integers(0, value.size - 1))] += by
        else:
            value = resized(draw, value)
        each.CopyFrom(numpy_helper.from_array(value, each.name))
    return model


@settings(
    max_examples=3000 if DEEP else 150, deadline=None, derandomize=not DEEP, suppress_health_check=list(HealthCheck)
)
@given(wrong())
def test_what_onnxruntime_refuses_is_refused_and_the_rest_is_the_same(model):
    try:
        network = network_of(model)
    except ValueError:
        return
    try:
        difference, _ = agreement(model, network, FloatReading(network))
    except REFUSALS as error:
        raise AssertionError(f"taken, and onnxruntime says {error}") from None
    assert difference <= 1e-4
