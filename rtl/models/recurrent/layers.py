"""Convolutions, pools and normalisations in front of the recurrent node."""

from typing import Any

import numpy as np

from ..onnx_file import RefusedNode
from ..windows import windows
from .expressions import Convolved, Expression, Pooled, Weights, added, behind, channels, scaled
from .layouts import Layouts

__all__ = ["Layers"]

_DIMENSIONS = {3: "over time", 4: "over steps and features"}


class Layers(Layouts):
    """Handlers of a :class:`~.graph.Graph` for such nodes."""

    def real(self, name: str) -> np.ndarray:
        """A constant as float64."""
        raise NotImplementedError

    def quantized(self, name: str) -> Weights:
        """Weights of a product."""
        raise NotImplementedError

    def _of_batchnormalization(self, node: Any, attributes: dict[str, Any]) -> Expression:
        source = self._source(node)
        gamma, beta, mean, variance = (self.real(name) for name in node.input[1:5])
        factor = gamma / np.sqrt(variance + attributes.get("epsilon", 1e-5))
        return added(scaled(source, factor, node.name), beta - mean * factor, node.name)

    def _of_conv(self, node: Any, attributes: dict[str, Any]) -> Expression:
        source, weights = self._source(node), self.quantized(node.input[1])
        codes, scale = weights.by_output(0)
        if codes.ndim not in _DIMENSIONS or not codes.size:
            raise RefusedNode(
                f"its weights have {codes.ndim} dimensions: only convolution over time (3), and over steps and "
                "features (4), is supported"
            )
        rank = codes.ndim - 2
        group, dilations = attributes.get("group", 1), list(attributes.get("dilations", [1] * rank))
        if group != 1 or any(each != 1 for each in dilations):
            raise RefusedNode(f"group={group}, dilations={dilations}: only 1 is supported")
        wide = self._channels(node)
        if wide and wide != codes.shape[1]:
            raise RefusedNode(f"its weights take {codes.shape[1]} channels, its input has {wide}")
        bias = self.real(node.input[2]) if len(node.input) > 2 and node.input[2] else np.zeros(len(codes))
        axes, sizes, strides, pads = self._kernel(node, attributes, codes.shape[2:])
        self._made(node, len(codes), codes.shape[2:], strides, pads)
        return Convolved(
            source,
            codes,
            scale,
            bias.reshape(-1).astype(np.float64),
            strides,
            pads,
            axes,
            sizes,
            node.name or node.output[0],
        )

    def _of_maxpool(self, node: Any, attributes: dict[str, Any]) -> Expression:
        kernel, count = self._pool(node, attributes)
        axes, sizes, strides, pads = self._kernel(node, attributes, kernel)
        self._made(node, count, kernel, strides, pads)
        name = node.name or node.output[0]
        # Ends in front of the greatest are ends behind it.
        return behind(self._source(node), lambda inner: Pooled(inner, count, kernel, strides, pads, axes, sizes, name))

    def _of_averagepool(self, node: Any, attributes: dict[str, Any]) -> Expression:
        """A convolution of each channel with itself alone."""
        kernel, count = self._pool(node, attributes)
        axes, sizes, strides, pads = self._kernel(node, attributes, kernel)
        size = int(np.prod(kernel))
        if size & (size - 1):
            raise RefusedNode(f"its kernel has {size} elements: their number must be a power of two, for an exact mean")
        if any(map(any, pads)) and not attributes.get("count_include_pad", 0):
            raise RefusedNode("it has pads that the mean leaves out: only count_include_pad=1 is supported")
        self._made(node, count, kernel, strides, pads)
        codes = np.broadcast_to(
            np.eye(count, dtype=np.int64).reshape(count, count, *[1] * len(kernel)), (count, count, *kernel)
        )
        return Convolved(
            self._source(node),
            codes,
            np.full(count, 1 / size),
            np.zeros(count),
            strides,
            pads,
            axes,
            sizes,
            node.name or node.output[0],
        )

    def _channels(self, node: Any) -> int:
        """Channels of a layer's input; 0 where they are not known."""
        return channels(self._source(node)) or self.shapes.get(node.input[0], (0, 0))[1]

    def _pool(self, node: Any, attributes: dict[str, Any]) -> tuple[tuple[int, ...], int]:
        """Kernel of a pool, and its channels."""
        kernel = tuple(attributes.get("kernel_shape", ()))
        if len(kernel) + 2 not in _DIMENSIONS:
            raise RefusedNode(f"kernel_shape={list(kernel)}: must have 1 element, or 2 of a plane")
        for name in ("ceil_mode", "storage_order"):
            if attributes.get(name, 0):
                raise RefusedNode(f"{name}={attributes[name]}: only 0 is supported")
        if any(each != 1 for each in attributes.get("dilations", [])):
            raise RefusedNode(f"dilations={list(attributes['dilations'])}: only 1 is supported")
        if len(node.output) > 1 and node.output[1]:
            raise RefusedNode("its indices are used: only its values are supported")
        count = self._channels(node)
        if not count:
            raise RefusedNode("the number of its channels is not known: export the network with fixed channels")
        return kernel, count

    def _kernel(
        self, node: Any, attributes: dict[str, Any], kernel: tuple[int, ...]
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...]]:
        """Labels and sizes of a kernel's axes, its strides and pads."""
        rank = len(kernel)
        labels = self.labels[node.input[0]]
        if labels is None or len(labels) != rank + 2:
            raise RefusedNode(f"its input must have {rank + 2} dimensions: [n, channels, ...]")
        if attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
            raise RefusedNode(f"auto_pad={attributes['auto_pad'].decode()}: give pads in its place")
        strides = tuple(attributes.get("strides", [1] * rank))
        flat = list(attributes.get("pads", [0] * 2 * rank))
        pads = tuple((flat[at], flat[rank + at]) for at in range(rank))
        return labels[2:], self.shapes.get(node.input[0], (0,) * (rank + 2))[2:], strides, pads

    def _made(
        self,
        node: Any,
        count: int,
        kernel: tuple[int, ...],
        strides: tuple[int, ...],
        pads: tuple[tuple[int, int], ...],
    ) -> None:
        """Notes the shape of a layer's result."""
        before = self.shapes.get(node.input[0], (0,) * (len(kernel) + 2))
        made = [
            windows(size, width, stride, pad) if size else 0
            for size, width, stride, pad in zip(before[2:], kernel, strides, pads)
        ]
        self.shapes[node.output[0]] = (before[0], count, *made)
