"""Fine-tunes and answers with all data and programs in block RAM.

Data lie in blocks of samples, and each program serves any block (:mod:`~gradloom.program.power_up`). So a program is
as long as a group of samples needs it, however many there are. A sample's record takes the place of its image, which is
not asked for again.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from gradloom.program.assembler import Assembler
from gradloom.program.memory import BLOCK
from gradloom.program.power_up import PowerUp, PowerUpMemory, PowerUpStage
from gradloom.rtl.shell.engines import CONTROL
from gradloom.rtl.shell.signature import ControlOpcode

from .answers import asked, class_labels, filled
from .lowered import BEAT, Lowered, parameters
from .program import image_words, learning_scale
from .schedule import ScheduledBatch
from .sizes import LABELS, place_of, samples_of_block
from .tokens import ProgramToken, check_program
from .writer import Writer

__all__ = ["AnswersOnChip", "OnChip", "fitting", "plan_answers_onchip", "plan_onchip"]


@dataclass(frozen=True, kw_only=True, eq=False)
class OnChip(PowerUp):
    """Contents of the memory at power-up for a fine-tune.

    ``parts``: microbatches of a block, of ``rows`` samples each, which make a step of the training. ``lanes``, ``b``:
    offsets and bytes of the adapter. ``adapters``: what it starts from.
    """

    lowered: Lowered
    rows: int
    parts: int
    train_blocks: int
    test_blocks: int
    epochs: int
    scale: tuple[int, int]
    lanes: tuple[int, int]
    b: tuple[int, int]
    adapters: tuple[Sequence[np.ndarray], Sequence[np.ndarray]] = field(repr=False)

    @property
    def blocks(self) -> int:
        """Blocks of samples."""
        return self.train_blocks + self.test_blocks

    @property
    def samples(self) -> int:
        """Samples of a block, which are those of a step."""
        return self.parts * self.rows

    @property
    def learnt_bytes(self) -> int:
        """Of the adapter, from the first of its lanes on."""
        return self.lanes[1] + self.b[1]

    def steps(self) -> list[ScheduledBatch]:
        """Microbatches of the training, in order."""
        return [
            replace(step, epoch=epoch)
            for epoch in range(self.epochs)
            for block in range(self.train_blocks)
            for step in _steps(block * self.samples, self.rows, self.parts, self.scale)
        ]


def _steps(begin: int, rows: int, parts: int, scale: tuple[int, int]) -> list[ScheduledBatch]:
    """Microbatches of a block whose samples begin at ``begin``."""
    return [
        ScheduledBatch(
            samples=np.arange(begin + part * rows, begin + (part + 1) * rows),
            scale=scale[0],
            q=scale[1],
            v_mode=1 if part else 0,
            first=part == 0,
            last=part == parts - 1,
            mu=0,
        )
        for part in range(parts)
    ]


def plan_onchip(
    lowered: Lowered,
    images: np.ndarray,
    labels: np.ndarray,
    *,
    train: int,
    epochs: int,
    rate: float,
    a: Sequence[np.ndarray],
    b: Sequence[np.ndarray],
    memory: int,
    pause: int,
) -> OnChip:
    """Plans a fine-tune on the first ``train`` images.

    The other images judge it before and after.

    Parameters
    ----------
    images, labels : integers of Q8.16 ``[samples, c, h, w]``, and integers ``[samples]``
        As many as fill whole blocks, and so is ``train``.
    epochs, rate : int, float
        Plain SGD on the mean loss of a block; blocks come in order.
    a, b : integers of Q4.12
        Of each tap, ``[rank, elements]`` (NCHW order) and ``[classes, rank]``.
    memory : int
        Bytes that there are.
    pause : int
        Cycles from the end of the firmware's lines to the next repeat, below 2^32.
    """
    rows, count, held = lowered.config.rows, len(images), samples_of_block(lowered)
    _check(held, samples=count, train=train)
    if train >= count:
        raise ValueError(f"train={train}: must be below samples={count}, the others judge the result")
    if epochs < 1:
        raise ValueError(f"epochs={epochs}: must be at least 1")
    scale = learning_scale(rate, held)
    blocks, train_blocks, parts = count // held, train // held, held // rows
    content = _Memory(_samples(lowered, images, labels, held), lowered)
    # What all blocks share lies behind them: the set-up runs in the window of the header's block.
    places = {name: content.place(name, data) for name, data in parameters(lowered, a, b).items()}
    losses = _write_programs(content, places, held, scale)
    lanes, head = places["lanes"], places["head"]

    test = {"block": 1 + train_blocks, "blocks": blocks - train_blocks}
    stages = (
        PowerUpStage(name="", program="setup", block=0, blocks=1),
        PowerUpStage(name="", program="fill", block=1, blocks=blocks),
        PowerUpStage(name="before", program="judge", told=losses, **test),
        PowerUpStage(name="epoch", program="train", told=losses, block=1, blocks=train_blocks, runs=epochs),
        PowerUpStage(name="after", program="judge", told=losses, **test),
        PowerUpStage(name="", program="keep", block=0, blocks=1),
    )
    image = content.end(
        stages,
        room=memory,
        needs=f"samples={count}: the fine-tune needs",
        pause=pause,
        result=(lanes[0], (lanes[1] + head[1]) // 4),
    )
    sizes = {
        "header": BLOCK,
        "samples": BLOCK * blocks,
        "weights": places["weights"][1],
        "biases": places["biases"][1],
        "adapter": lanes[1] + head[1],
        "programs": sum(len(asm.code) for _, asm in content.programs.values()),
    }
    return OnChip(
        lowered=lowered,
        stages=stages,
        rows=rows,
        parts=parts,
        train_blocks=train_blocks,
        test_blocks=blocks - train_blocks,
        epochs=epochs,
        scale=scale,
        image=image,
        lanes=lanes,
        b=head,
        pause=pause,
        programs=content.programs,
        adapters=(a, b),
        sizes=sizes,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class AnswersOnChip(PowerUp):
    """Contents of the memory for answers.

    ``blocks`` of ``samples`` images each have their :func:`~.answers.answer_words` from the offset ``answers`` of the
    block to ``used``, the end of what a run changes.
    """

    samples: int
    blocks: int
    answers: int
    used: int


def plan_answers_onchip(
    lowered: Lowered, images: np.ndarray, a: Sequence[np.ndarray], b: Sequence[np.ndarray], *, memory: int, pause: int
) -> AnswersOnChip:
    """Plans answers to images, a group of the design's rows a block.

    Images beside those of whole blocks are the last one again. :class:`ValueError` says what does not fit. Parameters
    are those of :func:`plan_onchip`.
    """
    held, place, classes = lowered.config.rows, place_of(lowered), lowered.classes
    labels = held * place
    answers = labels + classes * LABELS
    used = answers + held * classes * BEAT
    if used > BLOCK:
        raise ValueError(
            f"rows={held}: images of {place} bytes with answers of {classes} classes need {used} bytes, a block has "
            f"{BLOCK}"
        )
    blocks = -(-len(images) // held)
    pixels = image_words(lowered, np.concatenate([images, *[images[-1:]] * (blocks * held - len(images))]))
    image = bytearray(BLOCK * (1 + blocks))
    for index, words in enumerate(pixels):
        at = BLOCK * (1 + index // held) + index % held * place
        image[at : at + 4 * lowered.image_words] = words.tobytes()
    for at in range(BLOCK + labels, len(image), BLOCK):
        image[at : at + classes * LABELS] = class_labels(classes)
    content = _Memory(image, lowered)
    places = {name: content.place(name, data) for name, data in parameters(lowered, a, b).items()}
    rows = [index * place for index in range(held)]
    with content.program("setup", rows) as out:
        out.load(places)
    with content.program("answer", rows) as out:
        out.credits()
        filled(out, rows)
        asked(out, rows, labels, answers)
    stages = (
        PowerUpStage(name="", program="setup", block=0, blocks=1),
        PowerUpStage(name="", program="answer", block=1, blocks=blocks),
    )
    return AnswersOnChip(
        stages=stages,
        image=content.end(stages, room=memory, needs=f"{len(images)} images need", pause=pause),
        pause=pause,
        programs=content.programs,
        sizes={"samples": BLOCK * blocks},
        samples=held,
        blocks=blocks,
        answers=answers,
        used=used,
    )


def fitting(plan: OnChip | AnswersOnChip, memory: int) -> int:
    """Images that ``memory`` bytes have room for, of a plan with other counts alone."""
    return plan.samples * (plan.blocks + (memory - len(plan.image)) // BLOCK)


def _check(held: int, **counts: int) -> None:
    for what, value in counts.items():
        if value < 1 or value % held:
            raise ValueError(f"{what}={value}: must be a positive multiple of {held}, a block holds that many")


def _samples(lowered: Lowered, images: np.ndarray, labels: np.ndarray, held: int) -> bytearray:
    """Memory of samples: the header's block, then blocks of samples.

    A block has a place for each sample's image, then its record; labels of each microbatch; the losses of its last
    step.
    """
    rows, place = lowered.config.rows, place_of(lowered)
    image = bytearray(BLOCK * (1 + len(images) // held))
    pixels = image_words(lowered, images)
    for sample, label in enumerate(labels):
        block, index = divmod(sample, held)
        at = BLOCK * (1 + block)
        image[at + index * place : at + index * place + 4 * lowered.image_words] = pixels[sample].tobytes()
        part, row = divmod(index, rows)
        image[at + held * place + part * LABELS + row] = int(label)
    return image


class _Memory(PowerUpMemory):
    """A memory into which programs are written."""

    def __init__(self, image: bytearray, lowered: Lowered) -> None:
        super().__init__(image)
        self.lowered = lowered

    @contextmanager
    def program(self, name: str, images: Sequence[int]) -> Iterator[Writer]:
        """Writes a program, which is then put behind all else."""
        asm = Assembler()
        yield Writer(self.lowered, asm, images)
        asm.add(CONTROL, ControlOpcode.END)
        check_program(asm, self.lowered.config)
        self.add(name, asm)


def _write_programs(content: _Memory, shared: Mapping[str, tuple[int, int]], held: int, scale: tuple[int, int]) -> int:
    """Writes all programs; each works on any block.

    Returns the offset of a block's losses.
    """
    rows, place = content.lowered.config.rows, place_of(content.lowered)
    labels = held * place
    losses = labels + held // rows * LABELS
    places = [index * place for index in range(held)]
    groups = [places[begin : begin + rows] for begin in range(0, held, rows)]
    with content.program("setup", places) as out:
        out.load(shared)
    with content.program("fill", places) as out:
        out.credits()
        for begin, where in zip(range(0, held, rows), groups):
            out.base(range(begin, begin + rows), where, None)
        out.flush()
    for name, rates in (("train", scale), ("judge", None)):
        with content.program(name, places) as out:
            for half, where in enumerate(groups):
                out.fetch(where, labels + half * LABELS, half, False)
            for half, step in enumerate(_steps(0, rows, len(groups), rates or (0, 0))):
                # Where nothing is learnt, no gradient keeps the next h from taking the place of one that is still read.
                out.forward(
                    step,
                    half,
                    losses if step.last else None,
                    apply=rates is not None,
                    after=(ProgramToken.GRADIENT,) if half and not rates else (),
                )
                if rates:
                    out.backward(step, half, step.last)
    with content.program("keep", places) as out:
        out.keep(shared)
    return losses
