"""Brevitas' QuantLSTMCell, a node with weights and quantisers."""

import numpy as np

from ...files.onnx_file import RefusedNode
from ...files.onnx_graph import Node
from ..coding import Coding
from ..lstm import LstmCell
from .graph import Graph, code_range
from .parts import check_start, gate_of

__all__ = ["brevitas_cell"]

#: Order of the weights, and the names of the quantisers.
_WEIGHTS = ("input", "forget", "cell", "output")
_QUANTIZERS = (
    "output",
    "cell_state",
    "input_acc",
    "forget_acc",
    "cell_acc",
    "output_acc",
    "input_sigmoid",
    "forget_sigmoid",
    "cell_tanh",
    "output_sigmoid",
    "hidden_state_tanh",
)


def brevitas_cell(graph: Graph, node: Node) -> LstmCell:
    """The cell of a node, as ``export_qonnx(dynamo=False)`` writes it."""
    if len(node.inputs) != 48:
        raise RefusedNode(
            f"it has {len(node.inputs)} inputs: expected 48, as Brevitas' export_qonnx(dynamo=False) writes them"
        )
    for at in (1, 2):
        check_start(graph, node.source(at))
    codings = _codings(node)
    gates, one = {}, 0
    coupled = node.attribute("cifg", 0)
    for number, name in enumerate(_WEIGHTS):
        if name == "forget" and coupled:
            # 1 goes through the quantiser of the input gate, which may clip it.
            one = int(codings["input_sigmoid"].codes(np.ones(1))[0])
            continue
        w, u = (graph.quantized(node, first + number) for first in (3, 7))
        bias = graph.real(node, 11 + number, "bias").reshape(-1)
        kind = "tanh" if name == "cell" else "sigmoid"
        gates[name] = gate_of(
            name, w.by_output(0), u.by_output(0), bias, codings[f"{name}_acc"], kind, codings[f"{name}_{kind}"]
        )
    state = codings["cell_state"]
    return LstmCell(gates, state, state, state, None, codings["hidden_state_tanh"], codings["output"], node.name, one)


def _codings(node: Node) -> dict[str, Coding]:
    """The node's quantisers by name."""
    found = {}
    for number, name in enumerate(_QUANTIZERS):
        scale, zero, bits = (
            node.weights(15 + 3 * number + at, f"{name}'s {what}")
            for at, what in enumerate(("scale", "zero point", "bits"))
        )
        if scale.size != 1 or not scale.item() > 0:
            raise RefusedNode(f"quantiser {name}: its scale is {scale.reshape(-1)[:4].tolist()}: expected one above 0")
        narrow = max(node.attribute(f"{name}_{each}", 0) for each in ("narrow", "narrow_range"))
        signed = node.attribute(f"{name}_signed", 0 if "sigmoid" in name else 1)
        try:
            lo, hi = code_range(zero, bits, signed, narrow, node.attribute(f"{name}_rounding_mode", "ROUND"))
        except RefusedNode as error:
            raise RefusedNode(f"quantiser {name}: {error}") from None
        found[name] = Coding(float(scale.item()), lo, hi, name=name)
    return found
