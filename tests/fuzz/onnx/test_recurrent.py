"""Recurrent networks of every form: each is computed as onnxruntime does, or refused in one line."""

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from gradloom.models.recurrent.calibrate import Bits, float_logits, quantized
from gradloom.models.recurrent.export import export_recurrent
from gradloom.models.recurrent.readers.native import load_native
from gradloom.models.recurrent.readers.reader import load_recurrent
from gradloom.models.recurrent.stored import save_network
from gradloom.systems.sequences.answer import infer_sequences

from ...models.recurrent.models import CONV, saved, some_windows, unfused
from ..looks import DEEP
from .bounds import bounded
from .recurrent import HARMFUL, draw

COUNT = 3000 if DEEP else 45
#: Dense layers behind each other are one here and two there: their errors are of two products.
_SLACK = 8


def read(drawn, path):
    """``(network, reason)``: one of them."""
    onnx.save(drawn.model, str(path))
    try:
        return load_native(path), ""
    except ValueError as error:
        said = str(error)
        assert said.startswith(f"{path}: ") and "\n" not in said and len(said) > len(str(path)) + 12, said
        return None, said.removeprefix(f"{path}: ")


def check(network, drawn, path):
    """Answers, scores and the graph's own output by onnxruntime."""
    (want, *_) = unfused(path, drawn.feeds).values()
    value, error = bounded(network, drawn.x)
    scores = float_logits(network, drawn.x)
    np.testing.assert_allclose(network.answer(scores), value, rtol=1e-9, atol=1e-12)
    if want.ndim < value.ndim or len(drawn.order) < value.ndim:
        want = want.reshape(value.shape)
    else:
        want = want.transpose([drawn.order.index(each) for each in ("ntc" if value.ndim == 3 else "nc")])
    if want.shape[-1] == 1 and value.shape[-1] == 2:  # one logit of two classes
        assert not scores[..., 0].any()
        labels = want[..., 0] > (0.5 if "sigmoid" in drawn.tail or "s" in drawn.tail else 0)
        near = np.abs(value[..., 1]) < _SLACK * error[..., 1]
        assert ((scores.argmax(axis=-1) == labels) | near).all()
        value, error = value[..., 1:], error[..., 1:]
        if "sigmoid" in drawn.tail:
            value = 1 / (1 + np.exp(-value))
    far = np.abs(want - value) > _SLACK * error + 1e-6
    assert not far.any(), (np.abs(want - value).max(), error.max())


def test_what_is_harmless_is_accepted_and_equal(tmp_path):
    refused = Counter()
    for seed in range(COUNT):
        drawn = draw(seed)
        network, why = read(drawn, tmp_path / "m.onnx")
        if network is None:
            refused[why] += 1
            continue
        check(network, drawn, tmp_path / "m.onnx")
    for why, count in refused.most_common():
        print(count, why)
    assert sum(refused.values()) <= COUNT / 20


def test_what_means_something_else_is_refused_or_equal(tmp_path):
    found = Counter()
    for seed in range(COUNT):
        drawn = draw(10_000 + seed, HARMFUL[seed % len(HARMFUL)])
        network, why = read(drawn, tmp_path / "m.onnx")
        found[drawn.harmful, network is None] += 1
        if network is not None:
            check(network, drawn, tmp_path / "m.onnx")
    print(found)
    for harmful in HARMFUL:
        assert found[harmful, True] > found[harmful, False], harmful


def put(model, kind, inputs, *, instead="logits", **attributes):
    """A node behind the network, whose result is its first output in place of ``instead``."""
    for node in model.graph.node:
        for names in (node.output, node.input):
            names[:] = ["before" if name == instead else name for name in names]
    model.graph.node.append(helper.make_node(kind, inputs, ["logits"], name="put", **attributes))


def held(model, value):
    name = f"held{len(model.graph.initializer)}"
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return name


def sigmoid(model):
    put(model, "Sigmoid", ["before"])


def softmax(model):
    put(model, "Softmax", ["before"], axis=1)


def relu_and_dense(model):
    put(model, "Relu", ["before"])
    weight = np.random.default_rng(1).normal(size=(7, 3)).astype(np.float32)
    model.graph.node[-1].output[0] = model.graph.node[-1].name = "rectified"
    put(model, "MatMul", ["rectified", held(model, weight)], instead="")


def float_dense(model):
    _unheaded(model)
    weight = np.random.default_rng(1).normal(size=(64, 3)).astype(np.float32)
    put(model, "MatMul", ["h_last", held(model, weight)], instead="")


def greatest(model):
    _unheaded(model)
    put(model, "ReduceMax", ["h_all", held(model, np.array([0]))], instead="", keepdims=0)


def tanh_of_all(model):
    _unheaded(model)
    put(model, "Tanh", ["h_all"], instead="")


def one_logit(model):
    for name, more in (("fc_w_i8", 0), ("fc_b", 3)):  # so that there are answers of both classes
        (each,) = (each for each in model.graph.initializer if each.name == name)
        value = numpy_helper.to_array(each)[:1]
        each.CopyFrom(numpy_helper.from_array(value + value.dtype.type(more), name))


def states_added(model):
    _unheaded(model)
    put(model, "Add", ["h_last", "c_last"], instead="")
    return "node 'put'.*not supported behind the recurrent nodes"


def quantised_again(model):
    scale, zero = held(model, np.float32(0.5)), held(model, np.int8(0))
    put(model, "QuantizeLinear", ["before", scale, zero])
    put(model, "DequantizeLinear", ["code", scale, zero], instead="")
    model.graph.node[-2].output[0] = "code"
    return "its quantiser is not supported behind"


def unknown(model):
    put(model, "Softsign", ["before"])
    return r"node 'put' \(Softsign\): operator is not supported"


def two_answers(model):
    model.graph.node.append(helper.make_node("Sigmoid", ["logits"], ["other"]))
    model.graph.output.append(helper.make_tensor_value_info("other", 1, None))
    return "outputs 'logits' and 'other': one answer"


def _unheaded(model):
    (gemm,) = (node for node in model.graph.node if node.op_type == "Gemm")
    model.graph.node.remove(gemm)


BEHIND = (
    sigmoid,
    softmax,
    relu_and_dense,
    float_dense,
    greatest,
    tanh_of_all,
    one_logit,
    states_added,
    quantised_again,
    unknown,
    two_answers,
)


def answered(model, x, path, engine="reference"):
    """What ``gradloom infer`` writes."""
    np.savez(path / "x.npz", x=x)
    infer_sequences(model, data=path / "x.npz", engine=engine, output=path / "out.npz")
    with np.load(path / "out.npz") as file:
        return {name: file[name] for name in file.files}


def test_a_quantised_network_is_the_graph_that_it_is_exported_as(tmp_path):
    """Hidden states code for code; what the host computes around them within float32."""
    exported = 0
    for seed in range(20_000, 20_000 + COUNT // 8):
        drawn = draw(seed)
        network, _ = read(drawn, tmp_path / "m.onnx")
        made = quantized(network, drawn.x, Bits.of("W8A6C8"))
        save_network(made, tmp_path / "net")
        found = answered(tmp_path / "net", drawn.x, tmp_path)
        real = answered(tmp_path / "net", drawn.x, tmp_path, "float")
        assert found.keys() - {"c", "u"} == real.keys() and found["h"].shape == real["h"].shape
        if drawn.kind != "LSTM":
            continue
        export_recurrent(made, tmp_path / "q.onnx")
        feeds = {"x": drawn.x}
        for each in onnx.load(tmp_path / "q.onnx").graph.input[1:]:
            feeds[each.name] = np.zeros((len(drawn.x), each.type.tensor_type.shape.dim[1].dim_value), np.float32)
        want = unfused(tmp_path / "q.onnx", feeds)
        scale = made.cell.hidden.scale
        np.testing.assert_array_equal(found["h"], np.rint(want["h_all"] / scale).transpose(1, 0, 2))
        (told,) = want.keys() & {"logits", "answer"}
        own, theirs = found["answers" if "answers" in found else "logits"], want[told]
        theirs = theirs.transpose(1, 0, 2) if theirs.ndim == 3 else theirs
        np.testing.assert_allclose(own, theirs, rtol=1e-4, atol=1e-5)
        again = answered(tmp_path / "q.onnx", drawn.x, tmp_path)
        for name, value in found.items():
            if value.dtype.kind == "f":
                np.testing.assert_allclose(again[name], value, rtol=1e-5, atol=1e-6)
            else:
                np.testing.assert_array_equal(again[name], value)
        exported += 1
    assert exported >= COUNT // 32


@pytest.mark.parametrize("changed", BEHIND, ids=lambda each: each.__name__)
def test_what_stands_behind_a_quantised_network_is_computed_or_refused(changed, tmp_path):
    """The golden network with other nodes behind its states: codes are its own, and the answer is onnxruntime's."""
    model = onnx.load(CONV)
    said = changed(model)
    path = saved(model, tmp_path)
    if said:
        with pytest.raises(ValueError, match=said):
            load_recurrent(path)
        return
    feeds = some_windows(16)
    found, want = answered(path, feeds["x"], tmp_path), unfused(path, feeds)
    np.testing.assert_array_equal(found["h"], np.rint(want["h_all"] * 32).transpose(1, 0, 2))
    own, theirs = found["answers" if "answers" in found else "logits"], want["logits"]
    if theirs.ndim == 3:
        theirs = theirs.transpose(1, 0, 2)
    if theirs.shape[-1] == 1:
        own = own[..., 1:]
        assert found["labels"].any() and not found["labels"].all()
    np.testing.assert_allclose(own, theirs, rtol=1e-5, atol=1e-5)
