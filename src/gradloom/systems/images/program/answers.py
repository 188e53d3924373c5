"""Programs that answer images, and where they leave the answers.

The machine's head compares logits with a label, and leaves a loss. So each image meets each class as its label: the
loss of a class is the negative logarithm of its share, and the class of the greatest logit counts as right.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gradloom.program.assembler import Assembler, Instruction
from gradloom.program.memory import PAGE, AreaKind, MemoryMap, rounded
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.shell.engines import CONTROL
from gradloom.rtl.shell.signature import ControlOpcode

from .lowered import BEAT, Lowered, parameters
from .program import image_words
from .schedule import alone
from .sizes import LABELS
from .tokens import ProgramToken, check_program
from .writer import Writer

__all__ = ["AnswerProgram", "answer_words", "asked", "class_labels", "filled", "plan_answers"]


def answer_words(content: bytes, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Loss (Q.16) of each image and class, and whether the class is the greatest: ``[images, classes]``."""
    beats = np.frombuffer(content, np.uint8).reshape(-1, classes, BEAT)
    loss = np.ascontiguousarray(beats[..., :8]).view("<u8")[..., 0]
    return loss.astype(np.int64), np.ascontiguousarray(beats[..., 12:]).view("<u4")[..., 0].astype(np.int64)


def class_labels(classes: int) -> bytes:
    """The label of a microbatch of one image, each class in turn."""
    rows = np.zeros((classes, LABELS), np.uint8)
    rows[:, 0] = np.arange(classes)
    return rows.tobytes()


@dataclass(kw_only=True, eq=False)
class AnswerProgram:
    """A program that answers images, and its data.

    ``answers``, ``answer_bytes``: where :func:`answer_words` lie. The rest is as in
    :class:`~gradloom.program.placed.Program`.
    """

    lowered: Lowered
    assembler: Assembler = field(repr=False)
    segments: list[tuple[int, bytes]] = field(repr=False)
    offset: int
    length: int
    answers: int
    answer_bytes: int

    @property
    def config(self) -> ImageConfig:
        """See :class:`~gradloom.program.placed.Program`."""
        return self.lowered.config

    @property
    def instructions(self) -> Sequence[Instruction]:
        """See :class:`~gradloom.program.placed.Program`."""
        return self.assembler.instructions

    def contents(self) -> Sequence[tuple[int, bytes]]:
        """See :class:`~gradloom.program.placed.Program`."""
        return self.segments


def filled(out: Writer, places: Sequence[int]) -> None:
    """Writes the frozen network's part: the record of each image to its place."""
    rows, waiting = out.low.config.rows, 0

    def stored(most: int) -> None:
        nonlocal waiting
        for _ in range(waiting - most):
            out.asm.add(CONTROL, ControlOpcode.LOOKUP, wait=(ProgramToken.STORED,))
        waiting = min(waiting, most)

    for first in range(0, len(places), rows):
        group = range(first, min(first + rows, len(places)))
        out.base(group, places[first : first + rows], None)
        waiting += 1
        stored(1)
    out.flush()
    stored(0)
    out.asm.add(CONTROL, ControlOpcode.FENCE)


def asked(out: Writer, records: Sequence[int], labels: int, answers: int) -> None:
    """Writes the adapters' part: each record with each class.

    The next record is requested before a loss, so that it arrives while the array works.
    """
    pairs = [(record, number) for record in records for number in range(out.low.classes)]

    def fetch(index: int) -> None:
        record, number = pairs[index]
        out.fetch([record], labels + LABELS * number, index % 2, index >= 2)

    fetch(0)
    for index in range(len(pairs)):
        if index + 1 < len(pairs):
            fetch(index + 1)
        out.forward(
            alone(0),
            index % 2,
            answers + BEAT * index,
            apply=False,
            # No gradient keeps the next h from taking the place of one that is still read.
            after=(ProgramToken.GRADIENT,) if index else (),
            done=(ProgramToken.GRADIENT, ProgramToken.HALF_FREE),
        )


def plan_answers(
    lowered: Lowered, images: np.ndarray, a: Sequence[np.ndarray], b: Sequence[np.ndarray]
) -> AnswerProgram:
    """The program that answers ``images``, Q8.16 ``[n, c, h, w]``.

    ``a``, ``b``: integers of Q4.12, ``[rank, elements]`` (NCHW order) and ``[classes, rank]`` of each tap.
    """
    count, classes = len(images), lowered.classes
    data = {"images": image_words(lowered, images).tobytes(), "labels": class_labels(classes)}
    data |= parameters(lowered, a, b)
    space, record = MemoryMap(align=PAGE, least=BEAT), BEAT * lowered.record_beats
    for name, content in data.items():
        space.place(name, len(content), AreaKind.FROZEN)
    answers = space.place("answers", BEAT * classes * count, AreaKind.KEPT)
    records = space.place("records", record * count, AreaKind.STEP)
    asm, wide = Assembler(), 4 * lowered.image_words
    out = Writer(lowered, asm, range(space["images"], space["images"] + wide * count, wide))
    out.credits()
    out.load(space.areas)
    asm.add(CONTROL, ControlOpcode.FENCE)
    places = [records + record * number for number in range(count)]
    filled(out, places)
    asked(out, places, space["labels"], answers)
    asm.add(CONTROL, ControlOpcode.END)
    check_program(asm, lowered.config)
    program = space.place("program", len(asm.code))
    return AnswerProgram(
        lowered=lowered,
        assembler=asm,
        segments=[*((space[name], content) for name, content in data.items()), (program, asm.code)],
        offset=program,
        length=rounded(space.used, PAGE),
        answers=answers,
        answer_bytes=BEAT * classes * count,
    )
