"""Parts of a quantised cell's expressions, and what they must be."""

import numpy as np

from ...files.onnx_file import RefusedNode
from ...files.onnx_graph import OnnxGraph
from ..coding import Coding
from ..front import Pooling
from ..host import HostStep
from ..lstm import Gate
from .expressions import (
    Activated,
    AffineForm,
    CodedForm,
    Complement,
    Expression,
    Mapped,
    PartForm,
    Pooled,
    ProductForm,
    Sum,
    Variable,
)
from .graph import KNOWN, Graph

__all__ = [
    "LOOPS",
    "activation",
    "check_coding",
    "check_same",
    "check_start",
    "check_variables",
    "core",
    "factors",
    "gate_of",
    "gates_of",
    "host_steps",
    "needed",
    "pool_of",
    "refuse_without",
]

#: Nodes of quantised layers.
LOOPS = ("Scan", "QuantLSTMCell")
#: Bits of a weight's code.
_WEIGHT_BITS = 8


def gate_of(
    name: str,
    w: tuple[np.ndarray, np.ndarray],
    u: tuple[np.ndarray, np.ndarray],
    bias: np.ndarray,
    accumulator: Coding,
    kind: str,
    output: Coding,
    node: str = "",
) -> Gate:
    """A gate of weights ``(codes, scales)``, whose shapes must fit."""
    bound = 1 << _WEIGHT_BITS - 1
    for codes, _ in (w, u):
        if codes.min() < -bound or codes.max() >= bound:
            raise RefusedNode(
                f"weights of the {name} gate have codes from {codes.min()} to {codes.max()}: must be "
                f"from {-bound} to {bound - 1}"
            )
    if u[0].shape != (len(u[0]), len(u[0])) or len(w[0]) != len(u[0]) or bias.size not in (1, len(u[0])):
        raise RefusedNode(
            f"weights of the {name} gate have shapes {list(w[0].shape)} and {list(u[0].shape)}, its bias "
            f"{list(bias.shape)}: expected [hidden, inputs], [hidden, hidden] and [hidden]"
        )
    wide = np.broadcast_to(bias.reshape(-1), (len(u[0]),)).astype(np.float64)
    return Gate(w[0], u[0], w[1], u[1], wide, accumulator, kind, output, node or name)


def pool_of(value: Pooled) -> Pooling:
    """A pool over steps."""
    assert value.groups is not None
    return Pooling(
        kernel=value.kernel[0],
        stride=value.strides[0],
        pads=value.pads[0],
        groups=value.groups,
        inputs=value.inputs,
        name=value.name,
    )


def core(value: Expression) -> Expression:
    """A value without its quantisers."""
    while isinstance(value, CodedForm):
        value = value.source
    return value


def needed(value: Expression, what: str) -> CodedForm:
    """A value, which must have a quantiser."""
    if not isinstance(value, CodedForm):
        kind = "input" if isinstance(value, Variable) else "node"
        name = f"{kind} {value.name!r}: " if hasattr(value, "name") else ""
        raise RefusedNode(f"{name}a quantiser is missing: that of {what}")
    return value


def activation(value: Expression) -> str:
    """Name of a gate's activation."""
    inner = core(value)
    if isinstance(inner, Complement):
        return "1 - gate"
    return inner.kind if isinstance(inner, Activated) else "no activation"


def factors(total: Expression) -> list[Expression]:
    """All factors of a sum of products."""
    if not isinstance(total, Sum):
        return []
    products = [core(each) for each in (total.a, total.b)]
    return [core(v) for each in products if isinstance(each, ProductForm) for v in (each.a, each.b)]


def gates_of(state: Expression) -> list[AffineForm]:
    """Sums of products of the gates that make a cell state."""
    inner = [core(each.source) for each in factors(core(state)) if isinstance(each, Activated)]
    return [each for each in inner if isinstance(each, AffineForm)]


def check_same(carried: Expression, state: Expression, what: str) -> None:
    """A quantiser on the state loop must be the identity."""
    if isinstance(carried, CodedForm):
        if not isinstance(state, CodedForm):
            raise RefusedNode(f"a quantiser on the loop of the {what}, which has none where it is made")
        check_coding(carried.coding, state.coding, what)


def check_coding(again: Coding, first: Coding, what: str) -> None:
    """A second quantiser must change nothing."""
    if again.levels is not None or again.scale != first.scale or again.lo > first.lo or again.hi < first.hi:
        raise RefusedNode(
            f"node {again.name!r}: the {what} is quantised twice, with scales {first.scale:.9g} and "
            f"{again.scale:.9g}, codes {first.lo} to {first.hi} and {again.lo} to {again.hi}: the second "
            "must change nothing"
        )


def check_start(graph: Graph, name: str) -> None:
    """A state must begin at zero, or be an input."""
    known = graph.weights[name].codes if name in graph.weights else graph.constants.values.get(name)
    if known is not None:
        if np.any(known):
            raise RefusedNode(
                f"its start state {name!r} is {known.reshape(-1)[np.argmax(known.reshape(-1) != 0)]:g}, not 0: it must "
                "be 0 or an input"
            )
        return
    value = graph.values.get(name)
    while isinstance(value, PartForm):
        value = value.source
    if not isinstance(value, Variable):
        raise RefusedNode(f"its start state {name!r} is computed: it must be 0 or an input")
    graph.starts.add(value.name)


def host_steps(value: Expression) -> tuple[HostStep, ...]:
    """What the host makes of an input, in its order."""
    steps = []
    while isinstance(value, Mapped):
        steps.append(HostStep(op=value.kind, value=value.value, name=value.name))
        value = value.source
    return tuple(steps[::-1])


def check_variables(graph: Graph, source: Expression) -> None:
    """The network's input is one that no state begins with."""
    while hasattr(source, "source") or isinstance(source, AffineForm):
        source = source.terms[0][0] if isinstance(source, AffineForm) else source.source
    if not isinstance(source, Variable) or source.name in graph.starts:
        raise ValueError(f"input {getattr(source, 'name', '')!r}: it is also a start state")


def refuse_without(graph: OnnxGraph, kinds: tuple[str, ...]) -> None:
    """Refuses a graph that has no recurrent node of ``kinds``."""
    found = {node.kind for node in graph.nodes}
    if found & {*kinds, *KNOWN}:
        return
    if found & {*LOOPS}:
        raise ValueError(
            f"no {', '.join(kinds)} node, but a {(found & {*LOOPS}).pop()}, which must hold quantisers and takes no "
            "--calibrate: in floating point, give native nodes"
        )
    if {"Sigmoid", "Tanh", "MatMul"} <= found or {"Sigmoid", "Tanh", "Gemm"} <= found:
        raise ValueError(
            "no LSTM, GRU or RNN node, but sigmoids, tanh and products: an exporter has taken the recurrent layers "
            "apart; from PyTorch export them with torch.onnx.export(..., dynamo=False)"
        )
    more = "; it looks like a network for images: give it to a preset for images" if "Conv" in found else ""
    raise ValueError(
        f"no recurrent node: expected {' or '.join(kinds)}{more}"
        + (", or one step of an LSTM with its states as inputs and outputs" if kinds == LOOPS and not more else "")
    )
