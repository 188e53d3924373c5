"""Programs of a fine-tune: what runs once for a batch, and its steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradloom.compiler.commands.base import Rule
from gradloom.compiler.lowering import TileStep, lower
from gradloom.compiler.passes.dividing import Divided
from gradloom.compiler.sets import Sets
from gradloom.program.memory import PAGE, AreaKind, rounded

__all__ = ["KeptBatches", "Programs", "lowered", "runs"]


@dataclass(frozen=True)
class Programs:
    """``trunk`` runs once for each batch that memory keeps, ``step`` in each step; None: there is nothing to keep."""

    trunk: TileStep | None
    step: TileStep

    @property
    def length(self) -> int:
        """Bytes of memory."""
        return (self.trunk or self.step).program.length

    @property
    def sets(self) -> Sets:
        """Places of batches."""
        return self.step.sets

    @property
    def state(self) -> list[tuple[int, int]]:
        """Offset and size of what outlives a program."""
        kept = [] if self.trunk is None else [*self.sets.areas, *self.trunk.program.memory.of(AreaKind.KEPT)]
        return self.step.program.memory.of(AreaKind.LEARNT) + kept


class KeptBatches:
    """Which batches memory has in ``count`` places: the first ones for good, all others in the last."""

    def __init__(self, count: int) -> None:
        self.count, self._there = count, dict[int, int]()

    def take(self, batch: int) -> tuple[int, bool]:
        """Place of a batch, and whether it is there already; from now on it is."""
        place = min(batch, self.count - 1)
        was, self._there[place] = self._there.get(place), batch
        return place, was == batch


def lowered(
    config: Any,
    parts: Divided,
    *,
    samples: int,
    loss: str,
    rules: Mapping[str, Rule],
    batches: int = 1,
    limit: int | None = None,
) -> Programs:
    """Programs of steps of ``samples`` samples.

    Memory keeps as many of ``batches`` as fit in ``limit`` bytes.
    """
    step = lower(config, parts.rest, samples=samples, loss=loss, rules=rules)
    trunk = None if parts.trunk is None else lower(config, parts.trunk, samples=samples, reader=step)
    last = trunk or step
    first = rounded(last.program.memory.end, PAGE)
    if limit is not None:
        # Of whole pages in front of the last program.
        room = (limit - len(last.program.code)) // PAGE * PAGE - first
        batches = min(batches, 1 + max(room, 0) // step.sets.size)
    if batches > 1:
        more = first - last.program.memory.end + (batches - 1) * step.sets.size
        last.program.room(more // 4, kind=AreaKind.KEPT)
    sets = replace(step.sets, first=first, count=batches)
    return Programs(None if trunk is None else replace(trunk, sets=sets), replace(step, sets=sets))


def runs(programs: Programs, batches: Sequence[int]) -> list[TileStep]:
    """What runs in steps on some batches, in order."""
    kept, made = KeptBatches(programs.sets.count), list[TileStep]()
    for batch in batches:
        _, is_there = kept.take(batch)
        if programs.trunk is not None and not is_there:
            made.append(programs.trunk)
        made.append(programs.step)
    return made
