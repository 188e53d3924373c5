"""Reads native LSTM, GRU and RNN nodes of ONNX, in floating point.

PyTorch's exporter writes such nodes with ``dynamo=False``, and its newer one does for LSTM and GRU.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...files.onnx_file import RefusedNode, read_onnx
from ...files.onnx_graph import Node, OnnxGraph
from ..front import Kernels, Pooling
from ..host import Answering, FloatDense, Function, HostStep, seen
from .expressions import Convolved, Expression, Mapped, Pooled, Rectified, ResultForm, Variable, Weights
from .graph import Graph, is_behind
from .layouts import CHANNELS, WAYS, Labels
from .parts import check_start, check_variables, host_steps, pool_of, refuse_without
from .planes import over_steps
from .tails import answer_of, behind_results, commuted, pick_of, steps_of, whole, with_two_logits

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
    state's product with the hidden state, which the reset gate multiplies; ``reset_first``: it multiplies the hidden
    state instead, and ``inner`` is 0.
    """

    kind: str
    w: dict[str, np.ndarray]
    u: dict[str, np.ndarray]
    bias: dict[str, np.ndarray]
    inner: np.ndarray
    name: str
    reset_first: bool = False

    @property
    def units(self) -> int:
        """Width of the hidden state."""
        return len(self.inner)

    @property
    def inputs(self) -> int:
        """Channels of the input."""
        return next(iter(self.w.values())).shape[1]


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatNetwork(Answering):
    """Layers over time, recurrent nodes, and an answer of their states.

    ``pick``, ``below``, ``backward``, ``before`` and ``tail``: see
    :class:`~gradloom.models.recurrent.network.RecurrentNetwork`.
    """

    name: str
    front: tuple[FloatConv | Pooling, ...]
    cell: FloatCell
    head: FloatDense | None
    pick: str
    below: tuple[tuple[FloatCell, FloatCell | None], ...] = ()
    backward: FloatCell | None = None
    before: tuple[HostStep, ...] = ()
    tail: tuple[FloatDense | Function, ...] = ()

    def seen(self, x: np.ndarray) -> np.ndarray:
        """What the first layer sees of ``x``."""
        return seen(self.before, x)

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
        return _Reader(OnnxGraph(model), path.stem).network()
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


class _FloatGraph(Graph):
    """A graph whose weights are real: a weight's code is itself."""

    exact = False

    def quantized(self, node: Node, at: int) -> Weights:
        """See :class:`Graph`."""
        return Weights(node.weights(at), np.ones(1))

    def free(self, value: Expression) -> bool:
        """See :class:`Graph`."""
        return not isinstance(value, (Variable, Mapped))


class _Reader:
    def __init__(self, graph: OnnxGraph, name: str) -> None:
        self.graph, self.name = _FloatGraph(graph, inner=self._recurrent), name
        self.layers: list[tuple[FloatCell, FloatCell | None]] = []
        self.source: Expression | None = None

    def network(self) -> FloatNetwork:
        graph = self.graph
        refuse_without(graph.graph, NATIVE)
        graph.walk()
        source, steps = answer_of(graph.graph, graph.values)
        assert self.layers and self.source is not None and graph.time is not None
        first, (before, front) = self.layers[0][0], self._front(over_steps(self.source, graph.time))
        check_variables(graph, self.source)
        if front and front[-1].outputs != first.inputs:
            raise ValueError(
                f"node {first.name!r}: it takes {first.inputs} channels, the layer before it gives {front[-1].outputs}"
            )
        head: FloatDense | None = None
        pick, tail = "last", steps_of(steps)
        *below, (cell, backward) = self.layers
        if source is not None:
            if source.layer != len(self.layers) - 1:
                raise ValueError(f"its answer is of recurrent layer {source.layer}: must be of the last layer")
            source, steps = whole(source, steps, 1 if backward is None else 2)
            pick = pick_of(source, steps, 1 if backward is None else 2)
            _, tail = with_two_logits(None, steps_of(steps))
            if pick != "max" and tail and isinstance(first_step := tail[0], FloatDense):
                head = first_step
                pick, tail = commuted(pick, head, tail[1:])
        return FloatNetwork(
            name=self.name,
            front=front,
            cell=cell,
            head=head,
            pick=pick,
            below=tuple(below),
            backward=backward,
            before=before,
            tail=tuple(tail),
        )

    def _recurrent(self, graph: Graph, node: Node) -> list[tuple[Expression, Labels]]:
        kind = node.kind
        if kind not in _ORDERS or node.domain:
            raise RefusedNode("a quantised node beside one in floating point")
        directions = _check_attributes(node)
        if node.optional(4) is not None:
            raise RefusedNode(f"sequence_lens={node.source(4)!r}: sequences of varying length are not supported")
        if node.optional(7) is not None and (not node.is_constant(7) or np.any(node.constant(7, "peepholes"))):
            raise RefusedNode("peepholes (P) are not supported")
        w, u = node.weights(1), node.weights(2)
        gates, units = _ORDERS[kind], int(u.shape[-1]) if u.ndim else 0
        rows = len(gates) * units
        if w.ndim != 3 or w.shape[:2] != (directions, rows) or u.shape != (directions, rows, units) or not w.size:
            raise RefusedNode(
                f"its weights have shapes {list(w.shape)} and {list(u.shape)}: expected "
                f"{'two directions' if directions == 2 else 'one direction'}, [{directions}, {rows}, inputs] and "
                f"[{directions}, {rows}, {units}]"
            )
        if node.attribute("hidden_size", units) != units:
            raise RefusedNode(f"hidden_size={node.attribute('hidden_size')}: its weights have {units}")
        bias = np.zeros((directions, 2 * rows)) if node.optional(3) is None else node.weights(3, "bias")
        if bias.shape != (directions, 2 * rows):
            raise RefusedNode(f"its bias has shape {list(bias.shape)}: expected [{directions}, {2 * rows}]")
        for at in (5, 6):
            if node.optional(at) is not None:
                check_start(graph, node.source(at))
        source, labels = graph.values.get(node.source(0)), graph.labels.get(node.source(0))
        if source is None or labels is None or len(labels) != 3:
            raise RefusedNode(f"its input {node.source(0)!r} must be a value with 3 dimensions")
        batchwise = bool(node.attribute("layout", 0))
        time, batch = (labels[1], labels[0]) if batchwise else (labels[0], labels[1])
        first = kind == "GRU" and not node.attribute("linear_before_reset")
        cells = [_cell(kind, w[way], u[way], bias[way], node.name, reset_first=first) for way in range(directions)]
        if self.source is None:
            self.source, graph.time, graph.batch = source, time, batch
            graph.check_claims(time, batch)
            given = graph.graph.fixed.get(node.source(0), (0,))[-1]
            if given and given != w.shape[2]:
                raise RefusedNode(f"it takes {w.shape[2]} channels, its input has {given}")
        else:
            cells = self._stacked(cells, source, labels, (time, batch))
        self.layers.append((cells[0], cells[1] if directions == 2 else None))
        layer, ways = len(self.layers) - 1, tuple(range(directions))
        way = WAYS if directions == 2 else f"{node.name}:directions"
        orders = [(time, way, batch, CHANNELS), (way, batch, CHANNELS)]
        if batchwise:
            orders = [(batch, time, way, CHANNELS), (batch, way, CHANNELS)]
        return [
            (ResultForm("all", layer, ways, units), orders[0]),
            (ResultForm("end", layer, ways, units), orders[1]),
            (ResultForm("state", layer, ways, units), orders[1]),
        ]

    def _stacked(
        self, cells: list[FloatCell], source: Expression, labels: tuple[str, ...], axes: tuple[str, str]
    ) -> list[FloatCell]:
        """Cells of a further layer.

        Dense layers between it and the layer before become part of its weights.
        """
        second = "a second recurrent node whose input is not all hidden states of the node before it"
        if not is_behind(source):
            raise RefusedNode(second)
        result, steps = behind_results(source, "its input")
        before, backward = self.layers[-1]
        ways = 1 if backward is None else 2
        wanted = isinstance(result, ResultForm) and (result.what, result.layer) == ("all", len(self.layers) - 1)
        if not wanted or axes != (self.graph.time, self.graph.batch) or labels[2] != CHANNELS:
            raise RefusedNode(second)
        assert isinstance(result, ResultForm)
        if len(result.ways) != ways:
            raise RefusedNode("its input is one direction of the recurrent node before it: must be both")
        between, made = steps_of(steps), before.units * ways
        for each in between:
            if not isinstance(each, FloatDense):
                raise RefusedNode(
                    f"node {each.name!r} is between it and the recurrent node before it: only dense layers"
                )
            made = len(each.bias)
        for cell in cells:
            if cell.inputs != made:
                raise RefusedNode(f"it takes {cell.inputs} channels, the recurrent node before it gives {made}")
        return [_behind(cell, between[0]) for cell in cells] if between else cells  # type: ignore[arg-type]

    @staticmethod
    def _front(source: Expression) -> tuple[tuple[HostStep, ...], tuple[FloatConv | Pooling, ...]]:
        layers: list[FloatConv | Pooling] = []
        while not isinstance(source, (Variable, Mapped)):
            relu: Rectified | None = None
            while isinstance(source, (Rectified, Pooled)):
                # The greatest of rectified values is the rectified greatest.
                if isinstance(source, Pooled):
                    layers.append(pool_of(source))
                else:
                    relu = source
                source = source.source
            if isinstance(source, (Variable, Mapped)) and relu is None:
                break
            if not isinstance(source, Convolved):
                name = getattr(source if relu is None else relu, "name", "")
                raise ValueError(
                    (f"node {name!r}: " if name else "")
                    + "only convolutions, dense layers and pools over time and ReLU may be before the recurrent node"
                )
            layers.append(
                FloatConv(
                    weight=source.codes * source.scale[:, None, None],
                    bias=source.bias,
                    stride=source.strides[0],
                    pads=source.pads[0],
                    relu=relu is not None,
                    name=source.name,
                )
            )
            source = source.source
        return host_steps(source), tuple(layers[::-1])


def _behind(cell: FloatCell, dense: FloatDense) -> FloatCell:
    """A cell that sees what a dense layer sees."""
    return replace(
        cell,
        w={name: w @ dense.weight for name, w in cell.w.items()},
        bias={name: bias + cell.w[name] @ dense.bias for name, bias in cell.bias.items()},
    )


def _cell(
    kind: str, w: np.ndarray, u: np.ndarray, bias: np.ndarray, name: str, *, reset_first: bool = False
) -> FloatCell:
    """A direction of a node."""
    gates, units = _ORDERS[kind], u.shape[1]
    wide = bias.reshape(2, len(gates), units)
    behind = kind == "GRU" and not reset_first
    inner = wide[1, gates.index("new")] if behind else np.zeros(units)
    sums = dict(zip(gates, wide.sum(axis=0)))
    if behind:
        sums["new"] = wide[0, gates.index("new")]
    return FloatCell(
        kind=kind,
        w=dict(zip(gates, w.reshape(len(gates), units, -1))),
        u=dict(zip(gates, u.reshape(len(gates), units, units))),
        bias=sums,
        inner=inner,
        name=name,
        reset_first=reset_first,
    )


def _check_attributes(node: Node) -> int:
    """Refuses attributes of a recurrent node; returns its directions."""
    kind, direction = node.kind, node.attribute("direction", "forward")
    if direction not in ("forward", "bidirectional"):
        raise RefusedNode(f"direction={direction}: only forward and bidirectional are supported")
    directions = 2 if direction == "bidirectional" else 1
    if node.has("clip"):
        raise RefusedNode(f"clip={node.attribute('clip'):g} is not supported")
    if node.attribute("input_forget", 0):
        raise RefusedNode("input_forget=1 is not supported in a native node")
    # An RNN's definition has a default of two directions, also for one.
    names = (node.has("activations") and node.attribute("activations")) or list(_ACTIVATIONS[kind]) * directions
    if [each.lower() for each in names] != [each.lower() for each in _ACTIVATIONS[kind]] * directions:
        expected = list(_ACTIVATIONS[kind]) * directions
        raise RefusedNode(f"activations={', '.join(names)}: must be {', '.join(expected)}")
    for name in ("activation_alpha", "activation_beta"):
        node.attribute(name)  # Sigmoid and Tanh have none
    return directions
