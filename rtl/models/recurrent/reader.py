"""Reads quantised recurrent networks from ONNX.

It accepts a Scan of quantised nodes, Brevitas' QuantLSTMCell, or one step alone.
"""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..onnx_file import RefusedNode, read_onnx
from .coding import Coding
from .expressions import (
    Activated,
    Affine,
    Coded,
    Complement,
    Convolved,
    Expression,
    Pooled,
    Product,
    Result,
    Sum,
    Variable,
)
from .front import Conv, Pool
from .graph import Graph, Labels, code_range, label_of
from .lstm import GATES, Gate, LstmCell
from .native import NATIVE
from .network import Dense, RecurrentNetwork
from .parts import activation, check_coding, check_same, check_start, core, factors, gate_of, gates_of, needed, pool_of
from .planes import over_steps

__all__ = ["load_recurrent"]

#: Order of Brevitas' weights, and its names of quantisers.
_BREVITAS = ("input", "forget", "cell", "output")
_QUANTIZERS = (
    "output",
    "cell_state",
    "input_acc",
    "forget_acc",
    "cell_acc",
    "output_acc",
    "input_sigmoid",
    "forget_sigmoid",
    "cell_tanh",
    "output_sigmoid",
    "hidden_state_tanh",
)
#: A gate that may be 1 minus the other.
_COUPLED = {"input": "forget", "forget": "input"}


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
        self.cell: LstmCell | None = None
        self.source: Expression | None = None
        self.seen: Coding | None = None
        #: Label of the axis of the steps.
        self.time = 0

    def network(self) -> RecurrentNetwork:
        graph = Graph(self.model, inner=self._recurrent)
        graph.walk()
        outputs = [graph.values[each.name] for each in self.model.graph.output if each.name in graph.values]
        if not outputs:
            raise ValueError("no output depends on the input")
        if self.cell is None:
            variables = [value for value in graph.values.values() if isinstance(value, Variable)]
            if not any(isinstance(core(each), Product) for each in outputs):
                raise ValueError(
                    "no recurrent node: expected a Scan, a QuantLSTMCell, or one step of an LSTM with its "
                    "states as inputs and outputs"
                )
            self._from_step(outputs, variables)
        assert self.cell is not None and self.source is not None
        input_coding, front = self._front(self.source)
        if self.cell.inputs != (front[-1].outputs if front else self.cell.inputs):
            raise ValueError(
                f"node {self.cell.name!r}: it takes {self.cell.inputs} channels, the layer before it "
                f"gives {front[-1].outputs}"
            )
        head, pick = self._head(outputs)
        return RecurrentNetwork(self.name, input_coding, front, self.cell, head, pick)

    # Recurrent nodes

    def _recurrent(self, graph: Graph, node: Any, attributes: dict[str, Any]) -> list[tuple[Expression, Labels]]:
        if self.cell is not None:
            raise RefusedNode("a second recurrent node: stacked and bidirectional layers are not supported")
        read = self._scan if node.op_type == "Scan" else self._brevitas
        return read(graph, node, attributes)

    def _scan(self, graph: Graph, node: Any, attributes: dict[str, Any]) -> list[tuple[Expression, Labels]]:
        body, count = attributes["body"], attributes["num_scan_inputs"]
        opset = next((each.version for each in self.model.opset_import if each.domain in ("", "ai.onnx")), 0)
        if not 11 <= opset <= 23:
            raise RefusedNode(f"opset {opset}: must be from 11 to 23")
        if count != 1:
            raise RefusedNode(f"num_scan_inputs={count}: only 1 is supported")
        for name in ("scan_input_directions", "scan_output_directions"):
            if any(attributes.get(name, [])):
                raise RefusedNode(f"{name}={list(attributes[name])}: only 0, forward in time, is supported")
        if len(node.input) != 3:
            raise RefusedNode(f"it has {len(node.input) - 1} states: expected 2, those of an LSTM")
        for name in node.input[:2]:
            check_start(graph, name)
        source = graph.values.get(node.input[2])
        if source is None:
            raise RefusedNode(f"its scan input {node.input[2]!r} is constant")
        axis = attributes.get("scan_input_axes", [0])[0]
        labels = graph.labels[node.input[2]]
        if labels is None:
            raise RefusedNode(f"its scan input {node.input[2]!r} must have 3 dimensions")
        outer = graph.constants.values | {name: each.real for name, each in graph.weights.items()}
        inner = Graph(SimpleNamespace(graph=body, opset_import=self.model.opset_import), outer)
        states = [inner.values[each.name] for each in body.input[:2]]
        step = inner.values[body.input[2].name]
        inner.walk()
        results = [inner.values[each.name] for each in body.output]
        which = self._match(results[:2], states, step, source, node.name or node.output[0])
        for each in results[2:]:
            if each not in results[:2]:
                raise RefusedNode("a scan output is neither the hidden nor the cell state")
        self._source_of(source, labels, axis)
        kinds = [("last", None), ("state", None)] if which == 0 else [("state", None), ("last", None)]
        told: list[tuple[Expression, Labels]] = [(Result(kind), labels) for kind, labels in kinds]
        time = attributes.get("scan_output_axes", [0] * len(results[2:]))
        for number, each in enumerate(results[2:]):
            if each is results[which]:
                order = [1, 2]
                order.insert(time[number] % 3, 0)
                told.append((Result("all"), tuple(order)))
            else:
                told.append((Result("states"), None))
        return told

    def _source_of(self, source: Expression, labels: Sequence[int], axis: int) -> None:
        self.source, self.time = source, labels[axis % len(labels)]

    def _brevitas(self, graph: Graph, node: Any, attributes: dict[str, Any]) -> list[tuple[Expression, Labels]]:
        if len(node.input) != 48:
            raise RefusedNode(
                f"it has {len(node.input)} inputs: expected 48, as Brevitas' export_qonnx(dynamo=False) writes them"
            )
        if attributes.get("reverse_input", 0):
            raise RefusedNode("reverse_input=1: only 0, forward in time, is supported")
        coupled, one = bool(attributes.get("cifg", 0)), 0
        source = graph.values.get(node.input[0])
        if source is None:
            raise RefusedNode(f"its input {node.input[0]!r} is constant")
        for name in node.input[1:3]:
            check_start(graph, name)
        codings: dict[str, Coding] = {}
        for number, name in enumerate(_QUANTIZERS):
            scale, zero, bits = (graph.constants.weights(each) for each in node.input[15 + 3 * number :][:3])
            if scale.size != 1 or not scale.item() > 0:
                raise RefusedNode(
                    f"quantiser {name}: its scale is {scale.reshape(-1)[:4].tolist()}: expected one above 0"
                )
            narrow = attributes.get(f"{name}_narrow", attributes.get(f"{name}_narrow_range", 0))
            signed = attributes.get(f"{name}_signed", 0 if "sigmoid" in name else 1)
            try:
                lo, hi = code_range(zero, bits, signed, narrow, attributes.get(f"{name}_rounding_mode", b"ROUND"))
            except RefusedNode as error:
                raise RefusedNode(f"quantiser {name}: {error}") from None
            codings[name] = Coding(float(scale.item()), lo, hi, name=name)
        gates = {}
        for number, name in enumerate(_BREVITAS):
            if coupled and name == "forget":
                # 1 goes through the quantiser of the input gate, which may clip it.
                own = codings["input_sigmoid"]
                one = int(own.codes(np.ones(1))[0])
                continue
            w, u = (graph.quantized(node.input[first + number]) for first in (3, 7))
            bias = graph.real(node.input[11 + number]).reshape(-1)
            kind = "tanh" if name == "cell" else "sigmoid"
            gates[name] = gate_of(
                name, w.by_output(0), u.by_output(0), bias, codings[f"{name}_acc"], kind, codings[f"{name}_{kind}"]
            )
        state = codings["cell_state"]
        labels = graph.labels[node.input[0]]
        if labels is None:
            raise RefusedNode(f"its input {node.input[0]!r} must have 3 dimensions")
        self.cell = LstmCell(
            gates,
            state,
            state,
            state,
            None,
            codings["hidden_state_tanh"],
            codings["output"],
            node.name or node.output[0],
            one,
        )
        self._source_of(source, labels, 1 if attributes.get("batch_first", 0) else 0)
        time_first = not attributes.get("batch_first", 0)
        return [
            (Result("all"), (0, 1, 2) if time_first else (1, 0, 2)),
            (Result("last"), None),
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
        self._match(new, states, x, x, self.name)
        self.source = x
        rest = [each for each in outputs if each not in new]
        if rest:
            raise ValueError("one step of an LSTM has outputs beside its states: export the step alone")
        outputs[:] = [Result("last"), Result("state")]

    # The cell

    def _match(
        self,
        results: Sequence[Expression],
        states: Sequence[Expression],
        step: Expression,
        source: Expression,
        name: str,
    ) -> int:
        """Finds the cell that makes the next two states.

        Returns the index of the hidden one.
        """
        kinds = [type(core(each)) for each in results]
        if kinds not in ([Product, Sum], [Sum, Product]):
            raise RefusedNode(
                "its states are not those of an LSTM: one must be a product of the output gate, the other a sum"
            )
        which = kinds.index(Product)
        hidden, state = results[which], results[1 - which]
        if not isinstance(hidden, Coded):
            raise RefusedNode("a quantiser is missing: that of the hidden state")
        h, c = states[which], states[1 - which]
        total = core(state)
        product = hidden.source
        if not isinstance(product, Product) or not isinstance(total, Sum):
            raise RefusedNode("the hidden or the cell state goes through two quantisers in a row")
        if isinstance(state, Coded) and state.source is not total:
            raise RefusedNode("the cell state goes through two quantisers in a row")
        squashed, squashed_in, out = self._squash(product, state)
        parts = [(needed(each, "a product of the cell state"), each) for each in (total.a, total.b)]
        kept = [
            each
            for each, _ in parts
            if isinstance(each.source, Product) and any(core(v) is c for v in (each.source.a, each.source.b))
        ]
        rest = [each for each, _ in parts if each not in kept]
        if len(kept) != 1 or len(rest) != 1 or not isinstance(rest[0].source, Product):
            raise RefusedNode("its cell state is not forget gate * state + input gate * cell gate")
        keep, add = kept[0].source, rest[0].source
        assert isinstance(keep, Product) and isinstance(add, Product)
        forget, carried = (keep.a, keep.b) if core(keep.b) is c else (keep.b, keep.a)
        check_same(carried, state, "cell state")
        pair = [add.a, add.b]
        tanh = [each for each in pair if activation(each) == "tanh"]
        if len(tanh) != 1:
            raise RefusedNode(
                f"node {add.name!r} multiplies {' and '.join(activation(each) for each in pair)}: "
                "expected sigmoid and tanh"
            )
        enter = next(each for each in pair if each is not tanh[0])
        found = {"input": enter, "forget": forget, "cell": tanh[0], "output": out}
        self.seen = None
        gates, one = {}, 0
        for gate in GATES:
            value = found[gate]
            if gate in _COUPLED and isinstance(value, Complement):
                other = found[_COUPLED[gate]]
                if value.source is not other or not isinstance(other, Coded):
                    raise RefusedNode(f"node {value.name!r}: 1 minus what is not the {_COUPLED[gate]} gate")
                code = Fraction(value.one) / Fraction(other.coding.scale)
                if value.one != 1 and code.denominator != 1:
                    raise RefusedNode(
                        f"node {value.name!r}: {value.one:.9g} minus a gate of scale {other.coding.scale:.9g}: must be "
                        "1 or a multiple of the scale"
                    )
                one = 0 if value.one == 1 else int(code)
                continue
            gates[gate] = self._read_gate(gate, value, h, step, hidden.coding)
        self.cell = LstmCell(
            gates,
            kept[0].coding,
            rest[0].coding,
            state.coding if isinstance(state, Coded) else None,
            squashed_in,
            squashed,
            hidden.coding,
            name,
            one,
        )
        return which

    @staticmethod
    def _squash(product: Product, state: Expression) -> tuple[Coding, Coding | None, Expression]:
        """Quantisers behind and before the tanh of the state.

        Also returns the other factor.
        """
        for value, other in ((product.a, product.b), (product.b, product.a)):
            inner = core(value)
            if not isinstance(inner, Activated) or inner.kind != "tanh":
                continue
            coded = needed(value, "the tanh of the cell state")
            if inner.source is state:
                return coded.coding, None, other
            if isinstance(inner.source, Coded) and inner.source.source is state:
                return coded.coding, inner.source.coding, other
            raise RefusedNode(f"node {inner.name!r}: its input is not the cell state")
        raise RefusedNode(f"node {product.name!r}: its hidden state has no tanh of the cell state")

    def _read_gate(self, name: str, value: Expression, h: Expression, step: Expression, hidden: Coding) -> Gate:
        coded = needed(value, f"the {name} gate's activation")
        active = coded.source
        if not isinstance(active, Activated):
            raise RefusedNode(f"the {name} gate has no activation: expected sigmoid or tanh")
        kind = "tanh" if name == "cell" else "sigmoid"
        if active.kind != kind:
            raise RefusedNode(f"node {active.name!r}: the {name} gate has {active.kind}: expected {kind}")
        accumulator = needed(active.source, f"the {name} gate's accumulator")
        affine = accumulator.source
        if not isinstance(affine, Affine):
            raise RefusedNode(f"the {name} gate is not a product of weights with the input and the hidden state")
        terms: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for source, codes, scale in affine.terms:
            if source is h or (isinstance(source, Coded) and source.source is h):
                if isinstance(source, Coded):
                    check_coding(source.coding, hidden, "hidden state")
                kind_of = "u"
            elif source is step or (isinstance(source, Coded) and source.source is step):
                self._see(source)
                kind_of = "w"
            else:
                raise RefusedNode(
                    f"node {affine.name!r}: a term of the {name} gate is neither of the input nor of the hidden state"
                )
            if kind_of in terms:
                raise RefusedNode(f"node {affine.name!r}: two products with one source in the {name} gate")
            terms[kind_of] = codes, scale
        if set(terms) != {"w", "u"}:
            raise RefusedNode(
                f"node {affine.name!r}: the {name} gate needs a product with the input and one with the hidden state"
            )
        return gate_of(name, terms["w"], terms["u"], affine.bias, accumulator.coding, kind, coded.coding, affine.name)

    def _see(self, source: Expression) -> None:
        """Notes the input's quantiser within the cell."""
        coding = source.coding if isinstance(source, Coded) else None
        if self.seen is not None and coding is not None:
            check_coding(coding, self.seen, "input")
        self.seen = coding or self.seen

    # Around the cell

    def _front(self, source: Expression) -> tuple[Coding, tuple[Conv | Pool, ...]]:
        layers: list[Conv | Pool] = []
        value = over_steps(source, self.time)
        if self.seen is not None and not isinstance(value, (Coded, Pooled)):
            value = Coded(value, self.seen)
        elif self.seen is not None and isinstance(value, Coded):
            check_coding(self.seen, value.coding, "input")
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
        if not isinstance(source, Result) or source.what not in ("last", "mean", "all"):
            raise ValueError(
                f"node {heads[0].name!r}: its input is not the hidden state: only one dense layer is "
                "supported behind the recurrent node"
            )
        assert self.cell is not None
        if codes.shape[1] != self.cell.units:
            raise ValueError(
                f"node {heads[0].name!r}: its weights take {codes.shape[1]} channels, the hidden state "
                f"has {self.cell.units}"
            )
        return Dense(codes, scale, heads[0].bias, heads[0].name), source.what
