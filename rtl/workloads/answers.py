"""Presets that answer and do not learn."""

from dataclasses import dataclass
from typing import ClassVar

from .options import Options
from .workload import Workload

__all__ = ["SequenceAnswers"]


@dataclass(frozen=True, kw_only=True)
class SequenceAnswers(Workload):
    """Answers of a quantised recurrent network to sequences; no fine-tune."""

    kind: ClassVar = "sequences-answers"
    title: ClassVar = "nothing"
    label: ClassVar = "answers"
    takes: ClassVar = Options
    streams: ClassVar = True
    functions: ClassVar = {"infer": "gradloom.sim.workloads.answers:infer"}
