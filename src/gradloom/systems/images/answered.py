"""Answers to images by a machine: in simulated RTL, or on a board."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gradloom.sim.run.counted import check_words
from gradloom.sim.run.machine import MachineHost, MachineRunner
from gradloom.systems.results import Inferred
from gradloom.workload import Progress

from .integers import answered, fill_cache
from .program.answers import answer_words, plan_answers
from .program.lowered import Lowered

__all__ = ["ImageLabels", "by_machine", "checked"]

#: Images of a program.
_IMAGES = 256

Adapters = Sequence[np.ndarray]


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageLabels:
    """Labels of images, and logits ``[images, classes]`` whose exponentials have the sum 1."""

    labels: np.ndarray
    logits: np.ndarray
    figures: Inferred


def by_machine(
    lowered: Lowered,
    images: np.ndarray,
    a: Adapters,
    b: Adapters,
    *,
    tell: Progress,
    host: MachineHost | None = None,
    files: Sequence[Path] = (),
) -> ImageLabels:
    """Answers, which are the reference's.

    ``images``, ``a`` and ``b`` are as in :func:`~.program.answers.plan_answers`. ``host``: a machine in place of
    simulated RTL; ``files``: Verilog of that. :class:`~gradloom.sim.run.counted.MismatchError` where a word, a counter
    or the cycles of a command differ from reference and forecast.
    """
    parts = [images[at : at + _IMAGES] for at in range(0, len(images), _IMAGES)]
    found, cycles, told = [], 0, 0
    machine = MachineRunner.simulated(lowered.config, files, progress=tell) if host is None else MachineRunner(host)
    with machine:
        for number, part in enumerate(parts):
            tell(number, len(parts), "answering")
            plan = plan_answers(lowered, part, a, b)
            ran = machine.run(plan)
            loss, right = answer_words(machine.read(plan.answers, plan.answer_bytes), lowered.classes)
            clipped = checked(lowered, part, a, b, loss, right)
            ran.check(saturated=clipped)
            found.append((loss, right))
            cycles += ran.counters.cycles
            told += ran.forecast.total if ran.forecast is not None else 0
    loss, right = (np.concatenate(each) for each in zip(*found))
    figures: Inferred = {"cycles": cycles, "forecast": told or None}
    return ImageLabels(logits=-loss / 65536, labels=right.argmax(axis=1), figures=figures)


def checked(lowered: Lowered, images: np.ndarray, a: Adapters, b: Adapters, loss: np.ndarray, right: np.ndarray) -> int:
    """Compares answers with the reference; returns how many words it clipped."""
    wanted = answered(lowered, fill_cache(lowered, images), a, b)
    check_words({"losses": loss, "right": right}, {"losses": wanted[0], "right": wanted[1]})
    return wanted[2]
