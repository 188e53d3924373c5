"""Native LSTM, GRU and RNN: read as onnxruntime reads them, then quantised.

The fixtures are convolution, recurrent node of 8 and dense layer by PyTorch's two exporters, of random weights.
"""

import importlib
import json
import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test.case.node as node_cases
import pytest
from onnx import helper, numpy_helper

from gradloom.models.recurrent.calibrate import Bits, float_logits, float_states, quantized
from gradloom.models.recurrent.host import FloatDense, Function, HostStep
from gradloom.models.recurrent.readers.native import load_native
from gradloom.models.recurrent.stored import load_network, save_network
from gradloom.models.sequences import taken
from gradloom.sim.reference import cell as reference
from gradloom.systems.sequences.answer import real_states

from .models import saved, unfused

FIXTURES = Path(__file__).parent / "fixtures"
FILES = sorted(FIXTURES.glob("*.onnx"))
X = np.random.default_rng(5).normal(0, 1, (2, 20, 6)).astype(np.float32)
MANY = np.random.default_rng(6).normal(0, 1, (40, 20, 6)).astype(np.float32)


def stem(path):
    return path.stem


def changed(kind, **attributes):
    model = onnx.load(FIXTURES / f"{kind}.script.onnx")
    (node,) = [each for each in model.graph.node if each.op_type == kind]
    kept = [each for each in node.attribute if each.name not in attributes]
    del node.attribute[:]
    node.attribute.extend([*kept, *(helper.make_attribute(name, value) for name, value in attributes.items())])
    return model


@pytest.fixture
def file_of(tmp_path):
    """The fixture of a kind; ``GRU0`` is a GRU whose reset gate is in front of the product."""

    def made(kind):
        if kind != "GRU0":
            return FIXTURES / f"{kind}.script.onnx"
        return saved(changed("GRU", linear_before_reset=0), tmp_path, "GRU0.onnx")

    return made


@pytest.mark.parametrize("path", FILES, ids=stem)
def test_a_file_means_what_onnxruntime_makes_of_it(path):
    (name,) = [each.name for each in onnx.load(path).graph.input]
    (want,) = unfused(path, {name: X}).values()
    np.testing.assert_allclose(float_logits(load_native(path), X), want, atol=2e-6)


def test_a_reset_gate_in_front_of_the_product_is_that_of_onnxruntime(file_of):
    path = file_of("GRU0")
    (name,) = [each.name for each in onnx.load(path).graph.input]
    (want,) = unfused(path, {name: X}).values()
    found = float_logits(load_native(path), X)
    np.testing.assert_allclose(found, want, atol=2e-6)
    assert np.abs(found - float_logits(load_native(FIXTURES / "GRU.script.onnx"), X)).max() > 1e-3


def rounded(value, coding):
    return np.clip(np.rint(value / coding.scale), coding.lo, coding.hi) * coding.scale


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gate(each, x, h, total=None):
    """A gate in real numbers, rounded as its codings say."""
    total = each.bias + x @ (each.w * each.w_scale[:, None]).T + h if total is None else total
    value = rounded(total, each.accumulator)
    return rounded(np.tanh(value) if each.activation == "tanh" else sigmoid(value), each.output)


def emulated(cell, x):
    """The cell's definition in real numbers: all are multiples of powers of two, so that float64 is exact."""
    h = c = np.zeros((len(x), cell.units))
    for at in range(x.shape[1]):
        step = x[:, at]
        of = {name: h @ (each.u * each.u_scale[:, None]).T for name, each in cell.gates.items()}
        if hasattr(cell, "kept"):
            g = {name: gate(each, step, of[name]) for name, each in cell.gates.items()}
            c = rounded(rounded(g["forget"] * c, cell.kept) + rounded(g["input"] * g["cell"], cell.added), cell.state)
            h = rounded(g["output"] * rounded(np.tanh(c), cell.squashed), cell.hidden)
        elif hasattr(cell, "inner"):
            new = cell.gates["new"]
            z, r = (gate(cell.gates[name], step, of[name]) for name in ("update", "reset"))
            if cell.passed is None:
                gated = r * rounded(of["new"] + cell.inner_bias, cell.inner)
            else:
                gated = rounded(r * h, cell.passed) @ (new.u * new.u_scale[:, None]).T
            n = gate(new, step, None, new.bias + step @ (new.w * new.w_scale[:, None]).T + gated)
            h = rounded(z * h + (1 - z) * n, cell.hidden)
        else:
            h = gate(cell.gates["new"], step, of["new"])
    return h


@pytest.mark.parametrize("bits", ["W8A6C8", "W4A5C6", "W8A6C8G5T4H3I7"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "GRU0", "RNN"])
def test_integers_are_the_cells_definition(kind, bits, file_of):
    network = quantized(file_of(kind), MANY, Bits.of(bits))
    trace = reference.run(network, network.input.codes(MANY))
    h = emulated(network.cell, trace.u * network.cell_input.scale)
    np.testing.assert_array_equal(trace.state.h, np.rint(h / network.cell.hidden.scale))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "GRU0", "RNN"])
def test_quantised_is_near_to_float_and_nearer_with_more_bits(kind, file_of):
    source = load_native(file_of(kind))
    exact, errors = float_logits(source, MANY), []
    for bits in ("W3A3C4", "W8A6C8"):
        network = quantized(source, MANY, Bits.of(bits))
        found = reference.logits(network, reference.run(network, network.input.codes(MANY)))
        errors.append(np.sqrt(((found - exact) ** 2).mean()) / exact.std())
    assert errors[1] < 0.25 and errors[1] < errors[0] / 2
    # Without quantisers of activations, only those of the weights are left.
    network = quantized(source, MANY)
    hidden, _ = real_states(network, MANY)
    head = network.head
    near = hidden[:, -1] @ (head.weight * head.scale[:, None]).T + head.bias
    assert np.sqrt(((near - exact) ** 2).mean()) / exact.std() < 0.1


def test_dense_layers_with_activations_are_quantised():
    """Their codes are the definition's, and the logits near to float's; what ends the network is the host's."""
    random, source = np.random.default_rng(9), load_native(FIXTURES / "GRU.script.onnx")
    wide = len(source.head.bias)

    def dense(outputs, inputs):
        return FloatDense(
            weight=random.normal(0, 0.5, (outputs, inputs)), bias=random.normal(0, 0.5, outputs), name="d"
        )

    functions = [Function(op=op, name=op) for op in ("relu", "sigmoid", "tanh", "softmax")]
    tail = (functions[0], dense(9, wide), functions[1], dense(8, 9), functions[2], dense(3, 8), functions[3])
    source = replace(source, tail=tail)
    network = quantized(source, MANY)
    assert [cell.gates["new"].activation for cell in network.behind] == ["relu", "sigmoid", "tanh"]
    assert [each.op for each in network.tail] == ["softmax"] and network.classes == 3
    trace = reference.run(network, network.input.codes(MANY))
    found = reference.logits(network, trace)
    value = trace.state.h * network.cell.hidden.scale
    for cell in network.behind:
        each = cell.gates["new"]
        total = each.bias + value @ (each.w * each.w_scale[:, None]).T
        if each.activation == "relu":
            value = rounded(np.maximum(total, 0), each.output)
        else:
            value = gate(each, None, None, total)
    head = network.head
    np.testing.assert_allclose(found, value @ (head.weight * head.scale[:, None]).T + head.bias, atol=1e-9)
    exact = float_logits(source, MANY)
    assert np.sqrt(((found - exact) ** 2).mean()) / exact.std() < 0.35


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_from_the_command_line_and_back(kind, run, tmp_path):
    np.savez(tmp_path / "x.npz", x=MANY)
    path = FIXTURES / f"{kind}.script.onnx"
    code, out, err = run("import", path, "--calibrate", tmp_path / "x.npz", "-o", tmp_path / "net", "--json")
    assert code == 0, err
    told = json.loads(out)
    assert told["kind"] == kind and all(each["exact"] == "for every integer" for each in told["quantizers"])
    # Products with the input and with the hidden state add up in the engine.
    assert told["fits"].startswith("lstm-kv260 holds it" + (", with gru=1 (a GRU): " if kind == "GRU" else ": "))
    assert f"{kind} of 8 with 16 inputs" in run("import", tmp_path / "net")[1]
    network = load_network(tmp_path / "net")
    trace = reference.run(network, network.input.codes(MANY))
    labels = reference.logits(network, trace).argmax(axis=1).tolist()
    for engine in ("reference", "float"):
        code, out, err = run("infer", tmp_path / "net", "--data", tmp_path / "x.npz", "--engine", engine, "--json")
        assert code == 0, err
        assert engine == "float" or json.loads(out)["labels"] == labels
    code, _, err = run("export", tmp_path / "net", "-o", tmp_path / "back.onnx")
    assert code == (0 if kind == "LSTM" else 2) and (kind == "LSTM" or f"is a {kind}: must be an LSTM" in err)


BAD = {
    "reversed": (("LSTM", {"direction": "reverse"}), "direction=reverse: only forward"),
    "clip": (("LSTM", {"clip": 3.0}), "clip=3 is not supported"),
    "coupled": (("LSTM", {"input_forget": 1}), "input_forget=1"),
    "relu": (("RNN", {"activations": ["Relu"]}), "activations=Relu: must be Tanh"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_not_built_is_refused_by_its_node(case, tmp_path):
    (kind, attributes), said = BAD[case]
    with pytest.raises(ValueError, match=said) as refused:
        load_native(saved(changed(kind, **attributes), tmp_path))
    assert f"node '/rnn/{kind}' ({kind})" in str(refused.value)


def test_a_reset_in_front_of_the_product_has_two_cells_of_the_engine(file_of, tmp_path, run):
    """Every verb that needs the engine chooses them, and a step takes two passes."""
    cycles = {}
    for kind, chosen in (("GRU", "gru=1 (a GRU)"), ("GRU0", "cells=2 (2 layers, directions and passes), gru=2 (")):
        save_network(quantized(file_of(kind), MANY), tmp_path / kind)
        assert f"lstm-kv260 holds it, with {chosen}" in " ".join(run("import", tmp_path / kind)[1].split())
        code, out, err = run("plan", tmp_path / kind, "--board", "kv260", "--steps", 40, "--json")
        assert code == 0, err
        cycles[kind] = json.loads(out)["answer"]["cycles"]
    assert 1.6 < cycles["GRU0"] / cycles["GRU"] < 2
    asked = ["generate", tmp_path / "GRU0", "--board", "kv260", "--set", "gru=1", "-o", tmp_path / "design"]
    code, _, err = run(*asked)
    assert (code, err.count("\n")) == (2, 1) and "set cells=2" in err and "gru=2 (a GRU that resets in front" in err
    assert not (tmp_path / "design").exists()


def with_input(at, name, value):
    """An LSTM with an optional input of its node."""
    model = onnx.load(FIXTURES / "LSTM.script.onnx")
    (node,) = [each for each in model.graph.node if each.op_type == "LSTM"]
    node.input.extend([""] * (at + 1 - len(node.input)))
    node.input[at] = name
    model.graph.initializer.append(numpy_helper.from_array(value, name))
    return model


@pytest.mark.parametrize(
    "at, name, value, said",
    [
        (4, "lengths", np.full(1, 9, np.int32), "sequence_lens='lengths': sequences of varying length"),
        (7, "holes", np.ones((1, 24), np.float32), "peepholes \\(P\\) are not supported"),
        (1, "wide", np.ones((2, 32, 16), np.float32), "expected one direction"),
        (5, "begin", np.ones((1, 1, 8), np.float32), "its start state 'begin' is 1, not 0"),
    ],
)
def test_optional_inputs_are_refused_by_their_node(at, name, value, said, tmp_path):
    with pytest.raises(ValueError, match=said) as refused:
        load_native(saved(with_input(at, name, value), tmp_path))
    assert "(LSTM)" in str(refused.value)


ASKED = {
    "no data": ((), "quantise it by data, gradloom import LSTM.script.onnx --calibrate D.npz -o DIR"),
    "bits alone": (("--bits", "W8A6C8"), "bits=W8A6C8: must be left out unless --calibrate"),
    "other bits": (("--calibrate", "x.npz", "--bits", "W9A6C8"), "weights=9: must be from 2 to 8 bits"),
    "text": (("--calibrate", "x.npz", "--bits", "eight"), "bits=eight: must be like W8A6C8"),
    "channels": (("--calibrate", "y.npz"), "calibrate=y.npz: x has 5 channels: the network takes 6"),
    "no file": (("--calibrate", "z.npz"), "z.npz: no such file"),
    "zeros": (("--calibrate", "0.npz"), "calibrate=0.npz: x is 0 everywhere: scales follow from its values; give"),
    "a constant": (("--calibrate", "5.npz"), "calibrate=5.npz: x is 0.5 everywhere"),
}


@pytest.mark.parametrize("case", ASKED)
def test_a_wrong_request_is_one_line_and_leaves_nothing(case, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", x=MANY)
    np.savez("y.npz", x=MANY[..., :5])
    np.savez("0.npz", x=np.zeros_like(MANY))
    np.savez("5.npz", x=np.full_like(MANY, 0.5))
    code, out, err = run("import", FIXTURES / "LSTM.script.onnx", *ASKED[case][0], "-o", "net")
    assert (code, out, err.count("\n")) == (2, "", 1) and ASKED[case][1] in err, err
    assert not Path("net").exists()


@pytest.mark.parametrize("size", [0.25, 1, 32])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_more_bits_bring_the_hidden_states_nearer(kind, size):
    """8 bits of activations are no worse than 6, though products of an LSTM's x and h share a unit."""
    source, errors = load_native(FIXTURES / f"{kind}.script.onnx"), []
    for bits in ("W8A6C8", "W8A8C8"):
        network = quantized(source, size * MANY, Bits.of(bits))
        hidden = reference.run(network, network.codes(size * MANY)).h * network.cell.hidden.scale
        errors.append(float(((hidden - float_states(source, size * MANY)) ** 2).mean()))
    assert errors[1] < errors[0]


def test_a_network_of_tokens_says_what_it_takes(run, tmp_path):
    """Its channels are those of the table's rows, which nobody gives."""
    network = quantized(FIXTURES / "LSTM.script.onnx", MANY)
    table = HostStep(op="Gather", value=np.ones((50, 6), np.float32), name="table")
    save_network(replace(network, before=(table,)), tmp_path / "net")
    said = run("import", tmp_path / "net")[1]
    assert ": tokens from 0 to 49, " in said and "6 channels" not in said
    assert (taken(1, 0), taken(6, 0)) == ("1 channel", "6 channels")


@pytest.mark.filterwarnings("error")
def test_large_sequences_calibrate_without_a_warning():
    network = quantized(FIXTURES / "LSTM.script.onnx", 1e4 * MANY)
    assert network.input.scale * network.input.hi > 1e4


@pytest.mark.parametrize("kind", ["GRU", "GRU0"])
def test_a_stored_network_is_the_same(kind, file_of, tmp_path):
    network = quantized(file_of(kind), MANY)
    save_network(network, tmp_path / "net")
    again = load_network(tmp_path / "net")
    one, other = (reference.run(each, each.input.codes(MANY)).h for each in (network, again))
    np.testing.assert_array_equal(one, other)


def cases():
    """ONNX' own test models of recurrent nodes, with their weights as constants."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("gru", "lstm", "rnn"):
            importlib.import_module(f"{node_cases.__name__}.{name}")
    own = re.compile(r"test_(gru|lstm|rnn|simple_rnn)_")
    for case in sorted(node_cases._NodeTestCases, key=lambda each: each.name):
        if own.match(case.name):
            (x, *rest), wanted = case.data_sets[0]
            model = onnx.ModelProto()
            model.CopyFrom(case.model)
            names = [each.name for each in model.graph.input]
            model.graph.initializer.extend(numpy_helper.from_array(*each) for each in zip(rest, names[1:]))
            yield case.name, model, x, wanted


def test_onnx_own_cases_are_computed_or_refused(tmp_path):
    """Among them those that onnxruntime has not: sequences in front of steps (layout 1)."""
    taken = set()
    for name, model, x, wanted in cases():
        try:
            network = load_native(saved(model, tmp_path))
        except ValueError as error:
            assert str(error).count("\n") == 0
            continue
        batchwise = "batchwise" in name
        h = float_states(network, x if batchwise else x.transpose(1, 0, 2))
        for want in wanted:
            # All steps, or the last.
            if want.ndim == 4:
                np.testing.assert_allclose(h, want[:, :, 0] if batchwise else want[:, 0].transpose(1, 0, 2), atol=1e-5)
            else:
                np.testing.assert_allclose(h[:, -1], want[:, 0] if batchwise else want[0], atol=1e-5)
        taken.add(name)
    assert {"test_lstm_batchwise", "test_simple_rnn_batchwise", "test_lstm_with_initial_bias"} <= taken
    # ONNX' cases of a GRU have the reset gate in front of the product.
    assert {"test_gru_defaults", "test_gru_batchwise"} <= taken
    assert "test_lstm_with_peepholes" not in taken and "test_rnn_seq_length" in taken


def within(kind):
    """A graph in which a recurrent layer hides."""
    ports = [helper.make_tensor_value_info(name, 1, ["n", 4, 3]) for name in ("x", "y")]
    branch = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["inner"])], "b", [], [onnx.ValueInfoProto(name="inner")]
    )
    held = [numpy_helper.from_array(np.array(True), "yes"), numpy_helper.from_array(np.int64(3), "times")]
    nodes = {
        "If": [helper.make_node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch)],
        "DynamicQuantizeLSTM": [
            helper.make_node("DynamicQuantizeLSTM", ["x", "yes", "yes"], ["y"], domain="com.microsoft", name="dq")
        ],
        "apart": [
            helper.make_node("MatMul", ["x", "weights"], ["m"]),
            helper.make_node("Sigmoid", ["m"], ["s"]),
            helper.make_node("Tanh", ["s"], ["y"]),
        ],
        "Conv": [helper.make_node("Conv", ["x", "kernel"], ["y"])],
        "Relu": [helper.make_node("Relu", ["x"], ["y"])],
    }[kind]
    held.append(numpy_helper.from_array(np.ones((3, 3), np.float32), "weights"))
    held.append(numpy_helper.from_array(np.ones((2, 4, 1), np.float32), "kernel"))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", ports[:1], ports[1:], held), opset_imports=opsets)


@pytest.mark.parametrize(
    "kind, said",
    [
        ("If", r"\(If\): it chooses between two graphs while it runs: .*dynamo=False"),
        ("DynamicQuantizeLSTM", r"'dq' \(DynamicQuantizeLSTM\): it quantises each input by its own range"),
        ("apart", "an exporter has taken the recurrent layers apart.*dynamo=False"),
        ("Conv", "no recurrent node.*looks like a network for images"),
        ("Relu", "no recurrent node: expected LSTM or GRU or RNN$"),
    ],
)
def test_the_reason_is_what_the_file_is(kind, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        load_native(saved(within(kind), tmp_path))
