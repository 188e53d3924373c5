"""InstantFT of a language model in floating point, and its task."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gradloom.models.adapters.instant import fresh_instant, load_instant, save_instant
from gradloom.models.adapters.lora import Adapter, finite
from gradloom.models.language import LanguageModel
from gradloom.systems.driver import Job, Outcome

from .budget import parse_targets
from .instant_budget import instant_memory
from .mathematics import Array, Llama
from .operations.base import EDGE
from .operations.instant import InstantStep
from .run.instant import InstantTrainer, instant_machine
from .run.trainer import StepResult, as_far_as_formats
from .task import TextTask, optimizer_state, outcome_of, plain_results, restore_optimizer, results_of
from .workload import InstantTextOptions

__all__ = ["InstantLlama", "InstantTextTask", "prepare"]


class InstantTextTask(TextTask):
    """See :class:`~.driver.Task`."""

    named = ("head",)

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        asked: InstantTextOptions = job.options
        self.adapters = _adapters(self.shapes, asked, self.rank, self.layers)
        # The machine's tiles are those of every engine.
        request = self.fitting(rank=self.adapters[0].rank, targets=parse_targets("q,v"))
        self.read_texts()
        if asked.epochs is not None:
            request = self.fitting(rank=self.adapters[0].rank, targets=parse_targets("q,v"))
        self.rows = EDGE if self.exact else min(EDGE, job.config.tokens)
        self.read(rank=self.adapters[0].rank)
        self.check_cache(instant_memory(request))

    def run(self, engine: str) -> Outcome:
        """Runs the steps; see :class:`~.driver.Task`.

        A loss or an adapter that is not finite ends it early, without the update that led there; see also
        :func:`~.trainer.as_far_as_formats`.
        """
        trainer = InstantTrainer(
            self.frozen(),
            self.adapters,
            sorted(self.adapters),
            self.in_float() if self.exact else self.rule,
            rows=self.rows,
            schedule=self.schedule,
        )
        tell, texts = self.job.tell, self.turns.used(self.steps)
        judging = self.judging(lambda adapters, tokens: trainer.loss(tokens))
        if engine == "rtl":
            instant_machine(
                trainer, texts, self.job.config, lambda text: tell(0, self.steps, text), self.job.design.chosen()
            )
        kept = before = dict(trainer.adapters)
        if self.begun is not None:
            trainer.restore(self.begun["trainer"])
            restore_optimizer(trainer.rule, self.begun["rule"])
            before = {layer: replace(before[layer], a=a, b=b) for layer, (a, b) in self.begun["before"].items()}
            judging.restore(self.begun["judging"])
        judging.start(trainer.adapters)

        def keep(found: list[StepResult]) -> bool:
            ended = judging.after(len(found), trainer.adapters)
            self.point.keep(
                len(found),
                {
                    "results": plain_results(found),
                    "trainer": trainer.state(),
                    "rule": optimizer_state(trainer.rule),
                    "before": {layer: (each.a, each.b) for layer, each in before.items()},
                    "judging": judging.state(),
                },
            )
            return ended

        def step(number: int) -> StepResult:
            nonlocal kept, before
            kept, before = before, dict(trainer.adapters)
            made = trainer.step(self.turns.of(number)[0])
            if not (math.isfinite(made.loss) and finite(trainer.adapters)):
                # Adapters whose loss is not finite are of no use: those before the update that led there are.
                trainer.adapters = before if math.isfinite(made.loss) else kept
                raise ValueError("the next loss or adapter is not finite")
            return made

        try:
            steps = len(results_of(self.begun)) if judging.ended else self.steps
            found, stopped = as_far_as_formats(step, steps, tell, results_of(self.begun), keep)
        finally:
            if trainer.machine is not None:
                trainer.machine.close()
        trainer.adapters |= self.kept(judging, len(found), trainer.adapters)
        self.loss_after = trainer.loss(texts[0])
        instant = InstantStep(self.shapes, len(texts[0]), trainer.adapters[0].rank, trainer.layers, trainer.rows)
        return outcome_of(
            found,
            stopped,
            trainer.adapters,
            exact=self.exact,
            cached_texts=len(trainer.cache),
            cache_bytes_per_text=instant.cache_bytes,
        )

    def saved(self, folder: Path, learnt: Any) -> None:
        """See :class:`.language.TextTask`."""
        save_instant(folder, self.shapes, learnt)


prepare = InstantTextTask


def _adapters(model: LanguageModel, asked: InstantTextOptions, rank: int, layers: int) -> dict[int, Adapter]:
    """Adapters of a folder, or else fresh ones; those of ``layers`` blocks."""
    if asked.adapter is None:
        return fresh_instant(model, rank=rank, layers=layers, seed=asked.seed)
    found = load_instant(asked.adapter, model, rank=asked.rank)
    if len(found) != layers:
        raise ValueError(f"layers={layers}: {asked.adapter} has adapters from {len(found)} blocks")
    return found


class InstantLlama(Llama):
    """The model with InstantFT's adapters by block.

    Each adds to the input of the last norm.
    """

    def __init__(self, model: LanguageModel, tensor: Callable[[str], Array], *, blocks: Mapping[int, Adapter]) -> None:
        super().__init__(model, tensor)
        self.blocks = blocks

    def beside(self, layer: int, attended: Array) -> Array:
        """See :meth:`~..reference.llama.Llama.beside`."""
        each = self.blocks[layer]
        return attended.dtype.type(each.scale) * ((attended @ each.a.T) @ each.b.T)
