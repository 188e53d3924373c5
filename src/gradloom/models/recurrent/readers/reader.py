"""Reads quantised recurrent networks from ONNX.

It accepts a Scan of quantised nodes, Brevitas' QuantLSTMCell, or one step alone.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...files.onnx_file import RefusedNode, read_onnx
from ...files.onnx_graph import Node, OnnxGraph
from ..cells import RnnCell
from ..coding import Coding
from ..front import Conv, Pool
from ..host import FloatDense, Function, HostStep
from ..network import Dense, RecurrentNetwork
from .brevitas import brevitas_cell
from .expressions import (
    AffineForm,
    CodedForm,
    Convolved,
    Expression,
    Mapped,
    Pooled,
    ProductForm,
    ResultForm,
    Sum,
    Variable,
)
from .graph import Graph
from .layouts import CHANNELS, Labels
from .matching import lstm_of
from .native import NATIVE
from .parts import (
    LOOPS,
    check_coding,
    check_start,
    check_variables,
    core,
    factors,
    gates_of,
    host_steps,
    needed,
    pool_of,
    refuse_without,
)
from .planes import over_steps
from .stack import Stack
from .tails import answer_of, commuted, dense_cells, pick_of, steps_of, whole, with_two_logits, with_zero

__all__ = ["load_recurrent"]

#: Bits of the head's codes.
_HEAD_BITS = 8


def load_recurrent(path: str | Path) -> RecurrentNetwork:
    """The quantised recurrent network in a file.

    Whatever cannot become a :class:`RecurrentNetwork` is a :class:`ValueError` that names the node, the value and the
    bound.
    """
    path = Path(path)
    model = read_onnx(path)
    try:
        graph = OnnxGraph(model)
        native = next((node for node in graph.nodes if node.kind in NATIVE), None)
        if native is not None:
            raise ValueError(
                f"{native.label}: it is in floating point: quantise it by data, gradloom import {path.name} "
                "--calibrate D.npz -o DIR, or by Brevitas, or as a Scan of QuantizeLinear and DequantizeLinear"
            )
        network = _Reader(graph, path.stem).network()
        network.integers.check()
        return network
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


class _Reader:
    def __init__(self, graph: OnnxGraph, name: str) -> None:
        self.alone = not any(node.kind in LOOPS for node in graph.nodes)
        self.graph, self.name = Graph(graph, None if self.alone else self._recurrent), name
        self.stack = Stack()

    def network(self) -> RecurrentNetwork:
        graph = self.graph
        if self.alone and not {"Sigmoid", "Tanh", "Mul"} <= {node.kind for node in graph.graph.nodes}:
            refuse_without(graph.graph, LOOPS)
        graph.walk()
        values = [graph.values[name] for name in graph.graph.outputs if name in graph.values]
        if self.alone:
            if not any(isinstance(core(each), ProductForm) for each in values):
                raise ValueError(
                    "no recurrent node: expected a Scan, a QuantLSTMCell, or one step of an LSTM with its "
                    "states as inputs and outputs"
                )
            self._from_step(values, [value for value in graph.values.values() if isinstance(value, Variable)])
        *below, (cell, backward) = layers = self.stack.pairs()
        first = layers[0][0]
        source = self.stack.layers[0].source
        before, input_coding, front = self._front()
        if not self.alone:
            check_variables(graph, source)
        if front and first.inputs != front[-1].outputs:
            raise ValueError(
                f"node {first.name!r}: it takes {first.inputs} channels, the layer before it gives {front[-1].outputs}"
            )
        head, pick, tail, behind = (None, "last", [], []) if self.alone else self._head()
        return RecurrentNetwork(
            self.name, input_coding, front, cell, head, pick, tuple(below), backward, before, tuple(tail), tuple(behind)
        )

    # Recurrent nodes

    def _recurrent(self, graph: Graph, node: Node) -> list[tuple[Expression, Labels]]:
        return self._scan(graph, node) if node.kind == "Scan" else self._brevitas(graph, node)

    def _scan(self, graph: Graph, node: Node) -> list[tuple[Expression, Labels]]:
        body, count = node.attribute("body"), node.attribute("num_scan_inputs")
        versions = [each.version for each in graph.graph.model.opset_import if each.domain in ("", "ai.onnx")]
        if not 11 <= versions[0] <= 23:
            raise RefusedNode(f"opset {versions[0]}: must be from 11 to 23")
        if count != 1 or body is None:
            raise RefusedNode(f"num_scan_inputs={count}: only 1 is supported")
        ways = [list(node.attribute(f"scan_{name}_directions") or []) for name in ("input", "output")]
        backward = ways[0] == [1]
        if ways[0] not in ([], [0], [1]) or any(each != backward for each in ways[1]) or (backward and not ways[1]):
            raise RefusedNode(
                f"scan_input_directions={ways[0]}, scan_output_directions={ways[1]}: must be 0 in both, or 1 in both"
            )
        if len(node.inputs) != 3:
            raise RefusedNode(f"it has {len(node.inputs) - 1} states: expected 2, those of an LSTM")
        for at in range(2):
            check_start(graph, node.source(at))
        source, labels = _seen_by(graph, node, 2)
        axis = (node.attribute("scan_input_axes") or [0])[0] % len(labels)
        outer = graph.constants.values | {name: each.real for name, each in graph.weights.items()}
        inner = Graph(OnnxGraph(graph.graph.model, body, outer))
        if len(inner.graph.inputs) != 3:
            raise RefusedNode("inputs of its body are constants")
        *states, step = (inner.values[each.name] for each in inner.graph.inputs)
        column = (inner.labels[inner.graph.inputs[2].name] or ())[:1] == (CHANNELS,)
        inner.walk()
        missing = [name for name in inner.graph.outputs if name not in inner.values]
        if missing:
            raise RefusedNode(f"output {missing[0]!r} of its body does not depend on its states")
        results = [inner.values[name] for name in inner.graph.outputs]
        found = lstm_of(results[:2], states, step, node.name)
        for each in results[2:]:
            if each not in results[:2]:
                raise RefusedNode("a scan output is neither the hidden nor the cell state")
        time, rest = labels[axis], labels[:axis] + labels[axis + 1 :]
        batch = rest[1] if column else rest[0]
        layer = self._add(graph, found.cell, source, time, batch, backward=backward, seen=found.seen)
        own = (CHANNELS, batch) if column else (batch, CHANNELS)
        made = ResultForm("end", layer, (int(backward),), found.cell.units)
        told: list[tuple[Expression, Labels]] = [(made, own), (replace(made, what="state"), own)]
        told = told if found.which == 0 else told[::-1]
        times = node.attribute("scan_output_axes") or [0] * len(results[2:])
        for number, each in enumerate(results[2:]):
            order = list(own)
            order.insert(times[number] % 3, time)
            what = "all" if each is results[found.which] else "states"
            told.append((replace(made, what=what), tuple(order)))
        return told

    def _add(
        self, graph: Graph, cell: Any, source: Expression, time: str, batch: str, *, backward: bool, seen: Any = None
    ) -> int:
        if graph.time is None:
            graph.check_claims(time, batch)
            graph.time, graph.batch = time, batch
        if (time, batch) != (graph.time, graph.batch):
            raise RefusedNode("its steps are not those of the recurrent node before it")
        return self.stack.add(cell, source, time, backward=backward, seen=seen)

    def _brevitas(self, graph: Graph, node: Node) -> list[tuple[Expression, Labels]]:
        cell, (source, labels) = brevitas_cell(graph, node), _seen_by(graph, node, 0)
        backward, batch_first = bool(node.attribute("reverse_input", 0)), bool(node.attribute("batch_first", 0))
        time, batch = labels[batch_first], labels[not batch_first]
        layer = self._add(graph, cell, source, time, batch, backward=backward)
        made = ResultForm("all", layer, (int(backward),), cell.units)
        order = (batch, time, CHANNELS) if batch_first else (time, batch, CHANNELS)
        # Whether its states have an axis of directions depends on the exporter.
        return [(made, order), (replace(made, what="end"), None), (replace(made, what="state"), None)]

    def _from_step(self, outputs: Sequence[Expression], variables: Sequence[Variable]) -> None:
        """Reads a graph that is one step of an LSTM.

        Inputs and outputs may be in any order.
        """
        new = [each for each in outputs if isinstance(core(each), (ProductForm, Sum))][:2]
        if len(new) != 2 or len(variables) != 3:
            raise ValueError(
                f"one step of an LSTM needs 3 inputs and 2 outputs: x, h and c, and the new h and c; the "
                f"graph has {len(variables)} and {len(new)}"
            )
        which = 0 if isinstance(core(new[0]), ProductForm) else 1
        state = next((v for v in variables if any(v is each for each in factors(core(new[1 - which])))), None)
        if state is None:
            raise ValueError("no input of the graph is a cell state that the forget gate multiplies")
        others = [each for each in variables if each is not state]
        # The hidden state is as wide as the gates; where the input is too, it comes in the order x, h.
        terms = [(source, codes) for gate in gates_of(new[1 - which]) for source, codes, _ in gate.terms]
        hidden = [v for v in others if any(core(s) is v and codes.shape[0] == codes.shape[1] for s, codes in terms)]
        coded = [v for v in others if not any(isinstance(s, CodedForm) and s.source is v for s, _ in terms)]
        choice = [v for v in hidden if v in coded] or hidden
        if not choice:
            raise ValueError("no input of the graph is a hidden state with square weights")
        h = choice[-1]
        x = next(each for each in others if each is not h)
        states = [h, state] if which == 0 else [state, h]
        found = lstm_of(new, states, x, self.name)
        self.stack.add(found.cell, x, "steps", seen=found.seen)
        if any(each not in new for each in outputs):
            raise ValueError("one step of an LSTM has outputs beside its states: export the step alone")

    # Around the cell

    def _front(self) -> tuple[tuple[HostStep, ...], Coding, tuple[Conv | Pool, ...]]:
        layers: list[Conv | Pool] = []
        first = self.stack.layers[0]
        value, seen = over_steps(first.source, first.time), first.seen
        if seen is not None and not isinstance(value, (CodedForm, Pooled)):
            value = CodedForm(value, seen)
        elif seen is not None and isinstance(value, CodedForm):
            check_coding(seen, value.coding, "input")
        while True:
            coding: Coding | None = None
            pools: list[Pooled] = []
            while isinstance(value, (CodedForm, Pooled)):
                if isinstance(value, Pooled):
                    pools.append(value)
                else:
                    # Quantisers do not decrease: the greatest code is the code of the greatest.
                    if coding is not None:
                        check_coding(coding, value.coding, "input of the recurrent node")
                    coding = value.coding
                value = value.source
            if coding is None:
                coding = needed(value, "the input").coding
            layers += [pool_of(each).coded(coding) for each in pools]
            if isinstance(value, (Variable, Mapped)):
                return host_steps(value), coding, tuple(layers[::-1])
            if not isinstance(value, Convolved):
                raise ValueError(
                    f"node {coding.name!r}: only convolutions, dense layers and pools over time may be before the "
                    "recurrent node"
                )
            negative = (value.scale < 0)[:, None, None]
            layers.append(
                Conv(
                    np.where(negative, -value.codes, value.codes),
                    np.abs(value.scale),
                    value.bias,
                    value.strides[0],
                    value.pads[0],
                    coding,
                    value.name,
                )
            )
            value = value.source

    def _head(self) -> tuple[Dense | None, str, list[FloatDense | Function], list[RnnCell]]:
        """The machine's last dense layer, what reaches those in front of it, what follows it, and those."""
        source, steps = answer_of(self.graph.graph, self.graph.values)
        if source is None:
            return None, "last", [], []
        last = self.stack.layers[-1]
        if source.layer != len(self.stack.layers) - 1:
            raise ValueError(f"its answer is of recurrent layer {source.layer}: must be of the last layer")
        source, steps = whole(source, steps, len(last.cells))
        pick = pick_of(source, steps, len(last.cells))
        behind, steps = dense_cells(pick, steps)
        first, head = steps[0] if steps else None, None
        if isinstance(first, AffineForm) and pick != "max":
            _, codes, scale = first.terms[0]
            bound = 1 << _HEAD_BITS - 1
            if codes.dtype.kind == "i" and -bound <= codes.min() and codes.max() < bound:
                head, steps = Dense(codes, scale, first.bias, first.name), steps[1:]
        zero, tail = with_two_logits(None if head is None else len(head.bias), steps_of(steps))
        if zero and head is not None:
            head = Dense(with_zero(head.weight), head.scale.repeat(2), with_zero(head.bias), head.name)
        if behind and head is None:
            raise ValueError(f"node {behind[-1].name!r}: weights of the dense layer behind it must have 8 bits")
        pick, tail = commuted(pick, head, tail, bool(behind))
        return head, pick, tail, behind


def _seen_by(graph: Graph, node: Node, at: int) -> tuple[Expression, tuple[str, ...]]:
    """What a recurrent node sees, with the labels of its axes."""
    name = node.source(at)
    source, labels = graph.values.get(name), graph.labels.get(name)
    if source is None:
        raise RefusedNode(f"its input {name!r} is constant")
    if labels is None or len(labels) != 3:
        raise RefusedNode(f"its input {name!r} must have 3 dimensions")
    return source, labels
