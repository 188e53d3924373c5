"""ONNX' own test models, as they are and within a network: each is computed as it should be, or refused in one line."""

import importlib
import pkgutil
import random
import warnings
from dataclasses import replace

import numpy as np
import onnx.backend.test.case.node as node_cases
import pytest
from onnx import TensorProto, helper, numpy_helper

from gradloom.models.onnx_import import load_onnx
from gradloom.models.recurrent.readers.native import load_native
from gradloom.models.recurrent.readers.reader import load_recurrent
from gradloom.systems.images.mathematics import forward

from ..looks import DEEP
from .runtime import gamma, runtime

#: Of some 1,650, unless all are asked for.
COUNT = 200
#: Modules with cases of operators that image networks have, but for MaxPool, whose cases take seconds to make.
OWN = "add batchnorm conv div dropout flatten gemm identity matmul mul pad relu reshape squeeze sub transpose".split()


def images(path):
    """What the reader of image networks makes of a file: a function of samples."""
    network = load_onnx(path)

    def answers(x):
        logits = forward(network, network.pixel_map(x.reshape(len(x), *network.input_shape)))[1]
        return logits[:, 1:] if network.one_logit else logits

    return answers


#: Readers: each takes a file and gives a function from the graph's input to its first output, or None.
READERS = {
    "images": images,
    "recurrent, float": lambda path: load_native(path) and None,
    "recurrent, quantised": lambda path: load_recurrent(path) and None,
}


@pytest.fixture(scope="module")
def every():
    """All cases, or those of a quarter of the operators and of image networks': making all takes a while."""
    names = sorted(each.name for each in pkgutil.iter_modules(node_cases.__path__))
    chosen = names if DEEP else {*random.Random(46).sample(names, len(names) // 4), *OWN}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in sorted(chosen):
            importlib.import_module(f"{node_cases.__name__}.{name}")
    return sorted(node_cases._NodeTestCases, key=lambda each: each.name)


@pytest.fixture(scope="module")
def cases(every):
    return every if DEEP else random.Random(46).sample(every, COUNT)


def read(reader, path, model):
    """``(answers, reason)``: one of them."""
    path.write_bytes(model.SerializeToString())
    try:
        return READERS[reader](path), ""
    except ValueError as error:
        said = str(error)
        assert said.startswith(f"{path}: ") and "\n" not in said and len(said) > len(str(path)) + 12, said
        return None, said


@pytest.mark.parametrize("reader", READERS)
def test_a_case_is_read_or_refused_in_a_line(reader, cases, tmp_path):
    for case in cases:
        answers, _ = read(reader, tmp_path / "m.onnx", case.model)
        if answers is not None:
            (x, *_), (want, *_) = case.data_sets[0]
            np.testing.assert_allclose(answers(x).reshape(want.shape), want, rtol=case.rtol, atol=case.atol)


def within_a_network(case):
    """The case between two layers, its further inputs constants; None where it does not go there."""
    given, (want, *_) = case.data_sets[0]
    if not given:
        return None
    x, *rest = given
    if not all(isinstance(each, np.ndarray) for each in (x, want, *rest)):
        return None
    if x.dtype != np.float32 or want.dtype != np.float32 or x.ndim not in (2, 4) or not x.size or not want.size:
        return None
    if want.ndim < 2 or want.shape[0] != x.shape[0]:
        return None
    graph, random = case.model.graph, np.random.default_rng(x.size)
    first, *others = [each.name for each in graph.input]
    weights = [numpy_helper.from_array(value, name) for name, value in zip(others, rest)]
    channels = x.shape[1]
    for name, shape in (("front", (channels, channels) + (1,) * (x.ndim - 2)), ("head", (want[0].size, 3))):
        weights.append(numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name))
    nodes = [
        helper.make_node("Conv" if x.ndim == 4 else "MatMul", ["image", "front"], [first]),
        *graph.node,
        helper.make_node("Flatten", [graph.output[0].name], ["flat"], axis=1),
        helper.make_node("MatMul", ["flat", "head"], ["logits"]),
    ]
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
        for name, shape in (("image", x.shape), ("logits", (len(x), 3)))
    )
    return helper.make_model(
        helper.make_graph(nodes, "within", inputs, outputs, weights),
        opset_imports=case.model.opset_import,
        ir_version=min(case.model.ir_version, 10),
        functions=case.model.functions,
    )


def test_a_case_within_a_network_is_computed_or_refused_in_a_line(every, tmp_path):
    taken = []
    for case in every:
        if (model := within_a_network(case)) is None:
            continue
        answers, _ = read("images", tmp_path / "m.onnx", model)
        if answers is None:
            continue
        x = case.data_sets[0][0][0]
        want = runtime(model, x)
        network = load_onnx(tmp_path / "m.onnx")
        layers = [replace(each, weight=np.abs(each.weight), bias=np.abs(each.bias)) for each in network.layers]
        most = forward(replace(network, layers=layers), np.abs(x.reshape(len(x), *network.input_shape)))[1]
        roundings = sum(each.weight[0].size + 8 for each in layers)
        assert (np.abs(answers(x) - want) <= 4 * gamma(roundings) * most).all(), case.name
        taken.append(case.name)
    print(len(taken), "taken:", *taken)
    assert len(taken) >= 20
