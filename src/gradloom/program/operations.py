"""Base of every system's list of operations: its tensors, its readings, and who reads what."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

__all__ = ["TensorFunction", "Operation", "Reading", "Tensor", "Weight", "dependent", "needed"]

Listed = TypeVar("Listed", bound="Operation")
TensorT = TypeVar("TensorT", bound="HasName")


class HasName(Protocol):
    """What has a name."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True)
class Tensor:
    """A tensor ``[rows, features]``."""

    name: str
    rows: int
    features: int


@dataclass(frozen=True)
class Weight:
    """Weights by name."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Its parameters."""
        return prod(self.shape)


class Operation:
    """Makes tensors of others; it knows neither values nor where they lie.

    Attributes
    ----------
    takes, gives : sequence of str
        Fields with tensors, or parts of tensors, that it reads and makes. Each has a ``name``, or is None.
    lasting : bool
        It changes what outlives the list, and is needed whoever reads its results.
    """

    takes: ClassVar[Sequence[str]] = ()
    gives: ClassVar[Sequence[str]] = ()
    lasting: ClassVar[bool] = False

    def _parts(self, fields: Sequence[str]) -> tuple[Any, ...]:
        return tuple(part for field in fields if (part := getattr(self, field)) is not None)

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the tensors that it reads."""
        return tuple(part.name for part in self._parts(self.takes))

    @property
    def results(self) -> tuple[Any, ...]:
        """The tensors, or parts of them, that it makes."""
        return self._parts(self.gives)

    @property
    def makes(self) -> tuple[str, ...]:
        """Names of the tensors that it makes."""
        return tuple(part.name for part in self.results)

    @property
    def wants(self) -> tuple[str, ...]:
        """Names of all that must be made before it: besides :attr:`reads`, weights that a list may make."""
        return self.reads

    def wanted(self, live: Collection[str]) -> Self | None:
        """The operation as far as tensors ``live`` need it."""
        return self if self.lasting or any(name in live for name in self.makes) else None


@dataclass(frozen=True)
class TensorFunction(Operation, Generic[TensorT]):
    """Makes ``o`` of the tensors ``i``."""

    gives = ("o",)

    i: tuple[TensorT, ...]
    o: TensorT

    @property
    def reads(self) -> tuple[str, ...]:
        """See :class:`Operation`."""
        return tuple(each.name for each in self.i)

    @property
    def weights(self) -> tuple[Weight, ...]:
        """Its weights."""
        return ()


class Reading:
    """Calls a method for each operation, by the name of its class.

    The method is ``_product`` for ``Product``.
    """

    def do(self, operation: Operation, *more: Any) -> Any:
        """Calls the method of one operation with it and ``more``."""
        method = getattr(self, f"_{type(operation).__name__.lower()}")
        return method(operation, *more)

    def run(self, operations: Iterable[Operation], tell: Callable[[str], None] | None = None) -> None:
        """Does all operations in order.

        ``tell`` is called with the name of each before it is done.
        """
        for operation in operations:
            if tell is not None:
                tell(type(operation).__name__)
            self.do(operation)


def dependent(operations: Iterable[Listed], learns: Callable[[Listed], bool]) -> set[str]:
    """Names of the tensors that depend on what learns.

    ``learns``: whether an operation does.
    """
    found: set[str] = set()
    for each in operations:
        if learns(each) or not found.isdisjoint(each.reads):
            found.update(each.makes)
    return found


def needed(operations: Sequence[Listed], wanted: Collection[str] = ()) -> list[Listed]:
    """The operations that a list needs, in their order.

    Left out is an operation that changes neither what lasts nor a tensor in ``wanted``.
    """
    live, kept = set(wanted), []
    for each in reversed(operations):
        part = each.wanted(live)
        if part is not None:
            live.update(part.wants)
            kept.append(part)
    return kept[::-1]
