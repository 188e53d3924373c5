"""Recurrent networks from the command line: what is told, the same codes on every way, one line for a fault."""

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from gradloom.models.recurrent.example import example_codes, example_network
from gradloom.models.recurrent.example_cells import example_dense, example_layers
from gradloom.models.recurrent.host import FloatDense, Function
from gradloom.models.recurrent.readers.reader import load_recurrent
from gradloom.models.recurrent.stored import save_network
from gradloom.sim.reference import cell
from gradloom.sim.run import machine
from gradloom.sim.run.builds.designs import design

from ...deep import DEEP
from ...models.recurrent.models import AUTHORS, BREVITAS, CONV, arrays, body_of, saved, unfused


@pytest.fixture
def windows(tmp_path):
    """Eight windows of SPAR with their classes, and their file."""
    told = arrays("golden_W8A6C8IO6")
    held = {name: told[name][::8] for name in ("x", "y", "h", "c", "u", "logits")}
    np.savez(tmp_path / "windows.npz", x=held["x"], y=held["y"])
    return tmp_path / "windows.npz", held


def test_an_import_tells_what_each_quantiser_becomes(run, tmp_path):
    code, out, _ = run("import", AUTHORS, "-o", tmp_path / "lstm", "--json")
    told = json.loads(out)
    assert code == 0 and (told["hidden"], told["inputs"], told["parameters"]) == (20, 10, 4 * 20 * 30)
    became = {each["quantizer"]: each for each in told["quantizers"]}
    assert len(became) == 12 and all(each["exact"] == "for every integer" for each in became.values())
    kept = became["forget gate * state"]
    assert (kept["becomes"], kept["shift"], kept["rounding"]) == ("shift", 7, "half to even")
    assert became["forget accumulator"]["becomes"] == "multiply"
    assert became["tanh of the state"]["entries"] == 511  # of the sum, which nothing clips
    assert told.pop("fits").startswith("lstm-kv260 holds it: ")
    assert json.loads((tmp_path / "lstm" / "report.json").read_text()) == told
    said = " ".join(run("import", AUTHORS)[1].split())
    assert "16513" in said and "lstm-kv260 holds it: gradloom infer MODEL --board kv260 --engine rtl runs it" in said


@pytest.mark.parametrize("road", ["file", "folder", "exported"])
def test_answers_and_codes_of_a_network(run, tmp_path, windows, road):
    path, want = windows
    model = CONV
    if road != "file":
        model = tmp_path / "net"
        assert run("import", CONV, "-o", model)[0] == 0
    if road == "exported":
        assert run("export", model, "-o", tmp_path / "back.onnx")[0] == 0
        model = tmp_path / "back.onnx"
    code, out, _ = run("infer", model, "--data", path, "-o", tmp_path / "o.npz", "--json")
    told, labels = json.loads(out), want["logits"].argmax(axis=1)
    assert code == 0 and told["labels"] == labels.tolist()
    assert told["accuracy"] == (labels == want["y"]).mean() and told["steps"] == 50
    shown = " ".join(run("infer", model, "--data", path)[1].split())
    assert f"{len(labels)} sequences of 50 steps labelled, " in shown
    with np.load(tmp_path / "o.npz") as held:
        for name in ("u", "h", "c"):
            np.testing.assert_array_equal(held[name], want[name])
        np.testing.assert_array_equal(held["logits"], want["logits"])


@pytest.mark.parametrize(
    "model, name, order",
    [
        (AUTHORS, "authors_scan_qcdq", (0, 1, 2, 3)),
        (BREVITAS, "brevitas_W8IO8A6_s1", (1, 0, 2)),
        (CONV, "golden_W8A6C8IO6", (0, 1, 2)),
    ],
    ids=["authors", "brevitas", "conv"],
)
def test_onnxruntime_runs_an_export_to_the_same_codes(run, tmp_path, model, name, order):
    assert run("import", model, "-o", tmp_path / "net")[0] == 0
    assert run("export", tmp_path / "net", "-o", tmp_path / "back.onnx")[0] == 0
    network = load_recurrent(model)
    x = arrays(name)["x"].transpose(order)
    x = np.ascontiguousarray(x.reshape(*x.shape[:2], -1)[:16])
    zero = np.zeros((len(x), network.cell.units), np.float32)
    told = unfused(tmp_path / "back.onnx", {"x": x, "h_init": zero, "c_init": zero})
    trace, scale = cell.run(network, network.input.codes(x)), network.cell.hidden.scale
    np.testing.assert_array_equal(np.rint(told["h_all"] / scale).transpose(1, 0, 2), trace.h)
    np.testing.assert_array_equal(np.rint(told["c_last"] / float(network.integers.cell.state_scale)), trace.state.c)
    if network.head is not None:
        np.testing.assert_allclose(told["logits"], cell.logits(network, trace), rtol=1e-6)
    assert onnx.checker.check_model(str(tmp_path / "back.onnx"), full_check=True) is None


def test_a_stream_keeps_its_state_and_answers_after_each_step(run, tmp_path):
    """Sequences behind each other are one."""
    x = arrays("authors_scan_qcdq")["x"][:4, ..., 0]
    np.savez(tmp_path / "parts.npz", x=x)
    np.savez(tmp_path / "whole.npz", x=x.reshape(1, -1, x.shape[2]))
    for name, more in (("parts", ["--stream"]), ("whole", [])):
        assert (
            run("infer", AUTHORS, "--data", tmp_path / f"{name}.npz", "-o", tmp_path / f"{name}.o.npz", *more)[0] == 0
        )
    with np.load(tmp_path / "parts.o.npz") as parts, np.load(tmp_path / "whole.o.npz") as whole:
        assert parts["h"].shape == (1, 100, 20)
        np.testing.assert_array_equal(parts["h"], whole["h"])
    golden = arrays("golden_W8A6C8IO6")
    np.savez(tmp_path / "one.npz", x=golden["x"][:1], y=golden["y"][:1])
    told = json.loads(run("infer", CONV, "--data", tmp_path / "one.npz", "--stream", "--json")[1])
    assert len(told["labels"]) == 1 and len(told["labels"][0]) == 50
    assert told["labels"][0][-1] == golden["logits"][0].argmax() and "accuracy" not in told


def test_a_machine_answers_in_simulated_rtl(run, tmp_path):
    """Convolution, cell and dense layer; window by window, and as a stream. The host computes what is behind them."""
    made = example_network(4, 13, 3, kernel=4, stride=2, outputs=6, classes=5)
    more = FloatDense(weight=np.random.default_rng(2).normal(size=(3, 5)), bias=np.ones(3), name="more")
    made = replace(made, tail=(Function(op="relu", name="relu"), more, Function(op="softmax", name="softmax")))
    save_network(made, tmp_path / "net")
    # A bound that is not finite is no number of JSON.
    assert "-inf" in (stored := (tmp_path / "net/network.json").read_text()) and "Infinity" not in stored
    headless = replace(made, head=None, pick="max", tail=(replace(more, weight=np.ones((3, 13))),))
    save_network(headless, tmp_path / "headless")
    save_network(example_dense(replace(made, tail=()), 3, (7, "relu"), (9, "tanh")), tmp_path / "dense")
    x = example_codes(made, np.random.default_rng(1), 3, 12) * made.input.scale
    np.savez(tmp_path / "x.npz", x=x)
    sizes = {"cells": 4, "hidden": 16, "inputs": 16, "parallel": 8, "sequences": 4, "products": 1}
    changes = [word for name, value in sizes.items() for word in ("--set", f"{name}={value}")]
    assert run("generate", "lstm-zcu104", *changes, "-o", tmp_path / "design")[0] == 0
    for net, *more in (("net",), ("net", "--stream"), ("headless",), ("dense",), ("dense", "--stream")):
        asked = [tmp_path / net, "--board", "zcu104", "--data", tmp_path / "x.npz", *more]
        where = ["--design", tmp_path / "design", "--engine", "rtl"]
        code, out, _ = run("infer", *asked, *where, "-o", tmp_path / "rtl.npz", "--json")
        told = json.loads(out)
        assert code == 0 and told["cycles"] == told["forecast"] and ("cycles_an_answer" in told) == bool(more)
        if more:
            # A step of two samples; what arrives faster is refused before it begins.
            most = int(2 * 200e6 / told["cycles_an_answer"])
            assert run("infer", *asked, *where, "--rate", most)[0] == 0
            code, out, err = run("infer", *asked, *where, "--rate", most + 1)
            assert (code, out) == (2, "") and f"must be at most {most:,} samples a second" in err.splitlines()[-1]
            assert "of 2 samples takes" in err
        assert run("infer", *asked, "-o", tmp_path / "reference.npz")[0] == 0
        with np.load(tmp_path / "rtl.npz") as rtl, np.load(tmp_path / "reference.npz") as reference:
            assert set(rtl) == set(reference) and ("answers" in rtl) == (net == "net")
            for name in rtl:
                np.testing.assert_array_equal(rtl[name], reference[name])


def test_a_design_is_chosen_for_a_network(run, tmp_path, monkeypatch):
    """Its parameters are told first, nobody sets them; the reference needs no design.

    A preset's whole machine is simulated with GRADLOOM_DEEP=1: to build it takes a minute.
    """
    simulated = []

    def made_of(config):
        simulated.append((config.cells, config.gru))
        if not DEEP:
            raise ValueError("no Verilog is made here")
        return design(config)

    monkeypatch.setattr(machine, "design", made_of)
    made = example_layers("GRU", 1, 9, 5, layers=2, both=True, classes=3, pick="ends")
    np.savez(tmp_path / "x.npz", x=example_codes(made, np.random.default_rng(1), 3, 6) * made.input.scale)
    save_network(made, tmp_path / "net")
    asked = (tmp_path / "net", "--board", "zcu104")
    code, _, err = run("infer", *asked, "--data", tmp_path / "x.npz", "--engine", "rtl")
    with_ = "with cells=4 (4 layers and directions), gru=1 (a GRU)"
    assert simulated == [(4, 1)] and code == (0 if DEEP else 2), err
    assert err.splitlines()[0].endswith(f"preset lstm-zcu104 answers on zcu104; {with_}")
    assert with_ in " ".join(run("import", tmp_path / "net")[1].split())
    code, out, err = run("plan", *asked, "--steps", "6", "--json")
    told = json.loads(out)
    assert code == 0 and (told["parameters"]["cells"], told["parameters"]["gru"]) == (4, 1), err
    assert told["forecast"] is None and told["answer"]["cycles"] > 0
    sizes = {"hidden": 16, "inputs": 32, "parallel": 8, "sequences": 4, "products": 1}
    changes = [word for name, value in sizes.items() for word in ("--set", f"{name}={value}")]
    code, out, err = run("generate", *asked, *changes, "-o", tmp_path / "design", "--json")
    assert code == 0 and json.loads(out)["parameters"] == told["parameters"] | sizes, err
    code, out, err = run("generate", *asked, "--set", "cells=2", "-o", tmp_path / "small")
    assert (code, out, err.count("\n")) == (2, "", 1) and "set cells=4" in err and not (tmp_path / "small").exists()
    save_network(example_layers("LSTM", 1, 300, 5, layers=9), tmp_path / "large")
    large = (tmp_path / "large", "--board", "zcu104", "--data", tmp_path / "x.npz")
    assert run("infer", *large)[0] == 0
    for verb in (("infer", *large, "--engine", "rtl"), ("plan", *large[:3]), ("generate", *large[:3], "-o", "none")):
        code, out, err = run(*verb)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert all(f"{name}=" in err for name in ("hidden", "inputs", "cells")) and "beyond every design" in err


def test_a_plan_of_a_fine_tune_is_its_forecast(run, tmp_path):
    """Of other numbers, so they count for nothing."""
    told = json.loads(run("plan", "lstm-kv260", "--samples", "20", "--json")[1])
    asked = ("--person", "2", "--limit", "20", "--engine", "reference", "-o", tmp_path / "run", "--json")
    assert told["forecast"]["cycles"] == json.loads(run("finetune", "lstm-kv260", *asked)[1])["forecast"]["total"]
    said = " ".join(run("plan", "lstm-kv260", "--samples", "20")[1].split())
    assert f"30 epochs of 20 sequences: {told['forecast']['cycles']:,} cycles" in said


def test_float_is_near_the_integers(run, tmp_path, windows):
    """Weights alone are quantised: hidden states are within some codes of the integers'."""
    path, want = windows
    assert run("infer", CONV, "--data", path, "--engine", "float", "-o", tmp_path / "o.npz")[0] == 0
    with np.load(tmp_path / "o.npz") as held:
        error = held["h"] - want["h"] / 32
    assert 0 < np.sqrt((error**2).mean()) < 0.1 * np.abs(want["h"] / 32).max()


def _set(model, name, value):
    """Another value for a constant, of the file or of the loop's body."""
    for graph in (model.graph, body_of(model)):
        for each in graph.initializer:
            if each.name == name:
                each.CopyFrom(numpy_helper.from_array(np.asarray(value), name))
                return
    raise KeyError(name)


def _bypass(model, output, source):
    """Takes a quantiser out of the loop's body."""
    for node in body_of(model).node:
        node.input[:] = [source if name == output else name for name in node.input]


def _bare_hidden_state(model):
    nodes = body_of(model).node
    for node in [node for node in nodes if node.output[0] in ("h_out", "h_out_q", "h_out_k")]:
        nodes.remove(node)
    (product,) = (node for node in nodes if node.output[0] == "h0")
    product.output[0] = "h_out"


def _scan(model):
    return next(node for node in model.graph.node if node.op_type == "Scan")


def _attribute(model, **attributes):
    for name, value in attributes.items():
        _scan(model).attribute.append(helper.make_attribute(name, value))


def _without_cell(model):
    model.graph.node.remove(_scan(model))
    for output in model.graph.output[1:]:
        model.graph.output.remove(output)
    for node in model.graph.node:
        node.input[:] = ["h_init" if name == "h_last" else name for name in node.input]


def _emptied(model):
    del model.graph.node[:]


def _thresholds(model, levels):
    """MultiThreshold in place of the gates' quantiser."""
    body = body_of(model)
    body.initializer.append(numpy_helper.from_array(np.asarray(levels, np.float32), "levels"))
    (node,) = (node for node in body.node if list(node.output) == ["a"])
    node.CopyFrom(
        helper.make_node(
            "MultiThreshold", ["a3", "levels"], ["a"], name="mt", out_scale=0.125, domain="qonnx.custom_op.general"
        )
    )


def _float_weights(model):
    body_of(model).initializer.append(numpy_helper.from_array(np.full((64, 256), 0.3, np.float32), "real"))
    _bypass(model, "U", "real")


def _wide_weights(model):
    model.opset_import[0].version = 21  # the least whose codes have 16 bits
    _set(model, "U_i8", np.full((64, 256), 200, np.int16))
    _set(model, "U_z", np.int16(0))


def _activation(model, output, kind):
    (node,) = (node for node in body_of(model).node if list(node.output) == [output])
    node.op_type = kind


def _reversed_states(model):
    _attribute(model, scan_input_directions=[1])


#: What is done to the convolution's model, and what the line names: node, value, bound.
BAD = {
    "no recurrent node": (_without_cell, ["no recurrent node", "Scan", "QuantLSTMCell"]),
    "an empty graph": (_emptied, ["no nodes", "dynamo=False"]),
    "no quantiser of the hidden state": (
        _bare_hidden_state,
        ["'h_last' (Scan)", "a quantiser is missing", "hidden state"],
    ),
    "no quantiser of a product": (
        lambda m: _bypass(m, "m1", "m0"),
        ["'m0'", "a quantiser is missing", "a product of the"],
    ),
    "no quantiser of an activation": (lambda m: _bypass(m, "qf", "sf"), ["a quantiser is missing", "forget gate"]),
    "no quantiser of an accumulator": (
        lambda m: _bypass(m, "a", "a3"),
        ["a quantiser is missing", "gate's accumulator"],
    ),
    "weights in float": (_float_weights, ["(MatMul)", "a quantiser is missing", "'real'"]),
    "no common unit": (
        lambda m: _set(m, "U_s", np.float32(0.031)),
        ["'a2'", "0.0009765625", "0.000968749984", "integers up to 1024"],
    ),
    "a zero point": (lambda m: _set(m, "a_z", np.int8(3)), ["a_q", "zero point 'a_z' is 3", "must be 0"]),
    "an activation's scale a channel": (
        lambda m: _set(m, "qi_s", np.full(64, 0.015625, np.float32)),
        ["qi_q", "'qi_s' has 64 values", "must have one"],
    ),
    "a scale that is empty": (lambda m: _set(m, "a_s", np.zeros(0, np.float32)), ["a_q", "'a_s' is empty"]),
    "a zero point that is empty": (lambda m: _set(m, "a_z", np.zeros(0, np.int8)), ["a_q", "'a_z' is empty"]),
    "a dense layer without weights": (
        lambda m: _set(m, "fc_w_i8", np.zeros(0, np.int8)),
        ["(Gemm)", "weights have 1 dimensions", "expected 2"],
    ),
    "a scale of 0": (lambda m: _set(m, "a_s", np.float32(0)), ["a_q", "'a_s' is 0", "above 0"]),
    "a scale that is NaN": (lambda m: _set(m, "a_s", np.float32(np.nan)), ["a_q", "a_s are nan", "must be finite"]),
    "a bias that is infinite": (
        lambda m: _set(m, "b", np.full(256, np.inf, np.float32)),
        ["'a3' (Add)", "b[0] are inf", "must be finite"],
    ),
    "thresholds unsorted": (lambda m: _thresholds(m, [[1, 3, 2]]), ["'mt'", "channel 0 are not sorted"]),
    "thresholds that are none": (lambda m: _thresholds(m, [[1, np.nan]]), ["'mt'", "'levels' hold NaN"]),
    "thresholds of other channels": (lambda m: _thresholds(m, np.zeros((7, 3))), ["'mt'", "7 channels", "1 or 256"]),
    "a direction": (_reversed_states, ["scan_input_directions=[1]", "must be 0 in both"]),
    "backward alone": (
        lambda m: _attribute(m, scan_input_directions=[1], scan_output_directions=[1]),
        ["runs backward alone"],
    ),
    "two scan inputs": (
        lambda m: (
            _scan(m)
            .attribute[[a.name for a in _scan(m).attribute].index("num_scan_inputs")]
            .CopyFrom(helper.make_attribute("num_scan_inputs", 2))
        ),
        ["num_scan_inputs=2", "only 1"],
    ),
    "another activation": (
        lambda m: _activation(m, "sg", "Sigmoid"),
        ["sigmoid and sigmoid", "expected sigmoid and tanh"],
    ),
    "an operator": (lambda m: _activation(m, "sg", "Softsign"), ["Softsign", "not supported"]),
    "an opset": (lambda m: setattr(m.opset_import[0], "version", 10), ["(Clip)", "not valid in this opset"]),
    "weights of too many bits": (_wide_weights, ["to 200", "-128 to 127"]),
    "a state that begins elsewhere": (
        lambda m: m.graph.initializer.append(numpy_helper.from_array(np.ones((1, 64), np.float32), "c_init")),
        ["'c_init' is 1, not 0"],
    ),
}


@pytest.mark.parametrize("case", BAD, ids=str)
def test_a_network_that_cannot_be_read_is_one_line(run, case, tmp_path):
    change, named = BAD[case]
    model = onnx.load(CONV)
    change(model)
    path = saved(model, tmp_path)
    code, out, err = run("import", path, "-o", tmp_path / "out")
    assert (code, out, err.count("\n")) == (2, "", 1) and str(path) in err
    for word in named:
        assert word in err, err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind, attributes", [("LSTM", {"hidden_size": 4}), ("GRU", {"hidden_size": 4})])
def test_a_native_node_in_float_is_one_line(run, tmp_path, kind, attributes):
    ports = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", [5, 1, 3]), ("y", None))]
    held = [numpy_helper.from_array(np.zeros((1, 16, n), np.float32), name) for name, n in (("w", 3), ("r", 4))]
    node = helper.make_node(kind, ["x", "w", "r"], ["y"], name="rnn", **attributes)
    model = helper.make_model(helper.make_graph([node], "g", ports[:1], ports[1:], held))
    code, out, err = run("import", saved(model, tmp_path))
    assert (code, out, err.count("\n")) == (2, "", 1) and f"'rnn' ({kind})" in err and "quantise it" in err


@pytest.mark.parametrize(
    "change, named",
    [
        (lambda node: node.attribute.append(helper.make_attribute("reverse_input", 1)), "runs backward alone"),
        (lambda node: node.input.pop(), "47 inputs: expected 48"),
    ],
    ids=["reverse", "inputs"],
)
def test_brevitas_cells_that_are_not_built_are_one_line(run, tmp_path, change, named):
    model = onnx.load(BREVITAS)
    (node,) = (node for node in model.graph.node if node.op_type == "QuantLSTMCell")
    for each in [each for each in node.attribute if each.name in ("cifg", "reverse_input")]:
        node.attribute.remove(each)
    change(node)
    code, out, err = run("import", saved(model, tmp_path))
    assert (code, out, err.count("\n")) == (2, "", 1) and named in err and node.name in err


def test_a_file_that_lost_its_end_or_its_data_is_one_line(run, tmp_path):
    (tmp_path / "cut.onnx").write_bytes(CONV.read_bytes()[:9000])
    assert "truncated" in run("import", tmp_path / "cut.onnx")[2]
    onnx.save(
        onnx.load(CONV), str(tmp_path / "m.onnx"), save_as_external_data=True, location="m.data", size_threshold=0
    )
    assert run("import", tmp_path / "m.onnx")[0] == 0
    (tmp_path / "m.data").unlink()
    code, _, err = run("import", tmp_path / "m.onnx")
    assert code == 2 and "external data" in err and err.count("\n") == 1


def test_thresholds_cannot_be_exported(run, tmp_path):
    model = onnx.load(CONV)
    _thresholds(model, [[0.5, 0.7]])
    code, _, err = run("export", saved(model, tmp_path), "-o", tmp_path / "back.onnx")
    assert code == 2 and "'mt'" in err and "thresholds" in err and not (tmp_path / "back.onnx").exists()


@pytest.mark.parametrize(
    "data, named",
    [
        ({"x": np.zeros((2, 100, 5))}, ["x has 5 channels", "takes 6"]),
        ({"x": np.zeros((2, 100))}, ["shape [2, 100]", "[n, steps, channels]"]),
        ({"x": np.full((2, 100, 6), np.nan)}, ["x[0, 0, 0] is nan", "finite"]),
        ({"x": np.full((2, 100, 6), 90.0)}, ["100.0 % of x saturate", "-8 to 7.9375", "at most 50 %"]),
        ({"x": np.zeros((2, 0, 6))}, ["shape [2, 0, 6]", "none of them 0"]),
        ({"x": np.zeros((2, 100, 6)), "y": np.full(2, 7)}, ["y holds 7 to 7", "0 to 6"]),
        ({"x": np.zeros((2, 100, 6)), "y": np.zeros(3, int)}, ["shape [3]", "[2]"]),
        ({"x": np.array([["a"]])}, ["dtype", "numbers"]),
        ({"z": np.zeros(3)}, ["x missing"]),
    ],
    ids=lambda value: "",
)
def test_data_that_do_not_fit_are_one_line(run, tmp_path, data, named):
    np.savez(tmp_path / "d.npz", **data)
    code, out, err = run("infer", CONV, "--data", tmp_path / "d.npz", "-o", tmp_path / "o.npz")
    assert (code, out, err.count("\n")) == (2, "", 1) and "d.npz" in err and not (tmp_path / "o.npz").exists()
    for word in named:
        assert word in err, err


@pytest.mark.parametrize(
    "arguments, named",
    [
        (("lstm-kv260", "--data", "D"), "model: must be given"),
        ((CONV,), "data: must be given"),
        ((CONV, "--data", "D", "--angle", "9"), "angle=9.0: must be left out"),
        ((CONV, "--data", "D", "--engine", "rtx"), "engine=rtx: must be one of rtl, reference, float"),
        ((CONV, "--data", "D", "--limit", "9"), "limit=9: must be from 1 to 8"),
        ((CONV, "--data", "D", "--rate", "9"), "rate=9.0: must be left out but with --stream and --engine rtl"),
        (("instantft-kv260", "--stream"), "stream=True: must be left out"),
        ((".", "--data", "D"), "model=.: is a folder, which no preset answers by"),
    ],
)
def test_a_request_that_does_not_fit_is_one_line(run, windows, arguments, named):
    code, out, err = run("infer", *(windows[0] if each == "D" else each for each in arguments))
    assert (code, out, err.count("\n")) == (2, "", 1) and named in err


def test_a_folder_of_another_version_is_one_line(run, tmp_path):
    assert run("import", CONV, "-o", tmp_path / "net")[0] == 0
    held = (tmp_path / "net" / "network.json").read_text()
    for text, named in (
        (held.replace('"format": 1', '"format": 9'), "format=9: must be 1"),
        (held.replace('"kind": "Gate"', '"kind": "Door"', 1), "do not hold a network"),
        ("[1]", "format"),
    ):
        (tmp_path / "net" / "network.json").write_text(text)
        code, _, err = run("import", tmp_path / "net")
        assert code == 2 and named in err and err.count("\n") == 1
