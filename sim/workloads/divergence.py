"""Detects fine-tunes that diverged."""

from collections.abc import Sequence
from typing import Any

__all__ = ["MOST_CLIPPED", "verdict"]

#: Share of an epoch's words that may be clipped.
MOST_CLIPPED = 0.001


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
) -> dict[str, Any]:
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
            f"{held[0]:,} of the {held[1]:,} words of the last epoch were clipped, "
            f"{100 * held[0] / held[1]:.2g} %, above {100 * MOST_CLIPPED:g} %"
        )
    saturated, made = held or (None, None)
    return {
        "first_epoch": {"loss": first},
        "last_epoch": {"loss": last, "saturated": saturated, "words": made},
        "diverged": reasons,
    }
