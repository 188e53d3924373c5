"""Runs fine-tunes on images in simulated RTL, and compares them."""

import math
from dataclasses import asdict, dataclass

import numpy as np

from gradloom.sim.run.counted import Words
from gradloom.sim.run.machine import MachineRunner, Ran, check_runs
from gradloom.sim.time.timing import Timing

from .integers import FineTune, WordCache, compared_words, records
from .program.lowered import Lowered
from .program.program import ImagePlanned

__all__ = ["TunedWords", "compare", "learnt_words", "run_plan"]


@dataclass(eq=False)
class TunedWords:
    """Memory after a run of the RTL, and the run."""

    images: np.ndarray | None
    records: np.ndarray
    losses: list[int]
    correct: list[int]
    a: list[np.ndarray]
    b: list[np.ndarray]
    ran: Ran
    lowered: Lowered

    @property
    def words(self) -> Words:
        """What is compared with the reference."""
        adapters = list(zip(self.a, self.b))
        return compared_words(self.lowered, self.losses, self.correct, adapters, self.records, self.images)

    @property
    def metrics(self) -> dict[str, dict[str, int]]:
        """The counters as ``metrics.json`` has them."""
        return self.ran.counters.metrics()


def run_plan(plan: ImagePlanned, machine: MachineRunner) -> TunedWords:
    """Runs a plan, and reads its results from memory."""
    ran = machine.run(plan)
    lowered = plan.lowered

    def fetch(offset: int, kind: str, *shape: int) -> np.ndarray:
        length = math.prod(shape) * np.dtype(kind).itemsize
        return np.frombuffer(machine.read(offset, length) if length else b"", kind).reshape(shape)

    steps = sum(step.last for step in plan.steps)
    beats = fetch(plan.losses, "u1", steps, 16)
    lanes, head = (fetch(at, "<i2", count, 16) for at, count in ((plan.lanes, lowered.lane_words), (plan.b, lowered.k)))
    a, b = learnt_words(lowered, lanes.tobytes(), head.tobytes())
    samples = plan.settings.samples
    return TunedWords(
        images=None if plan.images is None else fetch(plan.images, "<i4", samples, lowered.image_words),
        records=fetch(plan.records, "u1", plan.slots, 16 * lowered.record_beats),
        a=a,
        b=b,
        ran=ran,
        lowered=lowered,
        losses=[int(v) for v in beats[:, :8].copy().view("<u8").ravel()],
        correct=[int(v) for v in beats[:, 12:].copy().view("<u4").ravel()],
    )


def learnt_words(lowered: Lowered, lanes: bytes, head: bytes) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The adapter of each tap, as memory has it: ``a`` and ``b``."""
    words, heads = (np.frombuffer(data, "<i2").reshape(-1, 16).astype(np.int64) for data in (lanes, head))
    a, b = [], []
    wide = lowered.parts * lowered.config.rank
    for index, tap in enumerate(lowered.taps):
        addresses = -(-tap.elements // lowered.config.panels)
        part = words[tap.lanes_at[0] : tap.lanes_at[0] + lowered.parts * addresses, : lowered.config.columns]
        a.append(lowered.adapter_of(index, part.reshape(lowered.parts, addresses, -1)))
        b.append(heads[index * wide : index * wide + lowered.rank, : lowered.classes].T.copy())
    return a, b


def compare(result: TunedWords, reference: FineTune, cache: WordCache, told: Timing | None = None) -> dict[str, int]:
    """Compares a run that began with an empty cache; see :func:`~gradloom.sim.run.machine.check_runs`."""
    kept = records(reference.lowered, cache)[: len(result.records)]
    wanted = compared_words(reference.lowered, reference.losses, reference.correct, reference.adapters(), kept)
    return check_runs([result.ran], [asdict(reference.health)], result.words, wanted, None if told is None else [told])
