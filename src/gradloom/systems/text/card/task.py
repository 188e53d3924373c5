"""A memory card with which a board runs a fine-tune by itself."""

import dataclasses
from pathlib import Path
from typing import Any

from gradloom import boards
from gradloom.firmware.soc import Limits
from gradloom.models.adapters.lora import Adapter
from gradloom.program.descent import AdamW
from gradloom.systems.job import Job

from ..qlora import QLoraTask
from ..workload import CardOptions
from .job import board_job, write_card_image

__all__ = ["prepare"]


class CardTask(QLoraTask):
    """A fine-tune by QLoRA whose result is a card."""

    def package(self) -> dict[str, Any]:
        """Writes the card's image."""
        each = self.asked
        assert isinstance(each, CardOptions)
        if self.data.counts is not None:
            raise ValueError(
                f"data={self.text}: must be a flat text, a board's job has one mean over tokens for all its texts; "
                f"give a .txt file, or use finetune"
            )
        adapters = {name: each for name, each in self.adapters.items() if isinstance(each, Adapter)}
        board = boards.find(self.job.preset.board)
        clock_hz = self.job.config.clock_mhz * 1_000_000
        made = board_job(
            self.frozen(),
            self.turns.used(self.steps),
            adapters,
            range(self.layers),
            self.rule,
            self.steps,
            self.job.config,
            self.job.tell,
            every=each.store_steps,
            cycles=round(each.store_seconds * clock_hz),
            limits=Limits(runs=each.stop_steps, cycles=round(each.stop_seconds * clock_hz), celsius=each.pause_celsius),
            answer=each.answer,
            held_out=self.data.judged[0] if self.data.judged else None,
            order=self.turns.numbers(self.steps),
            rates=self.schedule,
        )
        first = next(iter(adapters.values()))
        facts = {
            "preset": self.job.preset.name,
            "model": self.shapes.name,
            "shapes": dataclasses.asdict(self.shapes),
            "layers": self.layers,
            "text": self.text.name,
            "texts": len(self.windows),
            "tokens": len(self.windows[0]),
            "rank": first.rank,
            "alpha": first.scale * first.rank,
            "optimizer": each.optimizer,
            "lr": self.lr,
            "steps": self.steps,
            "answer": each.answer,
            "held_out": None if each.held_out is None else Path(each.held_out).name,
        }
        if isinstance(self.rule, AdamW):
            facts["moment_scales"] = self.rule.moment_scales
        return write_card_image(made, self.job.output, facts, memory_bytes=board.memory_bytes)


def prepare(job: Job) -> CardTask:
    """The card of a request."""
    return CardTask(job)
