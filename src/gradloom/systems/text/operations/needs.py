"""Reads of operations, and the operations that a step needs.

An operation whose results nothing reads costs cycles and changes nothing: the backward pass below the lowest adapter,
and the gradient of a layer's input where no layer before it learns.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from .base import (
    EDGE,
    Add,
    Descent,
    Gradient,
    Loss,
    Narrow,
    Norm,
    NormBackward,
    Operation,
    Product,
    Rope,
    Scale,
    ScaleBackward,
    Softmax,
    SoftmaxBackward,
    Swiglu,
    SwigluBackward,
    Tensor,
    TokenSum,
    Unpack,
    Update,
    Widen,
    Words,
    results,
)

__all__ = ["needed", "reads"]

#: What a step is for.
_LASTING = Gradient | TokenSum | Loss | Update | Descent | Widen | Unpack
#: Ranks that are complete after one tile of outputs in every machine: an array has at most 8 columns.
_AT_ONCE = EDGE // 8


def reads(operation: Operation) -> tuple[str, ...]:
    """Names of the tensors that an operation reads.

    ``NAME.h`` and ``NAME.dh`` are among them; those of adapters, norms' weights and moments are not.
    """
    match operation:
        case Product():
            tiles = operation.weight.tiles if isinstance(operation.weight, Words) else ()
            return operation.x.name, *(part.name for part in tiles)
        case Gradient():
            name = operation.adapter.name
            return tuple(each for h, part in operation.sources.values() for each in (part.name, f"{name}.{h}"))
        case Descent():
            return operation.words.name, operation.gradient.name
        case Add():
            return operation.a.name, operation.b.name
        case Norm() | Rope() | TokenSum() | Widen():
            return (operation.x.name,)
        case Narrow():
            return (operation.words.name,)
        case Scale():
            return operation.x.name, operation.factors.name
        case ScaleBackward():
            return operation.x.name, operation.dy.name, operation.factors.name
        case NormBackward():
            return operation.x.name, operation.dy.name
        case Swiglu():
            return operation.gate.name, operation.up.name
        case SwigluBackward():
            return operation.gate.name, operation.up.name, operation.dy.name
        case Softmax():
            return (operation.s.name,)
        case SoftmaxBackward():
            return operation.p.name, operation.dp.name
        case Loss():
            return (operation.logits.name,)
        case Update() | Unpack():
            return ()


def needed(operations: Sequence[Operation], wanted: Collection[str] = ()) -> list[Operation]:
    """The operations that a step needs, in their order.

    Left out is an operation that changes neither a loss, nor a gradient of an adapter, nor words that stay from step to
    step, nor a tensor in ``wanted``.

    A product of which only h is read makes no more of its result than h takes.
    """
    live, kept = set(wanted), []
    for operation in reversed(operations):
        made = {part.name for part in results(operation)}
        hidden = operation.hidden if isinstance(operation, Product) else ""
        if not isinstance(operation, _LASTING) and made.isdisjoint(live):
            if hidden not in live:
                continue
            assert isinstance(operation, Product)
            operation = _narrow(operation)
        live.update(reads(operation))
        if isinstance(operation, Norm | NormBackward):
            # Of a norm that learns, the step makes the weight.
            live.add(operation.weight)
        kept.append(operation)
    return kept[::-1]


def _narrow(product: Product) -> Product:
    """The product with as few tiles of outputs as complete its h."""
    assert product.adapter is not None
    tiles = min(1 if product.adapter.rank <= _AT_ONCE else 2, product.y.count)
    y = Tensor(product.y.name, product.y.rows, tiles * EDGE, product.y.tensor.wide)
    return replace(product, y=y.all())
