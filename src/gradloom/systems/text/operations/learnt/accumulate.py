"""Gradients of several texts, added up before one update.

Each text is a step of its own. Beside an adapter's gradients ``NAME.ga`` and ``NAME.gb``, a vector's ``NAME.gw``, are
the sums so far, ``NAME.sa``, ``NAME.sb`` and ``NAME.sw``, of the same shape; the vector engine adds the former to the
latter in place. The last text's step updates by the sums.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from ..base import Operation
from ..blocks.rows import GRADED
from ..elements import Add
from ..products import Gradient
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
    operations = list(operations)
    # B that the step makes.
    without = {f"{each.adapter.name}.gb" for each in operations if isinstance(each, Gradient) and each.adapter.made}
    for operation in operations:
        if isinstance(operation, Update):
            operation = replace(operation, summed=True)
        elif isinstance(operation, Descent):
            operation = replace(operation, gradient=_total(operation.gradient))
        if isinstance(operation, Update | Descent):
            made += [*waiting, operation]
            waiting = []
        elif totals := _totals(operation, linear, without):
            made += [operation, *waiting]
            waiting = [Add(_total(each), each, _total(each), lazy=True) for each in totals]
        else:
            made.append(operation)
    return made + waiting


def _total(gradient: TensorSlice) -> TensorSlice:
    """The sum of the gradients of a vector, or of LoRA-XS."""
    held, (module, _, which) = gradient.tensor, gradient.name.rpartition(".g")
    return Tensor(f"{module}.s{which}", held.rows, held.features).all()


def _totals(
    operation: Operation, linear: Callable[[AdapterTensors], Codes], without: Collection[str]
) -> list[TensorSlice]:
    """Gradients that an operation completes, ``without`` those of what does not learn."""
    if isinstance(operation, Gradient):
        if operation.adapter.made or operation.place:
            return []
        held = linear(operation.adapter)
        features = {"ga": held.inputs, "gb": held.outputs}
        return [
            Tensor(operation.made(f"g{which}"), operation.adapter.rank, features[f"g{which}"]).all()
            for which in operation.adapter.graded
        ]
    return [part for part in operation.results if part.name.endswith(GRADED) and part.name not in without]
