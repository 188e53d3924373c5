"""Results of a fine-tune in Python, and its steps as they come."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Callback", "HeldOut", "Step", "Tuned"]


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Score of what is held out after ``step`` updates.

    ``loss``: mean, or None where it is not finite. ``accuracy``: share that is right, where answers are right or wrong.
    ``auc``: area under the ROC curve, where answers rank.
    """

    step: int
    loss: float | None
    accuracy: float | None = None
    auc: float | None = None


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a callback hears: a step that was made, or a score.

    Attributes
    ----------
    number, steps : int
        Updates that were made, of how many.
    loss : float, optional
        Mean loss of the step, before its update.
    held_out : HeldOut, optional
        Score after it, which is heard by itself.
    """

    number: int
    steps: int
    loss: float | None = None
    held_out: HeldOut | None = None


Callback = Callable[[Step], object]


@dataclass(frozen=True, kw_only=True, eq=False)
class Tuned(Mapping[str, Any]):
    """A fine-tune that was made. As a mapping it is ``metrics.json``, whose units are in ``result["units"]``.

    Attributes
    ----------
    folder : Path
        Of the results.
    metrics : mapping
    losses : sequence of float
        Mean loss of each step.
    held_out : sequence of HeldOut
        From before the first step on.
    accuracy_before, accuracy_after : float, optional
        Share of what is held out that is right.
    cycles, forecast : int, optional
        Counted in RTL, and forecast; of the whole fine-tune.
    diverged : sequence of str
        Reasons, if it did.
    """

    folder: Path
    metrics: Mapping[str, Any]
    losses: Sequence[float]
    held_out: Sequence[HeldOut]
    accuracy_before: float | None
    accuracy_after: float | None
    cycles: int | None
    forecast: int | None
    diverged: Sequence[str]

    @classmethod
    def of(cls, folder: Path, metrics: Mapping[str, Any]) -> "Tuned":
        """Of what a fine-tune has written to a folder."""
        return cls(
            folder=folder,
            metrics=metrics,
            losses=metrics["loss"],
            held_out=[HeldOut(**each) for each in metrics.get("held_out_losses", ())],
            accuracy_before=metrics.get("accuracy_before"),
            accuracy_after=metrics.get("accuracy_after"),
            cycles=(metrics.get("cycles") or {}).get("total"),
            forecast=(metrics.get("forecast") or {}).get("total"),
            diverged=metrics["diverged"],
        )

    def __getitem__(self, name: str) -> Any:
        return self.metrics[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.metrics)
