"""Fine-tunes in floating point."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gradloom.models.adapters.lora import LearntModule, finite, lowest_layer
from gradloom.workload import Progress, silent

from ...rates import CONSTANT, Schedule
from ..data import Turns
from ..quantized import Quantized
from .llama import FloatModel, Llama
from .optimizers import FloatAdamW, FloatLion, Optimizer, Sgd

__all__ = ["OPTIMIZERS", "build", "build_quickest", "fine_tune"]

#: Optimisers, each with the rate that it has unless another is given.
OPTIMIZERS: Mapping[str, tuple[type[FloatAdamW] | type[Sgd], float]] = {
    "adamw": (FloatAdamW, 1e-3),
    "lion": (FloatLion, 1e-4),
    "sgd": (Sgd, 0.1),
}


def build(checkpoint: Quantized, *, layers: int | None = None, progress: Progress | None = None) -> Llama:
    """The model in floating point."""
    (progress or silent)(0, 0, "reading the weights")
    return Llama(checkpoint.model, checkpoint.tensor, layers=layers)


def build_quickest(checkpoint: Quantized, *, progress: Progress | None = None) -> tuple[FloatModel, str]:
    """The model in floating point by the fastest engine, and its name.

    That is PyTorch where it is installed (the extra ``train``), else our own engine. Losses agree within rounding.
    """
    try:
        import torch

        from .torch_llama import FloatByTorch
    except ImportError:
        return build(checkpoint, progress=progress), "gradloom"
    (progress or silent)(0, 0, "reading the weights")
    return FloatByTorch(checkpoint.model, checkpoint.tensor), f"torch {torch.__version__}"


def fine_tune(
    llama: FloatModel,
    texts: Sequence[Sequence[int]],
    adapters: Mapping[str, LearntModule],
    optimizer: Optimizer,
    steps: int,
    progress: Progress | None = None,
    *,
    accumulate: int = 1,
    losses: Sequence[float] = (),
    kept: Mapping[str, np.ndarray] | None = None,
    after: Callable[[list[float], Mapping[str, np.ndarray]], bool] = lambda losses, kept: False,
    seen: Callable[[Mapping[str, LearntModule]], Mapping[str, LearntModule]] = lambda adapters: adapters,
    schedule: Schedule = CONSTANT,
    seed: int | None = None,
    plus: float = 1.0,
    held: bool = False,
) -> list[float]:
    """Makes ``steps`` updates of the adapters, in place.

    Each is by the mean gradient of ``accumulate`` of ``texts`` in turn, with ``seed`` in another order in each epoch,
    and with the rate that ``schedule`` gives it, ``plus`` times that for B; returns the mean loss before each. With
    ``held`` A of adapters stays. A loss
    or an adapter that is not finite ends it early, without the update that led there. To continue an interrupted one:
    ``losses`` of the steps made and the parameters ``kept`` before the last of them, as ``after`` got them, which says
    whether a step was the last. ``seen``: the adapters that losses and gradients are computed with.
    """
    turns = Turns(texts, accumulate, seed)
    parameters = {
        f"{name}.{which}": array
        for name, each in adapters.items()
        for which, array in each.parts.items()
        if not (held and which == "a")
    }
    losses, kept = list(losses), kept or {}
    lowest = lowest_layer(adapters)
    entries: dict[tuple[int, ...], np.ndarray] = {}

    def gradients(tokens: Sequence[int]) -> tuple[float, dict[str, tuple[np.ndarray, ...]]]:
        if not lowest:
            return llama.gradients(tokens, seen(adapters))
        text = tuple(tokens)
        if text not in entries:
            entries[text] = llama.entering(lowest, tokens)
        return llama.gradients(tokens, seen(adapters), entries[text])

    for step in range(len(losses), steps):
        if progress is not None:
            progress(step, steps, "fine-tuning")
        found = [gradients(tokens) for tokens in turns.of(step)]
        loss = sum(each for each, _ in found) / accumulate
        if not math.isfinite(loss):
            _restore(parameters, kept)
            break
        kept = {name: each.copy() for name, each in parameters.items()}
        mean = {
            f"{name}.{which}": np.sum([pairs[name][place] for _, pairs in found], axis=0) / accumulate
            for name, each in adapters.items()
            for place, which in enumerate(each.parts)
        }
        factor = schedule.factor(step + 1)
        optimizer.step(parameters, mean, {name: factor * (plus if name.endswith(".b") else 1.0) for name in parameters})
        if not finite(adapters):
            _restore(parameters, kept)
            break
        losses.append(loss)
        if after(losses, kept):
            break
    return losses


def _restore(parameters: Mapping[str, np.ndarray], kept: Mapping[str, np.ndarray]) -> None:
    for name, values in kept.items():
        parameters[name][...] = values
