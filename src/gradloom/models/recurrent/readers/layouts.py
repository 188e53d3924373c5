"""Nodes that lay values out: axes, parts, steps."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...files.onnx_file import RefusedNode
from ...files.onnx_graph import Node, OnnxGraph
from .expressions import (
    Expression,
    Joined,
    Mapped,
    MergedForm,
    PartForm,
    Reduced,
    ResultForm,
    StackedDirections,
    Variable,
    behind,
    channels,
    taken,
)

__all__ = ["CHANNELS", "WAYS", "Labels", "Layouts"]

#: Name of each of a value's axes; None: they are not known.
Labels = tuple[str, ...] | None
#: Axes behind a recurrent node, or within its body: hidden elements; directions, or layers.
CHANNELS, WAYS = "channels", "directions"
#: Ends of slices that are beyond every size.
_FAR = 1 << 30


class Layouts:
    """Handlers of a :class:`~.graph.Graph` for such nodes."""

    graph: OnnxGraph
    values: dict[str, Expression]
    labels: dict[str, Labels]
    #: Axes of the steps and of the sequences, once a recurrent node has been read.
    time: str | None = None
    batch: str | None = None

    def _source(self, node: Node) -> Expression:
        raise NotImplementedError

    def _labels(self, node: Node) -> tuple[str, ...]:
        """Axes of a node's first input."""
        labels = self.labels.get(node.source(0))
        if labels is None:
            raise RefusedNode(f"the dimensions of its input {node.source(0)!r} are not known")
        return labels

    def _sizes(self, name: str, count: int) -> tuple[int, ...]:
        """Sizes of ``count`` axes; 0 where they are not known."""
        sizes = self.graph.fixed.get(name, ())
        return sizes if len(sizes) == count else (0,) * count

    @staticmethod
    def _fresh(node: Node, at: int) -> str:
        return f"{node.outputs[0]}:{at}"

    def _axis(self, node: Node, axis: int, count: int) -> int:
        if not -count <= axis < count:
            raise RefusedNode(f"axis {axis} of an input with {count} dimensions")
        return axis % count

    def _check_gone(self, label: str) -> None:
        """An axis of one element vanishes."""
        if label == self.time:
            raise RefusedNode("it removes the axis of the steps")

    def _of_cast(self, node: Node) -> Expression:
        if node.attribute("to") != 1:
            raise RefusedNode("only a Cast to float32 is supported")
        node.attribute("saturate")
        node.attribute("round_mode")
        return self._source(node)

    def _of_unsqueeze(self, node: Node) -> Expression:
        labels, axes = self._labels(node), node.integers(1, "axes", "axes") or []
        count = len(labels) + len(axes)
        fresh, old = {self._axis(node, axis, count) for axis in axes}, iter(labels)
        self.labels[node.outputs[0]] = tuple(self._fresh(node, at) if at in fresh else next(old) for at in range(count))
        return self._source(node)

    def _of_squeeze(self, node: Node) -> Expression:
        labels = self._labels(node)
        sizes, axes = self._sizes(node.source(0), len(labels)), node.integers(1, "axes", "axes")
        gone = [n for n, size in enumerate(sizes) if size == 1]
        if axes is not None:
            gone = [self._axis(node, axis, len(labels)) for axis in axes]
        for at in gone:
            if sizes[at] != 1 and (any(sizes) or labels[at] in (CHANNELS, WAYS, self.batch)):
                raise RefusedNode(f"axes={gone} of an input with shape {_shown(sizes)}: must be axes of size 1")
            self._check_gone(labels[at])
        self.labels[node.outputs[0]] = tuple(label for at, label in enumerate(labels) if at not in gone)
        return self._source(node)

    def _of_flatten(self, node: Node) -> Expression:
        node.attribute("axis")
        return self._regrouped(node)

    def _of_reshape(self, node: Node) -> Expression:
        node.attribute("allowzero")  # its effect is in the shapes
        return self._regrouped(node)

    def _regrouped(self, node: Node) -> Expression:
        """Axes of one element come and go; two axes side by side may become one."""
        labels, source = self._labels(node), self._source(node)
        before, after = (self.graph.shapes.get(name) for name in (node.source(0), node.outputs[0]))
        if before is None or after is None or len(before) != len(labels):
            raise RefusedNode("its shape is not known: export the network with fixed sizes")
        shown = f"from shape {_shown(self._sizes(node.source(0), len(labels)))} to " + _shown(
            self._sizes(node.outputs[0], len(after))
        )
        made: dict[int, str] = {}
        olds, news = ([n for n, size in enumerate(sizes) if size != 1] for sizes in (before, after))
        while olds or news:
            if not olds or not news:
                raise RefusedNode(f"{shown}: its sizes do not fit")
            old, new = [olds.pop(0)], [news.pop(0)]
            while (a := _product(before, old)) != (b := _product(after, new)):
                side, rest = (old, olds) if a < b else (new, news)
                if not rest:
                    raise RefusedNode(f"{shown}: its sizes do not fit")
                side.append(rest.pop(0))
            if len(new) > 1 or len(old) > 2:
                raise RefusedNode(f"{shown}: only two axes side by side can become one")
            at, names = new[0], [labels[each] for each in old]
            made[at] = names[0]
            if len(old) == 1:
                continue
            if names == [WAYS, CHANNELS]:
                if not isinstance(source, ResultForm):
                    raise RefusedNode(f"{shown}: only directions of one layer can be side by side")
                made[at] = CHANNELS
            elif self.time is not None or any(label in (CHANNELS, WAYS) for label in names):
                raise RefusedNode(f"{shown}: it mixes the axes of {' and '.join(map(self._called, names))}")
            else:
                sizes = self._sizes(node.source(0), len(labels))
                first, second = old
                if not (sizes[first] and sizes[second]):
                    raise RefusedNode(f"{shown}: two axes become one, whose sizes must be fixed")
                pair, both, name = (names[0], names[1]), (sizes[first], sizes[second]), node.name
                source = behind(source, partial(MergedForm, labels=pair, sizes=both, name=name))
        # Axes of one element: those with a meaning first.
        kept = [labels[n] for n, size in enumerate(before) if size == 1]
        kept.sort(key=lambda label: [self.time, self.batch, CHANNELS, WAYS, label].index(label))
        slots = [n for n, size in enumerate(after) if size == 1]
        for label in kept[len(slots) :]:
            self._check_gone(label)
        kept = sorted(kept[: len(slots)], key=labels.index)
        for at in slots:
            made[at] = kept.pop(0) if kept else self._fresh(node, at)
        self.labels[node.outputs[0]] = tuple(made[at] for at in range(len(after)))
        return source

    def _called(self, label: str) -> str:
        return {self.time: "steps", self.batch: "sequences"}.get(label, label)

    def _of_transpose(self, node: Node) -> Expression:
        labels = self._labels(node)
        order = node.attribute("perm") or list(range(len(labels)))[::-1]
        self.labels[node.outputs[0]] = tuple(labels[n] for n in order)
        return self._source(node)

    def _of_concat(self, node: Node) -> Expression:
        if not all(name in self.values for name in node.inputs):
            raise RefusedNode("it joins values with constants")
        parts, labels = tuple(self.values[name] for name in node.inputs), self._labels(node)
        at = self._axis(node, node.attribute("axis"), len(labels))
        if len(parts) == 1:
            return parts[0]
        if all(isinstance(each, (ResultForm, StackedDirections)) for each in parts):
            others = [self.labels[name] for name in node.inputs]
            if labels[at] == CHANNELS and all(each == labels for each in others):
                return _side_by_side(parts)
            bare = [labels[:at] + labels[at + 1 :], labels[at]]
            if bare[1] not in (self.time, self.batch, CHANNELS) and all(
                each is not None and each[:at] + each[at + 1 :] == bare[0] for each in others
            ):
                self.labels[node.outputs[0]] = (*labels[:at], WAYS, *labels[at + 1 :])
                return _stacked([item for each in parts for item in _items(each)])
            raise RefusedNode("only channels of two directions, or states of several layers, can be joined")
        if labels[at] != CHANNELS or self.time is not None:
            raise RefusedNode("only gates can be joined")
        if not all(map(channels, parts)):
            raise RefusedNode("it joins values whose number of channels is not known")
        return Joined(parts)

    def _of_split(self, node: Node) -> None:
        source, labels, count = self._source(node), self._labels(node), len(node.outputs)
        node.attribute("num_outputs")
        at = self._axis(node, node.attribute("axis", 0), len(labels))
        whole = self._whole(node, source, labels[at], at)
        sizes = node.integers(1, "split", "sizes of parts") or [-(-whole // count)] * (count - 1)
        if len(sizes) == count - 1:
            sizes = [*sizes, whole - sum(sizes)]
        if sum(sizes) != whole or len(sizes) != count or min(sizes) < 1:
            raise RefusedNode(f"parts of {sizes} of an axis of {whole}")
        ends = np.cumsum(sizes).tolist()
        for name, size, end in zip(node.outputs, sizes, ends):
            if name:
                self.values[name] = self._cut(source, labels[at], end - size, end, whole)
                self.labels[name] = labels

    def _whole(self, node: Node, source: Expression, label: str, at: int) -> int:
        """Elements of an axis that is cut."""
        size = self._sizes(node.source(0), len(self._labels(node)))[at]
        if label == WAYS:
            size = len(_items(source))
        elif label == CHANNELS:
            size = channels(source) or size
        if not size:
            raise RefusedNode("the size of the axis that it cuts is not known")
        return size

    def _cut(self, source: Expression, label: str, first: int, last: int, whole: int) -> Expression:
        """Elements ``first`` to ``last`` (exclusive) along an axis."""
        if not 0 <= first < last <= whole:
            raise RefusedNode(f"elements {first} to {last - 1} of an axis of {whole}")
        if (first, last) == (0, whole):
            return source
        if isinstance(source, (Variable, PartForm)) and label != CHANNELS:
            return PartForm(source)
        if label == WAYS:
            return _stacked(_items(source)[first:last])
        if isinstance(source, ResultForm) and label == CHANNELS and len(source.ways) == 2:
            half = whole // 2
            if (first, last) in ((0, half), (half, whole)):
                return _of_way(source, source.ways[first // half])
        if label != CHANNELS or isinstance(source, ResultForm) or self.time is not None:
            raise RefusedNode(f"elements {first} to {last - 1} of the axis of {self._called(label)} cannot be taken")
        return taken(source, first, last)

    def _of_slice(self, node: Node) -> Expression:
        source, labels = self._source(node), self._labels(node)
        if node.inputs[1:]:
            starts, ends = (self._bounds(node, at, what) for at, what in ((1, "starts"), (2, "ends")))
            axes, steps = (node.integers(at, "", what) for at, what in ((3, "axes"), (4, "steps")))
        else:
            starts, ends = node.attribute("starts"), node.attribute("ends")
            axes, steps = node.attribute("axes"), None
        for n, (start, end) in enumerate(zip(starts, ends)):
            if (steps or [1] * len(starts))[n] != 1:
                raise RefusedNode(f"steps={steps}: only 1 is supported")
            at = self._axis(node, n if axes is None else axes[n], len(labels))
            source, labels = self._sliced(node, source, labels, at, start, end)
        self.labels[node.outputs[0]] = labels
        return source

    def _sliced(
        self, node: Node, source: Expression, labels: tuple[str, ...], at: int, start: int, end: int
    ) -> tuple[Expression, tuple[str, ...]]:
        """``source`` from ``start`` to ``end`` along an axis."""
        label, last = labels[at], self._last_of(node, at)
        if start == 0 and (end >= _FAR or end - 1 == last):
            return source, labels
        if label == self.time:
            if start in (-1, last) and (end >= _FAR or end - 1 == last):
                return self._over_steps(source, "last", node), (*labels[:at], self._fresh(node, at), *labels[at + 1 :])
            if start == 0 and end == 1:
                return self._over_steps(source, "first", node), (*labels[:at], self._fresh(node, at), *labels[at + 1 :])
            raise RefusedNode("only the last step of all can be taken")
        whole = self._whole(node, source, label, at)
        first, end = (min(max(n + whole if n < 0 else n, 0), whole) for n in (start, end))
        return self._cut(source, label, first, end, whole), labels

    def _bounds(self, node: Node, at: int, what: str) -> list[int]:
        """Constants that may depend on an open size."""
        name = node.source(at)
        if name in self.graph.varying:
            return [int(each) for each in self.graph.constants.values[name].reshape(-1)]
        return node.integers(at, "", what) or []

    def _last_of(self, node: Node, at: int) -> int | None:
        """Index of the last element of an axis.

        None where no constant of the node can be it.
        """
        name = node.source(0)
        sizes, fixed = self.graph.shapes.get(name, ()), self.graph.fixed.get(name, ())
        varying = any(each in self.graph.varying for each in node.inputs[1:])
        return sizes[at] - 1 if at < len(sizes) and (fixed[at] or varying) else None

    def _of_gather(self, node: Node) -> Expression:
        if node.source(0) not in self.values:
            return self._looked_up(node)
        source, labels = self._source(node), self._labels(node)
        at = self._axis(node, node.attribute("axis"), len(labels))
        index = self._bounds(node, 1, "index")
        rank = self.graph.constants.values[node.source(1)].ndim
        if len(index) != 1 or rank > 1:
            raise RefusedNode("only one element of an axis can be taken")
        label, only, last = labels[at], index[0], self._last_of(node, at)
        bare = (*labels[:at], *([self._fresh(node, at)] if rank else []), *labels[at + 1 :])
        self.labels[node.outputs[0]] = bare
        if label == self.time:
            if only not in (-1, last, 0):
                raise RefusedNode("only the last step can be taken (index -1)")
            return self._over_steps(source, "first" if only == 0 and last != 0 else "last", node)
        whole = self._whole(node, source, label, at)
        if not -whole <= only < whole:
            raise RefusedNode(f"index {only} of an axis of {whole}")
        return self._cut(source, label, only % whole, only % whole + 1, whole)

    def _looked_up(self, node: Node) -> Expression:
        """Rows of a table for tokens."""
        name, table = node.source(1), node.weights(0, "table")
        tokens, labels = self.values[name], self.labels[name]
        if not isinstance(tokens, Variable) or node.attribute("axis") != 0 or table.ndim != 2 or labels is None:
            raise RefusedNode("only rows of a table for an input of tokens are supported: [tokens, channels]")
        self.labels[node.outputs[0]] = (*labels, self._fresh(node, len(labels)))
        return Mapped(tokens, "Gather", table.astype(np.float32), node.name)

    def _over_steps(self, source: Expression, kind: str, node: Node) -> Expression:
        """One of all steps, or what is made of all."""
        if isinstance(source, ResultForm):
            if source.what != "all":
                raise RefusedNode("its input is not all hidden states")
            if kind == "first" and source.ways == (0,):
                raise RefusedNode("the first step of hidden states: only the last can be taken")
            return _end(replace(source, what=kind))
        if kind == "first" or isinstance(source, (Variable, PartForm)):
            raise RefusedNode("only the last step can be taken")
        return Reduced(kind, source, node.name)

    def _reduced(self, node: Node, kind: str, axes: Sequence[int], keep: bool) -> Expression:
        labels = self._labels(node)
        places = [self._axis(node, axis, len(labels)) for axis in axes]
        if self.time is None or [labels[at] for at in places] != [self.time]:
            raise RefusedNode(f"only the {kind} of all hidden states over time is supported")
        self.labels[node.outputs[0]] = tuple(
            self._fresh(node, at) if at in places else label
            for at, label in enumerate(labels)
            if keep or at not in places
        )
        return self._over_steps(self._source(node), kind, node)

    def _of_reducemean(self, node: Node) -> Expression:
        return self._reduced(node, "mean", *self._asked(node))

    def _of_reducemax(self, node: Node) -> Expression:
        return self._reduced(node, "max", *self._asked(node))

    def _asked(self, node: Node) -> tuple[list[int], bool]:
        node.attribute("noop_with_empty_axes")
        return node.integers(1, "axes", "axes") or [], bool(node.attribute("keepdims"))

    def _of_globalaveragepool(self, node: Node) -> Expression:
        return self._of_globalpool(node, "mean")

    def _of_globalmaxpool(self, node: Node) -> Expression:
        return self._of_globalpool(node, "max")

    def _of_globalpool(self, node: Node, kind: str) -> Expression:
        if self._labels(node)[1:2] != (CHANNELS,):
            raise RefusedNode("its input must be hidden states: [n, channels, steps]")
        return self._reduced(node, kind, range(2, len(self._labels(node))), True)


def _shown(sizes: Sequence[int]) -> str:
    return f"[{', '.join(str(size or '?') for size in sizes)}]"


def _product(sizes: Sequence[int], places: Sequence[int]) -> int:
    made = 1
    for at in places:
        made *= sizes[at]
    return made


def _end(result: ResultForm) -> ResultForm:
    """One way's last step, or first backward, is that which it ends with."""
    if (result.what, result.ways) in (("last", (0,)), ("first", (1,))):
        return replace(result, what="end")
    return result


def _of_way(result: ResultForm, way: int) -> ResultForm:
    return _end(replace(result, ways=(way,)))


def _items(value: Expression) -> tuple[ResultForm, ...]:
    """Results of single directions."""
    if isinstance(value, StackedDirections):
        return value.items
    if not isinstance(value, ResultForm):
        raise RefusedNode("its input is no state of recurrent nodes")
    return tuple(_of_way(value, way) for way in value.ways)


def _stacked(items: Sequence[ResultForm]) -> Expression:
    first = items[0]
    if len(items) == 1:
        return first
    if [(each.what, each.layer, each.ways) for each in items] == [(first.what, first.layer, (way,)) for way in (0, 1)]:
        return replace(first, ways=(0, 1))
    return StackedDirections(tuple(items))


def _side_by_side(parts: Sequence[Any]) -> Expression:
    made = _stacked([item for each in parts if isinstance(each, ResultForm) for item in _items(each)])
    if (
        not all(isinstance(each, ResultForm) for each in parts)
        or not isinstance(made, ResultForm)
        or len(made.ways) != 2
    ):
        raise RefusedNode(
            "only the channels of the forward and the backward node of a layer can be joined, in this order"
        )
    return made
