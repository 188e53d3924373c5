"""Drawn networks of every kind of cell: no code of any step differs from onnxruntime's, which does not fuse."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from gradloom.models.recurrent.cells import GruCell
from gradloom.models.recurrent.example import example_codes
from gradloom.models.recurrent.example_cells import example_layers, example_odd
from gradloom.models.recurrent.export import GraphNodes, export_recurrent
from gradloom.sim.reference import cell as reference

from .models import unfused

COUNT, STEPS = 20, 11


def graph_of(cell):
    """One step of a GRU or of a plain cell: x and h in, h out."""
    nodes = GraphNodes()

    def product(side, value, gate, name):
        codes, scale = (gate.w, gate.w_scale) if side == "w" else (gate.u, gate.u_scale)
        return nodes("MatMul", [value, nodes.weights(f"{name}_{side}", codes.T, scale, 1)], f"{name}_{side}_sum")

    def added(first, second, name):
        return nodes("Add", [first, second], name)

    def activated(total, gate, name):
        code = nodes.coded(total, f"{name}_sum", gate.accumulator)
        kind = {"sigmoid": "Sigmoid", "tanh": "Tanh"}[gate.activation]
        return nodes.coded(nodes(kind, [code], f"{name}_real"), f"{name}_gate", gate.output)

    made = {}
    for name, gate in cell.gates.items():
        total = added(product("w", "x", gate, name), nodes.constant(f"{name}_b", gate.bias), f"{name}_biased")
        state, gru = "h", isinstance(cell, GruCell) and name == "new"
        if gru and cell.passed is not None:
            state = nodes.coded(nodes("Mul", [made["reset"], "h"], "reset_h"), "passed", cell.passed)
        of_h = product("u", state, gate, name)
        if gru and cell.passed is None:
            biased = added(of_h, nodes.constant("inner_b", cell.inner_bias), "inner_biased")
            of_h = nodes("Mul", [made["reset"], nodes.coded(biased, "inner", cell.inner)], "passed")
        made[name] = activated(added(total, of_h, f"{name}_total"), gate, name)
    answer = made["new"]
    if isinstance(cell, GruCell):
        kept = nodes("Mul", [made["update"], "h"], "kept")
        rest = nodes("Sub", [nodes.constant("one", 1.0), made["update"]], "rest")
        answer = nodes.coded(added(kept, nodes("Mul", [rest, made["new"]], "taken"), "mixed"), "answer", cell.hidden)
    info = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width])
        for name, width in (("x", cell.inputs), ("h", cell.units), (answer, cell.units))
    ]
    graph = helper.make_graph(nodes.nodes, "step", info[:2], info[2:], nodes.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def steps_of(cell, x):
    """Hidden states ``[n, steps, hidden]`` by onnxruntime, real numbers."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(graph_of(cell).SerializeToString(), options, ["CPUExecutionProvider"])
    h, found = np.zeros((len(x), cell.units), np.float32), []
    for at in range(x.shape[1]):
        (h,) = session.run(None, {"x": np.ascontiguousarray(x[:, at]), "h": h})
        found.append(h)
    return np.stack(found, axis=1)


def by_steps(network, x):
    """All hidden states of the last layer."""
    for forward, backward in network.layers:
        parts = [steps_of(forward, x)]
        if backward is not None:
            parts.append(steps_of(backward, x[:, ::-1])[:, ::-1])
        x = np.concatenate(parts, axis=2)
    return x


def by_export(network, x, path):
    """The same of LSTMs, by the file of their export."""
    export_recurrent(network, path)
    cells = [cell for layer in network.layers for cell in layer if cell is not None]
    ends = [""] if len(cells) == 1 else [f"_{number}" for number in range(len(cells))]
    zeros = {
        f"{name}_init{end}": np.zeros((len(x), cell.units), np.float32)
        for end, cell in zip(ends, cells)
        for name in "hc"
    }
    return unfused(path, {"x": x} | zeros)["h_all"].transpose(1, 0, 2)


@pytest.mark.parametrize("kind", ["LSTM", "CIFG", "GRU", "GRU0", "RNN"])
def test_no_code_differs(kind, tmp_path):
    """A layer, two layers or two directions of each; scales of all kinds, and ties whatever the scales' ratio."""
    near = 0
    for seed in range(COUNT):
        rng = np.random.default_rng(seed)
        units, inputs = rng.integers(3, 25), rng.integers(2, 17)
        form = ({}, {"layers": 2}, {"both": True})[seed % 3]
        network = example_layers(kind, seed, units, inputs, powers=seed % 2 == 0, **form)
        if seed % 4 == 0:
            network = example_odd(network, seed)
            near += sum("near" in each for each in network.integers.quantizers())
        codes = example_codes(network, rng, 6, STEPS)
        x = (codes * np.float32(network.input.scale)).astype(np.float32)
        real = by_steps(network, x) if kind not in ("LSTM", "CIFG") else by_export(network, x, tmp_path / "m.onnx")
        found = np.rint(real / np.float32(network.cell.hidden.scale)).astype(np.int64)
        np.testing.assert_array_equal(found, reference.run(network, codes).h, err_msg=f"seed {seed}")
    # Few quantisers of a plain cell have ties.
    assert near > 2 or kind == "RNN", near
