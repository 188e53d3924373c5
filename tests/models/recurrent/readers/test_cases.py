"""Graphs of recurrent nodes in floating point: each computes what onnxruntime does, or is refused in one line.

The cases stand in files of text: what is behind the recurrent nodes, in front of them, and the nodes themselves.
"""

import numpy as np
import onnx
import pytest

from gradloom.models.recurrent.calibrate import float_logits, float_states
from gradloom.models.recurrent.readers.native import load_native

from ..models import saved, unfused
from .graphs import cases, numbers, refusal


def fed(model):
    """Inputs of a model: numbers, tokens, and states of 0; open sizes are 2, and 6 behind the first axis."""
    feeds = {}
    for at, each in enumerate(model.graph.input):
        kind = each.type.tensor_type
        shape = [dim.dim_value or (6 if axis else 2) for axis, dim in enumerate(kind.shape.dim)]
        if kind.elem_type == onnx.TensorProto.INT64:
            feeds[each.name] = np.random.default_rng(3).integers(0, 7, shape)
        else:
            feeds[each.name] = numbers(*shape, seed=3, scale=0 if at else 1)
    return feeds


def told(network):
    """What a network has behind and in front of its recurrent layers."""
    tail = [getattr(each, "op", "dense") for each in network.tail]
    return [network.pick, *tail, *(["in_front", *(each.op for each in network.before)] if network.before else [])]


@pytest.mark.parametrize("case", cases("behind.txt", "before.txt", "nodes.txt"))
def test_a_graph_is_what_it_computes_or_is_refused(case, tmp_path):
    model = case.model()
    if case.kind == "!":
        assert refusal(model, tmp_path) == case.expected
        return
    path = saved(model, tmp_path)
    network = load_native(path)
    assert told(network) == case.expected.split()
    if case.kind == "~":
        return
    feeds = fed(model)
    want, x = next(iter(unfused(path, feeds).values())), next(iter(feeds.values()))
    if "(x, W" in case.text:
        x = x.swapaxes(0, 1)  # the graph has the steps in front
    if network.answers or network.tail:
        found = network.answer(float_logits(network, x))
        if network.one_logit:
            # Of two logits the first is 0, and a Sigmoid of the other is part of the classes.
            found = 1 / (1 + np.exp(-found[:, 1:])) if case.text.endswith("Sigmoid(c)") else found[:, 1:]
        np.testing.assert_allclose(found, want.transpose(1, 0, 2) if case.expected == "all" else want, atol=1e-5)
    else:
        states = float_states(network, x)
        found = states[:, -1] if want.size < states.size else states.transpose(1, 0, 2)
        np.testing.assert_allclose(found.ravel(), want.ravel()[: found.size], atol=1e-5)
