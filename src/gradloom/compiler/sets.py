"""Sets of inputs that memory keeps for one program."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from gradloom.program.assembler import Instruction
from gradloom.program.memory import PAGE, rounded
from gradloom.program.tiles.layout import Tiles
from gradloom.rtl.shell.engines import LOAD, STORE

__all__ = ["Sets"]


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

    @cached_property
    def places(self) -> tuple[int, ...]:
        """Where each tensor lies in a further set."""
        made, end = [0] * len(self.areas), 0
        for number, (own, size) in sorted(enumerate(self.areas), key=lambda each: each[1]):
            made[number] = end + (own - end) % PAGE
            end = made[number] + size
        return tuple(made)

    @property
    def size(self) -> int:
        """Bytes of a further set: whole pages."""
        return rounded(max(at + size for at, (_, size) in zip(self.places, self.areas)), PAGE)

    def at(self, offset: int, number: int) -> int:
        """What has ``offset`` in the first set, in set ``number``."""
        if not 0 <= number < self.count:
            raise ValueError(f"number={number}: must be from 0 to {self.count - 1}, the sets that memory has")
        begin = self.first + (number - 1) * self.size
        for at, (own, size) in zip(self.places, self.areas):
            if own <= offset < own + size:
                return begin + at + offset - own if number else offset
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
