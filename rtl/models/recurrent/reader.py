"""Reads quantised recurrent networks from ONNX.

It accepts a Scan of quantised nodes, Brevitas' QuantLSTMCell, or one step alone.
"""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..onnx_file import RefusedNode, read_onnx
from .brevitas import brevitas_cell
from .coding import Coding
from .directions import Directions
from .expressions import Affine, Coded, Convolved, Expression, Pooled, Product, Result, Sum, Variable
from .front import Conv, Pool
from .graph import Graph, label_of
from .layouts import Labels
from .matching import lstm_of
from .native import NATIVE
from .network import Dense, RecurrentNetwork
from .parts import check_coding, check_start, core, factors, gates_of, needed, pool_of
from .planes import over_steps
from .stack import Stack

__all__ = ["load_recurrent"]


def load_recurrent(path: str | Path) -> RecurrentNetwork:
    """The quantised recurrent network in a file.

    Whatever cannot become a :class:`RecurrentNetwork` is a :class:`ValueError` that names the node, the value and the
    bound.
    """
    path = Path(path)
    model = read_onnx(path)
    try:
        native = next((node for node in model.graph.node if node.op_type in NATIVE), None)
        if native is not None:
            raise ValueError(
                f"{label_of(native)}: it is in floating point: give data to quantise it by, --calibrate D.npz, or "
                "quantise it by Brevitas or as a Scan of QuantizeLinear and DequantizeLinear"
            )
        network = _Reader(model, path.stem).network()
        network.integers.check()
        return network
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


class _Reader:
    def __init__(self, model: Any, name: str) -> None:
        self.model, self.name = model, name
        self.stack = Stack()

    def network(self) -> RecurrentNetwork:
        graph = Directions(self.model, inner=self._recurrent)
        graph.walk()
        outputs = [graph.values[each.name] for each in self.model.graph.output if each.name in graph.values]
        if not outputs:
            raise ValueError("no output depends on the input")
        if not self.stack.layers:
            variables = [value for value in graph.values.values() if isinstance(value, Variable)]
            if not any(isinstance(core(each), Product) for each in outputs):
                raise ValueError(
                    "no recurrent node: expected a Scan, a QuantLSTMCell, or one step of an LSTM with its "
                    "states as inputs and outputs"
                )
            self._from_step(outputs, variables)
        *below, (cell, backward) = layers = self.stack.pairs()
        first = layers[0][0]
        input_coding, front = self._front()
        if front and first.inputs != front[-1].outputs:
            raise ValueError(
                f"node {first.name!r}: it takes {first.inputs} channels, the layer before it gives {front[-1].outputs}"
            )
        head, pick = self._head(outputs)
        return RecurrentNetwork(self.name, input_coding, front, cell, head, pick, tuple(below), backward)

    # Recurrent nodes

    def _recurrent(self, graph: Graph, node: Any, attributes: dict[str, Any]) -> list[tuple[Expression, Labels]]:
        read = self._scan if node.op_type == "Scan" else self._brevitas
        return read(graph, node, attributes)

    def _scan(self, graph: Graph, node: Any, attributes: dict[str, Any]) -> list[tuple[Expression, Labels]]:
        body, count = attributes["body"], attributes["num_scan_inputs"]
        opset = next((each.version for each in self.model.opset_import if each.domain in ("", "ai.onnx")), 0)
        if not 11 <= opset <= 23:
            raise RefusedNode(f"opset {opset}: must be from 11 to 23")
        if count != 1:
            raise RefusedNode(f"num_scan_inputs={count}: only 1 is supported")
        ways = [list(attributes.get(f"scan_{name}_directions", [])) for name in ("input", "output")]
        backward = ways[0] == [1]
        if ways[0] not in ([], [0], [1]) or any(each != backward for each in ways[1]) or (backward and not ways[1]):
            raise RefusedNode(
                f"scan_input_directions={ways[0]}, scan_output_directions={ways[1]}: must be 0 in both, or 1 in both"
            )
        if len(node.input) != 3:
            raise RefusedNode(f"it has {len(node.input) - 1} states: expected 2, those of an LSTM")
        for name in node.input[:2]:
            check_start(graph, name)
        source, labels = _seen_by(graph, node.input[2], "scan input")
        axis = attributes.get("scan_input_axes", [0])[0] % len(labels)
        outer = graph.constants.values | {name: each.real for name, each in graph.weights.items()}
        inner = Graph(SimpleNamespace(graph=body, opset_import=self.model.opset_import), outer)
        states = [inner.values[each.name] for each in body.input[:2]]
        step = inner.values[body.input[2].name]
        inner.walk()
        results = [inner.values[each.name] for each in body.output]
        found = lstm_of(results[:2], states, step, node.name or node.output[0])
        for each in results[2:]:
            if each not in results[:2]:
                raise RefusedNode("a scan output is neither the hidden nor the cell state")
        layer = self.stack.add(found.cell, source, labels[axis], backward=backward, seen=found.seen)
        ended = Result("end" if backward else "last", layer=layer, backward=backward)
        told: list[tuple[Expression, Labels]] = [(ended, None), (Result("state"), None)]
        told = told if found.which == 0 else told[::-1]
        time = attributes.get("scan_output_axes", [0] * len(results[2:]))
        for number, each in enumerate(results[2:]):
            if each is results[found.which]:
                order = [1, 2]
                order.insert(time[number] % 3, 0)
                told.append((Result("all", layer=layer, backward=backward), tuple(order)))
            else:
                told.append((Result("states"), None))
        return told

    def _brevitas(self, graph: Graph, node: Any, attributes: dict[str, Any]) -> list[tuple[Expression, Labels]]:
        cell, source, labels = brevitas_cell(graph, node, attributes), *_seen_by(graph, node.input[0], "input")
        backward, batch_first = bool(attributes.get("reverse_input", 0)), bool(attributes.get("batch_first", 0))
        layer = self.stack.add(cell, source, labels[batch_first], backward=backward)
        return [
            (Result("all", layer=layer, backward=backward), (1, 0, 2) if batch_first else (0, 1, 2)),
            (Result("end" if backward else "last", layer=layer, backward=backward), None),
            (Result("state"), None),
        ]

    def _from_step(self, outputs: list[Expression], variables: Sequence[Variable]) -> None:
        """Reads a graph that is one step of an LSTM.

        Inputs and outputs may be in any order.
        """
        new = [each for each in outputs if isinstance(core(each), (Product, Sum))][:2]
        if len(new) != 2 or len(variables) != 3:
            raise ValueError(
                f"one step of an LSTM needs 3 inputs and 2 outputs: x, h and c, and the new h and c; the "
                f"graph has {len(variables)} and {len(new)}"
            )
        which = 0 if isinstance(core(new[0]), Product) else 1
        state = next((v for v in variables if any(v is each for each in factors(core(new[1 - which])))), None)
        if state is None:
            raise ValueError("no input of the graph is a cell state that the forget gate multiplies")
        others = [each for each in variables if each is not state]
        # The hidden state is as wide as the gates; where the input is too, it comes in the order x, h.
        terms = [(source, codes) for gate in gates_of(new[1 - which]) for source, codes, _ in gate.terms]
        hidden = [v for v in others if any(core(s) is v and codes.shape[0] == codes.shape[1] for s, codes in terms)]
        coded = [v for v in others if not any(isinstance(s, Coded) and s.source is v for s, _ in terms)]
        choice = [v for v in hidden if v in coded] or hidden
        if not choice:
            raise ValueError("no input of the graph is a hidden state with square weights")
        h = choice[-1]
        x = next(each for each in others if each is not h)
        states = [h, state] if which == 0 else [state, h]
        found = lstm_of(new, states, x, self.name)
        self.stack.add(found.cell, x, 0, seen=found.seen)
        rest = [each for each in outputs if each not in new]
        if rest:
            raise ValueError("one step of an LSTM has outputs beside its states: export the step alone")
        outputs[:] = [Result("last"), Result("state")]

    # Around the cell

    def _front(self) -> tuple[Coding, tuple[Conv | Pool, ...]]:
        layers: list[Conv | Pool] = []
        first = self.stack.layers[0]
        value, seen = over_steps(first.source, first.time), first.seen
        if seen is not None and not isinstance(value, (Coded, Pooled)):
            value = Coded(value, seen)
        elif seen is not None and isinstance(value, Coded):
            check_coding(seen, value.coding, "input")
        while True:
            coding: Coding | None = None
            pools: list[Pooled] = []
            while isinstance(value, (Coded, Pooled)):
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
            if isinstance(value, Variable):
                return coding, tuple(layers[::-1])
            if not isinstance(value, Convolved):
                raise ValueError(
                    f"node {coding.name!r}: only convolutions and pools over time may be before the recurrent node"
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

    def _head(self, outputs: list[Expression]) -> tuple[Dense | None, str]:
        heads = [each for each in outputs if isinstance(each, Affine)]
        if not heads:
            return None, "last"
        if len(heads) != 1 or len(heads[0].terms) != 1:
            raise ValueError(f"node {heads[0].name!r}: one dense layer on one source is supported")
        source, codes, scale = heads[0].terms[0]
        if (
            not isinstance(source, Result)
            or source.what not in ("last", "mean", "all", "ends")
            or not self.stack.owns(source)
        ):
            raise ValueError(
                f"node {heads[0].name!r}: its input is not the hidden state: only one dense layer is "
                "supported behind the last recurrent node"
            )
        units = self.stack.layers[-1].units
        if codes.shape[1] != units:
            raise ValueError(
                f"node {heads[0].name!r}: its weights take {codes.shape[1]} channels, the hidden state has {units}"
            )
        return Dense(codes, scale, heads[0].bias, heads[0].name), source.what


def _seen_by(graph: Graph, name: str, what: str) -> tuple[Expression, tuple[int, ...]]:
    """What a recurrent node sees, with the labels of its axes."""
    source, labels = graph.values.get(name), graph.labels.get(name)
    if source is None:
        raise RefusedNode(f"its {what} {name!r} is constant")
    if labels is None:
        raise RefusedNode(f"its {what} {name!r} must have 3 dimensions")
    return source, labels
