"""Reads native LSTM, GRU and RNN nodes of ONNX, in floating point.

PyTorch's exporter writes such nodes with ``dynamo=False``, and its newer one does for LSTM and GRU.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..onnx_file import RefusedNode, read_onnx
from .directions import Directions
from .expressions import Affine, Convolved, Expression, Pooled, Rectified, Result, Variable, Weights
from .front import Kernels, Pooling
from .graph import Graph, label_of
from .layouts import Labels
from .parts import pool_of
from .planes import over_steps

__all__ = ["NATIVE", "FloatCell", "FloatConv", "FloatDense", "FloatNetwork", "load_native"]

#: Gates in ONNX's order, by the node's type.
_ORDERS = {"LSTM": ("input", "output", "forget", "cell"), "GRU": ("update", "reset", "new"), "RNN": ("new",)}
#: Types of native nodes.
NATIVE = tuple(_ORDERS)
_ACTIVATIONS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatConv(Kernels):
    """A convolution over time; ``weight``: ``[outputs, inputs, kernel]``."""

    weight: np.ndarray
    bias: np.ndarray
    stride: int
    pads: tuple[int, int]
    relu: bool
    name: str


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatCell:
    """An LSTM, GRU or RNN in floating point.

    By gate: ``w [hidden, inputs]``, ``u [hidden, hidden]``, ``bias``. Of a GRU, ``inner`` is the bias of the new
    state's product with the hidden state, which the reset gate multiplies.
    """

    kind: str
    w: dict[str, np.ndarray]
    u: dict[str, np.ndarray]
    bias: dict[str, np.ndarray]
    inner: np.ndarray
    name: str

    @property
    def units(self) -> int:
        """Width of the hidden state."""
        return len(self.inner)

    @property
    def inputs(self) -> int:
        """Channels of the input."""
        return next(iter(self.w.values())).shape[1]


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatDense:
    """Logits: ``weight [classes, hidden]`` times the state, and ``bias``."""

    weight: np.ndarray
    bias: np.ndarray
    name: str


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatNetwork:
    """Convolutions over time, a recurrent node and a dense layer.

    ``pick``, ``below`` and ``backward``: see :class:`~gradloom.rtl.models.recurrent.network.RecurrentNetwork`.
    """

    name: str
    front: tuple[FloatConv | Pooling, ...]
    cell: FloatCell
    head: FloatDense | None
    pick: str
    below: tuple[tuple[FloatCell, FloatCell | None], ...] = ()
    backward: FloatCell | None = None

    @property
    def layers(self) -> tuple[tuple[FloatCell, FloatCell | None], ...]:
        """Recurrent layers, forward and backward, from the input on."""
        return (*self.below, (self.cell, self.backward))

    @property
    def channels(self) -> int:
        """Channels of a sample."""
        return self.front[0].inputs if self.front else self.layers[0][0].inputs


def load_native(path: Path | str) -> FloatNetwork:
    """The network in an ``.onnx`` file.

    :class:`ValueError` says which node is not supported, and why.
    """
    path = Path(path)
    model = read_onnx(path)
    try:
        if not any(node.op_type in NATIVE for node in model.graph.node):
            raise ValueError(
                "no LSTM, GRU or RNN node: PyTorch's newer exporter takes an RNN apart, export it with dynamo=False"
            )
        return _Reader(_without_starts(model), path.stem).network()
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _without_starts(model: Any) -> Any:
    """The graph without nodes that make start states of zero.

    They depend on the batch.
    """
    made = {name: node for node in model.graph.node for name in node.output}
    nodes = {}
    for node in model.graph.node:
        if node.op_type in _ORDERS:
            copied = type(node)()
            copied.CopyFrom(node)
            for at in range(5, min(len(node.input), 7)):
                _check_zero(model, made, node, node.input[at])
                copied.input[at] = ""
            nodes[id(node)] = copied
    needed, waiting = set(), [each.name for each in model.graph.output]
    while waiting:
        node = made.get(waiting.pop())
        if node is not None and id(node) not in needed:
            needed.add(id(node))
            waiting += [name for name in nodes.get(id(node), node).input if name]
    kept = [nodes.get(id(node), node) for node in model.graph.node if id(node) in needed]
    graph = SimpleNamespace(
        node=kept,
        input=model.graph.input,
        output=model.graph.output,
        initializer=model.graph.initializer,
        sparse_initializer=model.graph.sparse_initializer,
    )
    return SimpleNamespace(graph=graph, opset_import=model.opset_import)


def _check_zero(model: Any, made: dict[str, Any], node: Any, name: str) -> None:
    """A start state must be zero, or an input of the graph."""
    import onnx

    while name in made and made[name].op_type in ("Expand", "Slice", "Squeeze", "Unsqueeze", "Identity", "Reshape"):
        name = made[name].input[0]
    value: Any = 0
    if name in made:
        source = made[name]
        if source.op_type not in ("ConstantOfShape", "Constant"):
            raise ValueError(f"{label_of(node)}: its start state {name!r} is computed: it must be 0 or an input")
        value = next((onnx.numpy_helper.to_array(each.t) for each in source.attribute if each.name == "value"), 0)
    else:
        tensor = next((each for each in model.graph.initializer if each.name == name), None)
        value = 0 if tensor is None else onnx.numpy_helper.to_array(tensor)
    if np.any(value):
        raise ValueError(f"{label_of(node)}: its start state {name!r} is not 0: it must be 0 or an input")


class _FloatGraph(Directions):
    """A graph whose weights are real: a weight's code is itself."""

    def quantized(self, name: str) -> Weights:
        """See :class:`Graph`."""
        if name in self.values:
            raise RefusedNode(f"its weights {name!r} are computed by the network: they must be constants")
        return Weights(self.constants.weights(name), np.ones(1))

    def _of_squeeze(self, node: Any, attributes: dict[str, Any]) -> Expression:
        labels = self.labels[node.input[0]]
        if labels is not None and _DIRECTION in labels:
            self._without_directions(node, labels, self._axes(node, attributes))
            return self._source(node)
        return super()._of_squeeze(node, attributes)

    def _of_reshape(self, node: Any, attributes: dict[str, Any]) -> Expression:
        """That which removes the axis of the directions, of which there is one."""
        labels, shape = self.labels[node.input[0]], self.constants.values.get(node.input[1], np.zeros(0))
        if labels is None or _DIRECTION not in labels:
            return super()._of_reshape(node, attributes)
        at, source = labels.index(_DIRECTION), self._source(node)
        if shape.size != len(labels) - 1:
            raise RefusedNode("only the axis of the directions can be removed")
        if isinstance(source, Result) and source.directions == 2 and labels[at + 1 :] != (2,):
            raise RefusedNode("the axes of the directions and of the hidden state must be the last two")
        self._without_directions(node, labels, [at])
        if source is not None and len(labels) == 3:
            self.labels[node.output[0]] = None
        return source

    def _of_gather(self, node: Any, attributes: dict[str, Any]) -> Expression:
        """One of two directions, or the last step."""
        labels, source = self.labels[node.input[0]], self._source(node)
        index = self.constants.values.get(node.input[1], np.zeros(2))
        if isinstance(source, Result) and source.what == "ends" and labels and index.size == 1:
            if labels[attributes.get("axis", 0)] != _DIRECTION or not -2 <= int(index.item()) <= 1:
                raise RefusedNode("only one of the two directions can be taken")
            self.labels[node.output[0]] = None
            return Result("end", backward=True) if int(index.item()) % 2 else Result("forward")
        return super()._of_gather(node, attributes)

    def _without_directions(self, node: Any, labels: Sequence[int], axes: list[int]) -> None:
        left = [label for at, label in enumerate(labels) if at not in [axis % len(labels) for axis in axes]]
        if _DIRECTION in left or len(left) != len(labels) - 1:
            raise RefusedNode("only the axis of the directions can be removed")
        self.labels[node.output[0]] = tuple(left)


#: Label of an axis of directions; those of time, batch and channels are 0, 1 and 2 behind a node.
_DIRECTION = 9


class _Reader:
    def __init__(self, model: Any, name: str) -> None:
        self.model, self.name = model, name
        self.layers: list[tuple[FloatCell, FloatCell | None]] = []
        self.source: Expression | None = None
        self.time = 0
        #: All hidden states of the last node so far.
        self.every: Result | None = None

    def network(self) -> FloatNetwork:
        graph = _FloatGraph(self.model, inner=self._recurrent)
        graph.walk()
        outputs = [graph.values[each.name] for each in self.model.graph.output if each.name in graph.values]
        assert self.layers and self.source is not None
        first, front = self.layers[0][0], self._front(over_steps(self.source, self.time))
        if front and front[-1].outputs != first.inputs:
            raise ValueError(
                f"node {first.name!r}: it takes {first.inputs} channels, the layer before it gives {front[-1].outputs}"
            )
        head, pick = self._head(outputs)
        *below, (cell, backward) = self.layers
        return FloatNetwork(
            name=self.name, front=front, cell=cell, head=head, pick=pick, below=tuple(below), backward=backward
        )

    def _recurrent(self, graph: Graph, node: Any, attributes: dict[str, Any]) -> list[tuple[Expression, Labels]]:
        kind = node.op_type
        if kind not in _ORDERS:
            raise RefusedNode("a quantised node beside one in floating point")
        _check_attributes(kind, attributes)
        directions = 2 if attributes.get("direction", b"forward") == b"bidirectional" else 1
        if len(node.input) > 4 and node.input[4]:
            raise RefusedNode(f"sequence_lens={node.input[4]!r}: sequences of varying length are not supported")
        if len(node.input) > 7 and node.input[7]:
            raise RefusedNode("peepholes (P) are not supported")
        source = graph.values.get(node.input[0])
        labels = graph.labels[node.input[0]] if source is not None else None
        if source is None or labels is None:
            raise RefusedNode(f"its input {node.input[0]!r} must be a value with 3 dimensions")
        if self.layers and (source is not self.every or labels[0] != 0):
            raise RefusedNode("a second recurrent node whose input is not all hidden states of the node before it")
        w, u = (graph.constants.weights(name) for name in node.input[1:3])
        gates, units = _ORDERS[kind], int(u.shape[-1])
        rows = len(gates) * units
        if w.ndim != 3 or w.shape[:2] != (directions, rows) or u.shape != (directions, rows, units):
            raise RefusedNode(
                f"its weights have shapes {list(w.shape)} and {list(u.shape)}: expected "
                f"{'two directions' if directions == 2 else 'one direction'}, [{directions}, {rows}, inputs] and "
                f"[{directions}, {rows}, {units}]"
            )
        given = graph.shapes.get(node.input[0], (0,))[-1]
        if given and given != w.shape[2]:
            raise RefusedNode(f"it takes {w.shape[2]} channels, its input has {given}")
        if self.layers:
            cell, backward = self.layers[-1]
            made = cell.units * (1 if backward is None else 2)
            if w.shape[2] != made:
                raise RefusedNode(f"it takes {w.shape[2]} channels, the recurrent node before it gives {made}")
        bias = (
            graph.constants.weights(node.input[3])
            if len(node.input) > 3 and node.input[3]
            else np.zeros((directions, 2 * rows))
        )
        name = node.name or node.output[0]
        cells = [_cell(kind, w[way], u[way], bias[way], name) for way in range(directions)]
        self.layers.append((cells[0], cells[1] if directions == 2 else None))
        if self.source is None:
            self.source, self.time = source, labels[0]
        self.every = Result("all", directions)
        if directions == 2:
            return [
                (self.every, (0, _DIRECTION, 1, 2)),
                (Result("ends", 2), (_DIRECTION, 1, 2)),
                (Result("state", 2), None),
            ]
        return [(self.every, (0, _DIRECTION, 1, 2)), (Result("last"), None), (Result("state"), None)]

    @staticmethod
    def _front(source: Expression) -> tuple[FloatConv | Pooling, ...]:
        layers: list[FloatConv | Pooling] = []
        while not isinstance(source, Variable):
            relu = False
            while isinstance(source, (Rectified, Pooled)):
                # The greatest of rectified values is the rectified greatest.
                relu = relu or isinstance(source, Rectified)
                if isinstance(source, Pooled):
                    layers.append(pool_of(source))
                source = source.source
            if isinstance(source, Variable) and not relu:
                break
            if not isinstance(source, Convolved):
                raise ValueError("only convolutions and pools over time and ReLU may be before the recurrent node")
            layers.append(
                FloatConv(
                    weight=source.codes * source.scale[:, None, None],
                    bias=source.bias,
                    stride=source.strides[0],
                    pads=source.pads[0],
                    relu=relu,
                    name=source.name,
                )
            )
            source = source.source
        return tuple(layers[::-1])

    def _head(self, outputs: list[Expression]) -> tuple[FloatDense | None, str]:
        heads = [each for each in outputs if isinstance(each, Affine)]
        if not heads:
            return None, "last"
        if len(heads) != 1 or len(heads[0].terms) != 1:
            raise ValueError(f"node {heads[0].name!r}: one dense layer on one source is supported")
        source, weight, scale = heads[0].terms[0]
        if not isinstance(source, Result) or source.what not in ("last", "mean", "all", "ends"):
            raise ValueError(f"node {heads[0].name!r}: its input is not the hidden state")
        return FloatDense(weight=weight * scale[:, None], bias=heads[0].bias, name=heads[0].name), source.what


def _cell(kind: str, w: np.ndarray, u: np.ndarray, bias: np.ndarray, name: str) -> FloatCell:
    """A direction of a node."""
    gates, units = _ORDERS[kind], u.shape[1]
    wide = bias.reshape(2, len(gates), units)
    inner = wide[1, gates.index("new")] if kind == "GRU" else np.zeros(units)
    sums = dict(zip(gates, wide.sum(axis=0)))
    if kind == "GRU":
        sums["new"] = wide[0, gates.index("new")]
    return FloatCell(
        kind=kind,
        w=dict(zip(gates, w.reshape(len(gates), units, -1))),
        u=dict(zip(gates, u.reshape(len(gates), units, units))),
        bias=sums,
        inner=inner,
        name=name,
    )


def _check_attributes(kind: str, attributes: dict[str, Any]) -> None:
    direction = attributes.get("direction", b"forward").decode()
    if direction not in ("forward", "bidirectional"):
        raise RefusedNode(f"direction={direction}: only forward and bidirectional are supported")
    if attributes.get("layout", 0):
        raise RefusedNode("layout=1: only 0, time first, is supported")
    if "clip" in attributes:
        raise RefusedNode(f"clip={attributes['clip']:g} is not supported")
    if attributes.get("input_forget", 0):
        raise RefusedNode("input_forget=1 is not supported in a native node")
    names = tuple(each.decode() for each in attributes.get("activations", ())) or _ACTIVATIONS[kind]
    if names != _ACTIVATIONS[kind]:
        raise RefusedNode(f"activations={', '.join(names)}: must be {', '.join(_ACTIVATIONS[kind])}")
    if kind == "GRU" and not attributes.get("linear_before_reset", 0):
        raise RefusedNode("linear_before_reset=0: only 1, as PyTorch has it, is supported")
