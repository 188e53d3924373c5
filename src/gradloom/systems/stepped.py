"""Fine-tunes of which a machine makes one step a program."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gradloom.compiler.integers.held import Counts
from gradloom.models.adapters.peft_files import representable
from gradloom.systems.held_out import Score
from gradloom.systems.task import Outcome, Task

if TYPE_CHECKING:
    from gradloom.models.adapters.lora import LearntModule
    from gradloom.sim.run.machine import Ran

__all__ = ["SteppedTask", "Take", "Values"]

#: Weights that learn, by name.
Values = Mapping[str, np.ndarray]
BatchT = TypeVar("BatchT")
#: Makes a step of a batch and what is learnt: loss before it, what is learnt after it, and counts of integers of each
#: program.
Take = Callable[[BatchT, Values], tuple[float, Values, Sequence[Counts]]]


class SteppedTask(Task):
    """A fine-tune, a step a batch."""

    def score(self, adapters: "Mapping[Any, LearntModule]") -> Score:
        """What is held out, by what was learnt."""
        raise NotImplementedError

    def judged_as(self, values: Values) -> "dict[Any, LearntModule]":
        """Weights as they are judged."""
        raise NotImplementedError

    def kept_as(self, adapters: "Mapping[Any, LearntModule]") -> Any:
        """What was judged, as it is saved."""
        return adapters

    def stepped(self, take: Take[BatchT], begun: Values, batches: Iterable[BatchT]) -> Outcome:
        """All steps, judged as the request has it."""
        losses: list[float] = []
        counts: list[Sequence[Counts]] = []
        # A board is judged when its results are here.
        judging = self.judging(self.score if self.job.host is None else None)
        values = begun
        judging.start(self.judged_as(values))
        for number, batch in enumerate(batches, 1):
            loss, after, counted = take(batch, values)
            if not np.isfinite(loss) or not all(map(representable, after.values())):
                break
            values = after
            losses.append(loss)
            counts.append(counted)
            self.job.tell(number, self.steps, f"step {number}: loss {loss:.4f}")
            self.job.made(number, self.steps, loss)
            if judging.after(number, self.judged_as(values)):
                break
        made: dict[str, Any] = {
            "losses": losses,
            "learnt": self.kept_as(judging.finish(len(losses), self.judged_as(values))),
            "steps": len(losses) if judging.ended else None,
            "judged": judging.figures(),
        }
        if self.exact:
            return Outcome(figures={"cycles": None}, **made)
        clipped, zeroed, stored = (
            [sum(getattr(each, name) for each in some) for some in counts] for name in ("clipped", "zeroed", "stored")
        )
        steps = np.array(list(zip(losses, stored)), [("loss", "f8"), ("stored", "i8")])
        return Outcome(
            **made,
            clipped=clipped,
            words=stored,
            figures={"cycles": None, "saturated": sum(clipped), "zeroed": sum(zeroed), "stored": sum(stored)},
            checked={"losses": {"loss of each step": steps}, "adapter_words": dict(values)},
            health=[{"saturated": each.clipped, "underflowed": each.zeroed} for some in counts for each in some],
        )

    def with_cycles(self, made: Outcome, ran: "Sequence[Ran]") -> Outcome:
        """The outcome of programs that a machine ran."""
        counters = [each.counters for each in ran]
        phases = {name: sum(each.phases[name] for each in counters) for name in counters[0].phases}
        cycles = {"total": sum(each.cycles for each in counters)} | phases
        return replace(made, figures={**made.figures, "cycles": cycles}, ran=ran)
