"""Operations of LoRA-XS, of which an r × r matrix R learns alone.

Beside a linear stand A and B as beside any, but both are frozen, and the linear adds ``B R A``. ``LINEAR.r`` has R
transposed, a row a token, its features up to a tile. Before the linear's first product the step makes ``B R`` in the
place of an adapter's B: the linear engine multiplies R by B, and the update engine makes words of the result. The
gradient engine makes that of ``B R`` as it makes any B's, and one more small product with B has R's from it.

``LINEAR.bn`` and ``LINEAR.bp`` are B transposed, its factor in it, negated and not: making words turns the sign.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .base import Operation
from .learnt.updates import Widen
from .products import Product
from .tensors import EDGE, AdapterTensors, Codes, Tensor, Words

__all__ = ["FACTORS", "Cores", "is_gradient"]

#: Ends of the names of B negated, and of B.
FACTORS = (".bn", ".bp")


def is_gradient(operation: Operation) -> bool:
    """Whether an operation makes the gradient of an R."""
    return isinstance(operation, Product) and operation.y.name.endswith(".gr")


@dataclass(frozen=True)
class Cores:
    """Those of a step.

    Parameters
    ----------
    ranks : mapping
        Rank by the linear's name.
    """

    ranks: Mapping[str, int]

    def words(self, name: str) -> Tensor:
        """R transposed, which learns."""
        return Tensor(f"{name}.r", self.ranks[name], EDGE)

    def gradient(self, name: str) -> Tensor:
        """Of it."""
        return Tensor(f"{name}.gr", self.ranks[name], EDGE)

    def frozen(self, name: str, outputs: int, which: str) -> Tensor:
        """B transposed, by one of :data:`FACTORS`."""
        return Tensor(f"{name}{which}", self.ranks[name], outputs)

    def of(self, operations: Iterable[Operation]) -> list[str]:
        """Linears whose R has a gradient among the operations."""
        return [
            each.y.name.removesuffix(".gr") for each in operations if isinstance(each, Product) and is_gradient(each)
        ]

    def prepared(self, linear: Codes, adapter: AdapterTensors | None) -> list[Operation]:
        """Words of ``B R``; nothing where it does not learn."""
        if adapter is None or not adapter.made:
            return []
        name, less = linear.name, self.frozen(linear.name, linear.outputs, FACTORS[0])
        plain = Tensor(f"{name}.br", adapter.rank, linear.outputs)
        return [
            Product(self.words(name).all(), _tiles(less), plain.all(), backward=True),
            Widen(plain.all(), Tensor(f"{name}.b", adapter.rank, linear.outputs).all()),
        ]

    def graded(self, linear: Codes, adapter: AdapterTensors | None) -> list[Operation]:
        """R's gradient, of that of ``B R``."""
        if adapter is None or not adapter.made:
            return []
        name, more = linear.name, self.frozen(linear.name, linear.outputs, FACTORS[1])
        made = Tensor(f"{name}.gb", adapter.rank, linear.outputs)
        return [Product(made.all(), _tiles(more), self.gradient(name).all())]


def _tiles(matrix: Tensor) -> Words:
    return Words(tuple(matrix.part(tile) for tile in range(matrix.tiles)))
