"""Stacked layers and two directions: floating point as onnxruntime has it, and the integers of each layer in turn."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from gradloom.models.recurrent.calibrate import float_logits, quantized
from gradloom.models.recurrent.example_cells import example_dense, example_layers
from gradloom.models.recurrent.export import export_recurrent
from gradloom.models.recurrent.host import FloatDense, Function, picked
from gradloom.models.recurrent.readers.native import load_native
from gradloom.models.recurrent.readers.reader import load_recurrent
from gradloom.models.recurrent.readers.tails import commuted, with_two_logits
from gradloom.models.recurrent.stored import load_network, save_network
from gradloom.sim.reference import cell

from .models import saved, shuffled, unfused

HIDDEN, X = 6, np.random.default_rng(3).normal(size=(24, 9, 4)).astype(np.float32)
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def network(tmp_path, kind, *, layers=2, directions=2, pick="last", change=None):
    """As PyTorch's exporter lays it out, [n, steps, channels] in front."""
    random, held, nodes = np.random.default_rng(7), [], []

    def constant(name, value):
        held.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weights(name, *shape):
        return constant(name, (0.5 * random.normal(size=shape)).astype(np.float32))

    shape = constant("shape", np.array([0, 0, -1]))
    nodes.append(helper.make_node("Transpose", ["x"], ["x0"], perm=[1, 0, 2]))
    width = X.shape[2]
    for n in range(layers):
        rows = GATES[kind] * HIDDEN
        more = {"linear_before_reset": 1} if kind == "GRU" else {}
        given = [
            weights(f"w{n}", directions, rows, width),
            weights(f"u{n}", directions, rows, HIDDEN),
            weights(f"b{n}", directions, 2 * rows),
        ]
        way = "bidirectional" if directions == 2 else "forward"
        nodes += [
            helper.make_node(
                kind, [f"x{n}", *given], [f"y{n}", f"h{n}"], name=f"rnn{n}", hidden_size=HIDDEN, direction=way, **more
            ),
            helper.make_node("Transpose", [f"y{n}"], [f"t{n}"], perm=[0, 2, 1, 3]),
            helper.make_node("Reshape", [f"t{n}", shape], [f"x{n + 1}"]),
        ]
        width = directions * HIDDEN
    last = layers - 1
    if pick == "last":
        nodes.append(helper.make_node("Gather", [f"x{layers}", constant("end", np.array(-1))], ["picked"], axis=0))
    elif pick == "joined":
        for at in (-2, -1):
            index = constant(f"way{at}", np.array(at))
            nodes.append(helper.make_node("Gather", [f"h{last}", index], [f"h{at}"], axis=0))
        nodes.append(helper.make_node("Concat", ["h-2", "h-1"], ["picked"], axis=1))
    elif pick == "ends":
        nodes.append(helper.make_node("Transpose", [f"h{last}"], ["ht"], perm=[1, 0, 2]))
        nodes.append(helper.make_node("Reshape", ["ht", constant("two", np.array([0, -1]))], ["picked"]))
    else:
        nodes.append(helper.make_node("ReduceMean", [f"x{layers}"], ["picked"], axes=[0], keepdims=0))
    nodes.append(helper.make_node("Gemm", ["picked", weights("fc", 3, width), weights("fb", 3)], ["logits"], transB=1))
    info = [
        helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", ["n", *X.shape[1:]]), ("logits", None))
    ]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    if change is not None:
        change(model)
    return saved(model, tmp_path)


@pytest.mark.parametrize(
    ("kind", "layers", "directions", "pick"),
    [
        ("LSTM", 2, 2, "last"),
        ("LSTM", 1, 2, "ends"),
        ("LSTM", 3, 1, "last"),
        ("LSTM", 2, 1, "mean"),
        ("GRU", 2, 2, "joined"),
        ("RNN", 2, 2, "mean"),
    ],
)
def test_layers_and_directions(kind, layers, directions, pick, tmp_path):
    path = network(tmp_path, kind, layers=layers, directions=directions, pick=pick)
    want = unfused(path, {"x": X})["logits"]
    source = load_native(path)
    np.testing.assert_allclose(float_logits(source, X), want, rtol=1e-4, atol=1e-5)
    made = quantized(source, X)
    codes = made.input.codes(X)
    trace = cell.run(made, codes)
    assert trace.h.shape == (24, 9, directions * HIDDEN)
    error = cell.logits(made, trace) - want
    assert np.sqrt((error**2).mean()) < 0.35 * want.std()
    # Each layer and direction alone.
    h, coding = codes, made.input
    for forward, backward in made.layers:
        parts = [
            replace(made, input=coding, below=(), backward=None, cell=each) for each in (forward, backward) if each
        ]
        hidden = [cell.run(parts[0], h).h]
        if backward is not None:
            hidden.append(cell.run(parts[1], h[:, ::-1]).h[:, ::-1])
        h, coding = np.concatenate(hidden, axis=2), forward.hidden
    np.testing.assert_array_equal(trace.h, h)
    save_network(made, tmp_path / "net")
    again = load_network(tmp_path / "net")
    np.testing.assert_array_equal(cell.logits(again, cell.run(again, codes)), cell.logits(made, trace))


def test_from_the_command_line(run, tmp_path):
    path = network(tmp_path, "LSTM")
    np.savez(tmp_path / "x.npz", x=X)
    assert run("import", path, "--calibrate", tmp_path / "x.npz", "-o", tmp_path / "net")[0] == 0
    code, out, _ = run("import", tmp_path / "net")
    assert code == 0 and "lstm-kv260 holds it, with cells=4 (4 layers and directions)" in " ".join(out.split())
    asked = [tmp_path / "net", "--data", tmp_path / "x.npz"]
    for engine in ("reference", "float"):
        assert run("infer", *asked, "--engine", engine)[0] == 0
    code, _, err = run("infer", *asked, "--stream")
    assert code == 2 and "stream: must be left out, a direction" in " ".join(err.split())


def quantised(tmp_path, layers, directions, pick):
    """Such a network of LSTMs in integers, and the file of its export."""
    made = quantized(load_native(network(tmp_path, "LSTM", layers=layers, directions=directions, pick=pick)), X)
    export_recurrent(made, tmp_path / "back.onnx")
    return made, tmp_path / "back.onnx"


@pytest.mark.parametrize(
    ("layers", "directions", "pick"), [(2, 1, "last"), (3, 1, "mean"), (1, 2, "ends"), (2, 2, "last"), (2, 2, "mean")]
)
def test_scans_of_layers_and_directions_have_the_same_codes(layers, directions, pick, tmp_path):
    """onnxruntime runs the export to the reference's codes, and the import reads it as the same network."""
    made, path = quantised(tmp_path, layers, directions, pick)
    zeros = {
        each.name: np.zeros((len(X), HIDDEN), np.float32) for each in onnx.load(path).graph.input if each.name != "x"
    }
    assert len(zeros) == 2 * layers * directions
    want, codes = unfused(path, {"x": X} | zeros), made.input.codes(X)
    trace = cell.run(made, codes)
    np.testing.assert_array_equal(trace.h * made.cell.hidden.scale, want["h_all"].transpose(1, 0, 2))
    np.testing.assert_allclose(cell.logits(made, trace), want["logits"], rtol=1e-5, atol=1e-6)
    for given in (path, saved(shuffled(onnx.load(path), 3), tmp_path)):
        again = load_recurrent(given)
        assert (len(again.layers), again.backward is not None, again.pick) == (layers, directions == 2, pick)
        ran = cell.run(again, again.input.codes(X))
        np.testing.assert_array_equal(ran.h, trace.h)
        np.testing.assert_array_equal(cell.logits(again, ran), cell.logits(made, trace))


#: Dense layers with activations by outputs and function.
DENSE = (7, "relu"), (5, "sigmoid"), (6, "tanh")


@pytest.mark.parametrize(("both", "pick"), [(False, "last"), (True, "ends"), (True, "last"), (True, "all")])
def test_quantised_dense_layers_have_the_same_codes(both, pick, tmp_path):
    """onnxruntime runs the export to the reference's logits, and the import reads it as the same network."""
    made = example_dense(example_layers("LSTM", 4, 6, 4, both=both, classes=3, pick=pick), 5, *DENSE)
    path, x = tmp_path / "back.onnx", np.random.default_rng(3).normal(size=(24, 9, 4)).astype(np.float32)
    export_recurrent(made, path)
    zeros = {each.name: np.zeros((24, 6), np.float32) for each in onnx.load(path).graph.input if each.name != "x"}
    want, trace = unfused(path, {"x": x} | zeros)["logits"], cell.run(made, made.input.codes(x))
    found = cell.logits(made, trace)
    np.testing.assert_allclose(found, want if pick != "all" else want.transpose(1, 0, 2), rtol=1e-5, atol=1e-5)
    assert len(np.unique(found)) > 40
    for given in (path, saved(shuffled(onnx.load(path), 3), tmp_path)):
        again = load_recurrent(given)
        assert [each.gates["new"].activation for each in again.behind] == ["relu", "sigmoid", "tanh"]
        ran = cell.run(again, again.input.codes(x))
        np.testing.assert_array_equal(cell.sums(again, ran.h), cell.sums(made, trace.h))
        np.testing.assert_allclose(cell.logits(again, ran), found, atol=1e-6)


def _quantiser_of_the_logits(model):
    """The last dense layer's sums get the quantiser of the one in front of it."""
    nodes = model.graph.node
    last = [node for node in nodes if node.output[0] in ("dense2_code", "dense2_clipped", "dense2")]
    (add,) = (node for node in nodes if node.output[0] == "logits")
    add.output[0] = before = "real"
    for node in last:
        names = [node.input[0], *node.input[1:]]
        names[0] = before
        made = helper.make_node(node.op_type, names, ["logits" if node is last[-1] else f"end_{node.op_type}"])
        before = made.output[0]
        nodes.append(made)


def _in_front(model, kind):
    """The mean or the greatest of all steps in front of the dense layers."""
    model.graph.initializer.append(numpy_helper.from_array(np.array([0]), "axis"))
    for node in model.graph.node:
        node.input[:] = ["h_made" if name == "h_last" and node.op_type == "MatMul" else name for name in node.input]
    made = helper.make_node(kind, ["h_all", "axis"], ["h_made"], keepdims=0)
    at = next(n for n, node in enumerate(model.graph.node) if "h_made" in node.input)
    model.graph.node.insert(at, made)


def _mean_in_front(model):
    _in_front(model, "ReduceMean")


@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceMax"])
def test_activations_behind_all_steps_are_the_hosts(kind, tmp_path):
    """The same logits as onnxruntime's, where they have no quantiser."""
    made = example_dense(example_layers("LSTM", 4, 6, 4, classes=3), 5, (7, "relu"))
    export_recurrent(made, tmp_path / "back.onnx")
    model = onnx.load(tmp_path / "back.onnx")
    _in_front(model, kind)
    for node in [each for each in model.graph.node if each.output[0] in ("dense0_code", "dense0_clipped", "dense0")]:
        model.graph.node.remove(node)
    for node in model.graph.node:
        node.input[:] = ["dense0_active" if name == "dense0" else name for name in node.input]
    path, x = saved(model, tmp_path), np.random.default_rng(3).normal(size=(24, 9, 4)).astype(np.float32)
    zeros = {each.name: np.zeros((24, 6), np.float32) for each in model.graph.input if each.name != "x"}
    network = load_recurrent(path)
    trace = cell.run(network, network.codes(x))
    reached = picked(network.pick, trace.h * network.cell.hidden.scale, network.cell.units)
    found = network.scores(cell.logits(network, trace) if network.head is not None else reached)
    np.testing.assert_allclose(found, unfused(path, {"x": x} | zeros)["logits"], atol=1e-6)
    assert network.pick == kind[len("Reduce") :].lower() and len(np.unique(found)) > 40


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (_quantiser_of_the_logits, "the recurrent nodes: only dense layers"),
        (_mean_in_front, "the mean of all steps, .* leave quantisers of activations out there"),
    ],
)
def test_a_quantiser_elsewhere_behind_is_refused_by_its_node(change, where, tmp_path):
    made = example_dense(example_layers("LSTM", 4, 6, 4, classes=3), 5, *DENSE)
    export_recurrent(made, tmp_path / "back.onnx")
    model = onnx.load(tmp_path / "back.onnx")
    change(model)
    with pytest.raises(ValueError, match=f"node '.*': its quantiser is not supported behind {where}"):
        load_recurrent(saved(model, tmp_path))


def _scans(model):
    return [node for node in model.graph.node if node.op_type == "Scan"]


def _direction(node, way):
    for each in node.attribute:
        if each.name.endswith("_directions"):
            each.ints[:] = [way]


def _joined(model):
    return next(node for node in model.graph.node if node.op_type == "Concat")


def _exchange(names):
    names[:] = list(names)[::-1]


def _other_hidden(model):
    """The backward cell's hidden states get another scale."""
    body = next(each.g for each in _scans(model)[1].attribute if each.name == "body")
    for each in body.initializer:
        if each.name in ("hidden_step", "hidden_scale"):
            each.CopyFrom(numpy_helper.from_array(2 * numpy_helper.to_array(each), each.name))


@pytest.mark.parametrize(
    ("layers", "directions", "change", "said"),
    [
        (1, 2, lambda model: _direction(_scans(model)[1], 0), "a second recurrent node with the same input"),
        (1, 2, lambda model: _exchange(_joined(model).input), "only the channels of the forward and the backward node"),
        (1, 2, _other_hidden, "the hidden state of two directions is quantised twice"),
        (2, 2, lambda model: _scans(model)[2].input.__setitem__(2, "h_all_0"), "its input is one direction of"),
        (2, 1, lambda model: _scans(model)[1].input.__setitem__(2, "by_step"), "it takes 4 channels, node"),
        (2, 1, lambda model: model.graph.node[-2].input.__setitem__(0, "h_last_0"), "is of recurrent layer 0"),
    ],
    ids=["direction", "order", "scale", "one", "input", "head"],
)
def test_other_stacks_of_scans_are_one_line(layers, directions, change, said, tmp_path):
    _, path = quantised(tmp_path, layers, directions, "ends" if directions == 2 else "last")
    model = onnx.load(path)
    change(model)
    with pytest.raises(ValueError) as refused:
        load_recurrent(saved(model, tmp_path))
    assert said in str(refused.value)


def _of_the_first(model):
    next(node for node in model.graph.node if node.name == "rnn1").input[0] = "x0"


def _backward_first(model):
    node = next(node for node in model.graph.node if list(node.output) == ["picked"])
    node.input[:] = node.input[::-1]


@pytest.mark.parametrize(
    ("pick", "change", "said"),
    [
        ("last", _of_the_first, "node 'rnn1' (LSTM): it takes 12 channels, its input has 4"),
        ("joined", _backward_first, "node 'picked' (Concat)"),
    ],
)
def test_other_layouts_are_one_line(pick, change, said, tmp_path):
    with pytest.raises(ValueError) as refused:
        load_native(network(tmp_path, "LSTM", pick=pick, change=change))
    assert said in str(refused.value)


@pytest.mark.parametrize("length", [9, 0])
@pytest.mark.parametrize("index", [0, 1, -2, -9])
def test_another_step_than_the_last_is_refused(index, length, tmp_path):
    def change(model):
        dim = model.graph.input[0].type.tensor_type.shape.dim[1]
        dim.dim_value = length
        if not length:
            dim.dim_param = "length"
        (end,) = (each for each in model.graph.initializer if each.name == "end")
        end.CopyFrom(numpy_helper.from_array(np.array(index), "end"))

    with pytest.raises(ValueError, match=r"node 'picked' \(Gather\): .*only the last"):
        load_native(network(tmp_path, "LSTM", layers=1, directions=1, change=change))


def _batchwise(model):
    """Sequences in front of steps, in the node itself: onnxruntime has no such node, so it runs the other graph."""
    node = next(each for each in model.graph.node if each.name == "rnn0")
    node.attribute.append(helper.make_attribute("layout", 1))
    for output, perm in (("x0", [0, 1, 2]), ("t0", [0, 1, 2, 3])):
        made = next(each for each in model.graph.node if output in each.output)
        made.attribute[0].CopyFrom(helper.make_attribute("perm", perm))
    next(each for each in model.graph.node if "picked" in each.output).attribute[0].i = 1


@pytest.mark.parametrize("kind", GATES)
def test_sequences_may_come_before_steps(kind, tmp_path):
    want = unfused(network(tmp_path, kind, layers=1, directions=2), {"x": X})["logits"]
    read = load_native(network(tmp_path, kind, layers=1, directions=2, change=_batchwise))
    np.testing.assert_allclose(float_logits(read, X), want, rtol=1e-4, atol=1e-5)


def _of(*ops):
    return [Function(op=op, name=op) for op in ops]


@pytest.mark.parametrize(
    ("tail", "two"),
    [((), True), (("sigmoid",), True), (("max", "sigmoid"), True), (("sigmoid", "mean"), False), (("relu",), False)],
)
def test_one_logit_is_two_where_its_sign_is_the_class(tail, two):
    found, rest = with_two_logits(1, _of(*tail))
    assert found == two and [each.op for each in rest] == [op for op in tail if not two or op != "sigmoid"]
    assert not with_two_logits(2, _of(*tail))[0]


def test_the_greatest_of_logits_is_none_of_the_greatest_state():
    head = FloatDense(weight=np.ones((1, 1)), bias=np.ones(1), name="head")
    for op in ("last", "mean"):
        assert commuted("all", head, _of(op, "relu"))[0] == op
    assert commuted("all", head, _of("max"))[0] == "all"


@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
def test_a_stack_without_common_units_is_refused_by_both_quantisers(kind):
    made = example_layers(kind, 4, 8, 5, layers=2)
    (below, none), top = made.below[0], made.cell
    if kind == "RNN":
        gate = below.gates["new"]
        changed = {"gates": {"new": replace(gate, output=replace(gate.output, scale=0.0271828, name="lower/h"))}}
        gate = top.gates["new"]
        own = {"gates": {"new": replace(gate, output=replace(gate.output, name="upper/h"))}}
    else:
        changed = {"hidden": replace(below.hidden, scale=0.0271828, name="lower/h")}
        own = {"hidden": replace(top.hidden, name="upper/h")}
    wrong = replace(made, below=((replace(below, **changed), none),), cell=replace(top, **own))
    # The lower layer's own input has the scale of its hidden state as it was.
    wrong = replace(wrong, input=replace(made.input, scale=0.0271828))
    said = "products with the input, quantised by 'lower/h', have the unit .* the hidden state, quantised by 'upper/h',"
    with pytest.raises(ValueError, match=said) as refused:
        wrong.integers.check()
    assert "\n" not in str(refused.value) and "no ratio of integers up to 1024" in str(refused.value)
