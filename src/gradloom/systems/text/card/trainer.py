"""A host-driven fine-tune with the exponents of a job on a board."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gradloom.rtl.formats.rounding import saturate
from gradloom.rtl.formats.weights.linear import WEIGHT, half_up

from ..operations.base import DROP
from ..operations.learnt.rechosen import Rechosen
from ..run.instant import InstantTrainer
from ..run.trainer import StepResult, Trainer
from ..run.training import Training

__all__ = ["InstantJobTrainer", "JobTrainer", "measured_words"]


@dataclass
class JobTrainer(Trainer):
    """A :class:`Trainer` by the reference with the fraction bits of a job.

    ``frac`` of all tensors stays but for adapters, whose ``exponents`` are chosen again between steps. Both begin as
    :func:`~.course.qlora_course` says.
    """

    frac: Mapping[str, int] = field(default_factory=dict)
    exponents: Rechosen | None = None

    def prepared(
        self, tokens: Sequence[int], tell: Callable[[str], None] | None = None
    ) -> tuple[Training, dict[str, int]]:
        """The next step on a text, and its fraction bits."""
        assert self.exponents is not None
        return self.training(tokens), {**self.frac, **self.exponents.frac}

    def step(self, tokens: Sequence[int], tell: Callable[[str], None] | None = None) -> StepResult:
        """One text and an update; then exponents are chosen for the next."""
        assert self.machine is None and self.texts == 1 and self.wide is None and self.exponents is not None
        made = super().step(tokens, tell)
        words = measured_words(made.values)
        self.exponents.after(self.number, words.__getitem__)
        return replace(made, values={**made.values, **words})


@dataclass
class InstantJobTrainer(InstantTrainer):
    """An :class:`~..run.instant.InstantTrainer` by the reference with the fraction bits of a job."""

    frac: Mapping[str, int] = field(default_factory=dict)

    def fracs(
        self, training: Training, reached: dict[str, float], tell: Callable[[str], None] | None = None
    ) -> dict[str, int]:
        """The job's own."""
        return dict(self.frac)


def measured_words(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a step leaves of adapters in memory.

    h and dh are rounded to the words that gradients see.
    """
    found = {}
    for name, words in values.items():
        end = name.rsplit(".", 1)[-1]
        if end in ("h", "dh"):
            found[name] = saturate(half_up(words, DROP), WEIGHT.lo, WEIGHT.hi)[0]
        elif end in ("a", "b", "ga", "gb"):
            found[name] = words
    return found
