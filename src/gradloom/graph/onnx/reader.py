"""Walks the nodes of an ONNX graph; modules beside it read them."""

import re
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from gradloom.models.files.onnx_file import RefusedNode
from gradloom.models.files.onnx_graph import Node, OnnxGraph

from ..builder import Builder
from ..network import Network, Port
from ..rewriting.masks import check_masks, finite
from ..rewriting.simplify import simplified
from ..rewriting.views import BATCH, View, whole

__all__ = ["HANDLERS", "SHOWN", "Reader", "operator", "taken"]

Handler = Callable[["Reader", Node], None]
#: What reads a node, by its operator; those of other domains as ``domain:operator``.
HANDLERS: dict[str, Handler] = {}

#: Nodes that a message names, at most.
SHOWN = 8


def taken(*kinds: str) -> Callable[[Handler], Handler]:
    """Marks a function as the reader of these operators."""

    def mark(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(kinds, handler))
        return handler

    return mark


def operator(domain: str, kind: str) -> str:
    """An operator's name, with its domain where that is not ONNX's own."""
    return kind if domain in ("", "ai.onnx") else f"{domain}:{kind}"


class Reader:
    """Walks the nodes of a graph.

    Attributes
    ----------
    graph : OnnxGraph
    build : Builder
    views : dict
        Values of the file that the network computes.
    repeated : dict
        Of values that an Expand repeats, what they were: a sum or a product repeats them by itself.
    batch : int
        Samples for which the file was written.
    """

    def __init__(self, model: Any) -> None:
        try:
            self.graph = OnnxGraph(model)
        except ValueError as error:
            raise ValueError(f"{error}{_left_open(model)}") from None
        self.build = Builder()
        self.views: dict[str, View] = {}
        self.repeated: dict[str, View] = {}
        self.batch = 1
        self.inputs = [self._input(each) for each in self._inputs()]

    def _inputs(self) -> list[Any]:
        read = {name for node in self.graph.nodes for name in node.inputs}
        inputs = [each for each in self.graph.inputs if each.name in read]
        if not inputs:
            raise ValueError("the graph has no input that a node reads")
        for each in inputs:
            if not each.sizes:
                raise ValueError(f"input {each.name!r} has no shape: export the network with one")
            for axis, size in enumerate(each.sizes):
                if axis and size is None:
                    raise ValueError(
                        f"input {each.name!r}: axis {axis} is left open "
                        f"({self.graph.open_sizes[self.graph.shapes[each.name][axis]]}); only axis 0, the samples, "
                        "may be: export the network with fixed sizes"
                    )
        batches = {self.graph.shapes[each.name][0] for each in inputs}
        if len(batches) > 1:
            raise ValueError(
                f"inputs {', '.join(repr(each.name) for each in inputs)} differ in axis 0: it must be the samples of "
                "each"
            )
        self.batch = batches.pop()
        return inputs

    def _input(self, value: Any) -> Port:
        shape = self.graph.shapes[value.name][1:]
        sides, features = (shape[:-1], shape[-1]) if shape else ((), 1)
        tensor = self.build.tensor(value.name, sides, features)
        view = whole(tensor, self.batch)
        if not shape:
            view = View(tensor, (), ((BATCH,),), self.batch)
        self.views[value.name] = view
        return Port(value.name, shape, tensor, shape or (1,), tuple(range(max(len(shape), 1))))

    def network(self) -> Network:
        """The whole of it."""
        self._read_all()
        outputs = [self._output(name) for name in self.graph.outputs]
        made = self.build
        whole = simplified(
            Network(tuple(made.operations), made.values, tuple(self.inputs), tuple(outputs), made.origins)
        )
        check_masks(whole)
        return whole

    def _read_all(self) -> None:
        """Reads every node that can be read, and refuses all others at once."""
        faults: list[str] = []
        lost: set[str] = set()
        for node in self.graph.nodes:
            if lost & set(node.inputs):
                lost.update(node.outputs)
                continue
            try:
                handler = HANDLERS.get(operator(node.domain, node.kind))
                if handler is None:
                    raise RefusedNode("no such operation, or none between values that the network computes")
                handler(self, node)
                node.check_read()
                self._check(node)
            except ValueError as error:
                faults.append(f"{node.label}: {self._said(str(error))}")
                lost.update(node.outputs)
        if faults:
            more = f"; and {len(faults) - SHOWN} more nodes" if len(faults) > SHOWN else ""
            raise ValueError("; ".join(faults[:SHOWN]) + more)

    def _said(self, text: str) -> str:
        """A message whose shapes have the names of open sizes, in place of the numbers that stand for them."""

        def named(shape: re.Match[str]) -> str:
            return re.sub(r"\d+", lambda size: self.graph.open_sizes.get(int(size[0]), size[0]), shape[0])

        return re.sub(r"\[[\d, ]+\]", named, text)

    def _check(self, node: Node) -> None:
        made, known = self.views.get(node.outputs[0]), self.graph.shapes.get(node.outputs[0])
        if made is not None and known is not None and made.shape != known:
            raise RefusedNode(f"its result has shape {list(known)}, was read as {list(made.shape)}")

    def view(self, node: Node, at: int = 0) -> View:
        """An input that the network computes."""
        name = node.source(at)
        if name not in self.views:
            raise RefusedNode(f"its input {name!r} is a constant: expected a value that the network computes")
        return self.views[name]

    def is_computed(self, node: Node, at: int) -> bool:
        """Whether an input is there and is no constant."""
        return (node.optional(at) or "") in self.views

    def constant(self, node: Node, at: int, *, is_mask: bool = False) -> np.ndarray:
        """An input that is a constant of finite floats, as float64; it may be repeated for the samples.

        ``is_mask``: minus infinity is :data:`~..rewriting.masks.MASKED`.
        """
        if node.source(at) not in self.graph.constants:
            raise RefusedNode(f"its input {node.source(at)!r} is computed by the network: must be a constant")
        value = self.graph.constants.values[node.source(at)]
        if is_mask and value.dtype.kind == "f" and np.isneginf(value).any() and (value < np.inf).all():
            return finite(value.astype(np.float64))
        return self.graph.constants.weights(node.source(at))

    def shape(self, node: Node, at: int = 0) -> tuple[int, ...]:
        """Shape of a result."""
        if node.outputs[at] not in self.graph.shapes:
            raise RefusedNode("the shape of its result is not known")
        return self.graph.shapes[node.outputs[at]]

    def put(self, node: Node, view: View, at: int = 0) -> None:
        """What a result is."""
        self.views[node.outputs[at]] = view

    def alone(self, view: View, axis: int = 0) -> None:
        """Refuses a value whose axis is not just the samples."""
        if view.axes[axis] != (BATCH,):
            raise RefusedNode(f"axis {axis} of its input is not the samples: export the network with the batch first")

    def channels_last(self, view: View) -> View:
        """A value ``[samples, channels, *sides]`` of the file as sides and features of its own."""
        self.alone(view)
        return self.build.in_order(view, [*range(2, len(view.axes)), 1])

    def image(self, tensor: Any) -> View:
        """A tensor as ``[samples, channels, *sides]``."""
        sides = len(tensor.sides)
        return whole(tensor, self.batch, [sides, *range(sides)])

    def _output(self, name: str) -> Port:
        if name not in self.views:
            raise ValueError(f"result {name!r} is a constant: the network does not compute it")
        view = self.views[name]
        if not view.axes or view.axes[0] != (BATCH,):
            raise ValueError(f"result {name!r}: its axis 0 is not the samples; export the network with the batch first")
        if len(view.axes) == 2 and (view.tensor.rows > 1 or list(view.inner(1)) != sorted(view.inner(1))):
            # A row of classes or values, in their order.
            view = self.build.arranged(view, [(), view.inner(1)])
        order = view.flat(range(len(view.axes)))
        shape = view.shape[1:]
        if prod(shape) != view.tensor.rows * view.tensor.features:
            raise ValueError(f"result {name!r}: its shape {list(shape)} is not that of its values")
        return Port(name, shape, view.tensor, view.sizes or (1,), order or (0,))


def _left_open(model: Any) -> str:
    """Which size of an input is open besides the samples, for a refusal that may follow from it."""
    for each in model.graph.input:
        for axis, dim in enumerate(each.type.tensor_type.shape.dim):
            if axis and dim.dim_value <= 0:
                name = dim.dim_param or "?"
                return f"; input {each.name!r} leaves axis {axis} open ({name}): export the network with fixed sizes"
    return ""
