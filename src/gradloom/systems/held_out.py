"""What a fine-tune is judged by: options, parts of data, and losses while it learns."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from gradloom.options import Bounds, TuneOptions, option
from gradloom.output import some

if TYPE_CHECKING:
    import numpy as np

    from gradloom.models.adapters.lora import LearntModule

__all__ = [
    "ClassOptions",
    "HeldOutOptions",
    "Judging",
    "NamedArrays",
    "Score",
    "accuracy",
    "class_scores",
    "confusion",
    "cross_entropy",
    "drawn_parts",
    "held_count",
    "share_of",
]

#: By name.
Arrays = dict[str, Any]
#: ``loss``, mean of what is held out; ``accuracy`` where answers are right or wrong, ``auc`` where they rank.
Score = Mapping[str, float]
#: Its stream of random numbers is its own.
_HELD = 0x4E1D
#: Classes of a network whose confusion is told.
_MOST_CLASSES = 32


def share_of(held_out: object) -> float | None:
    """The share that an option ``held_out`` names; None where it names a file."""
    try:
        return None if held_out is None else float(str(held_out))
    except ValueError:
        return None


def held_count(count: int, share: float, what: str) -> int:
    """How many of ``count`` are held out; refuses none and all."""
    held = round(share * count)
    if not 0 < held < count:
        some_of = some(count, what)
        if count < 2:
            raise ValueError(f"held_out={share:g}: of {some_of} none can be held out; give more, or a file")
        near = 1 / count if not held else 1 - 1 / count
        raise ValueError(f"held_out={share:g}: of {some_of} holds out {held}; give --held-out {near:.2g}, or a file")
    return held


def drawn_parts(count: int, share: float, seed: int, what: str) -> "tuple[np.ndarray, np.ndarray]":
    """Places of ``count`` samples to learn from, and of those held out; both ascend.

    They are drawn from raw PCG64 words, a stream that NumPy promises never to change.
    """
    import numpy as np

    held = held_count(count, share, what)
    drawn = np.argsort(np.random.PCG64([seed, _HELD]).random_raw(count), kind="stable")
    return np.sort(drawn[held:]), np.sort(drawn[:held])


def cross_entropy(logits: "np.ndarray", labels: "np.ndarray") -> "tuple[np.ndarray, np.ndarray]":
    """``(loss [n], softmax - onehot [n, classes])`` of samples.

    It is every sample's loss and its gradient to the logits.
    """
    import numpy as np

    shifted = logits - logits.max(axis=1, keepdims=True)
    exp = np.exp(shifted)
    total = exp.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = np.log(total[:, 0]) - shifted[rows, labels]
    d = exp / total
    d[rows, labels] -= 1
    return loss, d


def accuracy(logits: "np.ndarray", labels: "np.ndarray") -> float:
    """Fraction whose largest logit is the label's."""
    return float((logits.argmax(axis=1) == labels).mean())


def class_scores(logits: "np.ndarray", labels: "np.ndarray") -> Score:
    """Mean cross-entropy of logits, and the share that is right."""
    return {"loss": float(cross_entropy(logits, labels)[0].mean()), "accuracy": accuracy(logits, labels)}


def confusion(before: "np.ndarray", after: "np.ndarray", labels: "np.ndarray") -> dict[str, list[list[int]]]:
    """Answers to what is held out, a row a label, of logits ``[n, classes]``; none of many classes."""
    import numpy as np

    told, classes = {}, before.shape[1]
    if classes <= _MOST_CLASSES:
        for when, logits in (("before", before), ("after", after)):
            counts = np.bincount(classes * labels + logits.argmax(axis=1), minlength=classes**2)
            told[f"confusion_{when}"] = counts.reshape(classes, classes).tolist()
    return told


@dataclass(frozen=True, kw_only=True)
class HeldOutOptions(TuneOptions):
    """Options of a fine-tune that is judged by what it does not learn."""

    held_out: Path | str | float | None = option(
        "What to judge by, which is not learnt: a share below 1 of what there is to learn from, or a file or folder.",
        metavar="SHARE|FILE",
        usual="the data's test part; of text nothing",
    )
    judge_steps: int = option(
        "Steps between losses of what is held out; 0: an epoch.", 0, metavar="N", bounds=Bounds(0, 100_000)
    )
    patience: int = option(
        "Such losses in a row without a lowest one after which it stops, and the adapters of the lowest are kept; 0: "
        "all steps are made.",
        0,
        metavar="N",
        bounds=Bounds(0, 100_000),
    )

    def __post_init__(self) -> None:
        if isinstance(self.held_out, float):
            object.__setattr__(self, "held_out", f"{self.held_out:g}")
        super().__post_init__()

    def check(self) -> Self:
        """Checks bounds, and that what is held out can be."""
        super().check()
        if self.held_out is not None:
            share, path = share_of(self.held_out), Path(str(self.held_out))
            if share is None and not path.exists():
                raise ValueError(f"held_out={path}: no such file or folder; or give a share above 0 and below 1")
            if share is not None and not 0 < share < 1:
                raise ValueError(f"held_out={path}: must be above 0 and below 1, or a file")
        return self

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts that the data must have."""
        from gradloom.models.class_folders import PARTS

        return PARTS if self.held_out is None else PARTS[:1]

    def divided(self, arrays: Arrays, what: str, read: "Callable[[Path], tuple[Any, Any]]") -> Arrays:
        """``x_train`` and ``y_train`` with what is held out as ``x_test`` and ``y_test``.

        ``what``: a sample, in words. ``read``: samples and labels of a file or folder.
        """
        if self.held_out is None:
            return arrays
        share, (x, y) = share_of(self.held_out), (arrays["x_train"], arrays["y_train"])
        if share is None:
            x_test, y_test = read(Path(str(self.held_out)))
            if y_test is None:
                raise ValueError(f"held_out={self.held_out}: has no labels to judge by")
            return {"x_train": x, "y_train": y, "x_test": x_test, "y_test": y_test}
        if not x.ndim or y.shape[:1] != x.shape[:1]:
            raise ValueError(f"y_train has shape {y.shape}: x_train has shape {x.shape}")
        learnt, held = drawn_parts(len(x), share, self.seed, what)
        return {"x_train": x[learnt], "y_train": y[learnt], "x_test": x[held], "y_test": y[held]}


@dataclass(frozen=True, kw_only=True)
class ClassOptions(HeldOutOptions):
    """Options of a fine-tune whose answers may be classes."""

    class_weights: str = option(
        "Weights of classes in the loss: balanced, by how few samples each has; or a number each, with commas between.",
        "none",
        metavar="none|balanced|W,W,...",
    )

    def weights(self, labels: "np.ndarray", classes: int) -> list[float] | None:
        """Weights of classes; None: all count the same.

        ``balanced``: all classes that there are have the same sum of weights, and samples a mean weight of 1.
        """
        import numpy as np

        asked = self.class_weights
        if asked == "none":
            return None
        if asked == "balanced":
            counts = np.bincount(labels.ravel(), minlength=classes)
            made: list[float] = (labels.size / (np.count_nonzero(counts) * np.maximum(counts, 1))).tolist()
            return made
        try:
            found = [float(part) for part in asked.split(",")]
        except ValueError:
            found = []
        if len(found) != classes or not all(math.isfinite(each) and each > 0 for each in found):
            raise ValueError(
                f"class_weights={asked}: must be none, balanced, or {classes} numbers above 0 with commas between, "
                f"one a class"
            )
        return found


@dataclass(frozen=True)
class NamedArrays:
    """Arrays that learn together, by name."""

    parts: "dict[str, np.ndarray]"

    def taking(self, parts: "Mapping[str, np.ndarray]") -> "NamedArrays":
        """The same with other values."""
        return NamedArrays(dict(parts))


@dataclass(kw_only=True)
class Judging:
    """Judges adapters before the first step, every so many steps, and after the last.

    Parameters
    ----------
    score : callable
        Of adapters, by what is held out; None: nothing is.
    every : int
        Steps between two scores.
    steps : int
        Of the fine-tune.
    patience : int
        Losses in a row without a lowest one after which it ends; the adapters of the lowest are kept. 0: it makes all
        steps and keeps the last ones.
    heard : callable
        Gets the number of steps made, that of all, and each score.
    """

    score: Callable[[Mapping[Any, "LearntModule"]], Score] | None
    every: int
    steps: int
    patience: int = 0
    heard: Callable[[int, int, Mapping[str, float | None]], None] = lambda step, steps, score: None
    #: Steps made and the score then.
    scores: list[tuple[int, Score]] = field(default_factory=list)
    #: Parts of the adapters of the lowest loss.
    best: "dict[Any, dict[str, np.ndarray]]" = field(default_factory=dict)

    def start(self, adapters: "Mapping[Any, LearntModule]") -> None:
        """Judges what a fine-tune starts from, unless that was done."""
        if not self.scores:
            self._judge(0, adapters)

    def after(self, step: int, adapters: "Mapping[Any, LearntModule]") -> bool:
        """Judges after a step if it is time; returns whether to end here."""
        if step % self.every and step != self.steps:
            return False
        self._judge(step, adapters)
        return bool(self.patience) and self._worse >= self.patience

    def finish(self, step: int, adapters: "Mapping[Any, LearntModule]") -> "dict[Any, LearntModule]":
        """The adapters to keep, after the last of all steps that were made."""
        if self.scores and self.scores[-1][0] != step:
            self._judge(step, adapters)
        if not (self.patience and self.best):
            return dict(adapters)
        return {name: each.taking(self.best[name]) for name, each in adapters.items()}

    @property
    def kept(self) -> tuple[int, Score] | None:
        """Steps and score of the adapters that are kept."""
        if not self.scores:
            return None
        return self._lowest if self.patience and math.isfinite(self._lowest[1]["loss"]) else self.scores[-1]

    @property
    def ended(self) -> bool:
        """Whether patience ended the fine-tune."""
        return bool(self.patience and self.scores) and self._worse >= self.patience

    @property
    def _lowest(self) -> tuple[int, Score]:
        """The first of the lowest losses; one that is not finite is above all."""
        return min(self.scores, key=lambda each: each[1]["loss"] if math.isfinite(each[1]["loss"]) else math.inf)

    @property
    def _worse(self) -> int:
        """Losses behind the lowest."""
        return len(self.scores) - 1 - self.scores.index(self._lowest)

    def _judge(self, step: int, adapters: "Mapping[Any, LearntModule]") -> None:
        if self.score is None:
            return
        self.scores.append((step, dict(self.score(adapters))))
        self.heard(step, self.steps, _told(self.scores[-1][1]))
        if self._lowest is self.scores[-1]:
            self.best = {
                name: {which: values.copy() for which, values in each.parts.items()} for name, each in adapters.items()
            }

    def state(self) -> dict[str, object]:
        """What must outlive an interruption, for :meth:`restore`."""
        return {"scores": self.scores, "best": self.best}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from such a state."""
        self.scores, self.best = [*state["scores"]], dict(state["best"])

    def figures(self) -> dict[str, Any]:
        """Entries of ``metrics.json``; none where nothing is held out."""
        kept = self.kept
        if kept is None:
            return {}
        told: dict[str, Any] = {
            "held_out_before": _number(self.scores[0][1]["loss"]),
            "held_out_after": _number(kept[1]["loss"]),
            "held_out_losses": [{"step": step, **_told(score)} for step, score in self.scores],
            "kept_step": kept[0],
        }
        for name in ("accuracy", "auc"):
            if name in kept[1]:
                told |= {f"{name}_before": self.scores[0][1][name], f"{name}_after": kept[1][name]}
        return told


def _told(score: Score) -> dict[str, float | None]:
    return {name: _number(value) for name, value in score.items()}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
