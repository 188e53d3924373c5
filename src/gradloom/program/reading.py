"""Base class of all readings of a list of operations."""

from collections.abc import Callable, Iterable

__all__ = ["Reading"]


class Reading:
    """Calls a method for each operation, by the name of its class.

    The method is ``_product`` for ``Product``.
    """

    def run(self, operations: Iterable[object], tell: Callable[[str], None] | None = None) -> None:
        """Does all operations in order.

        ``tell`` is called with the name of each before it is done.
        """
        for operation in operations:
            name = type(operation).__name__
            if tell is not None:
                tell(name)
            getattr(self, f"_{name.lower()}")(operation)
