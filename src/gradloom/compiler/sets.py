"""Sets of inputs that memory keeps for one program."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from gradloom.program.assembler import Instruction
from gradloom.program.memory import rounded
from gradloom.program.tiles.layout import Tiles
from gradloom.rtl.shell.engines import LOAD, STORE

__all__ = ["Sets"]


@dataclass(frozen=True)
class Sets:
    """``count`` sets of the same form.

    ``areas``: offset and size of each tensor of the first set. The others lie behind one another from ``first`` on.
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
        """Bytes of a set."""
        return sum(size for _, size in self.areas)

    def at(self, offset: int, number: int) -> int:
        """What has ``offset`` in the first set, in set ``number``."""
        if not 0 <= number < self.count:
            raise ValueError(f"number={number}: must be from 0 to {self.count - 1}, the sets that memory has")
        begin = self.first + (number - 1) * self.size
        for own, size in self.areas:
            if own <= offset < own + size:
                return begin + offset - own if number else offset
            begin += size
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
