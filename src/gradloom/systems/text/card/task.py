"""A memory card with which a board runs a fine-tune by itself."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gradloom import boards
from gradloom.firmware.chip.soc import Limits
from gradloom.models.adapters.lora import Adapter
from gradloom.program.descent import AdamW
from gradloom.systems.job import Job

from ..instant_text import InstantTextTask
from ..operations.tensors import EDGE
from ..qlora import QLoraTask
from ..task import TextTask
from ..workload import InstantCardOptions
from .course import Course, instant_course, qlora_course
from .job import board_job, write_card_image

__all__ = ["prepare", "prepare_instant"]


class CardTask(QLoraTask):
    """A fine-tune by QLoRA whose result is a card."""

    alone = True

    def __init__(self, job: Job) -> None:
        if job.options.seq > EDGE:
            raise ValueError(
                f"seq={job.options.seq}: must be at most {EDGE} on a card, whose texts are of one block; give --seq "
                f"{EDGE}, or use finetune"
            )
        super().__init__(job)

    def package(self) -> dict[str, Any]:
        """Writes the card's image."""
        adapters = {name: each for name, each in self.adapters.items() if isinstance(each, Adapter)}

        def course() -> Course:
            texts = self.turns.used(self.steps)
            return qlora_course(
                self.frozen(), texts, adapters, range(self.layers), self.rule, self.steps, self.schedule
            )

        return _package(self, course, next(iter(adapters.values())))


class InstantCardTask(InstantTextTask):
    """The same by InstantFT."""

    alone = True

    def package(self) -> dict[str, Any]:
        """Writes the card's image."""

        def course() -> Course:
            texts, layers = self.turns.used(self.steps), sorted(self.adapters)
            return instant_course(
                self.frozen(), texts, self.adapters, layers, self.rule, self.steps, self.schedule, rows=self.rows
            )

        return _package(self, course, self.adapters[0], method=self.method, rows=self.rows)


prepare, prepare_instant = CardTask, InstantCardTask


def _package(task: TextTask, course: Callable[[], Course], first: Adapter, **more: Any) -> dict[str, Any]:
    """Writes the image of a card, whose adapters are like ``first``; its note has ``more``."""
    job: Job = task.job
    each: InstantCardOptions = job.options
    if task.data.counts is not None:
        raise ValueError(
            f"data={task.text}: must be a flat text, a board's job has one mean over tokens for all its texts; "
            f"give a .txt file, or use finetune"
        )
    clock_hz = task.config.clock_mhz * 1_000_000
    job.tell(0, task.steps, "choosing exponents")
    made = board_job(
        course(),
        task.config,
        job.tell,
        every=each.store_steps,
        cycles=round(each.store_seconds * clock_hz),
        limits=Limits(runs=each.stop_steps, cycles=round(each.stop_seconds * clock_hz), celsius=each.pause_celsius),
        answer=each.answer,
        coded=each.head == "nf",
        held_out=task.data.judged[0] if task.data.judged else None,
        order=task.turns.numbers(task.steps),
    )
    facts = {
        "preset": job.preset.name,
        "model": task.shapes.name,
        "shapes": dataclasses.asdict(task.shapes),
        "layers": task.layers,
        "text": task.text.name,
        "texts": len(task.windows),
        "tokens": len(task.windows[0]),
        "rank": first.rank,
        "alpha": first.scale * first.rank,
        "optimizer": each.optimizer,
        "lr": task.lr,
        "steps": task.steps,
        "held_out": None if each.held_out is None else Path(each.held_out).name,
        "answer": each.answer,
        **more,
    }
    if isinstance(task.rule, AdamW):
        facts["moment_scales"] = task.rule.moment_scales
    return write_card_image(made, job.output, facts, memory_bytes=boards.find(job.preset.board).memory_bytes)
