"""Quantised recurrent networks from ONNX, in integers: no code differs from what other tools computed."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from gradloom.models.recurrent.export import export_recurrent
from gradloom.models.recurrent.readers.reader import load_recurrent
from gradloom.sim.reference import cell

from ..models import AUTHORS, BREVITAS, CONV, arrays, body_of, changed, saved, shuffled, some_windows, unfused


def codes(real, scale):
    return np.rint(np.asarray(real, np.float64) / scale).astype(np.int64)


def authors_agree(network):
    """80 sequences of FINN-GL's authors' model, by onnxruntime without fusion."""
    told = arrays("authors_scan_qcdq")
    trace = cell.run(network, network.input.codes(told["x"][..., 0]))
    hidden, state = network.cell.hidden.scale, float(network.integers.cell.state_scale)
    np.testing.assert_array_equal(trace.h, codes(told["h_all"][..., 0], hidden))
    np.testing.assert_array_equal(trace.state.h, codes(told["h_last"][..., 0], hidden))
    np.testing.assert_array_equal(trace.state.c, codes(told["c_last"][..., 0], state))


def brevitas_agrees(network):
    told = arrays("brevitas_W8IO8A6_s1")
    trace = cell.run(network, network.input.codes(told["x"].transpose(1, 0, 2)))
    np.testing.assert_array_equal(trace.h.transpose(1, 0, 2), told["h_codes"])


def conv_agrees(network):
    """64 windows, from the samples to the logits."""
    told = arrays("golden_W8A6C8IO6")
    trace = cell.run(network, network.input.codes(told["x"]))
    for name, own in (("u", trace.u), ("h", trace.h), ("c", trace.state.c)):
        np.testing.assert_array_equal(own, told[name])
    np.testing.assert_array_equal(cell.logits(network, trace), told["logits"])


GOLDEN = [(AUTHORS, authors_agree), (BREVITAS, brevitas_agrees), (CONV, conv_agrees)]


@pytest.mark.parametrize(("path", "agrees"), GOLDEN, ids=lambda each: getattr(each, "stem", ""))
def test_no_code_differs(path, agrees):
    agrees(load_recurrent(path))


@pytest.mark.parametrize(("path", "agrees"), GOLDEN, ids=lambda each: getattr(each, "stem", ""))
def test_names_and_the_order_of_nodes_change_nothing(path, agrees, tmp_path):
    agrees(load_recurrent(saved(shuffled(onnx.load(path), 7), tmp_path)))


@pytest.mark.parametrize("path", [AUTHORS, BREVITAS, CONV], ids=lambda path: path.stem)
def test_every_requantizer_equals_its_thresholds_for_every_integer(path):
    """Not only at the thresholds, which prove it: at many other integers that can occur."""
    inner = load_recurrent(path).integers.cell
    for name, each in (
        *inner.accumulators.items(),
        ("kept", inner.kept),
        ("added", inner.added),
        ("hidden", inner.hidden),
    ):
        low, high = inner.reach[name]
        n = np.arange(low, high + 1)
        if len(each.thresholds) > 1:
            n = np.repeat(n[::97, None], len(each.thresholds), axis=1)
        np.testing.assert_array_equal(each(n), each.by_thresholds(n))


@pytest.mark.parametrize("opset", [12, 13, 17, 23])
def test_opsets(opset, tmp_path):
    model = onnx.load(AUTHORS)
    model.opset_import[0].version = opset
    authors_agree(load_recurrent(saved(model, tmp_path)))


def test_states_in_another_order(tmp_path):
    """The cell state first, as inputs, in the body and as outputs."""
    model = onnx.load(CONV)
    (scan,), body = [n for n in model.graph.node if n.op_type == "Scan"], body_of(model)
    for names in (scan.input, scan.output):
        names[:2] = names[1::-1]
    for ports in (body.input, body.output):
        first = onnx.ValueInfoProto()
        first.CopyFrom(ports[0])
        ports[0].CopyFrom(ports[1])
        ports[1].CopyFrom(first)
    conv_agrees(load_recurrent(saved(model, tmp_path)))


def test_one_step_alone(tmp_path):
    """The body of the authors' loop as a file of its own, its inputs and outputs turned about."""
    model = onnx.load(AUTHORS)
    body = body_of(model)
    ports = body.input[2], body.input[1], body.input[0]
    step = helper.make_model(
        helper.make_graph(body.node, "step", ports, [body.output[1], body.output[0]], list(body.initializer)),
        opset_imports=model.opset_import,
    )
    authors_agree(load_recurrent(saved(step, tmp_path)))


class MultiThreshold(OpRun):
    """As qonnx defines it, for values ``[n, channels]``."""

    op_domain = "qonnx.custom_op.general"

    def _run(self, x, levels, out_scale=1.0, out_bias=0.0, **_):
        count = (x[..., None] >= levels).sum(axis=-1)
        return ((out_scale * count + out_bias).astype(np.float32),)


@pytest.mark.parametrize("kind", ["one row", "a row each"])
def test_thresholds_in_place_of_rounding(kind, tmp_path):
    """Every quantiser of the loop's body as FINN writes it, half up: other codes than QuantizeLinear's, and the same as
    qonnx's definition gives in the interpreter of onnx."""
    model, random = onnx.load(CONV), np.random.default_rng(3)
    body = body_of(model)
    held = {each.name: numpy_helper.to_array(each) for each in body.initializer}
    made, nodes = {node.output[0]: node for node in body.node}, []
    for node in body.node:
        if node.op_type in ("QuantizeLinear", "Clip"):
            continue
        if node.op_type != "DequantizeLinear" or node.input[0] in held:
            nodes.append(node)
            continue
        before, (lo, hi) = made[node.input[0]], (-128, 127)
        if before.op_type == "Clip":
            lo, hi = (int(held[name]) for name in before.input[1:])
            before = made[before.input[0]]
        scale = float(held[node.input[1]])
        levels = (np.arange(lo + 1, hi + 1) - 0.5)[None] * scale
        if kind == "a row each" and before.input[0] == "a3":
            levels = np.repeat(levels, 256, axis=0) + random.integers(-3, 4, (256, 1)) * scale / 4
        name = f"levels of {node.output[0]}"
        body.initializer.append(numpy_helper.from_array(levels.astype(np.float32), name))
        nodes.append(
            helper.make_node(
                "MultiThreshold",
                [before.input[0], name],
                [node.output[0]],
                out_scale=scale,
                out_bias=lo * scale,
                domain=MultiThreshold.op_domain,
            )
        )
    del body.node[:]
    body.node.extend(nodes)
    model.opset_import[0].version = 21  # the least of which onnx's interpreter has all operators
    model.opset_import.append(helper.make_opsetid(MultiThreshold.op_domain, 2))
    network = load_recurrent(saved(model, tmp_path))
    x = arrays("golden_W8A6C8IO6")["x"][:2, :40]
    trace = cell.run(network, network.input.codes(x))
    # onnx's own Scan drops the second state, so the body runs step by step.
    evaluator = ReferenceEvaluator(helper.make_model(body, opset_imports=model.opset_import), new_ops=[MultiThreshold])
    h = c = np.zeros((2, 64), np.float32)
    unit = network.cell.hidden.scale
    for at in range(trace.h.shape[1]):
        u = (trace.u[:, at] * network.cell_input.scale).astype(np.float32)
        h, c, _ = evaluator.run(None, {"h_in": h, "c_in": c, "u_t": u})
        np.testing.assert_array_equal(trace.h[:, at], codes(h, unit))
    np.testing.assert_array_equal(trace.state.c, codes(c, unit))
    rounded = load_recurrent(CONV)
    assert (trace.h != cell.run(rounded, rounded.input.codes(x)).h).any()


def coupled(model):
    """The input gate is 1 minus the forget gate."""
    body = body_of(model)
    body.initializer.append(numpy_helper.from_array(np.float32(1), "one"))
    at = next(n for n, node in enumerate(body.node) if node.output[0] == "m2")
    body.node[at].input[0] = "coupled"
    body.node.insert(at, helper.make_node("Sub", ["one", "qf"], ["coupled"]))


def scale_of_each_output(model):
    """Weights with scales of their own for each output of each gate, both of one unit."""
    zero = np.zeros(256, np.int8)
    for name, scale in {"W": 2.0**-7, "U": 2.0**-5}.items():
        own = scale * 2.0 ** (np.arange(256) % 3 - 1)
        for each in body_of(model).initializer:
            if each.name in (f"{name}_s", f"{name}_z"):
                value = own.astype(np.float32) if each.name[-1] == "s" else zero
                each.CopyFrom(numpy_helper.from_array(value, each.name))


def other_units(model):
    """Products with the input in steps 3 times as large as those with the hidden state."""
    for each in body_of(model).initializer:
        if each.name == "W_s":
            each.CopyFrom(numpy_helper.from_array(np.float32(3 * 2.0**-7), "W_s"))


def forget_coupled(model):
    """The forget gate is 63/64 minus the input gate."""
    body = body_of(model)
    body.initializer.append(numpy_helper.from_array(np.float32(63 / 64), "one"))
    at = next(n for n, node in enumerate(body.node) if "c_in" in node.input and node.op_type == "Mul")
    (place,) = (n for n, name in enumerate(body.node[at].input) if name == "qf")
    body.node[at].input[place] = "coupled"
    body.node.insert(at, helper.make_node("Sub", ["one", "qi"], ["coupled"]))


def mean_of_all_steps(model):
    model.graph.initializer.append(numpy_helper.from_array(np.array([0]), "axes"))
    (gemm,) = (node for node in model.graph.node if node.op_type == "Gemm")
    gemm.input[0] = "mean"
    model.graph.node.append(helper.make_node("ReduceMean", ["h_all", "axes"], ["mean"], keepdims=0))
    model.graph.node.append(gemm)
    model.graph.node.remove(gemm)


def last_of_all_steps(model):
    model.graph.initializer.append(numpy_helper.from_array(np.array(-1), "index"))
    (gemm,) = (node for node in model.graph.node if node.op_type == "Gemm")
    gemm.input[0] = "at_last"
    node = helper.make_node("Gather", ["h_all", "index"], ["at_last"], axis=0)
    model.graph.node.insert(len(model.graph.node) - 1, node)


def normalised(model):
    """A BatchNormalization behind the convolution, which turns some channels about."""
    gamma = np.where(np.arange(16) % 4 == 0, -0.5, 2.0)
    held = {"gamma": gamma, "beta": np.full(16, 0.25), "mean": np.full(16, 0.5), "var": np.ones(16)}
    for name, value in held.items():
        model.graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), name))
    at = next(n for n, node in enumerate(model.graph.node) if node.op_type == "Relu")
    model.graph.node[at].input[0] = "normal"
    node = helper.make_node("BatchNormalization", ["u0", *held], ["normal"], epsilon=0.0)
    model.graph.node.insert(at, node)


@pytest.mark.parametrize(
    "change",
    [coupled, forget_coupled, scale_of_each_output, other_units, mean_of_all_steps, last_of_all_steps, normalised],
)
def test_other_forms_equal_onnxruntime(change, tmp_path):
    """All scales are powers of two, so float32 adds no error of its own. An export gives the same again."""
    path, feeds = changed(change, tmp_path), some_windows(8)
    network, want = load_recurrent(path), unfused(path, feeds)
    trace = cell.run(network, network.input.codes(feeds["x"]))
    export_recurrent(network, tmp_path / "back.onnx")
    again = unfused(tmp_path / "back.onnx", feeds)
    for name in ("h_all", "c_last", "logits"):
        np.testing.assert_array_equal(again[name], want[name])
    np.testing.assert_array_equal(trace.h, codes(want["h_all"], network.cell.hidden.scale).transpose(1, 0, 2))
    np.testing.assert_array_equal(trace.state.c, codes(want["c_last"], network.cell.hidden.scale))
    np.testing.assert_allclose(cell.logits(network, trace), want["logits"], rtol=1e-5, atol=1e-5)
    plain = cell.run(load_recurrent(CONV), network.input.codes(feeds["x"]))
    if change in (mean_of_all_steps, last_of_all_steps):
        assert network.pick == ("mean" if change is mean_of_all_steps else "last")
    else:
        assert (plain.h != trace.h).any()


def test_coupled_gates_of_brevitas(tmp_path):
    """1 goes through the input gate's quantiser, and the input gate is subtracted: as Brevitas' cell has it."""
    model = onnx.load(BREVITAS)
    (node,) = (node for node in model.graph.node if node.op_type == "QuantLSTMCell")
    for each in [each for each in node.attribute if each.name == "cifg"]:
        node.attribute.remove(each)
    node.attribute.append(helper.make_attribute("cifg", 1))
    network, plain = load_recurrent(saved(model, tmp_path)), load_recurrent(BREVITAS)
    x = arrays("brevitas_W8IO8A6_s1")["x"].transpose(1, 0, 2)[:4, :20]
    trace = cell.run(network, network.input.codes(x))
    gates, made = plain.cell.gates, plain.cell

    def coded(coding, value):
        return coding.codes(value) * coding.scale

    def gate(name, u, h):
        own = gates[name]
        total = u @ (own.w * own.w_scale[:, None]).T + h @ (own.u * own.u_scale[:, None]).T + own.bias
        real = coded(own.accumulator, total)
        return coded(own.output, np.tanh(real) if name == "cell" else 1 / (1 + np.exp(-real)))

    u = network.input.codes(x) * network.input.scale
    h = c = np.zeros((len(x), made.units))
    for at in range(x.shape[1]):
        enter = gate("input", u[:, at], h)
        forget = coded(gates["input"].output, np.ones_like(enter)) - enter
        added = coded(made.added, enter * gate("cell", u[:, at], h))
        c = coded(made.state, coded(made.kept, forget * c) + added)
        h = coded(made.hidden, gate("output", u[:, at], h) * coded(made.squashed, np.tanh(c)))
        np.testing.assert_array_equal(trace.h[:, at], codes(h, made.hidden.scale))
    assert (trace.h != cell.run(plain, network.input.codes(x)).h).any()


def _attribute(node, name, value):
    for each in [each for each in node.attribute if each.name == name]:
        node.attribute.remove(each)
    node.attribute.append(helper.make_attribute(name, value))


def _given(model, node, at, value):
    """Another constant as an input."""
    node.input[at] = f"given{at}"
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(value, np.float32), f"given{at}"))


#: Changes of a QuantLSTMCell, and the refusal. Inputs 15, 16 and 17 are the quantiser of the hidden state.
CELLS = {
    "inputs": (lambda model, node: node.input.pop(), "it has 47 inputs: expected 48, as Brevitas' export_qonnx("),
    "scales": (
        lambda model, node: _given(model, node, 15, [1, 2]),
        "quantiser output: its scale is [1.0, 2.0]: expected one above 0",
    ),
    "scale 0": (
        lambda model, node: _given(model, node, 18, 0),
        "quantiser cell_state: its scale is [0.0]: expected one above 0",
    ),
    "zero": (lambda model, node: _given(model, node, 16, 3), "quantiser output: its zero point is 3: it must be 0"),
    "bits": (
        lambda model, node: _given(model, node, 47, 33),
        "quantiser hidden_state_tanh: its bits are [33.0]: expected one integer from 1 to 32",
    ),
    "rounding": (
        lambda model, node: _attribute(node, "cell_acc_rounding_mode", "CEIL"),
        "quantiser cell_acc: rounding_mode=CEIL: only ROUND, half to even, is supported",
    ),
    "start": (
        lambda model, node: _given(model, node, 1, np.ones((1, 64))),
        "its start state 'given1' is 1, not 0: it must be 0 or an input",
    ),
    "state": (
        lambda model, node: _given(model, node, 2, np.ones((1, 64))),
        "its start state 'given2' is 1, not 0: it must be 0 or an input",
    ),
    "constant": (lambda model, node: _given(model, node, 0, np.ones((100, 8, 16))), "its input 'given0' is constant"),
    "backward": (
        lambda model, node: _attribute(node, "reverse_input", 1),
        ": it runs backward alone: only beside a node that runs forward",
    ),
}


@pytest.mark.parametrize("case", CELLS)
def test_a_cell_of_brevitas_that_is_another_is_refused(case, tmp_path):
    model = onnx.load(BREVITAS)
    (node,) = (node for node in model.graph.node if node.op_type == "QuantLSTMCell")
    change, says = CELLS[case]
    change(model, node)
    with pytest.raises(ValueError) as refused:
        load_recurrent(saved(model, tmp_path))
    assert says in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["output_narrow", "output_narrow_range", "cell_tanh_signed", "input_sigmoid_signed"])
def test_attributes_of_brevitas_bound_the_codes(name, tmp_path):
    model = onnx.load(BREVITAS)
    (node,) = (node for node in model.graph.node if node.op_type == "QuantLSTMCell")
    cell_of = {
        "output_narrow": lambda made: made.hidden,
        "cell_tanh_signed": lambda made: made.gates["cell"].output,
        "input_sigmoid_signed": lambda made: made.gates["input"].output,
    }
    coding = cell_of[name.removesuffix("_range")]
    before = coding(load_recurrent(BREVITAS).cell)
    _attribute(node, name, int(name != "cell_tanh_signed"))
    after = coding(load_recurrent(saved(model, tmp_path)).cell)
    bits = before.hi.bit_length()
    assert (before.lo, before.hi, after.lo, after.hi) == {
        "output_narrow": (-1 - before.hi, before.hi, -before.hi, before.hi),
        "cell_tanh_signed": (-1 - before.hi, before.hi, 0, 2 * before.hi + 1),
        "input_sigmoid_signed": (0, before.hi, -(1 << bits - 1), (1 << bits - 1) - 1),
    }[name.removesuffix("_range")]


def _behind(model, *nodes, held=()):
    """Nodes behind the cell's hidden states."""
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in held)
    model.graph.output[0].CopyFrom(onnx.ValueInfoProto(name=nodes[-1].output[0]))


AXES = ("axes", np.array([0]))


@pytest.mark.parametrize(
    ("nodes", "held", "says"),
    [
        (
            [("Squeeze", ["61", "axes"], {})],
            [("axes", np.array([1]))],
            "axes=[1] of an input with shape [?, ?, ?]: must",
        ),
        ([("Squeeze", ["61", "axes"], {})], [AXES], "it removes the axis of the steps"),
        ([("Squeeze", ["61", "axes"], {})], [("axes", np.array([3]))], "axis 3 of an input with 3 dimensions"),
        ([("Squeeze", ["61", "axes"], {})], [("axes", np.array([-4]))], "axis -4 of an input with 3 dimensions"),
        ([("Flatten", ["61"], {})], [], "its shape is not known: export the network with fixed sizes"),
        ([("MatMul", ["end", "w"], {})], [("w", np.ones((64, 2), np.float32))], "the dimensions of its input are not"),
        ([("Transpose", ["end"], {})], [], "the dimensions of its input 'end' are not known"),
        ([("Split", ["61", "split"], {"axis": 2})], [("split", np.array([1, 2]))], "parts of [1, 2] of an axis of 64"),
        (
            [("Split", ["61", "split"], {"axis": 2})],
            [("split", np.array([64, 0]))],
            "parts of [64, 0] of an axis of 64",
        ),
    ],
)
def test_values_of_unknown_shapes_are_refused_where_they_matter(nodes, held, says, tmp_path):
    model = onnx.load(BREVITAS)
    (node,) = (node for node in model.graph.node if node.op_type == "QuantLSTMCell")
    node.output[1] = "end"
    outputs = [["made", "more"] if kind == "Split" else ["made"] for kind, _, _ in nodes]
    _behind(model, *(helper.make_node(k, i, o, **a) for (k, i, a), o in zip(nodes, outputs)), held=held)
    with pytest.raises(ValueError) as refused:
        load_recurrent(saved(model, tmp_path))
    assert f"node 'made' ({nodes[0][0]}): {says}" in str(refused.value)
