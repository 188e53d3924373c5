"""Nodes that lay values out: axes, parts, steps."""

from dataclasses import replace
from typing import Any

import numpy as np

from ..onnx_file import Constants, RefusedNode
from .expressions import Expression, Joined, Merged, Result, behind, channels, taken

__all__ = ["Labels", "Layouts"]

#: Labels of a value's axes, which a Transpose permutes; None: it has no axis of steps.
Labels = tuple[int, ...] | None


class Layouts:
    """Handlers of a :class:`~.graph.Graph` for such nodes."""

    constants: Constants
    values: dict[str, Expression]
    labels: dict[str, Labels]
    shapes: dict[str, tuple[int, ...]]

    def _source(self, node: Any) -> Expression:
        raise NotImplementedError

    def _of_identity(self, node: Any, attributes: dict[str, Any]) -> Expression:
        return self._source(node)

    _of_dropout = _of_identity

    def _axes(self, node: Any, attributes: dict[str, Any]) -> list[int]:
        """Axes that a node names by an input or by an attribute."""
        if len(node.input) > 1 and node.input[1] in self.constants:
            return [int(n) for n in self.constants.values[node.input[1]].reshape(-1)]
        return list(attributes.get("axes", []))

    def _of_unsqueeze(self, node: Any, attributes: dict[str, Any]) -> Expression:
        """An axis of channels, or of features, of which there is one."""
        labels, shape = self.labels[node.input[0]], self.shapes.get(node.input[0])
        axes = self._axes(node, attributes)
        if labels is not None and len(labels) == 3 and shape is not None and len(axes) == 1:
            at, fresh = axes[0] % 4, 1 + max(labels)
            self.labels[node.output[0]] = (*labels[:at], fresh, *labels[at:])
            self.shapes[node.output[0]] = (*shape[:at], 1, *shape[at:])
        return self._source(node)

    def _of_squeeze(self, node: Any, attributes: dict[str, Any]) -> Expression:
        labels, shape = self.labels[node.input[0]], self.shapes.get(node.input[0])
        if labels is not None and len(labels) == 4 and shape is not None:
            axes = [axis % 4 for axis in self._axes(node, attributes)]
            if len(axes) != 1 or shape[axes[0]] != 1:
                raise RefusedNode(f"axes={axes} of an input with shape {list(shape)}: must be one axis of size 1")
            at = axes[0]
            self.labels[node.output[0]] = (*labels[:at], *labels[at + 1 :])
            self.shapes[node.output[0]] = (*shape[:at], *shape[at + 1 :])
        return self._source(node)

    def _of_reshape(self, node: Any, attributes: dict[str, Any]) -> Expression:
        """Channels and features, side by side, as channels."""
        labels, shape = self.labels[node.input[0]], self.shapes.get(node.input[0])
        if node.input[1] not in self.constants:
            raise RefusedNode("its shape is computed by the network: export the network with a fixed number of steps")
        asked = [int(n) for n in self.constants.values[node.input[1]].reshape(-1)]
        if labels is None or shape is None or len(labels) != 4 or len(asked) != 3:
            raise RefusedNode(
                f"to shape {asked}: only channels and features of 4 dimensions, side by side, can become one axis"
            )
        fitting = [at for at in (1, 2) if _fits(shape, asked, at)]
        if len(fitting) != 1:
            raise RefusedNode(
                f"from shape {list(shape)} to {asked}: which are channels and features is not clear: export the "
                "network with a fixed number of channels and features"
            )
        (at,) = fitting
        axes, sizes, name = (labels[at], labels[at + 1]), (shape[at], shape[at + 1]), node.name or node.output[0]
        self.labels[node.output[0]] = (*labels[: at + 1], *labels[at + 2 :])
        self.shapes[node.output[0]] = (*shape[:at], sizes[0] * sizes[1], *shape[at + 2 :])
        return behind(self._source(node), lambda inner: Merged(inner, axes, sizes, name))

    def _of_flatten(self, node: Any, attributes: dict[str, Any]) -> Expression:
        if self.labels[node.input[0]] is not None:
            raise RefusedNode("flattening time and channels together is not supported: pick the last step or the mean")
        return self._source(node)

    def _of_transpose(self, node: Any, attributes: dict[str, Any]) -> Expression:
        labels = self.labels[node.input[0]]
        if labels is not None:
            order = list(attributes.get("perm", range(len(labels))[::-1]))
            self.labels[node.output[0]] = tuple(labels[n] for n in order)
            if len(shape := self.shapes.get(node.input[0], ())) == len(order):
                self.shapes[node.output[0]] = tuple(shape[n] for n in order)
        return self._source(node)

    def _of_concat(self, node: Any, attributes: dict[str, Any]) -> Expression:
        if not all(name in self.values for name in node.input):
            raise RefusedNode("it joins values with constants")
        parts = tuple(self.values[name] for name in node.input)
        if not all(map(channels, parts)):
            raise RefusedNode("it joins values whose number of channels is not known")
        return Joined(parts)

    def _of_split(self, node: Any, attributes: dict[str, Any]) -> None:
        source = self._source(node)
        whole, count = channels(source), len(node.output)
        if len(node.input) > 1 and node.input[1]:
            sizes = [int(n) for n in self.constants.values[node.input[1]]]
        else:
            sizes = list(attributes.get("split", [-(-whole // count)] * count))
        if sum(sizes) != whole or len(sizes) != count:
            raise RefusedNode(f"parts of {sizes} channels of an input with {whole}")
        ends = np.cumsum(sizes).tolist()
        for name, size, end in zip(node.output, sizes, ends):
            self.values[name], self.labels[name] = taken(source, end - size, end), None

    def _of_slice(self, node: Any, attributes: dict[str, Any]) -> Expression:
        source = self._source(node)
        given = [[int(n) for n in self.constants.values[name].reshape(-1)] if name else [] for name in node.input[1:]]
        starts, ends, axes, steps = given + [[]] * (4 - len(given))
        if len(starts) != 1 or (steps or [1]) != [1]:
            raise RefusedNode("only one axis with step 1 is supported")
        labels = self.labels[node.input[0]]
        if labels is not None:
            self._step(node, axes[0] if axes else 0, starts[0], ends[0])
            assert isinstance(source, Result)
            return replace(source, what="last")
        whole = channels(source)
        first, last = (min(n + whole if n < 0 else n, whole) for n in (starts[0], ends[0]))
        return taken(source, first, last)

    def _of_gather(self, node: Any, attributes: dict[str, Any]) -> Expression:
        index = self.constants.values[node.input[1]] if node.input[1] in self.constants else np.zeros(2)
        if index.size != 1 or int(index.item()) != -1:
            raise RefusedNode("only the last step (index -1) is supported")
        self._step(node, attributes.get("axis", 0), -1, 1 << 31)
        source = self._source(node)
        assert isinstance(source, Result)
        return replace(source, what="last")

    def _step(self, node: Any, axis: int, start: int, end: int) -> None:
        """Checks that a node takes the last step of all hidden states."""
        labels, source = self.labels[node.input[0]], self._source(node)
        if not (
            isinstance(source, Result)
            and source.what == "all"
            and labels
            and labels[axis] == 0
            and start == -1
            and (end == -1 or end >= 1 << 30)
        ):
            raise RefusedNode("only the last step of all hidden states can be taken")
        self.labels[node.output[0]] = None

    def _of_reducemean(self, node: Any, attributes: dict[str, Any]) -> Expression:
        source, labels = self._source(node), self.labels[node.input[0]]
        axes = self._axes(node, attributes)
        if not (
            isinstance(source, Result) and source.what == "all" and labels and len(axes) == 1 and labels[axes[0]] == 0
        ):
            raise RefusedNode("only the mean of all hidden states over time is supported")
        self.labels[node.output[0]] = None
        return replace(source, what="mean")


def _fits(shape: tuple[int, ...], asked: list[int], at: int) -> bool:
    """Whether axes ``at`` and the next become one, and all others stay."""
    made = shape[at] * shape[at + 1]
    if not made or asked[at] not in (-1, made):
        return False
    for place, (wanted, has) in enumerate(zip(asked, (*shape[:at], made, *shape[at + 2 :]))):
        if place == at:
            continue
        # 0 is the size of the axis of the same place in front.
        if wanted == 0 and place > at:
            return False
        if wanted > 0 and has and wanted != has:
            return False
    return True
