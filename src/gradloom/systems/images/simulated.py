"""Runs fine-tunes on images in simulated RTL, and compares them."""

import math
from dataclasses import asdict, dataclass

import numpy as np

from gradloom.sim.run.counted import check_words
from gradloom.sim.run.machine import Machine, Ran
from gradloom.sim.time.timing import Timing

from .integers import FineTune, WordCache, mean_losses, records
from .program.lowered import Lowered
from .program.program import ImagePlanned, image_words

__all__ = ["TunedWords", "compare", "compare_images", "run_plan"]


@dataclass(eq=False)
class TunedWords:
    """Memory after a run of the RTL, and the run."""

    images: np.ndarray | None
    records: np.ndarray
    losses: list[int]
    counts: list[int]
    correct: list[int]
    a: list[np.ndarray]
    b: list[np.ndarray]
    ran: Ran

    @property
    def metrics(self) -> dict[str, dict[str, int]]:
        """The counters as ``metrics.json`` has them."""
        return self.ran.counters.metrics()

    @property
    def mean_losses(self) -> list[float]:
        """Mean loss of each step."""
        return mean_losses(self.losses, self.counts)


def run_plan(plan: ImagePlanned, machine: Machine) -> TunedWords:
    """Runs a plan, and reads its results from memory."""
    ran = machine.run(plan)
    lowered = plan.lowered

    def fetch(offset: int, kind: str, *shape: int) -> np.ndarray:
        length = math.prod(shape) * np.dtype(kind).itemsize
        return np.frombuffer(machine.read(offset, length) if length else b"", kind).reshape(shape)

    steps = sum(step.last for step in plan.steps)
    beats = fetch(plan.losses, "u1", steps, 16)
    words = fetch(plan.lanes, "<i2", lowered.lane_words, 16).astype(np.int64)
    head = fetch(plan.b, "<i2", lowered.k, 16).astype(np.int64)
    a, b = [], []
    wide = lowered.parts * lowered.config.rank
    for index, tap in enumerate(lowered.taps):
        addresses = -(-tap.elements // lowered.config.panels)
        part = words[tap.lanes_at[0] : tap.lanes_at[0] + lowered.parts * addresses, : lowered.config.columns]
        a.append(lowered.adapter_of(index, part.reshape(lowered.parts, addresses, -1)))
        b.append(head[index * wide : index * wide + lowered.rank, : lowered.classes].T.copy())
    samples = plan.settings.samples
    return TunedWords(
        images=None if plan.images is None else fetch(plan.images, "<i4", samples, lowered.image_words),
        records=fetch(plan.records, "u1", plan.slots, 16 * lowered.record_beats),
        a=a,
        b=b,
        ran=ran,
        losses=[int(v) for v in beats[:, :8].copy().view("<u8").ravel()],
        counts=[int(v) for v in beats[:, 8:12].copy().view("<u4").ravel()],
        correct=[int(v) for v in beats[:, 12:].copy().view("<u4").ravel()],
    )


def compare_images(result: TunedWords, lowered: Lowered, images: np.ndarray) -> dict[str, int]:
    """The same of images that the machine has made."""
    if result.images is None:
        return {}
    return {"tap_words": check_words({"taps": result.images}, {"taps": image_words(lowered, images)})}


def compare(result: TunedWords, reference: FineTune, cache: WordCache, told: Timing | None = None) -> dict[str, int]:
    """Counts what was found equal.

    Raises :class:`~..run.counted.MismatchError` at the first difference: of words and counters from the reference, of
    cycles from the forecast.

    ``result`` is of a run that began with an empty cache. ``told``: see :meth:`~..run.machine.Ran.check`.
    """
    lowered = reference.lowered
    kept = check_words(
        {"cached bytes": result.records}, {"cached bytes": records(lowered, cache)[: len(result.records)]}
    )
    check_words(
        {"loss": result.losses, "correct": result.correct}, {"loss": reference.losses, "correct": reference.correct}
    )
    words = sum(
        check_words({f"A of {tap.name}": a, f"B of {tap.name}": b}, {f"A of {tap.name}": c, f"B of {tap.name}": d})
        for tap, a, b, (c, d) in zip(lowered.taps, result.a, result.b, reference.adapters())
    )
    checked = result.ran.check(**asdict(reference.health), told=told)
    return {"losses": len(result.losses), "adapter_words": words, "cached_bytes": kept} | checked
