"""ONNX files: reading, attributes, constants, nodes on constants."""

from collections.abc import Mapping
from math import ceil, prod
from pathlib import Path
from typing import Any

import numpy as np

from .kinds import what_is

__all__ = ["FOLDED", "Constants", "RefusedNode", "has_recurrence", "read_onnx"]

#: Nodes that are computed at import if their inputs are constants; shapes are.
FOLDED = frozenset(
    "Abs Add And Cast Ceil Clip Concat Constant ConstantOfShape Cos Div Equal Exp Expand Flatten Floor Gather "
    "Greater GreaterOrEqual Identity Less LessOrEqual Log MatMul Max Min Mod Mul Neg Not Or Pow Range Reciprocal "
    "ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Reshape ScatterND Shape Sign Sin Size Slice "
    "Softmax Split Sqrt Squeeze Sub Tanh Tile Transpose Trilu Unsqueeze Where".split()
)
#: Those whose result has the shape that their inputs broadcast to.
_BROADCAST = "Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mod Mul Or Pow Sub Where".split()
#: Elements of all constants that an import computes; a small file can ask for any number.
_MOST_FOLDED = 1 << 26


#: Recurrent operators; Scan and Loop are how exporters write a layer step by step.
_RECURRENT = ("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM", "QuantLSTMCell", "Scan", "Loop")


class RefusedNode(ValueError):
    """Refusal of a node; the node's name is put before the message."""


def read_onnx(path: Path) -> Any:
    """The model in a file, with its external data.

    :class:`ValueError` says why it cannot be read.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError:
        raise ValueError("the package onnx is missing: pip install onnx") from None
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    if (kind := what_is(path)) not in (None, "an ONNX model"):
        raise ValueError(f"{path}: expected an ONNX model; it is {kind}")
    try:
        model = onnx.load(str(path), load_external_data=False)
    except (DecodeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path}: not a readable ONNX file ({error}); is it truncated?") from None
    if not model.graph.node and (model.graph.input or model.producer_name == "pytorch"):
        raise ValueError(
            f"{path}: its graph is empty, it has no nodes; Brevitas' export_qonnx writes such a file of a "
            "recurrent network unless it is called with dynamo=False"
        )
    if not model.graph.node:
        raise ValueError(f"{path}: no graph in it; is it an ONNX file, and whole?")
    try:
        onnx.load_external_data_for_model(model, str(path.parent))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise ValueError(f"{path}: its external data cannot be read: {_first_line(error)}") from None
    return model


def has_recurrence(path: Path | str) -> bool:
    """Whether a graph, or a part of it, has a recurrent operator."""
    return _recurs(read_onnx(Path(path)).graph)


def _recurs(graph: Any) -> bool:
    return any(
        node.op_type in _RECURRENT or any(_recurs(each.g) for each in node.attribute if each.HasField("g"))
        for node in graph.node
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


class Constants:
    """Constants of a graph by name.

    They are its initializers, and nodes computed from them.

    Parameters
    ----------
    model : onnx.ModelProto
    """

    def __init__(self, model: Any) -> None:
        import onnx

        self._onnx, self._opsets = onnx, model.opset_import
        self._folded = 0
        self.values: dict[str, np.ndarray] = {}
        for tensor in model.graph.initializer:
            try:
                self.values[tensor.name] = onnx.numpy_helper.to_array(tensor)
            except Exception as error:
                raise ValueError(
                    f"weights {tensor.name!r} cannot be read ({_first_line(error)}); is the file, or its "
                    "external data, truncated?"
                ) from None
        if model.graph.sparse_initializer:
            raise ValueError("sparse weights are not supported: export dense ones")

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def weights(self, name: str, what: str = "weights") -> np.ndarray:
        """A constant as float64; refused unless it is floating point and finite.

        ``what`` it is, for the message.
        """
        array = self.values[name]
        if array.dtype.kind != "f":
            raise RefusedNode(f"its {what} {name!r}: {array.dtype}, expected floating point")
        array = array.astype(np.float64)
        if not np.isfinite(array).all():
            at = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            raise RefusedNode(f"its {what} {name}{list(at) or ''} are {array[at]}: {what} must be finite")
        return array

    def fold(self, node: Any, known: Mapping[str, np.ndarray]) -> None:
        """Computes a node of :data:`FOLDED`.

        ``known``: its inputs that are no constants.
        """
        from onnx.reference import ReferenceEvaluator

        feeds = {name: known[name] if name in known else self.values[name] for name in node.input if name}
        helper = self._onnx.helper
        values = [
            helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for k, v in feeds.items()
        ]
        results = [self._onnx.ValueInfoProto(name=name) for name in node.output]
        try:
            size = _folded_size(node, [feeds[name] for name in node.input if name])
        except (ValueError, TypeError, IndexError, ZeroDivisionError, OverflowError):
            size = 0  # it cannot be computed, and is refused below
        self._folded += size
        if self._folded > _MOST_FOLDED:
            raise RefusedNode(
                f"constants that the import computes have {self._folded:,} elements: at most "
                f"{_MOST_FOLDED:,}; export the network with its constants folded"
            )
        # The evaluator computes what it can of lists that do not fit.
        if node.op_type == "Slice" and len({feeds[name].shape for name in node.input[1:] if name}) > 1:
            raise RefusedNode("its starts, ends, axes and steps are not as many")
        graph = helper.make_graph([node], "fold", values, results)
        try:
            outputs = ReferenceEvaluator(helper.make_model(graph, opset_imports=self._opsets)).run(None, feeds)
        except Exception as error:
            raise RefusedNode(f"cannot be computed: {_first_line(error)}") from None
        self.values.update((name, np.asarray(value)) for name, value in zip(node.output, outputs))


def _folded_size(node: Any, inputs: list[np.ndarray]) -> int:
    """Elements of a :data:`FOLDED` node's result, or a bound on them."""
    kind = node.op_type
    if kind == "ConstantOfShape":
        return prod(inputs[0].ravel().tolist())
    if kind == "Range":
        start, limit, delta = (float(each.item()) for each in inputs)
        return ceil((limit - start) / delta)
    if kind == "Gather":
        axis = next((each.i for each in node.attribute if each.name == "axis"), 0)
        return inputs[0].size // max(inputs[0].shape[axis], 1) * inputs[1].size
    if kind == "Expand":
        return prod(np.broadcast_shapes(inputs[0].shape, tuple(inputs[1].ravel().tolist())))
    if kind == "Tile":
        return inputs[0].size * prod(inputs[1].ravel().tolist())
    if kind == "MatMul":
        return inputs[0].size * inputs[1].size // max(inputs[0].shape[-1], 1) ** 2
    if kind in _BROADCAST:
        return prod(np.broadcast_shapes(*(each.shape for each in inputs)))
    return sum(each.size for each in inputs)
