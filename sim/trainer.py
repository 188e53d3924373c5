"""Fine-tunes step by step: in the bit-exact integers of the machine, or on the machine itself in simulated RTL."""
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gradloom.rtl.models.lora import Adapter
from gradloom.rtl.plan.descent import AdamW
from gradloom.rtl.plan.exponents import HEADROOM
from gradloom.rtl.plan.operations import SPARE, Loss

from .step_run import Frozen, StepMachine, Training, largest

__all__ = ["StepResult", "Trainer"]


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """``loss`` in nats a token, before the update; ``saturated`` words; ``cycles`` of the machine, of the reference
    none; ``values``: every tensor's words."""

    loss: float
    saturated: int
    cycles: int | None
    values: Mapping[str, np.ndarray]
    frac: Mapping[str, int]


@dataclass
class Trainer:
    """Adapters that learn; what must outlive a step.

    A tensor's fraction bits come from what it reached in the steps before, half as much with each step, and
    :data:`~gradloom.rtl.plan.exponents.HEADROOM` bits to spare; in the first step, and where it was all zeros, from a
    step in floating point.

    Parameters
    ----------
    frozen : Frozen
    adapters : mapping
        By linear; changed in place of their arrays, which become float64 so that a word of 32 bits fits.
    layers : sequence of int
    rule : SGD's rate, or AdamW
    machine : StepMachine, optional
        Where steps run; without, by the reference.
    """

    frozen: Frozen
    adapters: dict[str, Adapter]
    layers: Sequence[int]
    rule: float | AdamW
    machine: StepMachine | None = None
    number: int = 0
    reached: dict[str, float] = field(default_factory=dict)
    moments: dict[str, np.ndarray] = field(default_factory=dict)

    def step(self, tokens: Sequence[int], tell: Callable[[str], None] | None = None) -> StepResult:
        """One update from one text."""
        training, frac = self.prepared(tokens, tell)
        self.number += 1
        if self.machine is None:
            made = training.integers(frac, tell)
            values, loss, saturated, cycles = made.values, made.mean_loss, made.saturated, None
            reached = {name: int(np.abs(words).max(initial=0)) for name, words in values.items()}
        else:
            run = self.machine.run(training, frac)
            values, loss, saturated, cycles = run.values, run.loss, run.counters.saturated, run.counters.cycles
            reached = run.hidden | {name: int(np.abs(words).max(initial=0)) for name, words in values.items()}
        for name, before in self.reached.items():
            self.reached[name] = max(reached[name] * 2.0**-frac[name], before / 2) if name in reached else before
        self._learn(values, frac)
        return StepResult(loss=loss, saturated=saturated, cycles=cycles, values=values, frac=frac)

    def prepared(self, tokens: Sequence[int], tell: Callable[[str], None] | None = None,
                 ) -> tuple[Training, dict[str, int]]:
        """The next step on a text, and its fraction bits."""
        training = Training(self.frozen, tokens, self.adapters, self.layers, rule=self.rule, number=self.number + 1,
                            moments=self.moments)
        if not self.reached or not all(self.reached.values()):
            if tell is not None:
                tell("a step in floating point")
            exact = largest(training.exact())
            self.reached = {name: self.reached.get(name, 0.0) or exact[name] for name in exact}
        return training, training.fracs(self.reached, headroom=HEADROOM)

    def _learn(self, values: Mapping[str, np.ndarray], frac: Mapping[str, int]) -> None:
        """Takes new words of the adapters."""
        for name, held in self.adapters.items():
            a, b = (values[f"{name}.{which}"] * 2.0**-(frac[f"{name}.{which}"] + SPARE) for which in "ab")
            self.adapters[name] = replace(held, a=a, b=b.T / held.scale)
            for which in ("ma", "mb"):
                if f"{name}.{which}" in values:
                    self.moments[f"{name}.{which}"] = values[f"{name}.{which}"]

    def loss(self, tokens: Sequence[int]) -> float:
        """Nats a token, in floating point."""
        training = Training(self.frozen, tokens, self.adapters, self.layers)
        return training.exact(until=Loss).mean_loss
