"""Gradients of several texts, added up before one update.

Each text is a step of its own. Beside an adapter's gradients ``NAME.ga`` and ``NAME.gb``, a vector's ``NAME.gw``, are
the sums so far, ``NAME.sa``, ``NAME.sb`` and ``NAME.sw``, of the same shape; the vector engine adds the former to the
latter in place. The last text's step updates by the sums.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from ..base import Operation
from ..cores import is_gradient
from ..elements import Add
from ..products import Gradient, Product
from ..scaling import TokenSum
from ..tensors import AdapterTensors, Codes, Tensor, TensorSlice
from .updates import Descent, Update

__all__ = ["spare_bits", "summed"]


def spare_bits(texts: int) -> int:
    """Fraction bits that a sum has less than its addends.

    It then holds the sum of ``texts`` of them.
    """
    return (texts - 1).bit_length()


def summed(operations: Iterable[Operation], linear: Callable[[AdapterTensors], Codes]) -> list[Operation]:
    """The operations, with each gradient added to its sum.

    Updates take the sums.

    A sum stands behind the next gradient, so that its words are in memory when the sum reads them.
    """
    made: list[Operation] = []
    waiting: list[Operation] = []
    for operation in operations:
        if isinstance(operation, Update):
            operation = replace(operation, summed=True)
        elif isinstance(operation, Descent):
            operation = replace(operation, gradient=_total(operation.gradient))
        if isinstance(operation, Update | Descent):
            made += [*waiting, operation]
            waiting = []
        elif isinstance(operation, Gradient | TokenSum) or is_gradient(operation):
            made += [operation, *waiting]
            waiting = _sums(operation, linear)
        else:
            made.append(operation)
    return made + waiting


def _total(gradient: TensorSlice) -> TensorSlice:
    """The sum of the gradients of a vector, or of LoRA-XS."""
    held, (module, _, which) = gradient.tensor, gradient.name.rpartition(".g")
    return Tensor(f"{module}.s{which}", held.rows, held.features).all()


def _sums(gradient: Operation, linear: Callable[[AdapterTensors], Codes]) -> list[Operation]:
    if isinstance(gradient, TokenSum | Product):
        total = _total(gradient.y)
        return [Add(total, gradient.y, total, lazy=True)]
    assert isinstance(gradient, Gradient)
    made: list[Operation] = []
    if gradient.adapter.made:
        return made
    held = linear(gradient.adapter)
    features_of = {"a": held.inputs, "b": held.outputs}
    for which in gradient.adapter.graded:
        features = features_of[which]
        name, rank = gradient.adapter.name, gradient.adapter.rank
        total = Tensor(f"{name}.s{which}", rank, features).all()
        made.append(Add(total, Tensor(f"{name}.g{which}", rank, features).all(), total, lazy=True))
    return made
