"""Graphs of ONNX files, made ready for a reader.

Every reader begins here. Nodes that no output needs are gone, constants are folded, Identity and Dropout vanish, local
functions are in place, and each value has its shape. A reader meets what is left as :class:`Node`: the one way to an
input or an attribute, which refuses what is missing, and names what the reader has not looked at.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np

from .onnx_file import FOLDED, Constants, RefusedNode

__all__ = ["LOWEST_OPSET", "Node", "OnnxGraph", "check_opsets"]

#: Operators of earlier versions broadcast, normalise and drop out by other rules.
LOWEST_OPSET = 7
#: Domains of ONNX' own operators.
_OWN = ("", "ai.onnx")
#: Sizes that stand for symbolic ones, by the order of the symbols: two for each, to tell what depends on it.
_PINS = ((101, 131, 151, 181, 191, 227), (103, 137, 157, 193, 197, 229))
#: Operators whose first output has the shape of their first input: onnx knows no rule for them.
_SAME_SHAPE = (
    *("Quant", "IntQuant", "BipolarQuant", "MultiThreshold"),
    *("Gelu", "FastGelu", "QuickGelu", "LayerNormalization", "SimplifiedLayerNormalization", "GroupNormalization"),
)

#: Attributes whose numbers are above 0: onnx divides by some of them.
_ABOVE_0 = frozenset(
    "blocksize dilations group kernel_shape kv_num_heads num_groups num_heads q_num_heads strides".split()
)
#: Attributes that are true or false.
_FLAGS = frozenset(
    "allowzero antialias ceil_mode count_include_pad exclude_outside is_causal keepdims noop_with_empty_axes spatial "
    "storage_order training_mode transA transB".split()
)


def check_opsets(model: Any) -> None:
    """Refuses a version of ONNX' own operators that is not known here."""
    import onnx

    highest = onnx.defs.onnx_opset_version()
    versions = [each.version for each in model.opset_import if each.domain in _OWN]
    if not versions:
        raise ValueError("the file names no opset of ONNX' own operators: it is not a valid ONNX file")
    for version in versions:
        if version < LOWEST_OPSET:
            raise ValueError(
                f"opset {version}: must be from {LOWEST_OPSET} to {highest}; older operators mean something else: "
                "export the network again, or convert it with onnx.version_converter"
            )
        if version > highest:
            raise ValueError(f"opset {version}: must be from {LOWEST_OPSET} to {highest}; install a newer onnx")


def _name_of(proto: Any) -> str:
    """A node's name, or that of its first output."""
    return str(proto.name or next(filter(None, proto.output), "?"))


def label_of(proto: Any) -> str:
    """A node in a message."""
    return f"node {_name_of(proto)!r} ({proto.op_type})"


class Node:
    """A node, whose inputs and attributes are read by these methods alone.

    Attributes
    ----------
    kind, domain, name : str
        Operator, its domain ("" for ONNX' own), and the node's name or that of its first output.
    inputs, outputs : tuple of str
        Names of values; "" where an optional one is left out.
    """

    def __init__(self, proto: Any, inputs: Sequence[str], graph: "OnnxGraph") -> None:
        self.proto, self._graph = proto, graph
        self.kind: str = proto.op_type
        self.domain: str = "" if proto.domain in _OWN else proto.domain
        self.outputs = tuple(proto.output)
        self.name = _name_of(proto)
        self.inputs = tuple(inputs)
        self._unread = set(self._given)
        for name, value in self._given.items():
            if name in _FLAGS and value not in (0, 1):
                raise RefusedNode(f"{name}={value}: must be 0 or 1")
            if name in _ABOVE_0 and min(value if isinstance(value, list) else [value], default=1) < 1:
                raise RefusedNode(f"{name}={value}: must be above 0")

    @property
    def label(self) -> str:
        """The node in a message."""
        return label_of(self.proto)

    @cached_property
    def _given(self) -> dict[str, Any]:
        import onnx

        return {each.name: onnx.helper.get_attribute_value(each) for each in self.proto.attribute}

    @cached_property
    def _schema(self) -> Any:
        return self._graph.schema(self)

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute, its default where the node has none.

        The default is that of the operator's definition, else ``default``. Texts come as
        :class:`str`, numbers and lists as ONNX has them.
        """
        self._unread.discard(name)
        value = self._given.get(name)
        if value is None:
            value = self._default(name, default)
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        if isinstance(value, list | tuple) and value and isinstance(value[0], bytes):
            return [each.decode(errors="replace") for each in value]
        return list(value) if isinstance(value, tuple) else value

    def _default(self, name: str, default: Any) -> Any:
        import onnx

        declared = None if self._schema is None else self._schema.attributes.get(name)
        if declared is None or not declared.default_value.name:
            return default
        return onnx.helper.get_attribute_value(declared.default_value)

    def has(self, name: str) -> bool:
        """Whether the node gives an attribute itself."""
        return name in self._given

    def check_read(self) -> None:
        """Refuses an attribute that nobody has read and is no default."""
        for name in sorted(self._unread):
            value = self._given[name]
            if value != self._default(name, None):
                shown = value.decode(errors="replace") if isinstance(value, bytes) else value
                raise RefusedNode(f"attribute {name}={shown!r} is not supported")

    def source(self, at: int = 0) -> str:
        """Name of an input that must be there."""
        name = self.optional(at)
        if name is None:
            raise RefusedNode(f"has no input {at + 1}: the file is damaged, or of another opset than it says")
        return name

    def optional(self, at: int) -> str | None:
        """Name of an input, None where it is left out."""
        return self.inputs[at] if at < len(self.inputs) and self.inputs[at] else None

    def is_constant(self, at: int) -> bool:
        """Whether an input is there and is a constant."""
        return (self.optional(at) or "") in self._graph.constants

    def constant(self, at: int, what: str) -> np.ndarray:
        """An input that must be a constant; ``what`` it is, for the message."""
        name = self.source(at)
        if name in self._graph.varying:
            raise RefusedNode(
                f"its {what} {name!r} depends on a size that the file leaves open: export it with fixed sizes"
            )
        if name not in self._graph.constants:
            raise RefusedNode(f"its {what} {name!r} is computed by the network: must be a constant")
        return self._graph.constants.values[name]

    def check_row(self, at: int) -> None:
        """Refuses an input that is a constant and no row of integers; it may be left out."""
        if self.is_constant(at):
            _row(self._graph.constants.values[self.source(at)], f"its input {self.source(at)!r}")

    def weights(self, at: int, what: str = "weights") -> np.ndarray:
        """An input that must be a constant of finite floats, as float64."""
        self.constant(at, what)
        return self._graph.constants.weights(self.source(at), what)

    def integers(self, at: int, attribute: str, what: str, default: Sequence[int] | None = None) -> list[int] | None:
        """Integers of an input, or of an older opset's attribute."""
        if self.optional(at) is not None:
            return _row(self.constant(at, what), f"its input for {what}")
        given = self.attribute(attribute)
        if given is None:
            return None if default is None else list(default)
        return [int(each) for each in (given if isinstance(given, list) else [given])]


def _row(value: np.ndarray, what: str) -> list[int]:
    """A row of integers, or one; ``what`` it is, for the refusal of all else."""
    if value.ndim > 1 or value.dtype.kind != "i":
        raise RefusedNode(f"{what} is {value.dtype} of shape {list(value.shape)}: must be a row of integers")
    return [int(each) for each in value.reshape(-1)]


@dataclass(frozen=True)
class Value:
    """An input of a graph and its sizes, None where one is left open."""

    name: str
    sizes: tuple[int | None, ...]


class OnnxGraph:
    """A graph of needed nodes, with constants folded and shapes known.

    Parameters
    ----------
    model : onnx.ModelProto
    body : onnx.GraphProto, optional
        A graph within the model, such as a Scan's body; the model's own unless given.
    outer : mapping, optional
        Constants around ``body``, by name.

    Attributes
    ----------
    inputs : list of :class:`Value`
        Without those that are constants.
    outputs : list of str
        Names of the values that the graph gives, behind Identity and Dropout.
    nodes : list of :class:`Node`
        Those that outputs need, in an order in which inputs come first.
    constants : :class:`Constants`
    shapes : dict of str to tuple of int
        Of each value whose shape is known. A size that the file leaves open has a number of its own (see
        :attr:`open_sizes`), which stands in the shapes of all values that have this size.
    open_sizes : dict of int to str
        Those numbers, with the names of the sizes.
    fixed : dict of str to tuple of int
        :attr:`shapes`, with 0 for each size that depends on one that the file leaves open.
    varying : set of str
        Folded values that depend on a size that the file leaves open.
    """

    def __init__(self, model: Any, body: Any = None, outer: Mapping[str, np.ndarray] | None = None) -> None:
        import onnx.inliner

        check_opsets(model)
        if model.functions and body is None:
            model = onnx.inliner.inline_local_functions(model)
        self._onnx, self._opsets = onnx, {each.domain: each.version for each in model.opset_import}
        self._proto = model.graph if body is None else body
        self.model = model
        first, second = (_Walk(self, pins, outer) for pins in _PINS)
        self.inputs, self.outputs, self.nodes = first.inputs, first.outputs, first.nodes
        self.constants, self.shapes, self.open_sizes = first.constants, first.shapes, first.open_sizes
        self.fixed = {
            name: tuple(a if a == b else 0 for a, b in zip(sizes, second.shapes.get(name, sizes)))
            for name, sizes in first.shapes.items()
        }
        self.varying = {
            name
            for name, value in first.constants.values.items()
            if not _equal(value, second.constants.values.get(name))
        }

    def schema(self, node: Node) -> Any:
        """Definition of a node's operator, None outside of ONNX' own domain."""
        if node.domain:
            return None
        version = next(v for domain, v in self._opsets.items() if domain in _OWN)
        try:
            return self._onnx.defs.get_schema(node.kind, version, "")
        except self._onnx.defs.SchemaError:
            return None

    def each(self, handle: Callable[[Node], None]) -> None:
        """Calls ``handle`` for each node, whose refusals it labels.

        What the node says and ``handle`` has not read is refused.
        """
        for node in self.nodes:
            try:
                handle(node)
                node.check_read()
            except ValueError as error:
                if str(error).startswith("node "):
                    raise
                raise ValueError(f"{node.label}: {error}") from None


def _equal(one: np.ndarray, other: np.ndarray | None) -> bool:
    return (
        other is not None and one.shape == other.shape and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    )


class _Walk:
    """One pass over a graph, with a number for each open size."""

    def __init__(self, graph: OnnxGraph, pins: Sequence[int], outer: Mapping[str, np.ndarray] | None) -> None:
        self.graph, self.onnx, proto = graph, graph._onnx, graph._proto
        self.constants = Constants(SimpleNamespace(graph=proto, opset_import=graph.model.opset_import))
        self.constants.values = dict(outer or {}) | self.constants.values
        self.alias: dict[str, str] = {}
        self.types: dict[str, Any] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.open_sizes: dict[int, str] = {}
        self.inputs = [self._input(each, pins) for each in proto.input if each.name not in self.constants]
        self.nodes: list[Node] = []
        self.made: set[str] = {each.name for each in self.inputs}
        for each in self._needed(proto):
            try:
                self._node(Node(each, [self.alias.get(name, name) for name in each.input], graph))
            except ValueError as error:
                raise ValueError(f"{label_of(each)}: {error}") from None
        self.outputs = [self.alias.get(each.name, each.name) for each in proto.output]
        # What only the folded needed is not needed any more.
        needed, kept = set(self.outputs), []
        for node in reversed(self.nodes):
            if needed & set(node.outputs):
                needed |= set(_reads(node.proto, node.inputs))
                kept.append(node)
        self.nodes = kept[::-1]

    def _input(self, value: Any, pins: Sequence[int]) -> Value:
        tensor = value.type.tensor_type
        if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
            return Value(value.name, ())
        sizes: list[int | None] = []
        pinned = []
        for axis, dim in enumerate(tensor.shape.dim):
            size = dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None
            sizes.append(size)
            pinned.append(self._pin(dim.dim_param or f"{value.name}:{axis}", pins) if size is None else size)
        self._typed(value.name, tensor.elem_type, pinned)
        return Value(value.name, tuple(sizes))

    def _pin(self, symbol: str, pins: Sequence[int]) -> int:
        known = next((number for number, name in self.open_sizes.items() if name == symbol), None)
        if known is None:
            if len(self.open_sizes) == len(pins):
                raise ValueError(
                    f"its inputs leave {len(pins) + 1} sizes open: at most {len(pins)}; export fixed sizes"
                )
            known = pins[len(self.open_sizes)]
            self.open_sizes[known] = symbol
        return known

    def _typed(self, name: str, kind: int, sizes: Sequence[int]) -> None:
        self.types[name] = self.onnx.helper.make_tensor_type_proto(kind, sizes)
        self.shapes[name] = tuple(sizes)

    def _needed(self, proto: Any) -> list[Any]:
        """Nodes on which outputs depend, inputs first."""
        made = {name: node for node in proto.node for name in node.output if name}
        order: list[Any] = []
        state: dict[int, bool] = {}
        stack = [made[each.name] for each in reversed(proto.output) if each.name in made]
        while stack:
            node = stack[-1]
            if state.get(id(node)):
                stack.pop()
                continue
            waiting = [made[name] for name in _reads(node) if name in made and not state.get(id(made[name]))]
            if not waiting:
                state[id(node)] = True
                order.append(stack.pop())
            elif id(node) in state:
                raise ValueError(f"node {node.name or node.output[0]!r} ({node.op_type}): it depends on its own result")
            else:
                state[id(node)] = False
                stack += waiting
        return order

    def _node(self, node: Node) -> None:
        # The checker knows no names around an inner graph, so it is asked of its nodes alone, when they are read.
        if not node.domain and not any(each.HasField("g") for each in node.proto.attribute):
            self._check(node)
        for name in filter(None, node.inputs):
            if name not in self.constants and name not in self.made:
                raise RefusedNode(f"its input {name!r} comes from nowhere")
        if node.kind == "Split" and not node.domain and not any(node.inputs[1:]) and not node.has("num_outputs"):
            # The library of onnx would divide by 0 for it, which ends the process.
            if self.graph.schema(node).since_version >= 18:
                raise RefusedNode("has neither num_outputs nor sizes of its parts, of which this opset needs one")
        names = list(filter(None, node.inputs))
        if node.kind in FOLDED and not node.domain and all(name in self.constants for name in names):
            self.constants.fold(node.proto, self._renamed(node))
        elif node.kind in ("Shape", "Size") and not node.domain and names[0] in self.shapes:
            sizes = self.shapes[names[0]]
            self.constants.fold(node.proto, {node.proto.input[0]: np.broadcast_to(np.float32(0), sizes)})
        elif node.kind == "Identity" or self._is_idle_dropout(node):
            self.alias[node.outputs[0]] = names[0]
        else:
            self._infer(node)
            self.nodes.append(node)
            self.made.update(filter(None, node.outputs))

    def _renamed(self, node: Node) -> dict[str, np.ndarray]:
        """Constants by the names that the file has for them."""
        return {
            old: self.constants.values[new] for old, new in zip(node.proto.input, node.inputs) if new and old != new
        }

    def _check(self, node: Node) -> None:
        context = self.onnx.checker.C.CheckerContext()
        context.ir_version = max(self.graph.model.ir_version, 3)
        context.opset_imports = {("" if d in _OWN else d): v for d, v in self.graph._opsets.items()}
        try:
            self.onnx.checker.check_node(node.proto, context)
        except self.onnx.checker.ValidationError as error:
            raise RefusedNode(f"is not valid in this opset: {(str(error).splitlines() or ['?'])[0]}") from None

    def _is_idle_dropout(self, node: Node) -> bool:
        if node.kind != "Dropout" or node.domain:
            return False
        if any(node.outputs[1:]) and any(
            name in _reads(each) for each in self.graph._proto.node for name in node.outputs[1:] if name
        ):
            raise RefusedNode("its mask is used: export the network in evaluation mode (model.eval())")
        mode = node.optional(2)
        if mode is not None and (mode not in self.constants or np.any(self.constants.values[mode])):
            raise RefusedNode("training_mode is set: export the network in evaluation mode (model.eval())")
        return True

    def _infer(self, node: Node) -> None:
        """Shapes of a node's outputs, where they can be known."""
        if node.domain:
            if node.kind in _SAME_SHAPE and node.inputs[0] in self.types:
                self.types[node.outputs[0]] = self.types[node.inputs[0]]
                self.shapes[node.outputs[0]] = self.shapes[node.inputs[0]]
            return
        if node.kind in _SAME_SHAPE and node.inputs[0] in self.types:
            self._typed(node.outputs[0], self.types[node.inputs[0]].tensor_type.elem_type, self.shapes[node.inputs[0]])
            return
        if any(each.HasField("g") for each in node.proto.attribute):
            # Inference within inner graphs divides by 0 in some, which ends the process.
            if node.kind == "Scan":
                steps = next((each.i for each in node.proto.attribute if each.name == "num_scan_inputs"), 0)
                for name, state in zip(node.outputs, node.inputs[: len(node.inputs) - steps]):
                    if name and state in self.shapes:
                        self.types[name], self.shapes[name] = self.types[state], self.shapes[state]
            return
        schema = self.graph.schema(node)
        if schema is None:
            return
        names = list(dict.fromkeys(filter(None, node.inputs)))
        helper, numpy_helper = self.onnx.helper, self.onnx.numpy_helper
        data = {n: numpy_helper.from_array(v, n) for n in names if (v := self.constants.values.get(n)) is not None}
        types = {
            name: helper.make_tensor_type_proto(data[name].data_type, data[name].dims)
            if name in data
            else self.types[name]
            for name in names
            if name in data or name in self.types
        }
        if len(types) < len(names):
            return
        _check_windows(node, {name: len(kind.tensor_type.shape.dim) for name, kind in types.items()})
        proto = type(node.proto)()
        proto.CopyFrom(node.proto)
        proto.input[:] = node.inputs
        try:
            found = self.onnx.shape_inference.infer_node_outputs(
                schema, proto, types, input_data=data, opset_imports=list(self.graph.model.opset_import)
            )
        except Exception as error:  # the library raises whatever its C++ does
            shapes = [
                list(data[name].dims) if name in data else [self.open_sizes.get(n, n) for n in self.shapes[name]]
                for name in names
            ]
            said = (str(error).splitlines() or ["?"])[0].removeprefix("[ShapeInferenceError] ")
            raise RefusedNode(f"its inputs of {', '.join(map(str, shapes))} do not fit: {said}") from None
        for name, kind in found.items():
            sizes = [dim.dim_value for dim in kind.tensor_type.shape.dim]
            if kind.HasField("tensor_type") and kind.tensor_type.HasField("shape") and all(sizes):
                self._typed(name, kind.tensor_type.elem_type, sizes)


def _reads(node: Any, inputs: Sequence[str] | None = None) -> list[str]:
    """Values that a node and graphs within it take from around them."""
    names = list(filter(None, node.input if inputs is None else inputs))
    for attribute in node.attribute:
        for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            own = {each.name for each in (*inner.input, *inner.initializer)}
            own |= {name for each in inner.node for name in each.output}
            names += [name for each in inner.node for name in _reads(each) if name not in own]
            names += [each.name for each in inner.output if each.name not in own]
    return names


def _check_windows(node: Node, ranks: Mapping[str, int]) -> None:
    """Refuses windows of other dimensions than the input has.

    The library of onnx reads beyond its lists for them, which may end the process. ``ranks``: of the inputs.
    """
    if "Conv" not in node.kind and "Pool" not in node.kind:
        return
    edges = ranks[node.inputs[0]] - 2
    if "Conv" in node.kind and "Integer" not in node.kind and ranks[node.source(1)] != edges + 2:
        raise RefusedNode(
            f"its weights have {ranks[node.source(1)]} dimensions, its input has {edges + 2}: not the same"
        )
    for name, count in (("kernel_shape", edges), ("strides", edges), ("dilations", edges), ("pads", 2 * edges)):
        given = node._given.get(name)
        if given is not None and (len(given) != count or name != "pads" and min(given) < 1):
            raise RefusedNode(f"{name}={list(given)}: expected {count} values{'' if name == 'pads' else ' above 0'}")
