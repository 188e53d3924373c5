"""Which records lie in the slots of a load port."""

from collections.abc import Collection, Sequence

__all__ = ["Full", "Slots"]


class Full(Exception):
    """A job's blocks do not fit beside one another where others lie."""


class Slots:
    """Slots of a port, as a program fills them.

    Blocks are records in consecutive slots. A block that is there is used again; room for another is looked for behind
    the last one, so that what was read longest ago goes first.
    """

    def __init__(self, name: str, count: int) -> None:
        self.name, self.count = name, count
        self.clear()

    def clear(self) -> None:
        """Forgets all blocks."""
        self.held: dict[tuple[int, ...], int] = {}
        self.next = 0

    def find(self, block: Sequence[int]) -> int | None:
        """First slot of a block that is there."""
        return self.held.get(tuple(block))

    def take(self, block: Sequence[int], pinned: Collection[int]) -> int:
        """First slot of room for a block; slots in ``pinned`` stay.

        :class:`Full` where there is none.
        """
        size = len(block)
        if size > self.count:
            raise ValueError(f"{self.name}: a product needs {size} tiles at once, there are {self.count} slots")
        for first in (*range(self.next, self.count - size + 1), *range(min(self.next, self.count - size + 1))):
            taken = range(first, first + size)
            if not any(slot in pinned for slot in taken):
                break
        else:
            raise Full
        for other, at in list(self.held.items()):
            if at < first + size and first < at + len(other):
                del self.held[other]
        self.held[tuple(block)] = first
        self.next = (first + size) % self.count
        return first
