"""Budgets, candidates within them, and those that are worth a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gradloom.systems.results import Alternative
from gradloom.systems.text.program.packed import STORES

from .candidates import Candidate
from .costs import Cost, beside_frozen

__all__ = ["MOST", "Offer", "fewest", "finalists", "offer", "preferred", "wanted_updates"]

#: Finalists at most.
MOST = 5
#: Updates that a fine-tune has at least, unless fewer are asked for.
_LEAST = 8


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A candidate with what its fine-tune costs.

    ``steps``: updates that it gets; ``wanted``: those that were asked for, where time is no bound. ``texts``: different
    windows that these see; ``classes``: bytes of memory by class.
    """

    candidate: Candidate
    cost: Cost
    steps: int
    wanted: int
    seconds: float
    texts: int
    classes: Mapping[str, int]
    update: int

    @property
    def memory(self) -> int:
        """Bytes, all that the board's memory holds."""
        return sum(self.classes.values())

    @property
    def share(self) -> float:
        """Of the updates that were asked for."""
        return self.steps / self.wanted

    def told(self) -> Alternative:
        """Plain data."""
        one = self.candidate
        return {
            "method": one.method,
            "targets": one.named_targets,
            "from_layer": one.from_layer,
            "learns": one.learns,
            "rank": one.rank or None,
            "store": one.store,
            "seq": one.seq,
            "accumulate": one.accumulate,
            "steps": self.steps,
            "texts": self.texts,
            "update_cycles": self.cost.update_cycles,
            "trunk_cycles": self.cost.trunk_cycles,
            "seconds": self.seconds,
            "memory_bytes": self.memory,
            "beside_frozen_bytes": beside_frozen(self.classes),
            "update_bytes": self.update,
        }


def wanted_updates(candidate: Candidate, steps: int, longest: int) -> int:
    """Updates of a candidate on the tokens that are asked for.

    They are those of ``steps`` windows of ``longest``.
    """
    return max(round(steps * longest / (candidate.seq * candidate.accumulate)), 1)


def fewest(wanted: int) -> int:
    """The fewest updates of a fine-tune, however short its time is."""
    return min(_LEAST, wanted)


def offer(
    candidate: Candidate, cost: Cost, *, tokens: int, steps: int, longest: int, clock_hz: float, seconds: float | None
) -> Offer:
    """A fine-tune by ``candidate`` on a text of so many ``tokens``.

    It learns from as many of them as ``steps`` windows of ``longest`` tokens have, or as ``seconds`` are enough for.
    """
    each = candidate.accumulate
    wanted = wanted_updates(candidate, steps, longest)
    windows = max(tokens // candidate.seq, 1)
    count = wanted
    if seconds is not None:
        count = min(wanted, cost.steps(int(seconds * clock_hz), each, windows))
    # What takes too long is shown with the fewest updates that it may have.
    count = max(count, fewest(wanted))
    seen = min(windows, count * each)
    memory = cost.classes(count, each, seen)
    return Offer(
        candidate=candidate,
        cost=cost,
        steps=count,
        wanted=wanted,
        seconds=cost.cycles(count, seen) / clock_hz,
        texts=seen,
        classes=memory,
        update=cost.update_bytes,
    )


def finalists(offers: Sequence[Offer], worth: Callable[[Candidate], float]) -> list[Offer]:
    """The offers that are worth a run, at most :data:`MOST`.

    Where it learns decides most: of each method, targets and layers stands the offer with the most updates, then the
    largest rank, then the longest windows. Of these remain those that no other is both faster and worth more than, by
    ``worth`` of a first step times updates; if there are too many, the fastest, the worthiest and what lies evenly
    between. The one that is worth the most comes first.
    """
    best: dict[object, Offer] = {}
    for each in sorted(offers, key=preferred):
        best.setdefault(each.candidate.where, each)
    front: list[tuple[float, Offer]] = []
    for each in sorted(best.values(), key=lambda each: (each.seconds, each.memory)):
        value = worth(each.candidate) * each.share
        if not front or value > front[-1][0]:
            front.append((value, each))
    count = min(len(front), MOST)
    if count == 1:
        return [front[-1][1]]
    places = [round(number * (len(front) - 1) / (count - 1)) for number in range(count)]
    return [front[place][1] for place in reversed(places)]


def preferred(each: Offer) -> tuple[object, ...]:
    """The less, the better it is of offers that learn in the same place."""
    one = each.candidate
    return -each.share, -one.rank, -one.seq, list(STORES).index(one.store), one.accumulate, each.memory
