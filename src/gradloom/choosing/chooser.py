"""One choice for every system: what there is to choose from, what it costs, and what the best of it learn.

A system is asked for its knobs and costs (:meth:`Chooser.offers`), for the quality of a few
(:meth:`Chooser.short_runs`), and for the answer in its own words (:meth:`Chooser.command`, :meth:`Chooser.facts`).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from gradloom import __version__
from gradloom.output import claimed, continuing
from gradloom.systems.asked import Asked
from gradloom.systems.job import digest
from gradloom.systems.results import Alternative, Chosen, ChosenFacts, Finalist
from gradloom.workload import Progress

from .budgets import Budget, Priced, refusal, shortfalls
from .state import ChoiceState

__all__ = ["Chooser", "Offered", "Short", "ShortRuns", "ranked"]

#: Share of the best fall in loss that is as good.
_AS_GOOD = 0.97


class Offered(Priced, Protocol):
    """A fine-tune with its costs."""

    def told(self) -> Alternative:
        """Plain data."""


OfferT = TypeVar("OfferT", bound=Offered)


@dataclass(frozen=True, kw_only=True)
class Short(Generic[OfferT]):
    """A finalist after a short run.

    ``loss``: of what is held out, infinite where the run diverged; ``more``: further plain data.
    """

    offer: OfferT
    loss: float
    more: Finalist = field(default_factory=Finalist)


@dataclass(frozen=True, kw_only=True)
class ShortRuns(Generic[OfferT]):
    """All finalists, and the loss before a run; ``more``: further plain data."""

    before: float
    runs: Sequence[Short[OfferT]]
    more: ChosenFacts = field(default_factory=ChosenFacts)


def ranked(runs: Sequence[Short[OfferT]], before: float) -> list[Short[OfferT]]:
    """Finalists, the chosen one first.

    It is the cheapest of those whose fall in loss is :data:`_AS_GOOD` of the best; where nothing falls, the one of the
    least loss. Those that are not as good follow by loss.
    """
    best = min(run.loss for run in runs)
    good = [run for run in runs if before - run.loss >= _AS_GOOD * (before - best)]
    rest = sorted((run for run in runs if run not in good), key=lambda run: run.loss)
    return sorted(good, key=lambda run: (run.offer.seconds, run.offer.update)) + rest


class Chooser(ABC, Generic[OfferT]):
    """A choice that is asked for. A system has a subclass, whose constructor refuses what can be refused at once.

    Parameters
    ----------
    asked : Asked
    options : ChoiceOptions
    """

    #: Units in which the costs of the nearest candidate are told.
    units: ClassVar[Mapping[str, str]]
    #: How many candidates there are, where the machine cannot run all of them.
    candidates: ClassVar[int] = 0
    #: As ``gradloom finetune`` takes it.
    model: str

    def __init__(self, asked: Asked, options: Any) -> None:
        self.preset, self.seed = asked.preset, options.seed
        self.budget = Budget.of(options.time, options.memory, options.update)
        self.data, self.output = Path(str(options.data)), Path(options.output)

    @classmethod
    def choose(cls, asked: Asked, options: Any, tell: Progress) -> Chosen:
        """Chooses, and writes ``choose.json`` and ``pareto.png`` to ``output``.

        Returns what ``choose.json`` holds. What an interrupted choice left there is gone on from.
        """
        with claimed(str(options.output), verb="choose"):
            return cls(asked, options)._choose(tell)

    def _choose(self, tell: Progress) -> Chosen:
        same: dict[str, object] = {
            "gradloom": __version__,
            "preset": self.preset.name,
            "data": digest(self.data),
            "seed": self.seed,
        }
        state = ChoiceState(self.output, same | self.identity(), asdict(self.budget))
        with continuing(state.kept):
            return self._chosen(state, tell)

    def _chosen(self, state: ChoiceState, tell: Progress) -> Chosen:
        offers = self.offers(state, tell)
        within = [each for each in offers if not shortfalls(each, self.budget)]
        if not within:
            raise ValueError(self.nothing(offers))
        short = self.short_runs(within, state, tell)
        order = ranked(short.runs, short.before)
        result: Chosen = {
            "gradloom": __version__,
            "preset": self.preset.name,
            "board": self.preset.board,
            **self.facts(),
            "budget": asdict(self.budget),
            "candidates": len(offers),
            "within": len(within),
            **short.more,
            "held_out_before": short.before,
            "command": " ".join(
                [f"gradloom finetune {self.model} --board {self.preset.board} --data {self.data}"]
                + [f"--{name} {value}" for name, value in self.command(order[0].offer).items()]
            ),
            "finalists": [
                {**run.offer.told(), **run.more, "held_out": run.loss if math.isfinite(run.loss) else None}
                for run in order
            ],
            "offers": [{**each.told(), "within": not shortfalls(each, self.budget)} for each in offers],
        }
        state.complete(result)
        return result

    def nothing(self, offers: Sequence[OfferT]) -> str:
        """Why no candidate is left, and the nearest one: that of the least worst excess."""
        near = min(offers, key=lambda each: (max(shortfalls(each, self.budget).values(), default=0), self.last(each)))
        return refusal(near, self.described(near), self.candidates or len(offers), self.budget, **self.units)

    @abstractmethod
    def identity(self) -> dict[str, object]:
        """What else the results of an interrupted choice depend on."""

    @abstractmethod
    def offers(self, state: ChoiceState, tell: Progress) -> Sequence[OfferT]:
        """All candidates that the machine can run, with their costs."""

    @abstractmethod
    def short_runs(self, within: Sequence[OfferT], state: ChoiceState, tell: Progress) -> ShortRuns[OfferT]:
        """Runs those of the candidates within the budgets that are worth it."""

    @abstractmethod
    def facts(self) -> ChosenFacts:
        """Plain data on model and data."""

    @abstractmethod
    def described(self, offer: OfferT) -> str:
        """A candidate in words."""

    @abstractmethod
    def last(self, offer: OfferT) -> Any:
        """What decides between two candidates that are as near: the less is nearer."""

    @abstractmethod
    def command(self, offer: OfferT) -> dict[str, object]:
        """Options of ``gradloom finetune`` by name, where they are not the usual ones."""
