"""Runs fine-tunes on images in simulated RTL, and compares them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from gradloom.firmware.host import Accelerator, Counters
from gradloom.rtl.plan.images.lowered import BEAT, Lowered
from gradloom.rtl.plan.images.program import Plan, image_words
from gradloom.rtl.plan.program.assembler import Instruction

from ..reference.system import Cache, FineTune, records
from ..run.counted import MismatchError, counted, differing
from ..run.device import MEMORY_BYTES, SimulatedDevice, build_device
from .driver import Progress

__all__ = ["MismatchError", "Result", "compare", "compare_images", "run_plan", "run_rtl"]


@dataclass(eq=False)
class Result:
    """Memory after a run of the RTL, and its counters."""

    images: np.ndarray | None
    records: np.ndarray
    losses: list[int]
    counts: list[int]
    correct: list[int]
    a: list[np.ndarray]
    b: list[np.ndarray]
    counters: Counters
    instructions: Sequence[Instruction] = field(repr=False)
    trace: np.ndarray | None

    @property
    def metrics(self) -> dict[str, dict[str, int]]:
        """The counters as ``metrics.json`` has them."""
        return self.counters.metrics()


def _silent(done: int, total: int, text: str) -> None:
    pass


def run_rtl(
    plan: Plan,
    files: Sequence[Path],
    *,
    progress: Progress = _silent,
    trace: bool = False,
    timing: dict[str, int] | None = None,
    expected: int = 0,
    timeout: float = 36000.0,
) -> Result:
    """Runs a plan on simulated Verilog by the host's own driver.

    ``timing`` sets inputs of the bench (:meth:`SimulatedDevice.set`). ``expected``: cycles, for the progress.
    """
    if plan.size > MEMORY_BYTES:
        raise ValueError(
            f"samples={plan.settings.samples}: the fine-tune needs {plan.size} bytes of memory, "
            f"the simulation has {MEMORY_BYTES}"
        )
    program = build_device(files, tell=lambda text: progress(0, 0, text))
    device = SimulatedDevice(program, progress=lambda cycles: progress(cycles, max(expected, cycles), "cycles"))
    with device:
        for name, value in (timing or {}).items():
            device.set(name, value)
        return run_plan(plan, device, trace=trace, timeout=timeout)


def run_plan(plan: Plan, device: SimulatedDevice, *, trace: bool = False, timeout: float = 36000.0) -> Result:
    """Runs a plan on an existing simulation.

    Its memory must be large enough.
    """
    lowered = plan.lowered
    host = Accelerator(device)
    for offset, content in plan.segments:
        host.store(offset, content)
    if trace:
        device.set("trace", 1)
    counters = host.run(plan.program_offset, plan.commands, timeout=timeout)
    events = device.take_trace() if trace else None
    kept = (
        host.fetch_array(plan.records, (plan.slots, 16 * lowered.record_beats), np.uint8)
        if plan.slots
        else np.zeros((0, 16 * lowered.record_beats), np.uint8)
    )
    steps = sum(step.last for step in plan.steps)
    beats = host.fetch_array(plan.losses, (steps, 16), np.uint8)
    words = host.fetch_array(plan.lanes, (lowered.lane_words, 16), np.int16).astype(np.int64)
    head = host.fetch_array(plan.b, (lowered.k, 16), np.int16).astype(np.int64)
    a, b = [], []
    wide = lowered.parts * lowered.config.rank
    for index, tap in enumerate(lowered.taps):
        addresses = -(-tap.elements // lowered.config.panels)
        part = words[tap.lanes_at[0] : tap.lanes_at[0] + lowered.parts * addresses, : lowered.config.columns]
        a.append(lowered.adapter_of(index, part.reshape(lowered.parts, addresses, -1)))
        b.append(head[index * wide : index * wide + lowered.rank, : lowered.classes].T.copy())
    whole = np.ascontiguousarray(beats)
    return Result(
        images=None
        if plan.images is None
        else host.fetch_array(plan.images, (plan.settings.samples, lowered.image_words), np.int32),
        records=kept,
        a=a,
        b=b,
        counters=counters,
        instructions=plan.assembler.instructions,
        trace=events,
        losses=[int(v) for v in whole[:, :8].copy().view("<u8").ravel()],
        counts=[int(v) for v in whole[:, 8:12].copy().view("<u4").ravel()],
        correct=[int(v) for v in whole[:, 12:].copy().view("<u4").ravel()],
    )


def compare_images(result: Result, lowered: Lowered, images: np.ndarray) -> dict[str, int]:
    """The same of images that the machine has made."""
    if result.images is None:
        return {}
    wanted = image_words(lowered, images)
    if not np.array_equal(result.images, wanted):
        sample, word = (int(n) for n in np.argwhere(result.images != wanted)[0])
        raise MismatchError(
            f"RTL and reference differ: word {word} of the taps of sequence {sample} is "
            f"{result.images[sample, word]}, not {wanted[sample, word]}"
        )
    return {"tap_words": int(wanted.size)}


def compare(result: Result, reference: FineTune, cache: Cache) -> dict[str, int]:
    """Counts what was found equal.

    Raises :class:`MismatchError` at the first difference.

    ``result`` is of a run that began with an empty cache; of its counters, all are compared but cycles.
    """
    lowered = reference.lowered
    expected = records(lowered, cache)[: len(result.records)]
    if not np.array_equal(result.records, expected):
        sample, byte = np.argwhere(result.records != expected)[0]
        raise MismatchError(
            f"RTL and reference differ: cached byte {byte} of sample {sample} is "
            f"{result.records[sample, byte]}, not {expected[sample, byte]}"
        )
    for what, found, wanted in (
        ("loss", result.losses, reference.losses),
        ("correct", result.correct, reference.correct),
    ):
        for step, (one, other) in enumerate(zip(found, wanted)):
            if one != other:
                raise MismatchError(f"RTL and reference differ: {what} of step {step} is {one}, not {other}")
    words = 0
    for tap, a, b, (ref_a, ref_b) in zip(lowered.taps, result.a, result.b, reference.adapters()):
        for name, ours, theirs in (("A", a, ref_a), ("B", b, ref_b)):
            words += ours.size
            if not np.array_equal(ours, theirs):
                at = tuple(int(n) for n in np.argwhere(ours != theirs)[0])
                raise MismatchError(
                    f"RTL and reference differ: {name}{list(at)} of {tap.name} is {ours[at]}, not {theirs[at]}"
                )
    told = counted(result.instructions, beat_bytes=BEAT) | asdict(reference.health)
    wrong = differing(result.counters, told)
    if wrong:
        raise MismatchError(f"RTL and reference differ: the counter {wrong}")
    return {
        "losses": len(result.losses),
        "adapter_words": words,
        "cached_bytes": int(result.records.size),
        "counters": len(told),
    }
