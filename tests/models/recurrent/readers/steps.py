"""One step of a quantised LSTM as text, alone or as the body of a Scan, and what can be made of it."""

import re

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from gradloom.models.recurrent.host import picked
from gradloom.models.recurrent.readers.reader import load_recurrent
from gradloom.sim.reference import cell

from ..models import saved
from .graphs import made, numbers, refusal

__all__ = ["CONSTANTS", "MultiThreshold", "check_scan", "check_step", "step_of"]

QONNX = "qonnx.custom_op.general"
#: Channels of the input; hidden elements are 3.
_GATE = """
{g}w = Q(W{g}, SW)
{g}u = Q(U{g}, SW)
{g}1 = MatMul({x}, {g}w)
{g}2 = MatMul(h, {g}u)
{g}3 = Add({g}1, {g}2)
{g}4 = Add({g}3, B{g})
{g}5 = Q({g}4, SA)
{g}6 = {kind}({g}5)
{g}7 = Q({g}6, SG)
"""
_STATES = """
k1 = Mul(f7, c)
k2 = Q(k1, SG)
a1 = Mul(i7, g7)
a2 = Q(a1, SG)
s1 = Add(k2, a2)
s2 = Q(s1, SG)
t1 = Tanh(s2)
t2 = Q(t1, SG)
m1 = Mul(o7, t2)
m2 = Q(m1, SG)
"""
#: Scales, bits and constants of all kinds: codes of weights have 8 bits, those of activations 6.
CONSTANTS = {
    **{f"W{g}": np.rint(numbers(4, 3, seed=at, scale=40)) / 64 for at, g in enumerate("ifgo")},
    **{f"U{g}": np.rint(numbers(3, 3, seed=4 + at, scale=40)) / 64 for at, g in enumerate("ifgo")},
    **{f"B{g}": np.rint(numbers(3, seed=8 + at, scale=40)) / 64 for at, g in enumerate("ifgo")},
    **{f"V{g}": np.rint(numbers(3, 3, seed=12 + at, scale=40)) / 64 for at, g in enumerate("ifgo")},
    "SW": np.float32(1 / 64),
    "SA": np.float32(1 / 8),
    "SG": np.float32(1 / 32),
    "SX": np.float32(1 / 16),
    "ONE": np.float32(1),
    "Z": np.float32(0),
    "B8": np.float32(8),
    "B6": np.float32(6),
}


def step_of(edits="", around="alone", second="", opset=19, **held):
    """A model of the step after edits of its text: ``old => new``, and more of them behind ``;;``.

    ``around``: the inputs are x, h and c, and the outputs the new h and c; or ``scan``, with ``y`` the hidden states of
    all steps. ``second``: inputs of another Scan, which sees 3 channels if it is behind the first, and attributes
    behind a slash. Q(value, scale) is a quantiser of 6 bits, of a constant one of 8.
    """
    alone = around == "alone"
    body = "xq = Q(x, SX)\n" if alone else ""
    for gate in "ifgo":
        body += _GATE.format(g=gate, x="xq" if alone else "x", kind="Tanh" if gate == "g" else "Sigmoid").lstrip()
    body += _STATES.strip()
    if alone:
        text, inputs, outputs = body, "float[n,4] x, float[n,3] h, float[n,3] c", "m2, s2"
    else:
        text = (
            "xq = Q(X, SX)\nh1, c1, y = Scan <num_scan_inputs=1, body = body (float[n,3] h, float[n,3] c, float[n,4] x)"
            " => (float[n,3] m2, float[n,3] s2, float[n,3] m2) {\n" + body + "\n}> (h0, c0, xq)"
        )
        if second:
            sees, _, more = second.partition(" / ")
            other = text[text.index("Scan <") :].replace("(h0, c0, xq)", f"({sees})")
            other = other.replace("num_scan_inputs=1", f"num_scan_inputs=1{more}")
            if "x" not in sees:
                other = other.replace("float[n,4] x", "float[n,3] x").replace("Q(W", "Q(V")
            text += f"\nh2, c2, z = {other}"
        inputs, outputs = "float[t,n,4] X, float[n,3] h0, float[n,3] c0", "h1, c1, " + ("z" if second else "y")
    whole = f"{inputs} / {outputs} / {text}"
    for edit in filter(None, edits.split(" ;; ")):
        old, new = edit.split(" => ")
        assert old in whole, old
        whole = whole.replace(old, new.replace("; ", "\n"), 1)
    inputs, outputs, text = whole.split(" / ")
    return made(expanded(text), inputs, outputs, opset=opset, **(CONSTANTS | held))


def expanded(text):
    """``Q(value, scale)`` as a node."""
    for capital, bits in ((True, "B8"), (False, "B6")):
        first = "[A-Z]" if capital else "[a-z]"
        text = re.sub(rf"\bQ\(({first}\w*), (\w+)\)", rf"{QONNX}.Quant(\1, \2, Z, {bits})", text)
    return re.sub(r"\bQ\((\w+), (\w+), (\w+), (\w+)\)", rf"{QONNX}.Quant(\1, \2, \3, \4)", text)


class Quant(OpRun):
    """As qonnx defines it: half to even, between the codes of so many bits."""

    op_domain = QONNX

    def _run(self, x, scale, zero, bits, signed=1, narrow=0, rounding_mode="ROUND"):
        lo, hi = (-(2 ** (bits - 1)) + narrow, 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1 - narrow)
        return (((np.clip(np.rint(x / scale + zero), lo, hi) - zero) * scale).astype(np.float32),)


class MultiThreshold(OpRun):
    """As qonnx defines it, for values ``[n, channels]``."""

    op_domain = QONNX

    def _run(self, x, levels, out_scale=1.0, out_bias=0.0, **_):
        count = (x[..., None] >= levels).sum(axis=-1)
        return ((out_scale * count + out_bias).astype(np.float32),)


def interpreted(step, x):
    """Hidden states ``[n, steps, hidden]`` and the last cell state of one step alone, by the interpreter of onnx."""
    evaluator = ReferenceEvaluator(step, new_ops=[Quant, MultiThreshold])
    h = c = np.zeros((len(x), 3), np.float32)
    states = []
    for at in range(x.shape[1]):
        made = dict(
            zip([each.name for each in step.graph.output], evaluator.run(None, {"x": x[:, at], "h": h, "c": c}))
        )
        h, c = made["m2"], made["s2"]
        states.append(h)
    return np.stack(states, 1), c


X = np.random.default_rng(3).normal(size=(3, 6, 4)).astype(np.float32)


def check_step(model, expected, folder):
    """A step alone must be refused as ``expected`` says, or have the codes of onnx' interpreter."""
    kind, said = expected[0], expected[2:]
    if kind == "!":
        assert refusal(model, folder, load_recurrent) == said
        return
    network = load_recurrent(saved(model, folder))
    h, c = interpreted(model, X)
    trace = cell.run(network, network.input.codes(X))
    np.testing.assert_array_equal(trace.h * network.cell.hidden.scale, h)
    np.testing.assert_array_equal(trace.state.c * float(network.integers.cell.state_scale), c)
    assert len(np.unique(h)) > 2


def check_scan(model, expected, folder):
    """A Scan likewise, whose states are those of the step alone; what is behind it, the interpreter computes."""
    kind, said = expected[0], expected[2:]
    if kind == "!":
        assert refusal(model, folder, load_recurrent) == said
        return
    network = load_recurrent(saved(model, folder))
    assert network.pick == said
    h, c = interpreted(step_of("Q(x, SX) => Q(x, SX, Z, B8)"), X)
    trace = cell.run(network, network.input.codes(X))
    np.testing.assert_array_equal(trace.h * network.cell.hidden.scale, h)
    if not network.answers:
        return
    nodes = [node for node in model.graph.node if node.op_type != "Scan"]
    feeds = {"X": X.swapaxes(0, 1), "h1": h[:, -1], "c1": c, "y": h.swapaxes(0, 1)}
    ports = [onnx.helper.make_tensor_value_info(name, 1, value.shape) for name, value in feeds.items()]
    graph = onnx.helper.make_graph(nodes, "behind", ports, model.graph.output[:1], model.graph.initializer)
    behind = onnx.helper.make_model(graph, opset_imports=model.opset_import)
    (want,) = ReferenceEvaluator(behind, new_ops=[Quant, MultiThreshold]).run(None, feeds)
    if network.head is None:
        reached = picked(network.pick, trace.h * network.cell.hidden.scale, network.cell.units)
    else:
        reached = cell.logits(network, trace)
    found = network.answer(network.scores(reached))
    if network.one_logit:
        found = 1 / (1 + np.exp(-found[:, 1:]))
    np.testing.assert_allclose(found, want.swapaxes(0, 1) if said == "all" else want, atol=1e-5)
