"""Losses of texts that are not learnt, while others are."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradloom.models.adapters.lora import Learnt

__all__ = ["Judging"]


@dataclass(kw_only=True)
class Judging:
    """Judges adapters before the first step, every so many steps, and after the last.

    Parameters
    ----------
    loss : callable
        Mean loss of the held-out texts with some adapters, nats a token; None: nothing is held out.
    every : int
        Steps between two losses.
    steps : int
        Of the fine-tune.
    patience : int
        Losses in a row without a lowest one after which it ends; the adapters of the lowest are kept. 0: it makes all
        steps and keeps the last ones.
    """

    loss: Callable[[Mapping[Any, Learnt]], float] | None
    every: int
    steps: int
    patience: int = 0
    #: Steps made and the loss then.
    losses: list[tuple[int, float]] = field(default_factory=list)
    #: Parts of the adapters of the lowest loss.
    best: dict[Any, dict[str, np.ndarray]] = field(default_factory=dict)

    def start(self, adapters: Mapping[Any, Learnt]) -> None:
        """Judges what a fine-tune starts from, unless that was done."""
        if not self.losses:
            self._judge(0, adapters)

    def after(self, step: int, adapters: Mapping[Any, Learnt]) -> bool:
        """Judges after a step if it is time; returns whether to end here."""
        if step % self.every and step != self.steps:
            return False
        self._judge(step, adapters)
        return bool(self.patience) and self._worse >= self.patience

    def finish(self, step: int, adapters: Mapping[Any, Learnt]) -> dict[Any, Learnt]:
        """The adapters to keep, after the last of all steps that were made."""
        if self.losses and self.losses[-1][0] != step:
            self._judge(step, adapters)
        if not (self.patience and self.best):
            return dict(adapters)
        return {name: each.taking(self.best[name]) for name, each in adapters.items()}

    @property
    def kept(self) -> tuple[int, float] | None:
        """Steps and loss of the adapters that are kept."""
        if not self.losses:
            return None
        return self._lowest if self.patience and math.isfinite(self._lowest[1]) else self.losses[-1]

    @property
    def ended(self) -> bool:
        """Whether patience ended the fine-tune."""
        return bool(self.patience and self.losses) and self._worse >= self.patience

    @property
    def _lowest(self) -> tuple[int, float]:
        """The first of the lowest losses; one that is not finite is above all."""
        return min(self.losses, key=lambda each: each[1] if math.isfinite(each[1]) else math.inf)

    @property
    def _worse(self) -> int:
        """Losses behind the lowest."""
        return len(self.losses) - 1 - self.losses.index(self._lowest)

    def _judge(self, step: int, adapters: Mapping[Any, Learnt]) -> None:
        if self.loss is None:
            return
        self.losses.append((step, self.loss(adapters)))
        if self._lowest == self.losses[-1]:
            self.best = {
                name: {which: values.copy() for which, values in each.parts.items()} for name, each in adapters.items()
            }

    def state(self) -> dict[str, Any]:
        """What must outlive an interruption, for :meth:`restore`."""
        return {"losses": self.losses, "best": self.best}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from such a state."""
        self.losses, self.best = [*state["losses"]], dict(state["best"])

    def figures(self) -> dict[str, Any]:
        """Entries of ``metrics.json``; none where nothing is held out."""
        kept = self.kept
        if kept is None:
            return {}
        return {
            "held_out_before": _number(self.losses[0][1]),
            "held_out_after": _number(kept[1]),
            "held_out_losses": [{"step": step, "loss": _number(loss)} for step, loss in self.losses],
            "kept_step": kept[0],
        }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
