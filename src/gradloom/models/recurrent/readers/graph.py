"""Graphs of quantised nodes: each node becomes an expression."""

from collections.abc import Callable
from math import prod

import numpy as np

from ...files.onnx_file import RefusedNode
from ...files.onnx_graph import Node, OnnxGraph
from ..coding import Coding
from .expressions import (
    Activated,
    AffineForm,
    Clipped,
    CodedForm,
    Complement,
    Convolved,
    Expression,
    Mapped,
    Pending,
    ProductForm,
    Rectified,
    Reduced,
    ResultForm,
    Variable,
    Weights,
    added,
    channels,
    product,
    scaled,
)
from .layers import Layers
from .layouts import CHANNELS, Labels

__all__ = ["KNOWN", "Graph", "is_behind"]

_RANGES = {
    np.dtype(np.int8): (-128, 127),
    np.dtype(np.uint8): (0, 255),
    np.dtype(np.int16): (-32768, 32767),
    np.dtype(np.uint16): (0, 65535),
}
_HOMES = ("", "qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas")
_RECURRENT = ("Scan", "QuantLSTMCell", "LSTM", "GRU", "RNN")
#: Operators that hide recurrent layers, and what to do about them.
KNOWN = {
    "DynamicQuantizeLSTM": "it quantises each input by its own range, as onnxruntime's quantize_dynamic writes it: "
    "give the network in floating point, with --calibrate D.npz",
    "If": "it chooses between two graphs while it runs: export the network with fixed sizes, from PyTorch by "
    "torch.onnx.export(..., dynamo=False), from Keras without masks",
    "Loop": "it runs a graph again and again, which hides its recurrent layers: export the network with its LSTM, GRU "
    "or RNN as one node, from PyTorch by nn.LSTM and dynamo=False, from Keras with unroll=False",
}


class Graph(Layers):
    """Walks the nodes of a graph, of a loop's body or of the whole file.

    Parameters
    ----------
    graph : OnnxGraph
    inner : callable, optional
        ``inner(graph, node)`` for a recurrent node: its outputs as expressions with their labels. Without it the graph
        is one step of a cell, whose values have rows or columns of channels.
    """

    def __init__(self, graph: OnnxGraph, inner: Callable[..., list[tuple[Expression, Labels]]] | None = None) -> None:
        self.graph, self.constants, self.inner = graph, graph.constants, inner
        self.weights: dict[str, Weights] = {}
        self.values: dict[str, Expression] = {}
        self.labels: dict[str, Labels] = {}
        self.claims = []
        #: Inputs with which states begin.
        self.starts: set[str] = set()
        for each in graph.inputs:
            known = [size or 0 for size in each.sizes]
            flat = len(known) == 2
            column = flat and known[1] == 1 and known[0] > 1
            width = (known[0] if column else known[1]) if flat else 0
            self.values[each.name] = Variable(each.name, width)
            labels: Labels = tuple(f"{each.name}:{at}" for at in range(len(known))) or None
            if flat and inner is None:
                labels = (CHANNELS, "sequences") if column else ("sequences", CHANNELS)
            self.labels[each.name] = labels

    def walk(self) -> None:
        """Reads all nodes."""
        self.graph.each(self._node)

    def _node(self, node: Node) -> None:
        if node.kind in KNOWN:
            raise RefusedNode(KNOWN[node.kind])
        if node.domain not in _HOMES:
            raise RefusedNode(f"operators of {node.domain!r} are not supported")
        if node.kind in _RECURRENT and self.inner is not None:
            for name, (value, labels) in zip(node.outputs, self.inner(self, node)):
                self.values[name], self.labels[name] = value, labels
            return
        names = [name for name in node.inputs if name]
        moving = next((name for name in names if name in self.values), None)
        if moving is None:
            handler = getattr(self, f"_constant_{node.kind.lower()}", None)
            if handler is None:
                raise RefusedNode("operator is not supported on constants")
            handler(node)
            return
        handler = getattr(self, f"_of_{node.kind.lower()}", None)
        if handler is None:
            raise RefusedNode("operator is not supported")
        self.labels[node.outputs[0]] = self.labels[moving]
        result = handler(node)
        if result is not None:
            self.values[node.outputs[0]] = result

    # Constants

    def real(self, node: Node, at: int, what: str) -> np.ndarray:
        """A constant input as float64."""
        name = node.source(at)
        return self.weights[name].real if name in self.weights else node.weights(at, what)

    def quantized(self, node: Node, at: int) -> Weights:
        """Weights of a product."""
        name = node.source(at)
        if name in self.weights:
            return self.weights[name]
        array = node.weights(at)
        if not np.array_equal(array, np.rint(array)) or np.abs(array).max(initial=0) > 1 << 15:
            raise RefusedNode(
                f"a quantiser is missing: its weights {name!r} are floating point, expected codes of 2 "
                "to 8 bits through DequantizeLinear or Quant"
            )
        return Weights(array.astype(np.int64), np.ones(1))

    def _constant_quantizelinear(self, node: Node) -> None:
        array, (scale, lo, hi) = node.weights(0, "input"), self._scale(node, array=True)
        axis = node.attribute("axis", 1) % max(array.ndim, 1)
        spread = scale.reshape([-1 if n == axis else 1 for n in range(array.ndim)]) if scale.size > 1 else scale[0]
        codes = np.rint(array.astype(np.float32) / np.asarray(spread, np.float32))
        self.constants.values[node.outputs[0]] = np.clip(codes, lo, hi).astype(np.int64)

    def _constant_clip(self, node: Node) -> None:
        lo, hi = self._bounds_of(node)
        self.constants.values[node.outputs[0]] = np.clip(node.constant(0, "input"), lo, hi)

    def _constant_dequantizelinear(self, node: Node) -> None:
        codes, (scale, _, _) = node.constant(0, "codes"), self._scale(node, array=True)
        axis = node.attribute("axis", 1) % max(codes.ndim, 1)
        axis = axis if scale.size > 1 else -1
        if axis >= 0 and codes.shape[axis] != scale.size:
            raise RefusedNode(f"{scale.size} scales for the {codes.shape[axis]} indices of axis {axis}")
        self.weights[node.outputs[0]] = Weights(codes.astype(np.int64), scale, axis)

    def _constant_quant(self, node: Node) -> None:
        array = node.weights(0, "input")
        lo, hi = self._bits(node)
        scale = self._positive(node)
        axis = -1
        if scale.size > 1:
            if scale.ndim != array.ndim or sum(n > 1 for n in scale.shape) != 1:
                raise RefusedNode(
                    f"its scale has shape {list(scale.shape)}: expected one scale, or one for each output"
                )
            axis = int(np.argmax(scale.shape))
        codes = np.clip(np.rint(array.astype(np.float32) / scale.astype(np.float32)), lo, hi)
        self.weights[node.outputs[0]] = Weights(codes.astype(np.int64), scale.reshape(-1), axis)

    def _constant_transpose(self, node: Node) -> None:
        weights = self.weights[node.source(0)]
        order = node.attribute("perm") or list(range(weights.codes.ndim))[::-1]
        self.weights[node.outputs[0]] = weights.transposed(order)

    def _positive(self, node: Node) -> np.ndarray:
        """Scale of a quantiser."""
        scale, name = node.weights(1, "scale"), node.source(1)
        if not scale.size:
            raise RefusedNode(f"its scale {name!r} is empty: it must have one value, or one for each output")
        if not (scale > 0).all():
            raise RefusedNode(f"its scale {name!r} is {scale.min():g}: scales must be above 0")
        return scale

    def _scale(self, node: Node, array: bool = False) -> tuple[np.ndarray, int, int]:
        """Scale, and least and greatest code by the type of the zero point."""
        node.attribute("axis")
        node.attribute("saturate")
        scale = self._positive(node).reshape(-1)
        if scale.size > 1 and not array:
            raise RefusedNode(
                f"its scale {node.source(1)!r} has {scale.size} values, one a channel: a quantiser of "
                "activations must have one scale"
            )
        zero = node.constant(2, "zero point") if node.optional(2) else np.zeros(1, np.uint8)
        if not np.size(zero):
            raise RefusedNode(f"its zero point {node.source(2)!r} is empty: it must be 0")
        if np.any(zero):
            raise RefusedNode(f"its zero point {node.source(2)!r} is {np.asarray(zero).reshape(-1)[0]}: it must be 0")
        return (scale, *_RANGES.get(np.asarray(zero).dtype, (-(1 << 31), (1 << 31) - 1)))

    def _bits(self, node: Node) -> tuple[int, int]:
        """Least and greatest code of a Quant."""
        return code_range(
            node.weights(2, "zero point"),
            node.weights(3, "bits"),
            node.attribute("signed", 1),
            node.attribute("narrow", 0),
            node.attribute("rounding_mode", "ROUND"),
        )

    def _bounds_of(self, node: Node) -> tuple[float, float]:
        ends = []
        for number, name, default in ((1, "min", -np.inf), (2, "max", np.inf)):
            if node.optional(number) is None:
                value = float(node.attribute(name, default))
            else:
                given = node.constant(number, f"bound {name}")
                if given.size != 1:
                    raise RefusedNode(f"its bound {name} has {given.size} elements: expected 1")
                value = float(given.item())
            if np.isnan(value):
                raise RefusedNode(f"its bound {name} is NaN")
            ends.append(value)
        return ends[0], ends[1]

    # Values

    def _source(self, node: Node) -> Expression:
        name = node.source(0)
        if name not in self.values:
            raise RefusedNode(f"its first input must be a value of the network, {name!r} is constant")
        return self.values[name]

    def _of_quantizelinear(self, node: Node) -> Expression:
        scale, lo, hi = self._scale(node)
        return self._rounded(self._source(node), float(scale[0]), lo, hi, node.name)

    @staticmethod
    def _rounded(source: Expression, step: float, lo: int, hi: int, name: str) -> Pending:
        """The rounded integers of a source.

        A clip or a ReLU before the rounding becomes one behind it.
        """
        while isinstance(source, (Clipped, Rectified)):
            ends = (source.lo, source.hi) if isinstance(source, Clipped) else (0.0, np.inf)
            codes = np.rint(np.asarray(ends, np.float32) / np.float32(step))
            lo, hi = int(max(lo, min(codes[0], hi))), int(min(hi, max(codes[1], lo)))
            source = source.source
        return Pending(source, step, lo, hi, name)

    def _of_dequantizelinear(self, node: Node) -> Expression:
        source = self._source(node)
        if not isinstance(source, Pending):
            raise RefusedNode("its input is not a QuantizeLinear's")
        scale, _, _ = self._scale(node)
        return CodedForm(source.source, Coding(float(scale[0]), source.lo, source.hi, source.step, name=source.name))

    def _of_quant(self, node: Node) -> Expression:
        lo, hi = self._bits(node)
        scale = self._positive(node)
        if scale.size > 1:
            raise RefusedNode(
                f"its scale {node.source(1)!r} has {scale.size} values, one a channel: a quantiser of "
                "activations must have one scale"
            )
        pending = self._rounded(self._source(node), float(scale.item()), lo, hi, node.name)
        return CodedForm(pending.source, Coding(pending.step, pending.lo, pending.hi, name=pending.name))

    def _of_multithreshold(self, node: Node) -> Expression:
        source, levels = self._source(node), node.constant(1, "thresholds").astype(np.float64)
        node.attribute("out_dtype")
        if node.attribute("data_layout", "") not in ("", "NC", "NCW", "NCHW", "NWC", "NHWC"):
            raise RefusedNode(f"data_layout={node.attribute('data_layout')} is not supported")
        if levels.ndim != 2 or not levels.size:
            raise RefusedNode(f"its thresholds have shape {list(levels.shape)}: expected [channels or 1, steps]")
        if np.isnan(levels).any():
            raise RefusedNode(f"its thresholds {node.source(1)!r} hold NaN")
        if (np.diff(levels, axis=1) < 0).any():
            channel = int(np.argwhere(np.diff(levels, axis=1) < 0)[0][0])
            raise RefusedNode(f"its thresholds of channel {channel} are not sorted: they must ascend")
        wide = channels(source)
        if len(levels) not in (1, wide or len(levels)):
            raise RefusedNode(f"it has thresholds for {len(levels)} channels: expected 1 or {wide}")
        scale, bias = float(node.attribute("out_scale", 1.0)), float(node.attribute("out_bias", 0.0))
        if not 0 < scale < np.inf or not np.isfinite(bias):
            raise RefusedNode(f"out_scale={scale:g}, out_bias={bias:g}: must be finite, the scale above 0")
        lo = round(bias / scale)
        if abs(bias / scale - lo) > 1e-6:
            raise RefusedNode(f"out_bias={bias:g} is no multiple of out_scale={scale:g}: its zero point must be 0")
        hi = lo + levels.shape[1]
        if isinstance(source, Rectified):
            source, levels = source.source, np.where(levels <= 0, -np.inf, levels)
            if np.isinf(levels).any():
                raise RefusedNode("a threshold of at most 0 behind a Relu has no effect: remove it")
        return CodedForm(source, Coding(scale, lo, hi, levels=levels, name=node.name))

    def _of_clip(self, node: Node) -> Expression:
        source, (lo, hi) = self._source(node), self._bounds_of(node)
        if isinstance(source, Pending):
            if not source.lo <= max(lo, source.lo) <= min(hi, source.hi):
                raise RefusedNode(f"min={lo:g}, max={hi:g} leave no code of {source.lo} to {source.hi}")
            return Pending(
                source.source,
                source.step,
                int(max(source.lo, np.ceil(lo))) if lo > -np.inf else source.lo,
                int(min(source.hi, np.floor(hi))) if hi < np.inf else source.hi,
                source.name,
            )
        if lo > hi:
            raise RefusedNode(f"min={lo:g}, max={hi:g}: the first must not be above the second")
        return Clipped(source, lo, hi, node.name)

    def _of_relu(self, node: Node) -> Expression:
        return Rectified(self._source(node), node.name)

    def _of_sigmoid(self, node: Node) -> Expression:
        return Activated("sigmoid", self._source(node), node.name)

    def _of_tanh(self, node: Node) -> Expression:
        return Activated("tanh", self._source(node), node.name)

    def _of_softmax(self, node: Node) -> Expression:
        return self._over_channels(node, "softmax")

    def _of_logsoftmax(self, node: Node) -> Expression:
        return self._over_channels(node, "log_softmax")

    def _over_channels(self, node: Node, kind: str) -> Expression:
        labels = self._labels(node)
        at = self._axis(node, node.attribute("axis"), len(labels))
        # Before opset 13 the function takes all axes from this one on together.
        together = self.graph.schema(node).since_version < 13 and at != len(labels) - 1
        if labels[at] != CHANNELS or together:
            raise RefusedNode("its axis is not that of the classes alone")
        return Activated(kind, self._source(node), node.name)

    def _of_matmul(self, node: Node) -> Expression:
        moving = [name in self.values for name in node.inputs]
        if all(moving):
            raise RefusedNode("both its inputs are computed by the network: one must be weights")
        # Rows: values times weights [n, outputs]. Columns: weights [outputs, n] times values.
        value, at = (0, 1) if moving[0] else (1, 0)
        return self._dense(node, value, at, 1 if moving[0] else 0, -1 if moving[0] else -2)

    def _of_gemm(self, node: Node) -> Expression:
        self._source(node)
        if node.attribute("transA") or node.attribute("alpha") != 1 or node.attribute("beta") != 1:
            raise RefusedNode("transA, alpha and beta are not supported")
        result = self._dense(node, 0, 1, 0 if node.attribute("transB") else 1, -1)
        if node.optional(2) is None:
            return result
        self.values[node.outputs[0]], offset = result, self.real(node, 2, "bias")
        if offset.size > 1 and offset.shape[-1] != offset.size:
            raise RefusedNode(f"its bias has shape {list(offset.shape)}: expected one number a channel")
        return self.shifted(node, result, offset)

    def _dense(self, node: Node, value: int, at: int, outputs: int, axis: int) -> AffineForm:
        """Weights of input ``at`` times input ``value`` along an axis of it."""
        weights, labels = self._weights(node, at, self.values[node.source(value)]), self.labels[node.source(value)]
        if weights.codes.ndim != 2:
            raise RefusedNode(f"its weights have {weights.codes.ndim} dimensions: expected 2")
        if labels is None or -axis > len(labels):
            raise RefusedNode("the dimensions of its input are not known, or fewer than 2")
        if self.time is not None or CHANNELS in labels:
            if labels[axis] != CHANNELS:
                raise RefusedNode("its weights multiply along another axis than the channels'")
        else:
            if len(labels) != 3 or axis != -1:
                raise RefusedNode(f"a dense layer on {len(labels)} dimensions: must be on [n, steps, channels]")
            self.claims.append((labels[axis], "channels", node.name))
        codes, scale = weights.by_output(outputs)
        return product(self.values[node.source(value)], codes, scale, node.name)

    def _weights(self, node: Node, at: int, source: Expression) -> Weights:
        """Weights of a product with ``source``.

        Behind the recurrent nodes the host has real ones.
        """
        if self.time is None or node.source(at) in self.weights:
            return self.quantized(node, at)
        try:
            return self.quantized(node, at)
        except RefusedNode:
            return Weights(node.weights(at), np.ones(1))

    def _pair(self, node: Node) -> tuple[Expression, Expression | np.ndarray, bool]:
        """The two operands, a constant last, and whether they changed places."""
        first, second = node.source(0), node.source(1)
        if first in self.values and second in self.values:
            one, two = self.labels[first], self.labels[second]
            if one != two:
                raise RefusedNode("its inputs have other axes")
            return self.values[first], self.values[second], False
        value, at = (0, 1) if first in self.values else (1, 0)
        name = node.source(value)
        return self.values[name], self.by_channel(node, value, at, "constant"), value == 1

    def _of_add(self, node: Node) -> Expression:
        a, b, _ = self._pair(node)
        if not isinstance(b, np.ndarray):
            return added(a, b, node.name)
        return self.mapped(node, a, "Add", b) or self.shifted(node, a, b)

    def _of_sub(self, node: Node) -> Expression:
        a, b, turned = self._pair(node)
        if not isinstance(b, np.ndarray):
            raise RefusedNode("it subtracts values of the network: only constants can be subtracted")
        if not turned:
            return self.mapped(node, a, "Sub", b) or self.shifted(node, a, -b)
        if self.inner is not None:
            # The negative is exact, and so is the order of a sum.
            first = self.mapped(node, a, "Mul", -np.ones(1))
            if first is not None:
                return Mapped(first, "Add", b.astype(np.float32), node.name)
            return self.shifted(node, self.scaled(node, a, -np.ones(1)), b)
        if b.size != 1 or not 0 < b.item() <= 1:
            raise RefusedNode("only 1 minus a gate is supported")
        return Complement(a, node.name, float(b.item()))

    def _of_mul(self, node: Node) -> Expression:
        a, b, _ = self._pair(node)
        if not isinstance(b, np.ndarray):
            return ProductForm(a, b, node.name)
        return self.mapped(node, a, "Mul", b) or self.scaled(node, a, b)

    def _of_div(self, node: Node) -> Expression:
        a, b, turned = self._pair(node)
        if turned or not isinstance(b, np.ndarray) or not b.all():
            raise RefusedNode("only a value divided by constants that are not 0 is supported")
        return self.mapped(node, a, "Div", b) or self.scaled(node, a, 1 / b)

    def scaled(self, node: Node, value: Expression, factor: np.ndarray) -> Expression:
        """See :class:`Layers`.

        What has no weights gets some, if the host or a layer can have them.
        """
        if isinstance(value, (AffineForm, Convolved, CodedForm)) or not self.free(value):
            return scaled(value, factor, node.name)
        return self._by_host(value, factor, np.zeros(1), node)

    def shifted(self, node: Node, value: Expression, offset: np.ndarray) -> Expression:
        """See :meth:`scaled`."""
        if isinstance(value, (AffineForm, Convolved)) or not self.free(value):
            return added(value, offset, node.name)
        return self._by_host(value, np.ones(1), offset, node)

    def _by_host(self, value: Expression, factor: np.ndarray, offset: np.ndarray, node: Node) -> Expression:
        """A dense layer of one weight a channel."""
        count = channels(value)
        if not count or (self.time is None and len(self.labels[node.outputs[0]] or ()) != 3):
            raise RefusedNode("only values [n, steps, channels] of known channels can be scaled and shifted here")
        self.check_square(count)
        weight = np.diag(np.broadcast_to(factor, (count,)))
        return AffineForm(
            ((value, weight, np.ones(count)),), np.broadcast_to(offset, (count,)).astype(np.float64), node.name
        )

    def free(self, value: Expression) -> bool:
        """Whether a value may go through real weights."""
        return self.time is not None and is_behind(value)


def is_behind(value: Expression) -> bool:
    """Whether a value comes from recurrent nodes."""
    while not isinstance(value, ResultForm):
        if isinstance(value, AffineForm):
            value = value.terms[0][0]
        elif isinstance(value, (Rectified, Clipped, Activated, Reduced, CodedForm)):
            value = value.source
        else:
            return False
    return True


def code_range(zero: np.ndarray, bits: np.ndarray, signed: int, narrow: int, rounding: str) -> tuple[int, int]:
    """Least and greatest code of a quantiser as qonnx describes it."""
    if not zero.size:
        raise RefusedNode("its zero point is empty: it must be 0")
    if np.any(zero):
        raise RefusedNode(f"its zero point is {zero.reshape(-1)[0]:g}: it must be 0")
    if (
        prod(bits.shape) != 1
        or not np.isfinite(bits.item())
        or bits.item() != int(bits.item())
        or not 1 <= bits.item() <= 32
    ):
        raise RefusedNode(f"its bits are {bits.reshape(-1).tolist()[:4]}: expected one integer from 1 to 32")
    if rounding.upper() != "ROUND":
        raise RefusedNode(f"rounding_mode={rounding}: only ROUND, half to even, is supported")
    width = int(bits.item())
    if signed:
        return -(1 << width - 1) + bool(narrow), (1 << width - 1) - 1
    return 0, (1 << width) - 1 - bool(narrow)
