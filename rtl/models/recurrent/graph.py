"""Graphs of quantised nodes: each node becomes an expression."""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from ..onnx_file import FOLDED, Constants, RefusedNode, attributes_of
from .coding import Coding
from .expressions import (
    Activated,
    Clipped,
    Coded,
    Complement,
    Expression,
    Pending,
    Product,
    Rectified,
    Variable,
    Weights,
    added,
    channels,
    product,
    scaled,
)
from .layers import Layers
from .layouts import Labels

__all__ = ["Graph", "label_of"]

_RANGES = {
    np.dtype(np.int8): (-128, 127),
    np.dtype(np.uint8): (0, 255),
    np.dtype(np.int16): (-32768, 32767),
    np.dtype(np.uint16): (0, 65535),
}
_HOMES = ("", "ai.onnx", "qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas")
_RECURRENT = ("Scan", "QuantLSTMCell", "LSTM", "GRU", "RNN")


def label_of(node: Any) -> str:
    """A node in a message."""
    return f"node {node.name or (node.output[0] if node.output else '?')!r} ({node.op_type})"


class Graph(Layers):
    """Walks the nodes of a graph, of a loop's body or of the whole file.

    Parameters
    ----------
    model : onnx.ModelProto
        Or what has its ``graph`` and ``opset_import``.
    outer : mapping
        Constants around the graph, by name.
    inner : callable, optional
        ``inner(graph, node, attributes)`` for a recurrent node: its outputs as expressions with their labels.
    """

    def __init__(
        self,
        model: Any,
        outer: Mapping[str, np.ndarray] | None = None,
        inner: Callable[..., list[tuple[Expression, Labels]]] | None = None,
    ) -> None:
        self.graph, self.model, self.inner = model.graph, model, inner
        self.constants = Constants(model)
        self.constants.values = dict(outer or {}) | self.constants.values
        self.weights: dict[str, Weights] = {}
        self.values: dict[str, Expression] = {}
        self.labels: dict[str, Labels] = {}
        #: Sizes of the axes of values in front of the recurrent node; 0 where they are not known.
        self.shapes: dict[str, tuple[int, ...]] = {}
        for each in self.graph.input:
            if each.name not in self.constants:
                dims = [d.dim_value for d in each.type.tensor_type.shape.dim]
                width = max(dims) if len(dims) == 2 and 1 in dims else dims[-1] if len(dims) == 2 else 0
                self.values[each.name] = Variable(each.name, width)
                self.labels[each.name] = tuple(range(len(dims))) if len(dims) >= 3 else None
                self.shapes[each.name] = tuple(dims)

    def walk(self) -> None:
        """Reads all nodes, in any order in which their inputs are known."""
        waiting = list(self.graph.node)
        while waiting:
            ready = [node for node in waiting if all(self._known(name) for name in node.input if name)]
            if not ready:
                node = waiting[0]
                name = next(name for name in node.input if name and not self._known(name))
                raise ValueError(f"{label_of(node)}: its input {name!r} comes from nowhere")
            for node in ready:
                try:
                    self._node(node)
                except ValueError as error:
                    if str(error).startswith("node "):
                        raise
                    raise ValueError(f"{label_of(node)}: {error}") from None
            done = {id(node) for node in ready}
            waiting = [node for node in waiting if id(node) not in done]

    def _known(self, name: str) -> bool:
        return name in self.values or name in self.constants or name in self.weights

    def _node(self, node: Any) -> None:
        if node.domain not in _HOMES:
            raise RefusedNode(f"operators of {node.domain!r} are not supported")
        names, attributes = [name for name in node.input if name], attributes_of(node)
        if all(name in self.constants for name in names) and node.op_type in FOLDED:
            self.constants.fold(node, {})
            return
        if node.op_type in _RECURRENT and self.inner is not None:
            for name, (value, labels) in zip(node.output, self.inner(self, node, attributes)):
                self.values[name], self.labels[name] = value, labels
            return
        if not any(name in self.values for name in names):
            handler = getattr(self, f"_constant_{node.op_type.lower()}", None)
            if handler is None:
                raise RefusedNode("operator is not supported on constants")
            handler(node, attributes)
            return
        handler = getattr(self, f"_of_{node.op_type.lower()}", None)
        if handler is None:
            raise RefusedNode("operator is not supported")
        self.labels[node.output[0]] = next(
            (self.labels[name] for name in names if self.labels.get(name) is not None), None
        )
        moving = next((name for name in names if name in self.shapes), None)
        if moving is not None:
            self.shapes.setdefault(node.output[0], self.shapes[moving])
        result = handler(node, attributes)
        if result is not None:
            self.values[node.output[0]] = result

    # Constants

    def real(self, name: str) -> np.ndarray:
        """A constant as float64."""
        if name in self.weights:
            return self.weights[name].real
        return self.constants.weights(name)

    def quantized(self, name: str) -> Weights:
        """Weights of a product."""
        if name in self.weights:
            return self.weights[name]
        if name in self.values:
            raise RefusedNode(f"its weights {name!r} are computed by the network: they must be constants")
        array = self.constants.weights(name)
        if not np.array_equal(array, np.rint(array)) or np.abs(array).max(initial=0) > 1 << 15:
            raise RefusedNode(
                f"a quantiser is missing: its weights {name!r} are floating point, expected codes of 2 "
                "to 8 bits through DequantizeLinear or Quant"
            )
        return Weights(array.astype(np.int64), np.ones(1))

    def _constant_quantizelinear(self, node: Any, attributes: dict[str, Any]) -> None:
        array, (scale, lo, hi) = self.constants.weights(node.input[0]), self._scale(node, attributes, array=True)
        axis = attributes.get("axis", 1) % max(array.ndim, 1)
        spread = scale.reshape([-1 if n == axis else 1 for n in range(array.ndim)]) if scale.size > 1 else scale[0]
        codes = np.rint(array.astype(np.float32) / np.asarray(spread, np.float32))
        self.constants.values[node.output[0]] = np.clip(codes, lo, hi).astype(np.int64)

    def _constant_clip(self, node: Any, attributes: dict[str, Any]) -> None:
        lo, hi = self._bounds(node, attributes)
        self.constants.values[node.output[0]] = np.clip(self.constants.values[node.input[0]], lo, hi)

    def _constant_dequantizelinear(self, node: Any, attributes: dict[str, Any]) -> None:
        codes, (scale, _, _) = self.constants.values[node.input[0]], self._scale(node, attributes, array=True)
        axis = attributes.get("axis", 1) % max(codes.ndim, 1) if scale.size > 1 else -1
        if axis >= 0 and codes.shape[axis] != scale.size:
            raise RefusedNode(f"{scale.size} scales for the {codes.shape[axis]} indices of axis {axis}")
        self.weights[node.output[0]] = Weights(codes.astype(np.int64), scale, axis)

    def _constant_quant(self, node: Any, attributes: dict[str, Any]) -> None:
        array = self.constants.weights(node.input[0])
        lo, hi = self._bits(node, attributes)
        scale = self._positive(node.input[1])
        axis = -1
        if scale.size > 1:
            if scale.ndim != array.ndim or sum(n > 1 for n in scale.shape) != 1:
                raise RefusedNode(
                    f"its scale has shape {list(scale.shape)}: expected one scale, or one for each output"
                )
            axis = int(np.argmax(scale.shape))
        codes = np.clip(np.rint(array.astype(np.float32) / scale.astype(np.float32)), lo, hi)
        self.weights[node.output[0]] = Weights(codes.astype(np.int64), scale.reshape(-1), axis)

    def _constant_transpose(self, node: Any, attributes: dict[str, Any]) -> None:
        weights = self.weights[node.input[0]]
        order = list(attributes.get("perm", range(weights.codes.ndim)[::-1]))
        self.weights[node.output[0]] = weights.transposed(order)

    def _constant_identity(self, node: Any, attributes: dict[str, Any]) -> None:
        self.weights[node.output[0]] = self.weights[node.input[0]]

    def _positive(self, name: str) -> np.ndarray:
        scale = self.constants.weights(name)
        if not scale.size:
            raise RefusedNode(f"its scale {name!r} is empty: it must have one value, or one for each output")
        if not (scale > 0).all():
            raise RefusedNode(f"its scale {name!r} is {scale.min():g}: scales must be above 0")
        return scale

    def _scale(self, node: Any, attributes: dict[str, Any], array: bool = False) -> tuple[np.ndarray, int, int]:
        """Scale, and least and greatest code by the type of the zero point."""
        for name in node.input[1:]:
            if name and name not in self.constants:
                raise RefusedNode(f"{name!r} is computed by the network: scales and zero points must be constants")
        scale = self._positive(node.input[1]).reshape(-1)
        if scale.size > 1 and not array:
            raise RefusedNode(
                f"its scale {node.input[1]!r} has {scale.size} values, one a channel: a quantiser of "
                "activations must have one scale"
            )
        zero = self.constants.values[node.input[2]] if len(node.input) > 2 and node.input[2] else np.zeros(1, np.uint8)
        if not np.size(zero):
            raise RefusedNode(f"its zero point {node.input[2]!r} is empty: it must be 0")
        if np.any(zero):
            raise RefusedNode(f"its zero point {node.input[2]!r} is {np.asarray(zero).reshape(-1)[0]}: it must be 0")
        return (scale, *_RANGES.get(np.asarray(zero).dtype, (-(1 << 31), (1 << 31) - 1)))

    def _bits(self, node: Any, attributes: dict[str, Any]) -> tuple[int, int]:
        """Least and greatest code of a Quant."""
        for name in node.input[1:]:
            if name not in self.constants:
                raise RefusedNode(f"{name!r} is computed by the network: scale, zero point and bits must be constants")
        return code_range(
            self.constants.weights(node.input[2]),
            self.constants.weights(node.input[3]),
            attributes.get("signed", 1),
            attributes.get("narrow", 0),
            attributes.get("rounding_mode", b"ROUND"),
        )

    def _bounds(self, node: Any, attributes: dict[str, Any]) -> tuple[float, float]:
        ends = []
        for number, name, default in ((1, "min", -np.inf), (2, "max", np.inf)):
            given = node.input[number] if len(node.input) > number else ""
            if given and given not in self.constants:
                raise RefusedNode(f"its bound {given!r} is computed by the network: it must be a constant")
            ends.append(float(self.constants.values[given].item()) if given else float(attributes.get(name, default)))
        return ends[0], ends[1]

    # Values

    def _source(self, node: Any) -> Expression:
        if node.input[0] not in self.values:
            raise RefusedNode(f"its first input must be a value of the network, {node.input[0]!r} is constant")
        return self.values[node.input[0]]

    def _of_quantizelinear(self, node: Any, attributes: dict[str, Any]) -> Expression:
        scale, lo, hi = self._scale(node, attributes)
        return self._rounded(self._source(node), float(scale[0]), lo, hi, node.name or node.output[0])

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

    def _of_dequantizelinear(self, node: Any, attributes: dict[str, Any]) -> Expression:
        source = self._source(node)
        if not isinstance(source, Pending):
            raise RefusedNode("its input is not a QuantizeLinear's")
        scale, _, _ = self._scale(node, attributes)
        return Coded(source.source, Coding(float(scale[0]), source.lo, source.hi, source.step, name=source.name))

    def _of_quant(self, node: Any, attributes: dict[str, Any]) -> Expression:
        lo, hi = self._bits(node, attributes)
        scale = self._positive(node.input[1])
        if scale.size > 1:
            raise RefusedNode(
                f"its scale {node.input[1]!r} has {scale.size} values, one a channel: a quantiser of "
                "activations must have one scale"
            )
        pending = self._rounded(self._source(node), float(scale.item()), lo, hi, node.name or node.output[0])
        return Coded(pending.source, Coding(pending.step, pending.lo, pending.hi, name=pending.name))

    def _of_multithreshold(self, node: Any, attributes: dict[str, Any]) -> Expression:
        source = self._source(node)
        if node.input[1] not in self.constants:
            raise RefusedNode(f"its thresholds {node.input[1]!r} must be constants")
        levels = self.constants.values[node.input[1]].astype(np.float64)
        if levels.ndim != 2 or not levels.size:
            raise RefusedNode(f"its thresholds have shape {list(levels.shape)}: expected [channels or 1, steps]")
        if np.isnan(levels).any():
            raise RefusedNode(f"its thresholds {node.input[1]!r} hold NaN")
        if (np.diff(levels, axis=1) < 0).any():
            channel = int(np.argwhere(np.diff(levels, axis=1) < 0)[0][0])
            raise RefusedNode(f"its thresholds of channel {channel} are not sorted: they must ascend")
        wide = channels(source)
        if len(levels) not in (1, wide or len(levels)):
            raise RefusedNode(f"it has thresholds for {len(levels)} channels: expected 1 or {wide}")
        scale, bias = float(attributes.get("out_scale", 1.0)), float(attributes.get("out_bias", 0.0))
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
        return Coded(source, Coding(scale, lo, hi, levels=levels, name=node.name or node.output[0]))

    def _of_clip(self, node: Any, attributes: dict[str, Any]) -> Expression:
        source, (lo, hi) = self._source(node), self._bounds(node, attributes)
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
        return Clipped(source, lo, hi)

    def _of_relu(self, node: Any, attributes: dict[str, Any]) -> Expression:
        return Rectified(self._source(node))

    def _of_sigmoid(self, node: Any, attributes: dict[str, Any]) -> Expression:
        return Activated("sigmoid", self._source(node), node.name or node.output[0])

    def _of_tanh(self, node: Any, attributes: dict[str, Any]) -> Expression:
        return Activated("tanh", self._source(node), node.name or node.output[0])

    def _of_matmul(self, node: Any, attributes: dict[str, Any]) -> Expression:
        moving = [name in self.values for name in node.input]
        if all(moving):
            raise RefusedNode("both its inputs are computed by the network: one must be weights")
        # Rows: values times weights [n, outputs]. Columns: weights [outputs, n] times values.
        weights = self.quantized(node.input[1 if moving[0] else 0])
        if weights.codes.ndim != 2:
            raise RefusedNode(f"its weights have {weights.codes.ndim} dimensions: expected 2")
        codes, scale = weights.by_output(1 if moving[0] else 0)
        return product(self.values[node.input[0 if moving[0] else 1]], codes, scale, node.name or node.output[0])

    def _of_gemm(self, node: Any, attributes: dict[str, Any]) -> Expression:
        source = self._source(node)
        if attributes.get("transA", 0) or attributes.get("alpha", 1.0) != 1 or attributes.get("beta", 1.0) != 1:
            raise RefusedNode("transA, alpha and beta are not supported")
        codes, scale = self.quantized(node.input[1]).by_output(0 if attributes.get("transB", 0) else 1)
        result: Expression = product(source, codes, scale, node.name or node.output[0])
        if len(node.input) > 2 and node.input[2]:
            result = added(result, self.real(node.input[2]), node.name)
        return result

    def _pair(self, node: Any) -> tuple[Expression, Expression | np.ndarray, bool]:
        """The two operands, a constant last, and whether they changed places."""
        first, second = node.input
        if first in self.values and second in self.values:
            return self.values[first], self.values[second], False
        if first in self.values:
            return self.values[first], self.real(second), False
        return self.values[second], self.real(first), True

    def _of_add(self, node: Any, attributes: dict[str, Any]) -> Expression:
        a, b, _ = self._pair(node)
        return added(a, b, node.name or node.output[0])

    def _of_sub(self, node: Any, attributes: dict[str, Any]) -> Expression:
        a, b, turned = self._pair(node)
        if not turned or not isinstance(b, np.ndarray) or b.size != 1 or not 0 < b.item() <= 1:
            raise RefusedNode("only 1 minus a gate is supported")
        return Complement(a, node.name or node.output[0], float(b.item()))

    def _of_mul(self, node: Any, attributes: dict[str, Any]) -> Expression:
        a, b, _ = self._pair(node)
        if isinstance(b, np.ndarray):
            return scaled(a, b, node.name)
        return Product(a, b, node.name or node.output[0])


def code_range(zero: np.ndarray, bits: np.ndarray, signed: int, narrow: int, rounding: bytes) -> tuple[int, int]:
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
    if rounding.upper() != b"ROUND":
        raise RefusedNode(f"rounding_mode={rounding.decode()}: only ROUND, half to even, is supported")
    width = int(bits.item())
    if signed:
        return -(1 << width - 1) + bool(narrow), (1 << width - 1) - 1
    return 0, (1 << width) - 1 - bool(narrow)
