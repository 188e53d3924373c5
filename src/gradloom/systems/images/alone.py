"""Fine-tunes and answers of images that a board runs by itself, with data that come by its UART."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.boards.links.tuner import PIECE, TunerError
from gradloom.models.datasets import Dataset
from gradloom.models.network import LayerNetwork
from gradloom.program.memory import BEAT, BLOCK
from gradloom.sim.reference.loss import softmax_cross_entropy
from gradloom.sim.run.counted import check_words
from gradloom.systems.alone import identity, ran_alone, sealed, unlike
from gradloom.systems.instant import InstantOptions
from gradloom.systems.job import AloneHost, Job
from gradloom.systems.task import Outcome
from gradloom.workload import Progress

from .answered import ImageLabels, checked
from .integers import FineTune, WordCache, fill_cache, fine_tune, logits
from .program.answers import answer_words
from .program.digits import MEMORY_BYTES, digits_plan
from .program.lowered import Lowered, head_words, words16
from .program.onchip import AnswersOnChip, OnChip, fitting, plan_answers_onchip, plan_onchip
from .program.program import Settings
from .program.sizes import samples_of_block
from .simulated import learnt_words
from .task import ImageTask, decoded, prepared_as

__all__ = ["AloneTask", "OnChipResult", "adapter_words", "answered_alone", "expected_run", "prepare"]


@dataclass(frozen=True, kw_only=True)
class OnChipResult:
    """What the reference makes of a plan: its lines but for cycles, and the words of the adapter."""

    lines: Sequence[str]
    reference: FineTune


def _losses(name: str, loss: int, right: int, samples: int) -> str:
    mean = loss // samples
    return f"{name}: loss {mean >> 16}.{(mean & 0xFFFF) * 10**6 >> 16:06d}, {right} of {samples} right"


def expected_run(plan: OnChip, data: Dataset) -> OnChipResult:
    """A plan on ``data`` by the bit-exact reference."""
    lowered, config = plan.lowered, plan.lowered.config
    train, test = (
        fill_cache(lowered, lowered.network.pixel_map.words(images, config.activation))
        for images in (data.x_train, data.x_test)
    )

    def judged(name: str, held: WordCache, a: list[np.ndarray], b: list[np.ndarray]) -> str:
        entropy = softmax_cross_entropy(logits(lowered, held, a, b), data.y_test, max_length=config.classes)
        return _losses(name, int(entropy.loss.sum()), int(entropy.correct.sum()), len(data.y_test))

    start_a, start_b = plan.adapters
    reference = fine_tune(
        lowered, Settings(samples=len(data.y_train)), train, data.y_train, start_a, start_b, steps=plan.steps()
    )
    lines = [
        identity(config),
        judged("before", test, [m[:, tap.order] for m, tap in zip(start_a, lowered.taps)], list(start_b)),
    ]
    steps = plan.train_blocks
    for epoch in range(plan.epochs):
        part = slice(epoch * steps, (epoch + 1) * steps)
        lines.append(
            _losses(
                f"epoch {epoch + 1}" if plan.epochs > 1 else "epoch",
                sum(reference.losses[part]),
                sum(reference.correct[part]),
                sum(reference.counts[part]),
            )
        )
    lines.append(judged("after", test, reference.a, reference.b))
    words = adapter_words(plan, reference)
    lines.append(f"adapter: {len(words) // 4} words, sum 0x{zlib.crc32(words):08x}")
    return OnChipResult(lines=[*lines, "done"], reference=reference)


def adapter_words(plan: OnChip, reference: FineTune) -> bytes:
    """The adapter as the machine leaves it in memory."""
    lowered = plan.lowered
    lanes = np.concatenate(
        [
            lowered.lanes_of(tap, a).reshape(-1, lowered.config.columns)
            for tap, (a, _) in enumerate(reference.adapters())
        ]
    )
    return words16(lanes) + head_words(lowered, [b for _, b in reference.adapters()])


def prepare(job: Job) -> ImageTask:
    """Prepares a fine-tune that a board makes by itself; see :class:`~..task.Task`."""
    return prepared_as(AloneTask, job)


class AloneTask(ImageTask):
    """A fine-tune in blocks of samples, which a board takes by its UART.

    Blocks come in order; somebody's own data are brought into a random order once. Losses are those of epochs.
    """

    chip: OnChip

    def __init__(
        self, job: Job, options: InstantOptions, network: LayerNetwork, dataset: Dataset, settings: Settings
    ) -> None:
        if settings.momentum:
            raise ValueError(f"momentum={settings.momentum:g}: must be 0 on a board that learns by itself: plain SGD")
        if settings.weights is not None:
            raise ValueError(
                f"class_weights={options.class_weights}: must be none on a board that learns by itself, whose blocks "
                f"have one rate"
            )
        if settings.schedule != "constant":
            raise ValueError(f"schedule={settings.schedule}: must be constant on a board that learns by itself")
        if getattr(options, "cache", "nf4") == "none":
            raise ValueError("cache=none: must be nf4 or int8 on a board that learns by itself")
        self._shuffles = settings.shuffled
        super().__init__(job, options, network, dataset, settings)
        self.steps, self.epoch, self.counts = settings.epochs, 1, None

    def planned(self) -> None:
        """Plans the board's memory, with as many images as it has room for."""
        lowered, settings = self.lowered, self.settings
        assert isinstance(self.dataset, Dataset)
        data = self.dataset
        if self._shuffles:
            order = np.random.default_rng(settings.seed).permutation(len(data.x_train))
            data = replace(data, x_train=data.x_train[order], y_train=data.y_train[order])
        self.batch = held = samples_of_block(lowered)
        more = {"epochs": settings.epochs, "rate": settings.rate, "memory": MEMORY_BYTES}
        a, b = self._words()

        def plan(train: int, test: int) -> OnChip:
            images = np.concatenate([data.x_train[:train], data.x_test[:test]])
            labels = np.concatenate([data.y_train[:train], data.y_test[:test]])
            words = self.network.pixel_map.words(images, self.job.config.activation)
            return plan_onchip(
                lowered,
                words,
                labels,
                train=train,
                a=a,
                b=b,
                pause=self._shipped.pause,
                **more,  # type: ignore[arg-type]
            )

        train, judged = (len(each) // held * held for each in (data.x_train, data.x_test))
        for name, count in (("x_train", train), ("x_test", judged)):
            if not count:
                raise ValueError(f"{name}: has fewer than {held} images, a block of the board's memory has as many")
        room = fitting(plan(held, held), MEMORY_BYTES)
        if train >= room:
            raise ValueError(
                f"x_train: has {train} images in whole blocks of {held}, the board has room for {room} with those to "
                f"judge by; give --limit {room - held}"
            )
        judged = min(judged, room - train)
        self.dataset = replace(
            data,
            x_train=data.x_train[:train],
            y_train=data.y_train[:train],
            x_test=data.x_test[:judged],
            y_test=data.y_test[:judged],
        )
        self.images, self.judged = self.activations()
        self.settings = replace(settings, samples=train, batch=held, shuffled=False)
        self.chip = plan(train, judged)

    @cached_property
    def _shipped(self) -> OnChip:
        """What the bitstream brings."""
        return digits_plan(self.job.config)

    @cached_property
    def image(self) -> bytes:
        """What the board's memory is to hold, with the sum that a reset takes away."""
        return sealed(self.chip.image)

    @property
    def changed(self) -> set[int]:
        """Pieces that the bitstream has not, or that a run changes."""
        chip = self.chip
        return _changed(
            self.image, chip, _used(chip), self._shipped, (chip.lanes[0], chip.lanes[0] + chip.learnt_bytes)
        )

    def forecast(self) -> dict[str, int] | None:
        """None: memory is asked for one burst at a time, which no forecast follows."""
        return None

    def simulated(self) -> Outcome:
        """By the board."""
        port, chip = self.job.host, self.chip
        assert isinstance(port, AloneHost)
        told, cycles = ran_alone(port, self.job.config, self.image, self.changed, epochs=chip.epochs)
        words = port.fetch(chip.lanes[0], chip.learnt_bytes)
        (said,) = (line for line in told if line.startswith("adapter: "))
        if int(said.rpartition("0x")[2], 16) != zlib.crc32(words):
            raise TunerError("the adapter that was read is not the one that the board has told the sum of")
        a, b = learnt_words(self.lowered, words[: chip.lanes[1]], words[chip.lanes[1] :])
        return Outcome(
            losses=[float(line.split()[3].rstrip(",")) for line in told if line.startswith("epoch ")]
            or [float(line.split()[2].rstrip(",")) for line in told if line.startswith("epoch:")],
            learnt=decoded(zip(a, b)),
            figures={"cycles": {"total": cycles}, "cache": None, "health": None, "bytes_sent": PIECE * port.sent},
            checked={"adapter": {"words": np.frombuffer(words, "<u4")}, "lines": _numbers(told)},
        )

    def reference(self) -> Outcome:
        """See :class:`~..task.Task`."""
        assert isinstance(self.dataset, Dataset)
        made = expected_run(self.chip, self.dataset)
        words = adapter_words(self.chip, made.reference)
        return Outcome(
            losses=[],
            learnt=decoded(made.reference.adapters()),
            checked={"adapter": {"words": np.frombuffer(words, "<u4")}, "lines": _numbers(made.lines)},
        )

    def plot(self, path: Path, metrics: Mapping[str, Any]) -> None:
        """Writes a picture of losses: the board does not tell its phases."""
        super().plot(path, {**metrics, "cycles": None})

    def compared(self, ran: Outcome) -> Outcome:
        """Compares the adapter and every line but the cycles with the reference."""
        wanted = self.reference()
        count = sum(check_words(ran.checked[kind], wanted.checked[kind]) for kind in wanted.checked)
        return replace(ran, figures={**ran.figures, "equal_to_reference": {"words": count}})


def _used(chip: OnChip) -> int:
    """Bytes of a block that a fine-tune changes, and those before them."""
    return max(stage.told for stage in chip.stages) + BEAT


def _changed(
    image: bytes, chip: OnChip | AnswersOnChip, used: int, shipped: OnChip, *more: tuple[int, int]
) -> set[int]:
    """Pieces of a memory that the bitstream has not, or that a run of it or of the bitstream's own changes.

    ``used``: bytes of a block that it changes; ``more``: what else it does.
    """
    runs = ((chip.blocks, used), (shipped.blocks, _used(shipped)))
    blocks = ((at, at + end) for count, end in runs for at in range(BLOCK, BLOCK * (1 + count), BLOCK))
    own = shipped.lanes[0], shipped.lanes[0] + shipped.learnt_bytes
    return unlike(image, shipped, *blocks, own, *more)


def answered_alone(
    lowered: Lowered,
    images: np.ndarray,
    a: Sequence[np.ndarray],
    b: Sequence[np.ndarray],
    port: AloneHost,
    tell: Progress,
) -> ImageLabels:
    """Answers of the board, which are the reference's; as many images at a time as have room there.

    As :func:`~.answered.by_machine`, but no forecast follows memory that is asked for one burst at a time. Figures are
    ``cycles`` and ``bytes_sent``.
    """
    shipped = digits_plan(lowered.config)

    def plan(part: np.ndarray) -> AnswersOnChip:
        return plan_answers_onchip(lowered, part, a, b, memory=MEMORY_BYTES, pause=shipped.pause)

    room, cycles, found = fitting(plan(images[:1]), MEMORY_BYTES), 0, []
    for at in range(0, len(images), room):
        tell(at, len(images), "answering")
        part = images[at : at + room]
        made = plan(part)
        image = sealed(made.image)
        _, took = ran_alone(port, lowered.config, image, _changed(image, made, made.used, shipped))
        blocks = range(BLOCK, BLOCK * (1 + made.blocks), BLOCK)
        content = b"".join(port.fetch(block + made.answers, made.used - made.answers) for block in blocks)
        loss, right = (words[: len(part)] for words in answer_words(content, lowered.classes))
        checked(lowered, part, a, b, loss, right)
        found.append((loss, right))
        cycles += took
    loss, right = (np.concatenate(each) for each in zip(*found))
    return ImageLabels(
        logits=-loss / 65536,
        labels=right.argmax(axis=1),
        figures={"cycles": cycles, "forecast": None, "bytes_sent": PIECE * port.sent},
    )


def _numbers(lines: Sequence[str]) -> Mapping[str, np.ndarray]:
    """Lines as words, by their number."""
    return {f"line {n}": np.frombuffer(line.encode(), np.uint8) for n, line in enumerate(lines)}
