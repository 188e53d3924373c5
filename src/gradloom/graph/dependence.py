"""What depends on what learns, and what does not."""

from collections.abc import Collection, Sequence

from gradloom.program import operations as program

from .base import Operation, Tensor

__all__ = ["dependent", "kept"]


def dependent(
    operations: Sequence[Operation], learners: Collection[str], inputs: Collection[str] = ()
) -> Collection[str]:
    """Names of the tensors that depend on a learner, or on some ``inputs``; no others' gradient is needed."""

    def learns(each: Operation) -> bool:
        return any(weight.name in learners for weight in each.weights) or any(t.name in inputs for t in each.i)

    return {*program.dependent(operations, learns), *inputs}


def kept(operations: Sequence[Operation], learners: Collection[str]) -> list[Tensor]:
    """Tensors that cross from what never changes into what learns, inputs among them.

    With these of each sample, all operations before need to run once.
    """
    found = dependent(operations, learners)
    crossing = [t for each in operations if each.o.name in found for t in each.i if t.name not in found]
    return list(dict.fromkeys(crossing))
