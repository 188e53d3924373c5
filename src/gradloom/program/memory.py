"""Memory map of a machine's window: named areas, what they are for, and how long each is needed."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

from .assembler import Instruction

__all__ = ["BEAT", "BLOCK", "PAGE", "AreaKind", "MemoryMap", "rounded"]

#: Bytes: an area begins at a multiple of the one, so that no beat belongs to two, and programs at one of the other.
BEAT, PAGE = 64, 4096
#: Bytes of a block of data at power-up: a window begins at a multiple of this.
BLOCK = 4096


def rounded(size: int, to: int = BEAT) -> int:
    """The next multiple, up."""
    return -(-size // to) * to


class AreaKind(Enum):
    """What an area holds.

    ``FROZEN``: what never changes. ``LEARNT``: adapters and their optimiser's state. ``KEPT``: other results that
    outlive a program. ``STEP``: what one program alone needs.
    """

    FROZEN, LEARNT, KEPT, STEP = "frozen", "learnt", "kept", "step"


@dataclass
class MemoryMap:
    """Areas in the window by name, one after the other.

    An area has an offset and a size in bytes, and a :class:`AreaKind`. All lifetimes are whole, so that no byte belongs
    to two areas, until :meth:`settle` learns of shorter ones.

    Parameters
    ----------
    used : int
        Where the last area ends; at first, where the first one may begin.
    offsets, sizes, kinds : dict
        By name.
    align, least : int
        Bytes of which each offset is a multiple, and that an area takes at least.
    shared : frozenset of str
        Areas that have places in common, which take ``shared_bytes`` in all.
    """

    used: int = 0
    offsets: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, AreaKind] = field(default_factory=dict)
    align: int = BEAT
    least: int = 0
    shared: frozenset[str] = frozenset()
    shared_bytes: int = 0

    def __getitem__(self, name: str) -> int:
        return self.offsets[name]

    @property
    def end(self) -> int:
        """Where the next area begins."""
        return rounded(self.used, self.align)

    @property
    def areas(self) -> dict[str, tuple[int, int]]:
        """Offset and size by name."""
        return {name: (self.offsets[name], size) for name, size in self.sizes.items() if name in self.offsets}

    def copy(self) -> Self:
        """A copy, for further content behind this one."""
        return type(self)(self.used, dict(self.offsets), dict(self.sizes), dict(self.kinds), self.align, self.least)

    def place(self, name: str, size: int, kind: AreaKind = AreaKind.STEP) -> int:
        """The offset of ``name``, which is placed if it is not yet."""
        if name not in self.offsets:
            self.offsets[name], self.sizes[name], self.kinds[name] = self.end, size, kind
            self.used = self.end + max(size, self.least)
        return self.offsets[name]

    def of(self, kind: AreaKind) -> list[tuple[int, int]]:
        """Offset and size of each area of a kind, in the order in which they were placed."""
        return [area for name, area in self.areas.items() if self.kinds[name] is kind]

    def settle(
        self,
        before: "MemoryMap",
        steps: Sequence[Instruction],
        after: Mapping[int, int],
        beat: int,
        same: Collection[tuple[str, str]] = (),
    ) -> list[Instruction]:
        """Places again what was placed since ``before`` was copied, by the lifetimes that a program shows.

        Areas of a step that the program writes before it reads them have places in common, behind all others; those
        that it does not touch have none. Returns the program with its new offsets. ``steps``, ``after``, ``beat``: see
        :func:`~.lifetimes.lives`; ``same``: see :func:`~.lifetimes.assigned`.
        """
        from .lifetimes import assigned, check, lives, moved

        new = {name: area for name, area in self.areas.items() if name not in before.offsets and area[1]}
        found = lives(steps, after, new, beat)
        places, size = assigned(
            (each for each in found if not each.read and self.kinds[each.name] is AreaKind.STEP), same
        )
        self.used = before.used
        for name in new:
            del self.offsets[name]
        for each in found:
            if each.name not in places:
                self.place(each.name, each.size, self.kinds[each.name])
        base = self.end
        self.offsets |= {name: base + offset for name, offset in places.items()}
        self.used, self.shared, self.shared_bytes = base + size, frozenset(places), size
        made = moved(steps, [(each.offset, each.size, self[each.name]) for each in found], beat)
        check(steps, after, made, beat)
        return made
