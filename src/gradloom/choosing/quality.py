"""What candidates learn of a user's text, in floating point."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gradloom.models.adapters.lora import LearntModule, layer_of
from gradloom.sim.run.threads import Threads
from gradloom.systems.text.reference.descent import fine_tune
from gradloom.systems.text.reference.llama import FloatModel
from gradloom.systems.text.reference.optimizers import FloatAdamW

from .candidates import METHODS, Candidate
from .texts import Split

__all__ = ["Slopes", "Tell", "Tensors", "held_out", "learns"]

#: Windows that gradients are taken of.
_LOOKS = 4

Tell = Callable[[int, int, str], None]
#: Tensors of a model by name.
Tensors = Callable[[str], np.ndarray]


class Slopes:
    """Fall in loss of each candidate's first step, in a first look.

    AdamW's first step moves each parameter by its rate, so the loss falls by about the rate times the sum of the
    gradient's absolute values. One gradient with adapters everywhere has that of all candidates, since a fresh adapter
    changes nothing.

    Parameters
    ----------
    llama : FloatModel
    tensor : callable
        A tensor of the model by its name.
    split : Split
    everywhere : mapping of str to Candidate
        Of each method, the candidate in which the most learns.
    seed : int
    threads : Threads
        What gradients are computed on.
    """

    def __init__(
        self,
        llama: FloatModel,
        tensor: Tensors,
        split: Split,
        everywhere: Mapping[str, Candidate],
        seed: int,
        tell: Tell,
        threads: Threads,
    ) -> None:
        self.ranks = {name: each.rank for name, each in everywhere.items()}
        adapters = {name: METHODS[name].fresh(llama.model, tensor, each, seed) for name, each in everywhere.items()}
        looks = [
            (names, tuple(window))
            for names, seq in _together(everywhere, adapters)
            for window in split.windows(seq)[:_LOOKS]
        ]

        def look(at: tuple[tuple[str, ...], tuple[int, ...]]) -> dict[str, dict[str, float]]:
            """Sums of a text by method and module."""
            names, window = at
            _, found = llama.gradients(
                window, {name: each for which in names for name, each in adapters[which].items()}
            )
            return {
                which: {name: sum(float(np.abs(part).sum()) for part in found[name]) for name in adapters[which]}
                for which in names
            }

        tell(0, len(looks), "gradients")
        seen: dict[Any, dict[str, dict[str, float]]] = {}
        for at, found in threads.run(look, looks):
            seen[at] = found
            tell(len(seen), len(looks), "gradients")
        self.sums: dict[str, dict[str, float]] = {}
        for which in everywhere:
            mine = [seen[at][which] for at in looks if which in at[0]]
            self.sums[which] = {name: sum(one[name] for one in mine) / len(mine) for name in adapters[which]}

    def of(self, each: Candidate) -> float:
        """Nats a token that the first step is worth."""
        method = METHODS[each.method]
        total = sum(
            value
            for module, value in self.sums[each.method].items()
            if module.rsplit(".", 1)[-1] in each.targets
            and not (module.startswith("model.layers.") and layer_of(module) < each.from_layer)
        )
        return method.lr * total * each.rank / self.ranks[each.method] if each.rank else method.lr * total


def _together(
    everywhere: Mapping[str, Candidate], adapters: Mapping[str, Mapping[str, LearntModule]]
) -> list[tuple[tuple[str, ...], int]]:
    """Methods whose gradients one pass has, with their tokens of a text.

    They learn in different modules, and a fresh adapter changes nothing of the others'.
    """
    found: list[tuple[tuple[str, ...], int]] = []
    for name, each in everywhere.items():
        for place, (names, seq) in enumerate(found):
            if seq == each.seq and not any(adapters[name].keys() & adapters[other].keys() for other in names):
                found[place] = (*names, name), seq
                break
        else:
            found.append(((name,), each.seq))
    return found


def held_out(llama: FloatModel, split: Split, adapters: Mapping[str, LearntModule] | None = None) -> float:
    """Mean loss of the held-out windows, nats a token.

    It is not finite where an adapter is not.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.mean([llama.loss(window, adapters) for window in split.judged]))


def learns(
    llama: FloatModel,
    tensor: Tensors,
    split: Split,
    each: Candidate,
    steps: int,
    *,
    seed: int,
    lr: float | None = None,
    tell: Tell | None = None,
    text: str = "",
) -> tuple[float, dict[str, LearntModule]]:
    """Held-out loss after ``steps`` updates, and the adapters.

    Adapters are fresh before; the loss is infinite if the fine-tune diverged.
    """
    method = METHODS[each.method]
    adapters = method.fresh(llama.model, tensor, each, seed)
    windows: Sequence[list[int]] = split.windows(each.seq)

    def progress(done: int, total: int, _: str) -> None:
        if tell is not None:
            tell(done, total, text)

    with np.errstate(over="ignore", invalid="ignore"):
        losses = fine_tune(
            llama, windows, adapters, FloatAdamW(lr=lr or method.lr), steps, progress, accumulate=each.accumulate
        )
    loss = held_out(llama, split, adapters) if len(losses) == steps else math.inf
    return (loss if math.isfinite(loss) else math.inf), adapters
