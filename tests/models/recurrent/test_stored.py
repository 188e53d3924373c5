"""Networks on disk, exports and what is asked of a head: read back exactly, refused in one line otherwise."""

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest

from gradloom.models.recurrent import network as networks
from gradloom.models.recurrent.coding import Coding
from gradloom.models.recurrent.example import example_codes, example_network
from gradloom.models.recurrent.example_cells import example_dense, example_layers
from gradloom.models.recurrent.export import GraphNodes, export_recurrent
from gradloom.models.recurrent.host import FloatDense, Function, HostStep
from gradloom.models.recurrent.stored import load_network, save_network
from gradloom.models.recurrent.taps import check_head
from gradloom.sim.reference import cell

from .models import unfused

MADE = example_network(3, 6, 4, kernel=3, stride=2, outputs=5, classes=3)


def test_an_example_is_read_back_with_every_number(tmp_path):
    tail = (
        FloatDense(weight=np.eye(3), bias=np.ones(3), name="d"),
        Function(op="clip", name="c", lo=-np.inf, hi=1.5),
        Function(op="softmax", name="s"),
    )
    network = replace(MADE, tail=tail, before=(HostStep(op="Sub", value=np.ones(4, np.float32), name="mean"),))
    save_network(network, tmp_path / "net")
    for source in (tmp_path / "net", tmp_path / "net" / "network.json"):
        again = load_network(source)
        assert again.tail[1].lo == -np.inf and again.tail[1].hi == 1.5 and again.tail[2].op == "softmax"
        np.testing.assert_array_equal(again.tail[0].weight, np.eye(3))
        np.testing.assert_array_equal(again.before[0].value, np.ones(4))
        codes = example_codes(network, np.random.default_rng(1), 3, 9)
        assert codes.shape == (3, 9, 4) and codes.min() < -100 and codes.max() > 100
        ran, wanted = (cell.run(each, codes) for each in (again, network))
        np.testing.assert_array_equal(ran.h, wanted.h)
        np.testing.assert_array_equal(cell.logits(again, ran), cell.logits(network, wanted))


def test_an_example_is_drawn_as_it_is_described():
    (conv,) = MADE.front
    assert (conv.weight.shape, conv.stride, conv.pads, conv.coding.lo, conv.coding.hi) == ((5, 4, 3), 2, (1, 1), 0, 31)
    assert (
        MADE.head.weight.shape == (3, 6)
        and MADE.input.scale == 1 / 16
        and (MADE.input.lo, MADE.input.hi) == (-128, 127)
    )
    assert np.abs(conv.weight).max() <= 127 and np.abs(MADE.head.weight).max() <= 127 and set(conv.scale) == {2.0**-8}
    assert MADE.head.weight.dtype == conv.weight.dtype == np.int64
    other = example_network(3, 6, 4, kernel=3, stride=2, outputs=5, classes=3, powers=False).front[0].scale
    assert 0.002 <= other.min() < other.max() <= 0.006
    assert (example_network(4, 6, 4, kernel=3, stride=2, outputs=5, classes=3).head.weight != MADE.head.weight).any()


def test_an_export_has_the_codes_and_the_answer(tmp_path):
    x = np.random.default_rng(2).normal(size=(5, 9, 4)).astype(np.float32)
    zeros = {name: np.zeros((5, 6), np.float32) for name in ("h_init", "c_init")}
    functions = [Function(op=op, name=op) for op in ("relu", "sigmoid", "tanh", "log_softmax", "softmax")]
    tail = (
        FloatDense(weight=np.arange(6.0).reshape(2, 3) / 8, bias=np.array([0.5, -0.5]), name="d"),
        Function(op="clip", name="c", lo=-2.0, hi=1.5),
        *functions,
    )
    for network in (
        MADE,
        replace(MADE, pick="mean"),
        replace(MADE, tail=tail),
        replace(MADE, pick="all", tail=(Function(op="max", name="m"), functions[2])),
        replace(MADE, pick="all", tail=(functions[0], Function(op="mean", name="m"))),
        replace(MADE, pick="all", tail=(functions[0], Function(op="last", name="l"))),
        replace(MADE, pick="max", head=None, tail=tail[:0] + (functions[1],)),
        replace(MADE, pick="last", head=None, tail=()),
    ):
        export_recurrent(network, tmp_path / "m.onnx")
        told = unfused(tmp_path / "m.onnx", {"x": x} | zeros)
        trace = cell.run(network, network.input.codes(x))
        np.testing.assert_array_equal(trace.h * network.cell.hidden.scale, told["h_all"].transpose(1, 0, 2))
        if not network.answers:
            assert set(told) == {"h_last", "c_last", "h_all"}
            continue
        name = "logits" if not network.tail and network.head is not None else "answer"
        if network.head is None:
            reached = (trace.h * network.cell.hidden.scale).max(axis=1)
        else:
            reached = cell.logits(network, trace)
        found = network.answer(network.scores(reached))
        np.testing.assert_allclose(found, told[name], atol=1e-5)
        model = onnx.load(tmp_path / "m.onnx")
        sizes = next(each for each in model.graph.output if each.name in (name, model.graph.output[0].name))
        assert sizes.type.tensor_type.shape.dim[-1].dim_value == found.shape[-1]


def test_what_cannot_be_exported_is_refused(tmp_path):
    levels = replace(MADE, input=Coding(1.0, 0, 1, levels=np.ones((1, 1)), name="in"))
    wide = replace(MADE, input=Coding(1.0, -32769, 32767, name="in"))
    for network, says in (
        (levels, "node 'in': it quantises by thresholds, which QuantizeLinear cannot: only quantisers that round can"),
        (wide, "node 'in': its codes go from -32769 to 32767: at most 16 bits can be exported"),
    ):
        with pytest.raises(ValueError, match=f"^{says}"):
            export_recurrent(network, tmp_path / "m.onnx")
        assert not (tmp_path / "m.onnx").exists()


@pytest.mark.parametrize(
    ("lo", "hi", "dtype", "clipped"),
    [
        (0, 255, np.uint8, False),
        (0, 256, np.uint16, True),
        (-128, 127, np.int8, False),
        (-127, 127, np.int8, True),
        (-128, 128, np.int16, True),
        (0, 65535, np.uint16, False),
        (-32768, 32767, np.int16, False),
        (-1, 255, np.int16, True),
    ],
)
def test_codes_have_the_narrowest_type(lo, hi, dtype, clipped):
    nodes = GraphNodes()
    assert nodes.coded("v", "q", Coding(0.5, lo, hi)) == "q"
    kinds = [each.op_type for each in nodes.nodes]
    assert kinds == ["QuantizeLinear", *["Clip"] * clipped, "DequantizeLinear"]
    held = {each.name: onnx.numpy_helper.to_array(each) for each in nodes.constants}
    assert held["q_zero"].dtype == dtype and (not clipped or (held["q_lo"], held["q_hi"]) == (lo, hi))


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, ": it has no network.json; name an .onnx file, or a folder that gradloom import wrote"),
        ({"network.json": "{"}, "/network.json: is not JSON (.*); is it truncated?"),
        ({"network.json": "[]"}, "/network.json: format=None: must be .*; import the network again"),
        ({"network.json": '{"format": 0}'}, "/network.json: format=0: must be .*; import the network again"),
    ],
)
def test_a_folder_without_a_network_is_one_line(tmp_path, files, says):
    folder = tmp_path / "net"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    with pytest.raises(ValueError) as refused:
        load_network(folder)
    before, _, after = says.partition(".*")
    said = str(refused.value)
    assert said.startswith(f"{folder}{before}") and said.endswith(after) and "\n" not in said


@pytest.mark.parametrize("change", ["kind", "field", "array", "whole"])
def test_a_folder_with_another_network_is_one_line(tmp_path, change):
    save_network(MADE, tmp_path)
    told = json.loads((tmp_path / "network.json").read_text())
    held = told["network"]
    if change == "kind":
        held["kind"] = "Nothing"
    elif change == "field":
        held["more"] = 1
    elif change == "array":
        held["head"]["weight"] = {"array": "none"}
    else:
        told["network"] = held["head"]
    (tmp_path / "network.json").write_text(json.dumps(told))
    with pytest.raises(ValueError, match=r"network.json and network.npz do not hold a network \(.*\); import it"):
        load_network(tmp_path)


def test_sums_have_the_bound_of_the_machine(monkeypatch):
    reach = MADE.integers.cell.reach
    most = max(max(-low, high) for low, high in reach.values())
    monkeypatch.setattr(networks, "_MOST_SUM", most + 1)
    MADE.integers.check()
    monkeypatch.setattr(networks, "_MOST_SUM", most)
    with pytest.raises(ValueError, match=rf"sums reach .*: at most {most - 1}; use narrower codes, or fewer channels$"):
        MADE.integers.check()


SOFT = (Function(op="log_softmax", name="s"),)
BOTH = example_layers("LSTM", 4, 6, 4, both=True, classes=3, pick="last")


@pytest.mark.parametrize(
    ("network", "says"),
    [
        (
            replace(MADE, head=None),
            "has no dense layer behind its recurrent node: adapters need the logits of a sequence",
        ),
        (replace(MADE, head=None, tail=SOFT), "has no dense layer right behind its recurrent node: adapters need"),
        (
            replace(MADE, pick="all"),
            "has a dense layer on each step behind its recurrent node: adapters need the logits",
        ),
        (BOTH, "its dense layer takes the backward direction's state of the last step, its first: adapters need"),
        (
            example_dense(example_layers("LSTM", 4, 6, 4, classes=3), 5, (7, "relu")),
            "has 1 dense layer with activations in front of its last: adapters need the logits of one dense layer",
        ),
        (
            replace(MADE, tail=(Function(op="relu", name="r"),)),
            "has a relu ('r') behind its dense layer: a fine-tune needs a dense layer's logits, which a softmax may",
        ),
        (
            replace(MADE, tail=(*SOFT, FloatDense(weight=np.eye(3), bias=np.ones(3), name="d"))),
            "has a dense layer ('d') behind its dense layer: a fine-tune needs",
        ),
    ],
)
def test_a_head_that_adapters_cannot_have_is_one_line(network, says):
    with pytest.raises(ValueError) as refused:
        check_head(network)
    assert str(refused.value).startswith(f"example: {says}")


def test_a_head_that_adapters_can_have():
    ends = replace(BOTH, pick="ends")
    for network in (MADE, replace(MADE, tail=SOFT), replace(MADE, pick="mean"), ends, replace(BOTH, pick="mean")):
        assert check_head(network) is network.head


def test_one_cell_is_asked_for_by_name():
    for network, count in ((BOTH, 2), (example_layers("LSTM", 4, 6, 4, layers=3, classes=3), 3)):
        with pytest.raises(ValueError, match=f"^example: has {count} recurrent cells, stacked or of two directions"):
            _ = network.lstm
    assert MADE.lstm is MADE.cell
