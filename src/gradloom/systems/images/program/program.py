"""The program of a fine-tune on images, and its memory map."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from gradloom.program.assembler import Assembler, Instruction
from gradloom.program.memory import PAGE, AreaKind, MemoryMap, rounded
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.shell.engines import CONTROL
from gradloom.rtl.shell.signature import COMMAND_BYTES, ControlOpcode
from gradloom.systems.rates import Schedule

from ..workload import LENET5
from .lowered import BEAT, Lowered, parameters
from .schedule import ScheduledBatch, batches, epoch_order
from .tokens import ProgramToken, check_program
from .writer import Writer

__all__ = [
    "Ahead",
    "ImagePlanned",
    "Images",
    "Settings",
    "image_words",
    "kept_samples",
    "learning_scale",
    "memory_map",
    "plan_finetune",
    "plan_steps",
]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Request of a fine-tune.

    Parameters
    ----------
    samples, epochs, batch : int
    rate, momentum : float
        SGD on the mean loss of a batch.
    schedule : str
        How the rate changes: see :class:`~gradloom.systems.rates.Schedule`.
    seed : int
        Of the order of samples (:func:`epoch_order`).
    shuffled : bool
        Without it samples come in their own order.
    slots : int
        Samples whose activations are kept; the others are computed each time they are needed.
    weights : array, optional
        Factor of each sample's gradient. A microbatch has one: a step has a microbatch for each factor in its batch.
    """

    samples: int
    epochs: int = LENET5.epochs
    batch: int = LENET5.batch
    rate: float = LENET5.lr
    momentum: float = LENET5.momentum
    schedule: str = LENET5.schedule
    seed: int = 0
    shuffled: bool = True
    slots: int = 1 << 30
    weights: np.ndarray | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name in ("samples", "epochs", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 1")
        if not 0 < self.rate <= 32:
            raise ValueError(f"lr={self.rate}: must be above 0 and at most 32")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum={self.momentum}: must be at least 0 and below 1")
        if self.slots < 0:
            raise ValueError(f"slots={self.slots}: must be at least 0")


def learning_scale(rate: float, batch: int, weight: float = 1.0) -> tuple[int, int]:
    """Learning rate for the machine: ``(scale, q)``.

    ``scale`` is ``rate * weight / batch`` as an integer below 2**17 of ``24 - 4 * q`` fraction bits; q is the smallest.
    """
    for q in range(4):
        scale = int(np.rint(rate * weight / batch * 2.0 ** (24 - 4 * q)))
        if 0 < scale < 1 << 17:
            return scale, q
        if scale == 0:
            break
    wrong = "is less than 2**-25, which the format cannot tell from 0" if scale == 0 else "must be below 32"
    times = "" if weight == 1 else f"times the class weight {weight:g} and "
    raise ValueError(f"lr={rate}: {times}divided by the batch of {batch} it {wrong}")


def plan_steps(settings: Settings, rows: int) -> list[ScheduledBatch]:
    """Microbatches in the order in which they are learnt from.

    Batches of more than ``rows``, or of several weights, come in parts.
    """
    mu = int(np.rint(settings.momentum * 65536))
    if mu >= 65536:
        raise ValueError(f"momentum={settings.momentum}: must be at most {65535 / 65536:.6f}")
    steps: list[ScheduledBatch] = []
    started = False
    count = settings.epochs * -(-settings.samples // settings.batch)
    rates = Schedule(shape=settings.schedule, steps=count)
    made = itertools.count(1)
    for epoch in range(settings.epochs):
        order = epoch_order(settings.samples, epoch, settings.seed, shuffled=settings.shuffled)
        for batch in batches(order, settings.batch):
            rate = settings.rate * rates.factor(next(made))
            weights = np.ones(len(batch)) if settings.weights is None else settings.weights[batch]
            parts = [
                (float(weight), part)
                for weight in np.unique(weights)
                for same in (batch[weights == weight],)
                for part in np.array_split(same, -(-len(same) // rows))
            ]
            for index, (weight, part) in enumerate(parts):
                scale, q = learning_scale(rate, len(batch), weight)
                v_mode = 1 if index else 2 if mu and started else 0
                steps.append(
                    ScheduledBatch(
                        samples=part,
                        scale=scale,
                        q=q,
                        v_mode=v_mode,
                        first=index == 0,
                        last=index == len(parts) - 1,
                        mu=mu if v_mode == 2 else 0,
                        epoch=epoch,
                    )
                )
            started = True
    return steps


@dataclass(kw_only=True, eq=False)
class ImagePlanned:
    """A program and its data.

    ``segments``: bytes to put at offsets of the window before the bell. ``images``: where to find those that the
    machine makes, if it does. ``records``, ``lanes``, ``b``, ``losses``: where to find results. ``offset`` is of the
    program, ``length`` of the part of the window that is used.
    """

    lowered: Lowered
    settings: Settings
    steps: list[ScheduledBatch] = field(repr=False)
    assembler: Assembler = field(repr=False)
    offset: int
    segments: list[tuple[int, bytes]] = field(repr=False)
    images: int | None
    records: int
    slots: int
    lanes: int
    b: int
    losses: int
    length: int
    memory: MemoryMap

    @property
    def config(self) -> ImageConfig:
        """See :class:`~..program.placed.Program`."""
        return self.lowered.config

    @property
    def instructions(self) -> Sequence[Instruction]:
        """See :class:`~..program.placed.Program`."""
        return self.assembler.instructions

    @property
    def commands(self) -> int:
        """How many there are."""
        return len(self.assembler)

    def contents(self) -> Sequence[tuple[int, bytes]]:
        """See :class:`~..program.placed.Program`."""
        return self.segments


class Images(Protocol):
    """Writes commands that make images, among those that take them.

    ``arrays``: what must be in memory, by offset.
    """

    arrays: list[tuple[int, bytes]]

    def begin(self) -> None:
        """Writes LOADs that stand before all other commands; a FENCE follows."""

    def ready(self, sample: int) -> tuple[int, ...]:
        """Writes commands that stand before the LOAD of an image; returns the tokens for which that waits."""


#: Images for a program: its commands so far, the places of the images, and the memory that there is.
Ahead = Callable[[Assembler, range, MemoryMap], Images]


def image_words(lowered: Lowered, images: np.ndarray) -> np.ndarray:
    """Pixels of each image, to a multiple of four."""
    words = np.zeros((len(images), lowered.image_words), "<i4")
    words[:, : images[0].size] = images.reshape(len(images), -1)
    return words


def kept_samples(lowered: Lowered, settings: Settings) -> int:
    """Samples whose activations are kept."""
    return min(settings.slots, settings.samples, lowered.config.cache_slots - lowered.config.rows)


def _placed(lowered: Lowered, settings: Settings, steps: int, slots: int) -> MemoryMap:
    """Where everything but the program lies; the program comes behind it."""
    record_bytes, space = BEAT * lowered.record_beats, MemoryMap(align=PAGE, least=BEAT)
    for name, kind, size in (
        ("weights", AreaKind.FROZEN, 2 * BEAT * len(lowered.weight_words)),
        ("biases", AreaKind.FROZEN, 4 * BEAT * len(lowered.bias_words)),
        ("images", AreaKind.FROZEN, 4 * settings.samples * lowered.image_words),
        ("labels", AreaKind.FROZEN, 2 * BEAT * steps),
        ("lanes", AreaKind.LEARNT, 2 * BEAT * lowered.lane_words),
        ("head", AreaKind.LEARNT, 2 * BEAT * lowered.k),
        ("losses", AreaKind.KEPT, BEAT * settings.epochs * -(-settings.samples // settings.batch)),
        ("records", AreaKind.KEPT, record_bytes * slots),
        ("staging", AreaKind.STEP, record_bytes * 2 * lowered.config.rows),
    ):
        space.place(name, size, kind)
    return space


def memory_map(lowered: Lowered, settings: Settings, commands: int) -> MemoryMap:
    """The areas of the window, as :func:`plan_finetune` places them.

    ``commands``: length of the program.
    """
    steps = len(plan_steps(settings, lowered.config.rows))
    space = _placed(lowered, settings, steps, kept_samples(lowered, settings))
    space.place("program", COMMAND_BYTES * commands)
    return space


def plan_finetune(
    lowered: Lowered,
    settings: Settings,
    images: np.ndarray,
    labels: np.ndarray,
    a: Sequence[np.ndarray],
    b: Sequence[np.ndarray],
    *,
    window: int = 1 << 32,
    ahead: Ahead | None = None,
) -> ImagePlanned:
    """Plans a fine-tune.

    Parameters
    ----------
    images : integers of Q8.16 ``[samples, c, h, w]``
    labels : integers ``[samples]``
    a, b : integers of Q4.12, ``[rank, elements]`` (NCHW order) and ``[classes, rank]`` of each tap
    window : int
        Bytes that the window has.
    ahead : callable, optional
        Writes commands that make the images; then the host puts none into memory.
    """
    count = settings.samples
    if len(images) != count or len(labels) != count:
        raise ValueError(f"images and labels: {len(images)} and {len(labels)} given, settings ask for {count}")
    steps = plan_steps(settings, lowered.config.rows)
    slots = kept_samples(lowered, settings)
    space = _placed(lowered, settings, len(steps), slots)
    data = {
        "images": image_words(lowered, images).tobytes(),
        "labels": _label_rows(steps, labels),
        **parameters(lowered, a, b),
    }

    asm = Assembler()
    image_bytes = 4 * lowered.image_words
    places = range(space["images"], space["images"] + count * image_bytes, image_bytes)
    made = None if ahead is None else ahead(asm, places, space)
    out = Writer(lowered, asm, places, None if made is None else made.ready)
    out.credits()
    if made is not None:
        made.begin()
    out.load(space.areas)
    asm.add(CONTROL, ControlOpcode.FENCE)
    _fill(out, space["records"], slots)
    _learn(out, steps, space, slots)
    out.keep(space.areas, wait=(ProgramToken.LEARNT,))
    asm.add(CONTROL, ControlOpcode.END)

    check_program(asm, lowered.config)
    program = space.place("program", len(asm.code))
    if space.used > window:
        raise ValueError(f"samples={count}: the fine-tune needs a window of {space.used} bytes, there are {window}")
    names = ("weights", "biases", *(("images",) if made is None else ()), "labels", "lanes", "head")
    segments = [*((space[name], data[name]) for name in names), *(made.arrays if made is not None else ())]
    return ImagePlanned(
        lowered=lowered,
        settings=settings,
        steps=steps,
        assembler=asm,
        offset=program,
        segments=[*segments, (program, asm.code)],
        images=None if made is None else space["images"],
        records=space["records"],
        slots=slots,
        lanes=space["lanes"],
        b=space["head"],
        losses=space["losses"],
        length=rounded(space.used, PAGE),
        memory=space,
    )


def _label_rows(steps: Sequence[ScheduledBatch], labels: np.ndarray) -> bytes:
    """Two beats a microbatch, a byte a sample."""
    rows = np.zeros((len(steps), 2 * BEAT), np.uint8)
    for row, step in zip(rows, steps):
        row[: len(step.samples)] = labels[step.samples]
    return rows.tobytes()


def _fill(out: Writer, records: int, slots: int) -> None:
    """Fills the cache with samples, a row each.

    A group is marked as kept when the group after it is under way.
    """
    asm, rows, record_bytes = out.asm, out.low.config.rows, BEAT * out.low.record_beats
    marks: list[tuple[int, int]] = []

    def mark(keep: int) -> None:
        while len(marks) > keep:
            first, number = marks.pop(0)
            asm.add(
                CONTROL,
                ControlOpcode.MARK,
                slot=first,
                count=number,
                wait=(ProgramToken.STORED,),
                slots=(first, number),
            )

    for first in range(0, slots, rows):
        number = min(rows, slots - first)
        asm.add(CONTROL, ControlOpcode.LOOKUP, slot=first, count=number)
        group = range(first, first + number)
        out.base(group, [records + record_bytes * s for s in group], (first, number))
        marks.append((first, number))
        mark(1)
    out.flush()
    mark(0)
    asm.add(CONTROL, ControlOpcode.FENCE)


def _learn(out: Writer, steps: Sequence[ScheduledBatch], space: MemoryMap, slots: int) -> None:
    """Writes the training steps.

    The next step's records are requested before this step's gradients, so that they arrive while the array works.
    """
    asm, rows, record_bytes = out.asm, out.low.config.rows, BEAT * out.low.record_beats

    def fetch(index: int) -> None:
        """Records of a step, those that are in no slot computed first."""
        step, half = steps[index], index % 2
        if index and step.epoch != steps[index - 1].epoch and slots:
            # Each epoch asks for every kept sample once.
            asm.add(CONTROL, ControlOpcode.LOOKUP, slot=0, count=slots)
        missing = [int(s) for s in step.samples if s >= slots]
        staged = {s: space["staging"] + record_bytes * (half * rows + n) for n, s in enumerate(missing)}
        if missing:
            # They are in no slot: the counters learn it from slots that are never marked.
            asm.add(CONTROL, ControlOpcode.LOOKUP, slot=slots, count=len(missing))
            out.base(missing, list(staged.values()), None)
            out.flush()
            asm.add(CONTROL, ControlOpcode.FENCE, wait=(ProgramToken.STORED,))
        where = [staged.get(int(s), space["records"] + record_bytes * int(s)) for s in step.samples]
        out.fetch(where, space["labels"] + 2 * BEAT * index, half, index >= 2)

    losses = 0
    fetch(0)
    for index, step in enumerate(steps):
        out.forward(step, index % 2, space["losses"] + BEAT * losses if step.last else None)
        losses += step.last
        if index + 1 < len(steps):
            fetch(index + 1)
        out.backward(step, index % 2, index == len(steps) - 1)
