"""Reads ONNX files into a :class:`~gradloom.graph.network.Network`."""

from pathlib import Path
from typing import Any

import numpy as np

from gradloom.models.files.onnx_file import FOLDED, read_onnx

from ..network import Network

# Each marks its functions as readers of operators.
from . import chosen, elementwise, layers, norms, products, repeated, shapes  # noqa: F401
from .reader import HANDLERS, SHOWN, Reader, operator

__all__ = ["load_network", "network_of"]

_INTEGER = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger")
_LOOPS = ("Loop", "Scan", "If", "LSTM", "GRU", "RNN")
_DROPPED = frozenset(("Identity", "Dropout", "Shape", "Size"))
#: Operators that onnxruntime has had before ONNX; SimplifiedLayerNormalization never came.
_SINCE = {"LayerNormalization": 17, "Gelu": 20, "SimplifiedLayerNormalization": 1 << 16}


def load_network(path: str | Path) -> Network:
    """The network in an ONNX file.

    :class:`ValueError` names all nodes that are not understood, and what the file's inputs lack.
    """
    try:
        return network_of(read_onnx(Path(path)))
    except ValueError as error:
        said = str(error)
        raise ValueError(said if said.startswith(f"{path}: ") else f"{path}: {said}") from None


def network_of(model: Any) -> Network:
    """The network of an ``onnx.ModelProto``; :class:`ValueError` as of :func:`load_network`."""
    model = _contributed(model)
    _check_kinds(model)
    with np.errstate(all="ignore"):
        return Reader(model).network()


def _contributed(model: Any) -> Any:
    """The model with operators that its opset does not have yet in onnxruntime's domain.

    Its simplifier writes them so.
    """
    version = max((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), default=0)
    since = [_SINCE.get(operator(each.domain, each.op_type), 0) for each in model.graph.node]
    wrong = [n for n, first in enumerate(since) if version < first]
    if not wrong:
        return model
    copy = type(model)()
    copy.CopyFrom(model)
    for n in wrong:
        copy.graph.node[n].domain = "com.microsoft"
    if not any(each.domain == "com.microsoft" for each in copy.opset_import):
        copy.opset_import.add(domain="com.microsoft", version=1)
    return copy


def _check_kinds(model: Any) -> None:
    """Refuses all operators that have no reader, at once."""
    nodes = list(model.graph.node) + [each for function in model.functions for each in function.node]
    functions = {each.name for each in model.functions}
    wrong: list[Any] = []
    for each in nodes:
        if each.op_type in _LOOPS and not each.domain:
            raise ValueError(
                f"node {each.name or each.output[0]!r} ({each.op_type}): a network with a loop or a choice is not one "
                "list of operations; gradloom infer and finetune take recurrent ones with a preset such as lstm-kv260"
            )
        if each.op_type in _INTEGER or each.op_type.startswith("QLinear"):
            raise ValueError(
                f"node {each.name or each.output[0]!r} ({each.op_type}): the graph is an integer one; export the "
                "network before its quantisation, in float"
            )
        if operator(each.domain, each.op_type) not in HANDLERS and each.op_type not in FOLDED | functions | _DROPPED:
            wrong.append(each)
    if wrong:
        shown = ", ".join(f"{each.name or each.output[0]!r} ({each.op_type})" for each in wrong[:SHOWN])
        more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise ValueError(
            f"node{'s' * (len(wrong) > 1)} {shown}{more}: no such operation; taken are "
            f"{', '.join(sorted(each for each in HANDLERS))}"
        )
