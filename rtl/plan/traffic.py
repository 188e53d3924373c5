"""What a list of operations reads of a model's frozen matrices."""
from collections.abc import Iterable

from ..formats.weight_stream import StreamShape
from .operations import Codes, Halves, Operation, Product

__all__ = ["base_bytes"]


def base_bytes(operations: Iterable[Operation]) -> int:
    """Bytes of frozen matrices over the bus, exactly: each product reads its matrix once."""
    total = 0
    for operation in operations:
        if isinstance(operation, Product):
            weight = operation.weight
            if isinstance(weight, Codes):
                total += StreamShape(outputs=weight.outputs, inputs=weight.inputs).bytes
            elif isinstance(weight, Halves):
                total += 2 * weight.outputs * weight.inputs
    return total
