"""Sets of inputs that memory keeps for one program."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from gradloom.program.assembler import Instruction
from gradloom.program.memory import PAGE, rounded
from gradloom.program.tiles.layout import Tiles
from gradloom.rtl.shell.engines import LOAD, STORE

__all__ = ["Sets"]


def _pages(area: tuple[int, int]) -> int:
    """Bytes of the pages in which an area lies."""
    own, size = area
    return rounded(own % PAGE + size, PAGE)


@dataclass(frozen=True)
class Sets:
    """``count`` sets of the same form.

    ``areas``: offset and size of each tensor of the first set. The others lie behind one another from ``first`` on, the
    beginning of a page. Each has its own's place in a page, so that transfers have the same bursts and take as long.
    """

    areas: tuple[tuple[int, int], ...]
    first: int = 0
    count: int = 1

    @classmethod
    def of(cls, inputs: Sequence[Tiles]) -> Self:
        """The first set alone."""
        return cls(tuple((each.offset, rounded(each.size)) for each in inputs))

    @property
    def size(self) -> int:
        """Bytes of a set, with what lies between its tensors."""
        return sum(map(_pages, self.areas))

    def at(self, offset: int, number: int) -> int:
        """What has ``offset`` in the first set, in set ``number``."""
        if not 0 <= number < self.count:
            raise ValueError(f"number={number}: must be from 0 to {self.count - 1}, the sets that memory has")
        begin = self.first + (number - 1) * self.size
        for area in self.areas:
            own, size = area
            if own <= offset < own + size:
                return begin + own % PAGE + offset - own if number else offset
            begin += _pages(area)
        raise ValueError(f"offset={offset}: is in no set")

    def tiles(self, first: Tiles, number: int) -> Tiles:
        """A tensor of the first set, in set ``number``."""
        return replace(first, offset=self.at(first.offset, number))

    def accesses(self, listed: Sequence[Instruction]) -> list[int]:
        """Transfers among commands that are of the first set."""
        return [
            at
            for at, each in enumerate(listed)
            if each.engine in (LOAD, STORE)
            and not each.operands.get("only")
            and any(own <= each.operands["offset"] < own + size for own, size in self.areas)
        ]
