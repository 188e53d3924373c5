"""InstantFT of a language model in floating point, and its task."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from gradloom.models.adapters.language.instant import fresh_instant, load_instant, save_instant
from gradloom.models.adapters.lora import Adapter
from gradloom.models.language import LanguageModel
from gradloom.systems.job import Job
from gradloom.systems.task import Outcome

from .costs.instant_budget import instant_memory
from .costs.request import parse_targets
from .operations.tensors import EDGE
from .reference.llama import Llama, greedy
from .reference.mathematics import Array
from .run.instant import InstantTrainer, instant_machine
from .task import TextTask
from .workload import InstantTextOptions

__all__ = ["InstantLlama", "InstantTextTask", "prepare"]


class InstantTextTask(TextTask):
    """A fine-tune by InstantFT."""

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
        self.rows = EDGE if self.exact else min(EDGE, self.config.tokens)
        self.read(rank=self.adapters[0].rank)
        self.check_cache(instant_memory(request))

    def simulated(self) -> Outcome:
        """See :class:`~..task.Task`."""
        trainer, tell = self._trainer(), self.job.tell
        texts = self.turns.used(self.steps)
        instant_machine(
            trainer, texts, self.config, lambda text: tell(0, self.steps, text), self.job.chosen(), self.job.board()
        )
        return self._in_steps(trainer)

    def reference(self) -> Outcome:
        """See :class:`~..task.Task`."""
        return self._in_steps(self._trainer())

    mathematics = reference

    def _trainer(self) -> InstantTrainer:
        return InstantTrainer(
            self.frozen(),
            self.adapters,
            sorted(self.adapters),
            self.in_float() if self.exact else self.rule,
            rows=self.rows,
            schedule=self.schedule,
        )

    def _in_steps(self, trainer: InstantTrainer) -> Outcome:
        return self.in_steps(trainer, self.judging_texts(lambda adapters, tokens: trainer.score(tokens)))

    @cached_property
    def llama(self) -> "InstantLlama":
        """The model in floating point, read when something is first asked of it."""
        return InstantLlama(self.shapes, self.checkpoint.tensor, blocks=self.adapters, layers=self.layers)

    def following(self, prompt: Sequence[int], count: int, adapters: Mapping[Any, Any]) -> Iterator[int]:
        """See :class:`~.task.TextTask`."""
        self.llama.blocks = adapters
        return greedy(self.llama, prompt, count, ends=self.tokenizer.control)

    def keep(self, folder: Path, learnt: Any) -> None:
        """See :class:`~..task.Task`."""
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

    def __init__(
        self,
        model: LanguageModel,
        tensor: Callable[[str], Array],
        *,
        blocks: Mapping[int, Adapter],
        layers: int | None = None,
    ) -> None:
        super().__init__(model, tensor, layers=layers)
        self.blocks = blocks

    def beside(self, layer: int, attended: Array) -> Array:
        """See :meth:`~..reference.llama.Llama.beside`."""
        each = self.blocks[layer]
        return attended.dtype.type(each.scale) * ((attended @ each.a.T) @ each.b.T)
