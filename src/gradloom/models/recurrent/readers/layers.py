"""Convolutions, pools and normalisations in front of the recurrent node."""

from collections.abc import Callable

import numpy as np

from ...files.onnx_file import RefusedNode
from ...files.onnx_graph import Node
from .expressions import AffineForm, Convolved, Expression, Mapped, Pooled, Variable, Weights, behind, channels
from .layouts import CHANNELS, Labels, Layouts

__all__ = ["Layers"]

#: Channels of a layer of each channel with itself alone, which gets a square of weights.
_MOST_CHANNELS = 1 << 12
_DIMENSIONS = {3: "over time", 4: "over steps and features"}


class Layers(Layouts):
    """Handlers of a :class:`~.graph.Graph` for such nodes."""

    #: Axes that layers in front take for the channels' and the sequences', with the layer's name.
    claims: list[tuple[str, str, str]]
    #: Whether weights must be multiples of powers of two.
    exact = True
    #: Reads a recurrent node; None in the body of one.
    inner: Callable[..., list[tuple[Expression, Labels]]] | None

    def real(self, node: Node, at: int, what: str) -> np.ndarray:
        """A constant input as float64."""
        raise NotImplementedError

    def quantized(self, node: Node, at: int) -> Weights:
        """Weights of a product."""
        raise NotImplementedError

    def check_claims(self, time: str, batch: str) -> None:
        """Layers in front and the recurrent node must agree on the axes."""
        for label, meaning, name in self.claims:
            if label == time or (label == batch) != (meaning == "sequences"):
                found = "steps" if label == time else "sequences" if label == batch else "channels"
                raise RefusedNode(
                    f"node {name!r} in front of it takes for the axis of the {meaning} what it takes for that of the "
                    f"{found}: the network must transpose its input"
                )

    def by_channel(self, node: Node, value: int, at: int, what: str) -> np.ndarray:
        """Constant input ``at``: one number, or one a channel of a value.

        ``value``: the input that is this value.
        """
        array, labels = self.real(node, at, what), self.labels.get(node.source(value))
        if array.ndim > max(len(labels or ()), 1 if array.size == 1 else 0):
            raise RefusedNode(f"its {what} has {array.ndim} dimensions, more than its input")
        if array.size == 1:
            return array.reshape(1)
        wide = [n for n, size in enumerate(array.shape) if size > 1]
        place = -1 if labels is None else len(labels) - array.ndim + wide[0]
        if labels is None or len(wide) > 1 or place < 0:
            raise RefusedNode(f"its {what} has shape {list(array.shape)}: expected one number, or one a channel")
        source = self.values[node.source(value)]
        if self.time is not None or CHANNELS in labels:
            expected: str | None = CHANNELS
        else:
            while not isinstance(source, (Convolved, AffineForm)) and hasattr(source, "source"):
                source = source.source
            expected = (source.channel or None) if isinstance(source, Convolved) else None
            self.claims.append((labels[place], "channels", node.name))
            if expected is None and len(labels) != 3:
                raise RefusedNode(f"its {what} has one number a channel, its input {len(labels)} dimensions: must be 3")
        if expected is not None and labels[place] != expected:
            raise RefusedNode(f"its {what} has one number for each element of another axis than the channels'")
        return array.reshape(-1)

    def mapped(self, node: Node, source: Expression, kind: str, factor: np.ndarray) -> Expression | None:
        """A step of the host's, where nothing else is in front."""
        if not isinstance(source, (Variable, Mapped)) or self.inner is None:
            return None
        return Mapped(source, kind, factor.astype(np.float32), node.name)

    def _of_batchnormalization(self, node: Node) -> Expression:
        labels = self._labels(node)
        for at, name in enumerate(("gamma", "beta", "mean", "variance"), 1):
            if self.real(node, at, name).ndim != 1:
                raise RefusedNode(f"its {name} has {self.real(node, at, name).ndim} dimensions: expected 1")
        gamma, beta, mean, variance = (
            self.real(node, at, name) for at, name in enumerate(("gamma", "beta", "mean", "variance"), 1)
        )
        for name in ("momentum", "spatial"):
            node.attribute(name)
        if any(node.outputs[1:]) or node.attribute("training_mode", 0) or node.attribute("spatial", 1) != 1:
            raise RefusedNode("it is in training mode: export the network in evaluation mode (model.eval())")
        source, label = self._source(node), labels[1]
        if self.time is not None:
            if label != CHANNELS:
                raise RefusedNode("it normalises another axis than the channels'")
        else:
            self.claims.append((label, "channels", node.name))
            inner = source
            while not isinstance(inner, (Convolved, AffineForm)) and hasattr(inner, "source"):
                inner = inner.source
            if isinstance(inner, Convolved) and inner.channel != label or len(labels) != 3 and inner is not source:
                raise RefusedNode("it normalises another axis than the channels'")
        factor = gamma / np.sqrt(variance + node.attribute("epsilon"))
        offset = beta - mean * factor
        first = self.mapped(node, source, "Mul", factor)
        if first is not None:
            return Mapped(first, "Add", offset.astype(np.float32), node.name)
        return self.shifted(node, self.scaled(node, source, factor), offset)

    def scaled(self, node: Node, value: Expression, factor: np.ndarray) -> Expression:
        """``value`` times a constant."""
        raise NotImplementedError

    def shifted(self, node: Node, value: Expression, offset: np.ndarray) -> Expression:
        """``value`` and a constant."""
        raise NotImplementedError

    def _of_conv(self, node: Node) -> Expression:
        source, weights = self._source(node), self.quantized(node, 1)
        codes, scale = weights.by_output(0)
        if codes.ndim not in _DIMENSIONS or not codes.size:
            raise RefusedNode(
                f"its weights have {codes.ndim} dimensions: only convolution over time (3), and over steps and "
                "features (4), is supported"
            )
        rank = codes.ndim - 2
        group, dilations = node.attribute("group"), node.attribute("dilations") or [1] * rank
        if group != 1 or any(each != 1 for each in dilations):
            raise RefusedNode(f"group={group}, dilations={dilations}: only 1 is supported")
        wide = self._channels(node)
        if wide and wide != codes.shape[1]:
            raise RefusedNode(f"its weights take {codes.shape[1]} channels, its input has {wide}")
        if list(node.attribute("kernel_shape") or codes.shape[2:]) != list(codes.shape[2:]):
            raise RefusedNode(
                f"kernel_shape={node.attribute('kernel_shape')}: its weights have {list(codes.shape[2:])}"
            )
        bias = self.real(node, 2, "bias") if node.optional(2) else np.zeros(len(codes))
        if bias.shape != (len(codes),):
            raise RefusedNode(f"its bias has shape {list(bias.shape)}: expected [{len(codes)}]")
        axes, sizes, strides, pads = self._kernel(node, codes.shape[2:])
        channel = self._labels(node)[1]
        return Convolved(source, codes, scale, bias, strides, pads, axes, sizes, node.name, channel)

    def _of_maxpool(self, node: Node) -> Expression:
        kernel, count = self._pool(node)
        axes, sizes, strides, pads = self._kernel(node, kernel)
        # Ends in front of the greatest are ends behind it.
        return behind(
            self._source(node), lambda inner: Pooled(inner, count, kernel, strides, pads, axes, sizes, node.name)
        )

    def _of_averagepool(self, node: Node) -> Expression:
        """A convolution of each channel with itself alone."""
        kernel, count = self._pool(node)
        axes, sizes, strides, pads = self._kernel(node, kernel)
        size = int(np.prod(kernel))
        if size & (size - 1) and self.exact:
            raise RefusedNode(f"its kernel has {size} elements: their number must be a power of two, for an exact mean")
        if any(map(any, pads)) and not node.attribute("count_include_pad", 0):
            raise RefusedNode("it has pads that the mean leaves out: only count_include_pad=1 is supported")
        node.attribute("count_include_pad")
        self.check_square(count)
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
            node.name,
            self._labels(node)[1],
        )

    @staticmethod
    def check_square(count: int) -> None:
        """Refuses a square of ``count`` weights that fills memory."""
        if count > _MOST_CHANNELS:
            raise RefusedNode(f"it has {count} channels: at most {_MOST_CHANNELS:,} here")

    def _channels(self, node: Node) -> int:
        """Channels of a layer's input; 0 where they are not known."""
        sizes = self._sizes(node.source(0), len(self._labels(node)))
        return channels(self._source(node)) or (sizes[1] if len(sizes) > 1 else 0)

    def _pool(self, node: Node) -> tuple[tuple[int, ...], int]:
        """Kernel of a pool, and its channels."""
        kernel = tuple(node.attribute("kernel_shape") or ())
        if len(kernel) + 2 not in _DIMENSIONS:
            raise RefusedNode(f"kernel_shape={list(kernel)}: must have 1 element, or 2 of a plane")
        for name in ("ceil_mode", "storage_order"):
            if node.attribute(name, 0):
                raise RefusedNode(f"{name}={node.attribute(name)}: only 0 is supported")
        dilations = node.attribute("dilations") or []
        if any(each != 1 for each in dilations):
            raise RefusedNode(f"dilations={dilations}: only 1 is supported")
        if len(node.outputs) > 1 and node.outputs[1]:
            raise RefusedNode("its indices are used: only its values are supported")
        count = self._channels(node)
        if not count:
            raise RefusedNode("the number of its channels is not known: export the network with fixed channels")
        return kernel, count

    def _kernel(
        self, node: Node, kernel: tuple[int, ...]
    ) -> tuple[tuple[str, ...], tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...]]:
        """Labels and sizes of a kernel's axes, its strides and pads."""
        rank, labels = len(kernel), self._labels(node)
        if len(labels) != rank + 2:
            raise RefusedNode(f"its input must have {rank + 2} dimensions: [n, channels, ...]")
        if self.time is not None:
            raise RefusedNode(
                "it is not in front of the recurrent nodes: only there are convolutions and pools supported"
            )
        auto = node.attribute("auto_pad")
        if auto not in ("NOTSET", "VALID"):
            raise RefusedNode(f"auto_pad={auto}: give pads in its place")
        strides = tuple(node.attribute("strides") or [1] * rank)
        flat = list(node.attribute("pads") or [0] * 2 * rank)
        if min(flat) < 0 or len(flat) != 2 * rank or len(strides) != rank or min(strides) < 1:
            raise RefusedNode(f"pads={flat}, strides={list(strides)}: must be at least 0 and 1")
        if auto == "VALID":
            flat = [0] * 2 * rank
        pads = tuple((flat[at], flat[rank + at]) for at in range(rank))
        self.claims.append((labels[0], "sequences", node.name))
        if rank == 1:
            self.claims.append((labels[1], "channels", node.name))
        return labels[2:], self._sizes(node.source(0), len(labels))[2:], strides, pads
