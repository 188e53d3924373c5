"""Quantised recurrent networks to ONNX: a Scan of quantised nodes."""

from pathlib import Path
from typing import Any

import numpy as np

from gradloom.output import check_file, staged_file

from .coding import Coding
from .front import Pool
from .host import FloatDense, Function
from .lstm import GATES, Gate, LstmCell
from .network import RecurrentNetwork

__all__ = ["GraphNodes", "GraphWriter", "export_recurrent"]

#: The least in which QuantizeLinear makes codes of 16 bits, and the format of files that go with it.
_OPSET, _IR = 21, 10


def export_recurrent(network: RecurrentNetwork, path: Path | str) -> None:
    """Writes a network as the ONNX file ``path``.

    onnxruntime runs it to the same codes if it does not fuse quantisers.

    Inputs: ``x`` ``[n, steps, channels]``, or tokens ``[n, steps]``, ``h_init`` and ``c_init`` ``[n, hidden]``.
    Outputs: ``logits`` where the network has a head, or ``answer`` where the host computes more behind it, ``h_last``,
    ``c_last``, ``h_all`` ``[steps, n, hidden]``. States of a network of several cells
    end in ``_0``, ``_1``, from the input on, a layer's backward cell behind its forward one; ``h_all`` is of the last
    layer, both directions side by side. Quantisers by thresholds, codes of more than 16 bits, and cells that are no
    LSTM are a :class:`ValueError`.
    """
    check_file(path, suffix=".onnx")
    model = GraphWriter(network).model()
    with staged_file(path) as file:
        file.write(model.SerializeToString(deterministic=True))


class GraphNodes:
    """Nodes and constants of a graph in the making."""

    def __init__(self) -> None:
        import onnx

        self.helper, self.to_tensor = onnx.helper, onnx.numpy_helper.from_array
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, value: Any, dtype: Any = np.float32) -> str:
        self.constants.append(self.to_tensor(np.asarray(value, dtype), name))
        return name

    def __call__(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(self.helper.make_node(kind, inputs, [output], name=f"{kind}_{output}", **attributes))
        return output

    def coded(self, value: str, name: str, coding: Coding) -> str:
        """``value`` through a quantiser."""
        if coding.levels is not None:
            raise ValueError(
                f"node {coding.name!r}: it quantises by thresholds, which QuantizeLinear cannot: only "
                "quantisers that round can be exported"
            )
        types = {np.uint8: (0, 255), np.int8: (-128, 127), np.uint16: (0, 65535), np.int16: (-32768, 32767)}
        fitting = [(dtype, ends) for dtype, ends in types.items() if ends[0] <= coding.lo and coding.hi <= ends[1]]
        if not fitting:
            raise ValueError(
                f"node {coding.name!r}: its codes go from {coding.lo} to {coding.hi}: at most 16 bits can be exported"
            )
        dtype, ends = fitting[0]
        step, scale = (
            self.constant(f"{name}_{what}", each) for what, each in (("step", coding.step), ("scale", coding.scale))
        )
        zero = self.constant(f"{name}_zero", 0, dtype)
        code = self("QuantizeLinear", [value, step, zero], f"{name}_code")
        if (coding.lo, coding.hi) != ends:
            bounds = [
                self.constant(f"{name}_{what}", each, dtype) for what, each in (("lo", coding.lo), ("hi", coding.hi))
            ]
            code = self("Clip", [code, *bounds], f"{name}_clipped")
        return self("DequantizeLinear", [code, scale, zero], name)

    def weights(self, name: str, codes: np.ndarray, scale: np.ndarray, axis: int) -> str:
        """Quantised weights; ``axis``: that of the outputs."""
        one = (scale == scale[0]).all()
        held = self.constant(f"{name}_code", codes, np.int8)
        unit = self.constant(f"{name}_scale", scale[0] if one else scale)
        zero = self.constant(f"{name}_zero", 0 if one else np.zeros(len(scale)), np.int8)
        return self("DequantizeLinear", [held, unit, zero], name, **({} if one else {"axis": axis}))


class GraphWriter:
    """Writes a network's graph; a subclass may write other than its answer behind it."""

    #: What reaches the last convolution or the cell: ``[n, channels, samples]`` behind layers, else by step.
    source: str

    def __init__(self, network: RecurrentNetwork) -> None:
        from onnx import TensorProto

        self.network, self.float, self.token = network, TensorProto.FLOAT, TensorProto.INT64

    def model(self) -> Any:
        network, nodes = self.network, GraphNodes()
        value = "x"
        for number, step in enumerate(network.before):
            held = nodes.constant(f"before{number}_value", step.value)
            value = nodes(step.op, [held, value] if step.op == "Gather" else [value, held], f"before{number}")
        value = nodes.coded(value, "x_quantized", network.input)
        if network.front:
            value = nodes("Transpose", [value], "x_by_channel", perm=[0, 2, 1])
        for number, conv in enumerate(network.front):
            name = f"conv{number}"
            self.source = value
            if isinstance(conv, Pool):
                value = self._pool(nodes, value, conv, f"pool{number}")
                continue
            weight = nodes.weights(f"{name}_w", conv.weight, conv.scale, 0)
            bias = nodes.constant(f"{name}_b", conv.bias)
            value = nodes(
                "Conv",
                [value, weight, bias],
                f"{name}_sum",
                kernel_shape=[conv.weight.shape[2]],
                pads=list(conv.pads),
                strides=[conv.stride],
            )
            value = nodes.coded(value, name, conv.coding)
        self.source = value if network.last_conv is None else self.source
        value = nodes("Transpose", [value], "by_step", perm=[2, 0, 1] if network.front else [1, 0, 2])
        layers = [[network.as_lstm(cell) for cell in layer if cell is not None] for layer in network.layers]
        cells = [cell for layer in layers for cell in layer]
        alone = len(cells) == 1
        ends = ["" if alone else f"_{number}" for number in range(len(cells))]
        waiting = iter(ends)
        for layer in layers:
            own = [next(waiting) for _ in layer]
            for backward, (cell, end) in enumerate(zip(layer, own)):
                self._scan(nodes, value, cell, end, backward)
            value = f"h_all{own[0]}"
            if len(own) == 2:
                value = nodes("Concat", [f"h_all{end}" for end in own], f"h_both{own[0]}", axis=2)
        if not alone:
            nodes("Identity", [value], "h_all")
        state = [self.info(f"{name}_init{end}", ["n", cell.units]) for cell, end in zip(cells, ends) for name in "hc"]
        outputs = [self.info(f"{name}_last{end}", ["n", cell.units]) for cell, end in zip(cells, ends) for name in "hc"]
        outputs.append(self.info("h_all", ["steps", "n", network.units]))
        if network.answers:
            outputs.insert(0, self.answer(nodes, own))
        helper = nodes.helper
        x = self.info("x", ["n", "length", network.channels])
        if network.tokens:
            x = helper.make_tensor_value_info("x", self.token, ["n", "length"])
        graph = helper.make_graph(nodes.nodes, network.name, [x, *state], outputs, nodes.constants)
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR, producer_name="gradloom"
        )

    def _scan(self, nodes: GraphNodes, value: str, cell: LstmCell, end: str, backward: int) -> None:
        """A cell over all steps; ``end``: of the names of its states."""
        body = self._body(cell)
        ways = {"scan_input_directions": [1], "scan_output_directions": [1]} if backward else {}
        nodes.nodes.append(
            nodes.helper.make_node(
                "Scan",
                [f"h_init{end}", f"c_init{end}", value],
                [f"h_last{end}", f"c_last{end}", f"h_all{end}"],
                name=f"Scan{end}",
                body=body,
                num_scan_inputs=1,
                **ways,
            )
        )

    @staticmethod
    def _pool(nodes: GraphNodes, value: str, pool: Pool, name: str) -> str:
        if pool.groups.shape != (pool.inputs, 1) or (pool.groups[:, 0] != np.arange(pool.inputs)).any():
            raise ValueError(f"node {pool.name!r}: a pool over features cannot be exported, only one over time")
        return nodes("MaxPool", [value], name, kernel_shape=[pool.kernel], pads=list(pool.pads), strides=[pool.stride])

    def info(self, name: str, shape: list[int | str]) -> Any:
        from onnx import helper

        return helper.make_tensor_value_info(name, self.float, shape)

    def answer(self, nodes: GraphNodes, ends: list[str]) -> Any:
        """Writes what follows the hidden states.

        ``ends``: of the names of the last layer's states, forward and backward.
        """
        network = self.network
        head, pick = network.head, network.pick
        both = len(ends) == 2
        if pick == "mean":
            source = nodes("ReduceMean", ["h_all", nodes.constant("time", [0], np.int64)], "h_mean", keepdims=0)
        elif pick == "max":
            source = nodes("ReduceMax", ["h_all", nodes.constant("time", [0], np.int64)], "h_max", keepdims=0)
        elif pick == "ends":
            source = nodes("Concat", [f"h_last{end}" for end in ends], "h_ends", axis=1)
        elif pick == "last" and both:
            source = nodes("Gather", ["h_all", nodes.constant("end", -1, np.int64)], "h_end", axis=0)
        else:
            source = "h_all" if pick == "all" else f"h_last{ends[0]}"
        width, steps = network.units, pick == "all"
        for number, cell in enumerate(network.behind):
            source = self._dense(nodes, source, cell.gates["new"], f"dense{number}")
        if head is not None:
            weight = nodes.weights("head_w", head.weight.T, head.scale, 1)
            total = nodes("MatMul", [source, weight], "head_sum")
            source, width = nodes("Add", [total, nodes.constant("head_b", head.bias)], "logits"), len(head.bias)
        for number, each in enumerate(network.tail):
            source = self._host(nodes, source, each, f"tail{number}")
            width = len(each.bias) if isinstance(each, FloatDense) else width
            steps = steps and getattr(each, "op", "") not in ("last", "mean", "max")
        if network.tail or head is None:
            source = nodes("Identity", [source], "answer")
        return self.info(source, ["steps", "n", width] if steps else ["n", width])

    @staticmethod
    def _dense(nodes: GraphNodes, value: str, gate: Gate, name: str) -> str:
        """A quantised dense layer with its activation."""
        total = nodes("MatMul", [value, nodes.weights(f"{name}_w", gate.w.T, gate.w_scale, 1)], f"{name}_products")
        value = nodes("Add", [total, nodes.constant(f"{name}_b", gate.bias)], f"{name}_sum")
        if gate.accumulator is not gate.output:
            value = nodes.coded(value, f"{name}_rounded", gate.accumulator)
        kind = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}[gate.activation]
        return nodes.coded(nodes(kind, [value], f"{name}_active"), name, gate.output)

    @staticmethod
    def _host(nodes: GraphNodes, value: str, step: FloatDense | Function, name: str) -> str:
        """A step of the tail; steps of a sequence are axis 0."""
        if isinstance(step, FloatDense):
            total = nodes("MatMul", [value, nodes.constant(f"{name}_w", step.weight.T)], f"{name}_sum")
            return nodes("Add", [total, nodes.constant(f"{name}_b", step.bias)], name)
        if step.op == "clip":
            ends = [nodes.constant(f"{name}_{what}", each) for what, each in (("lo", step.lo), ("hi", step.hi))]
            return nodes("Clip", [value, *ends], name)
        if step.op == "last":
            return nodes("Gather", [value, nodes.constant(f"{name}_at", -1, np.int64)], name, axis=0)
        if step.op in ("mean", "max"):
            axes = nodes.constant(f"{name}_axes", [0], np.int64)
            return nodes({"mean": "ReduceMean", "max": "ReduceMax"}[step.op], [value, axes], name, keepdims=0)
        kind = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "softmax": "Softmax", "log_softmax": "LogSoftmax"}
        return nodes(kind[step.op], [value], name)

    def _body(self, cell: LstmCell) -> Any:
        """One step of a cell."""
        nodes = GraphNodes()
        gates: dict[str, str] = {}
        for name in GATES:
            if name not in cell.gates:
                continue
            gate = cell.gates[name]
            of_x = nodes("MatMul", ["x_t", nodes.weights(f"{name}_w", gate.w.T, gate.w_scale, 1)], f"{name}_wx")
            of_h = nodes("MatMul", ["h_in", nodes.weights(f"{name}_u", gate.u.T, gate.u_scale, 1)], f"{name}_uh")
            total = nodes(
                "Add",
                [nodes("Add", [of_x, of_h], f"{name}_products"), nodes.constant(f"{name}_b", gate.bias)],
                f"{name}_sum",
            )
            accumulator = nodes.coded(total, f"{name}_accumulator", gate.accumulator)
            active = nodes({"sigmoid": "Sigmoid", "tanh": "Tanh"}[gate.activation], [accumulator], f"{name}_real")
            gates[name] = nodes.coded(active, f"{name}_gate", gate.output)
        for missing, other in (("input", "forget"), ("forget", "input")):
            if missing not in gates:
                one = cell.one * cell.gates[other].output.scale or 1
                gates[missing] = nodes("Sub", [nodes.constant("one", one), gates[other]], f"{missing}_gate")
        kept = nodes.coded(nodes("Mul", [gates["forget"], "c_in"], "kept_product"), "kept", cell.kept)
        added = nodes.coded(nodes("Mul", [gates["input"], gates["cell"]], "added_product"), "added", cell.added)
        state = nodes("Add", [kept, added], "state_sum")
        if cell.state is not None:
            state = nodes.coded(state, "state", cell.state)
        inner = nodes.coded(state, "squashed_in", cell.squashed_in) if cell.squashed_in is not None else state
        squashed = nodes.coded(nodes("Tanh", [inner], "squashed_real"), "squashed", cell.squashed)
        hidden = nodes.coded(nodes("Mul", [gates["output"], squashed], "hidden_product"), "hidden", cell.hidden)
        outputs = [
            nodes("Identity", [each], name) for each, name in ((hidden, "h_out"), (state, "c_out"), (hidden, "h_step"))
        ]
        inputs = [
            self.info(name, ["n", width])
            for name, width in (("h_in", cell.units), ("c_in", cell.units), ("x_t", cell.inputs))
        ]
        return nodes.helper.make_graph(
            nodes.nodes, "step", inputs, [self.info(name, ["n", cell.units]) for name in outputs], nodes.constants
        )
