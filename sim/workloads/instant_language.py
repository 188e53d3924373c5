"""Fine-tunes a language model's adapters from every block to the head, as a user asks for it, and runs it with them."""
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gradloom.rtl.config import LinearConfig
from gradloom.rtl.models.instant import fresh_instant, load_instant
from gradloom.rtl.models.language import LanguageModel
from gradloom.rtl.models.lora import Adapter, finite
from gradloom.rtl.plan.language.descent import AdamW
from gradloom.rtl.plan.language.instant import InstantStep
from gradloom.rtl.plan.language.operations import EDGE

from ..reference.descent import Optimizer
from ..reference.llama import Array, Llama
from .instant import InstantTrainer, instant_machine
from .step import Frozen
from .trainer import StepResult, as_far_as_formats

__all__ = ["InstantLlama", "begin", "bound", "report", "tune"]


def begin(model: LanguageModel, folder: Path | str | None, *, rank: int | None, layers: int | None,
          seed: int) -> dict[int, Adapter]:
    """Adapters of a folder, or else fresh ones; those of ``layers`` blocks."""
    if folder is None:
        return fresh_instant(model, rank=8 if rank is None else rank, layers=layers, seed=seed)
    found = load_instant(folder, model, rank=rank)
    if layers is not None and len(found) != layers:
        raise ValueError(f"layers={layers}: {folder} has adapters from {len(found)} blocks")
    return found


def bound(config: LinearConfig, engine: str) -> int:
    """Rows that a tensor has at most: of the preset's machine, unless it is not asked."""
    return EDGE if engine == "float" else min(EDGE, config.tokens)


def tune(frozen: Frozen, adapters: dict[int, Adapter], texts: Sequence[Sequence[int]], steps: int,
         rule: float | AdamW | Optimizer, *, rows: int, config: LinearConfig | None,
         progress: Callable[[int, int, str], None]) -> tuple[InstantTrainer, list[StepResult], str | None]:
    """``steps`` updates, from ``texts`` in turn; with a ``config`` in RTL. All texts have the same length.

    A loss or an adapter that is not finite ends it early, without the update that led there; see
    :func:`~.trainer.as_far_as_formats`.
    """
    trainer = InstantTrainer(frozen, adapters, sorted(adapters), rule, rows=rows)
    if config is not None:
        instant_machine(trainer, texts, config, lambda text: progress(0, steps, text))
    try:
        kept = before = trainer.adapters

        def step(number: int) -> StepResult:
            nonlocal kept, before
            kept, before = before, dict(trainer.adapters)
            made = trainer.step(texts[number % len(texts)])
            if not (math.isfinite(made.loss) and finite(trainer.adapters)):
                # Adapters whose loss is not finite are of no use: those before the update that led there are.
                trainer.adapters = before if math.isfinite(made.loss) else kept
                raise ValueError("the next loss or adapter is not finite")
            return made

        found, stopped = as_far_as_formats(step, steps, progress)
        return trainer, found, stopped
    finally:
        if trainer.machine is not None:
            trainer.machine.close()


def report(model: LanguageModel, tokens: int, trainer: InstantTrainer) -> dict[str, int]:
    """What a fine-tune's figures say of the cache."""
    step = InstantStep(model, tokens, trainer.adapters[0].rank, trainer.layers, trainer.rows)
    return {"cached_texts": len(trainer.cache), "cache_bytes_per_text": step.cache_bytes}


class InstantLlama(Llama):
    """The model with such adapters by block, of which each adds to what reaches the last norm."""

    def __init__(self, model: LanguageModel, tensor: Callable[[str], Array], *,
                 blocks: Mapping[int, Adapter]) -> None:
        super().__init__(model, tensor)
        self.blocks = blocks

    def beside(self, layer: int, attended: Array) -> Array:
        """See :meth:`~..reference.llama.Llama.beside`."""
        each = self.blocks[layer]
        return attended.dtype.type(each.scale) * ((attended @ each.a.T) @ each.b.T)
