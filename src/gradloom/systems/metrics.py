"""Figures of ``metrics.json``: their units, and whether a run diverged."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from gradloom.output import some

__all__ = ["MOST_CLIPPED", "UNITS", "EpochVerdict", "units", "units_table", "verdict"]

#: Share of an epoch's words that may be clipped.
MOST_CLIPPED = 0.001

#: By the path of an entry; it holds for all below that have none of their own.
UNITS: Mapping[str, str] = {
    "adapter_parameters": "words",
    "accuracy_before": "share of what is held out; of text, of its learnt tokens",
    "accuracy_after": "share of what is held out; of text, of its learnt tokens",
    "auc_after": "area under the ROC curve, what is held out",
    "auc_before": "area under the ROC curve, what is held out",
    "base_bytes": "bytes read of frozen matrices, by step",
    "cache": "samples looked up",
    "cache_bytes_per_text": "bytes",
    "cached_texts": "texts",
    "classes_not_judged": "labels that only samples to learn from have",
    "classes_not_learnt": "labels that only samples to judge by have",
    "clock_mhz": "MHz",
    "confusion_after": "samples held out, a row a class, a column an answer",
    "confusion_before": "samples held out, a row a class, a column an answer",
    "cycles": "clock cycles, counted from bell to interrupt",
    "cycles_by_step": "clock cycles of each step",
    "equal_to_reference": "counters compared",
    "equal_to_reference.adapter_words": "words compared",
    "equal_to_reference.cached_bytes": "bytes compared",
    "equal_to_reference.commands": "commands whose cycles are compared with the forecast",
    "equal_to_reference.losses": "steps compared",
    "equal_to_reference.words": "words compared",
    "first_epoch.loss": "nats a sample or token, mean",
    "forecast": "clock cycles, forecast",
    "health.gradient_norm": "2**-23, sum of magnitudes of gradients that updates took",
    "health.saturated": "words clipped, of the whole program",
    "health.underflowed": "words that an update other than zero did not move",
    "examples": "examples, lines of data, or windows, counted",
    "held_out_after": "nats a token or sample, what is held out",
    "held_out_before": "nats a token or sample, what is held out",
    "held_out_deployed": "nats a token, text to judge by, adapter as it is delivered",
    "held_out_losses": "nats a token or sample, share that is right, AUC, what is held out, after a number of steps",
    "held_out_windows": "windows",
    "kept_step": "updates behind the adapters that are kept",
    "last_epoch.loss": "nats a sample or token, mean",
    "last_epoch.saturated": "words clipped, of the last epoch's steps",
    "last_epoch.words": "words made by the last epoch's steps",
    "loss": "nats a sample or token, mean of a step",
    "loss_after": "nats a token",
    "loss_before": "nats a token",
    "loss_deployed": "nats a token, adapter as it is delivered",
    "saturated": "words clipped, of the whole fine-tune",
    "tokens": "tokens of the whole text",
    "tokens_left_out": "tokens behind the last whole window",
    "windows": "windows of seq tokens",
}


def units(metrics: Mapping[str, Any]) -> dict[str, str]:
    """Those of :data:`UNITS` whose entries are there and have a value."""
    return {path: unit for path, unit in UNITS.items() if _at(metrics, path) is not None}


def _at(metrics: Any, path: str) -> Any:
    for name in path.split("."):
        metrics = metrics.get(name) if isinstance(metrics, Mapping) else None
    return metrics


def units_table() -> str:
    """Markdown of all."""
    return "".join(f"| `{path}` | {unit} |\n" for path, unit in UNITS.items())


class EpochVerdict(TypedDict):
    """The first and the last epoch, and reasons for divergence."""

    first_epoch: dict[str, float]
    last_epoch: dict[str, float | None]
    diverged: list[str]


def verdict(
    losses: Sequence[float],
    size: int,
    *,
    counts: Sequence[int] | None = None,
    clipped: Sequence[int] | None = None,
    words: Sequence[int] | None = None,
    steps: int | None = None,
    stopped: str | None = None,
    after: float | None = None,
) -> EpochVerdict:
    """Losses of the first and last epoch, and reasons for divergence.

    They are ``first_epoch`` and ``last_epoch`` as ``metrics.json`` has them, and ``diverged``: the reasons, in words.

    Parameters
    ----------
    losses : mean loss of each step
    size : int
        Steps of an epoch. The first ones are the first epoch, the last ones the last.
    counts : samples of each step of an epoch; by default of equal number
    clipped, words : of each step, how many words were clipped, of how many; in floating point none
    steps : int, optional
        That were asked for. Fewer were made where a loss or an adapter was not finite, or ``stopped`` says why.
    after : float, optional
        Loss of what the first step's loss was of, after the last step.
    """
    size = min(size, len(losses))
    if not size:
        raise ValueError("lr: the first step is not finite; a smaller one may keep it so")
    weights = list(counts)[:size] if counts else [1] * size
    first, last = (
        sum(loss * weight for loss, weight in zip(part, weights)) / sum(weights)
        for part in (losses[:size], losses[-size:])
    )
    held = None if clipped is None or words is None else (sum(clipped[-size:]), sum(words[-size:]))
    reasons = []
    if steps is not None and len(losses) < steps:
        reasons.append(
            f"it ended after step {len(losses)} of {steps}: {stopped or 'the next loss or adapter is not finite'}"
        )
    if last > first:
        reasons.append(f"the mean loss of the last epoch is {last:.4g}, above the first epoch's {first:.4g}")
    if after is not None and after > losses[0]:
        reasons.append(f"the loss is {after:.4g} after the last step, above {losses[0]:.4g} before the first")
    if held and held[0] > MOST_CLIPPED * held[1]:
        reasons.append(
            f"{held[0]:,} of the {some(held[1], 'word')} of the last epoch were clipped, "
            f"{100 * held[0] / held[1]:.2g} %, above {100 * MOST_CLIPPED:g} %"
        )
    saturated, made = held or (None, None)
    return {
        "first_epoch": {"loss": first},
        "last_epoch": {"loss": last, "saturated": saturated, "words": made},
        "diverged": reasons,
    }
