"""What answers of a network are worth: loss, share of right ones, and how well they rank."""

from collections.abc import Sequence

import numpy as np

from gradloom.graph.losses import LOSSES
from gradloom.systems.held_out import Score

from .data import NetworkSamples

__all__ = ["auc", "ranked", "scored"]


def auc(values: np.ndarray, positive: np.ndarray) -> float:
    """Area under the ROC curve: share of pairs whose positive one has the larger value; a tie is half a pair."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    ones, others = int(positive.sum()), int((~positive).sum())
    return float((ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * others))


def ranked(loss: str, found: np.ndarray, samples: NetworkSamples) -> float | None:
    """AUC of results ``[n, rows, features]``, where samples are of two kinds.

    They are anomalies, told by the error of their values; or labels of one output, or two classes.
    """
    if samples.odd is not None:
        return auc(samples.errors(found), samples.odd)
    wanted = samples.y.reshape(len(samples), -1)
    if wanted.shape[1] != 1 or set(np.unique(wanted)) != {0, 1}:
        return None
    if loss == "labels" and found[0].size == 1:
        return auc(found[:, 0, 0], wanted[:, 0] == 1)
    if loss == "classes" and found.shape[1:] == (1, 2):
        return auc(found[:, 0, 1] - found[:, 0, 0], wanted[:, 0] == 1)
    return None


def scored(loss: str, found: np.ndarray, samples: NetworkSamples, weights: Sequence[float] | None = None) -> Score:
    """Scores of results ``[n, rows, features]``; where there are anomalies, the loss is that of all others."""
    if samples.odd is not None:
        made = {"loss": float(samples.errors(found)[~samples.odd].mean())}
    elif loss == "classes":
        more = {} if weights is None else {"weights": weights}
        made = {"loss": LOSSES[loss](found[:, 0], samples.y, **more)[0]}
        made["accuracy"] = float((found[:, 0].argmax(1) == samples.y).mean())
    else:
        made = {"loss": LOSSES[loss](found, samples.y)[0]}
    area = ranked(loss, found, samples)
    return made if area is None else {**made, "auc": area}
