"""Counts the frozen bytes that operations read, and their words."""

from collections.abc import Iterable

from gradloom.rtl.formats.weights.weight_stream import StreamShape

from ..operations.base import Operation
from ..operations.learnt.updates import Pack, Unpack, Update
from ..operations.products import Gradient, Product
from ..operations.tensors import EDGE, Codes, MatrixRows

__all__ = ["base_bytes", "words_made"]


def base_bytes(operations: Iterable[Operation]) -> int:
    """Bytes of frozen matrices over the bus.

    Each product reads its part of its matrix once; one that is done in parts brings the matrix's header with each.
    """
    total = 0
    for operation in operations:
        if isinstance(operation, Product):
            weight = operation.weight
            if isinstance(weight, Codes):
                shape = StreamShape(outputs=weight.outputs, inputs=weight.inputs)
                total += shape.header_bytes + operation.x.count * operation.y.count * shape.tile_bytes
            elif isinstance(weight, MatrixRows):
                total += 2 * weight.outputs * weight.inputs
    return total


def words_made(operations: Iterable[Operation]) -> int:
    """Words that may be clipped.

    They are those of tensors, h, gradients, and of adapters when they are updated or unpacked.
    """
    total = 0
    for operation in operations:
        total += sum(part.rows * part.count * EDGE for part in operation.results)
        match operation:
            case Product() if operation.adapter is not None:
                total += operation.x.rows * operation.adapter.rank
            case Gradient():
                total += operation.adapter.rank * EDGE * sum(part.count for _, part in operation.sources.values())
            case Pack():
                pass
            case Update() | Unpack():
                sizes = {"a": operation.linear.inputs, "b": operation.linear.outputs}
                total += operation.adapter.rank * sum(sizes[which] for which in operation.adapter.graded)
    return total
