"""Gradients of several texts, added up before one update.

Each text is a step of its own. Beside an adapter's gradients ``NAME.ga`` and ``NAME.gb`` are the sums so far,
``NAME.sa`` and ``NAME.sb``, of the same shape; the vector engine adds the former to the latter in place. The last
text's step updates by the sums.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from .operations import Adapter, Add, Codes, Gradient, Operation, Tensor, Update

__all__ = ["spare_bits", "summed"]


def spare_bits(texts: int) -> int:
    """Fraction bits that a sum has less than its addends.

    It then holds the sum of ``texts`` of them.
    """
    return (texts - 1).bit_length()


def summed(operations: Iterable[Operation], linear: Callable[[Adapter], Codes]) -> list[Operation]:
    """The operations, with each gradient added to its sum.

    Updates take the sums.

    A sum stands behind the next gradient, so that its words are in memory when the sum reads them.
    """
    made: list[Operation] = []
    waiting: list[Operation] = []
    for operation in operations:
        if isinstance(operation, Update):
            operation = replace(operation, summed=True)
        if isinstance(operation, Update | Gradient):
            made += [operation, *waiting] if isinstance(operation, Gradient) else [*waiting, operation]
            waiting = _sums(operation, linear(operation.adapter)) if isinstance(operation, Gradient) else []
        else:
            made.append(operation)
    return made + waiting


def _sums(gradient: Gradient, linear: Codes) -> list[Operation]:
    made: list[Operation] = []
    for which, features in (("a", linear.inputs), ("b", linear.outputs)):
        name, rank = gradient.adapter.name, gradient.adapter.rank
        total = Tensor(f"{name}.s{which}", rank, features).all()
        made.append(Add(total, Tensor(f"{name}.g{which}", rank, features).all(), total, lazy=True))
    return made
