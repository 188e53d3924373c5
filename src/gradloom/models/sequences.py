"""Sequences and classes: shipped recordings, or a user's file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from gradloom.output import some

from .class_folders import PARTS
from .files.archive import read_labelled
from .recordings import WHOLE, Cut, learnt_recordings

__all__ = [
    "CLASSES",
    "FOLDS",
    "PERSONS",
    "SPAR_STEPS",
    "SequenceSet",
    "check_sequences",
    "fold_of",
    "load_sequences",
    "spar_model",
    "spar_person",
    "spar_windows",
    "taken",
]

DATA = Path(__file__).parent / "data"
#: Exercises of the shipped recordings, by class.
CLASSES = ("pendulum", "abduction", "elevation", "internal rotation", "external rotation", "trapezius", "row")
#: People whom each shipped network has never seen.
FOLDS = ((1, 2, 3), (4, 5, 6), (7, 8, 9, 10))
PERSONS = sum(map(len, FOLDS))
#: Samples of a window, 4 s; and from one window to the next where a network is judged.
SPAR_STEPS, _HOP = 100, 50
#: Bytes of the recordings are sixteenths.
_UNIT = 1 / 16
#: Shares of a recording, in percent: to learn from, and from where on to judge. No sample is in both.
_LEARN_TO, _JUDGE_FROM = 30, 42
_WINDOWS = 10


@dataclass(frozen=True, kw_only=True, eq=False)
class SequenceSet:
    """Sequences to learn from and others to judge by.

    Parameters
    ----------
    x_train, x_test : real arrays ``[n, steps, channels]``
    y_train, y_test : integer arrays ``[n]``, each in ``[0, classes)``
    classes, channels : int
        Of the network that is to take them.
    tokens : int
        Rows of the table with which it begins: then ``x`` are tokens ``[n, steps]``; 0: there is none.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int
    channels: int
    tokens: int = 0

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            x, y = f"x_{part}", f"y_{part}"
            check_sequences(x, getattr(self, x), self.channels, self.tokens)
            _check_classes(y, getattr(self, y), len(getattr(self, x)), self.classes)
            object.__setattr__(self, x, np.asarray(getattr(self, x), np.int64 if self.tokens else np.float32))
            object.__setattr__(self, y, np.asarray(getattr(self, y), np.int64))
        if self.x_train.shape[1] != self.x_test.shape[1]:
            raise ValueError(
                f"x_test has sequences of {some(self.x_test.shape[1], 'step')}: x_train has {self.x_train.shape[1]}"
            )


def check_sequences(name: str, x: np.ndarray, channels: int, tokens: int = 0) -> None:
    """Refuses what is not ``[n, steps, channels]`` of finite numbers.

    With ``tokens`` it must be ``[n, steps]`` of so many tokens.
    """
    if tokens:
        if x.dtype.kind not in "iu" or x.ndim != 2 or not x.size:
            raise ValueError(
                f"{name} has dtype {x.dtype} and shape {list(x.shape)}: the network takes tokens, integers [n, steps]"
            )
        if x.min() < 0 or x.max() >= tokens:
            raise ValueError(f"{name} holds tokens from {x.min()} to {x.max()}: must be from 0 to {tokens - 1}")
        return
    if x.dtype.kind not in "fiu":
        raise ValueError(f"{name} has dtype {x.dtype}: it must be numbers")
    if x.ndim != 3 or not x.size:
        raise ValueError(f"{name} has shape {list(x.shape)}: expected [n, steps, channels], none of them 0")
    if x.shape[2] != channels:
        raise ValueError(f"{name} has {some(x.shape[2], 'channel')}: the network takes {channels}")
    if not np.isfinite(x).all():
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])
        raise ValueError(f"{name}{list(at)} is {x[at]}: it must be finite")


def taken(channels: int, tokens: int) -> str:
    """What a network takes, in words; ``tokens``: rows of its table."""
    return f"tokens from 0 to {tokens - 1}" if tokens else some(channels, "channel")


def _check_classes(name: str, y: np.ndarray, count: int, classes: int) -> None:
    if y.dtype.kind not in "iu" or y.shape != (count,):
        raise ValueError(f"{name} has dtype {y.dtype} and shape {list(y.shape)}: expected integers, [{count}]")
    if y.min() < 0 or y.max() >= classes:
        raise ValueError(f"{name} holds {y.min()} to {y.max()}: classes must be from 0 to {classes - 1}")


def load_sequences(
    path: Path,
    *,
    classes: int,
    channels: int,
    tokens: int = 0,
    cut: Cut = WHOLE,
    parts: Sequence[str] = PARTS,
    divided: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]] = dict,
) -> SequenceSet:
    """``x_train``, ``y_train``, ``x_test``, ``y_test`` of a user's file, or of a folder of recordings.

    ``divided`` makes them of the arrays of ``parts``. :class:`ValueError` says what is wrong with them.
    """
    if path.is_dir():
        if tokens:
            raise ValueError(f"data={path}: is a folder, the network takes {taken(channels, tokens)}: give an .npz")
        arrays = learnt_recordings(path, classes=classes, channels=channels, cut=cut, parts=parts)
    else:
        cut.refuse(path)
        arrays = read_labelled(path, parts)
    arrays = divided(arrays)
    try:
        return SequenceSet(**arrays, classes=classes, channels=channels, tokens=tokens)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


@cache
def _recordings() -> tuple[tuple[np.ndarray, int, int], ...]:
    """``(x [samples, 6], class, person)`` of each recording."""
    with np.load(DATA / "spar.npz") as file:
        held = {name: file[name] for name in file.files}
    # Sums of bytes wrap, as the differences did.
    codes = np.cumsum(held["change"], axis=1, dtype=np.int8).T
    ends = np.cumsum(held["length"], dtype=np.int64)
    pieces = np.split(codes.astype(np.float32) * np.float32(_UNIT), ends[:-1])
    return tuple((x, int(y), int(person)) for x, y, person in zip(pieces, held["y"], held["person"]))


def spar_windows(
    persons: tuple[int, ...], hop: int = _HOP, *, steps: int = SPAR_STEPS
) -> tuple[np.ndarray, np.ndarray]:
    """Windows of people's whole recordings, one every ``hop`` samples.

    Returns ``(x [n, steps, 6], y [n])``.
    """
    return _stacked(
        [(_cut(x, range(0, len(x) - steps + 1, hop), steps), y) for x, y, person in _recordings() if person in persons]
    )


def spar_person(person: int) -> SequenceSet:
    """Windows of a person: 140 to learn from, and others to judge by.

    Ten windows come from the first 30 % of each recording; others, one every 2 s, from its last 58 %.
    """
    if not 1 <= person <= PERSONS:
        raise ValueError(f"person={person}: must be from 1 to {PERSONS}")
    learn, judge = [], []
    for x, y, owner in _recordings():
        if owner == person:
            first = np.linspace(0, len(x) * _LEARN_TO // 100 - SPAR_STEPS, _WINDOWS).astype(int)
            learn.append((_cut(x, first), y))
            start = -(-len(x) * _JUDGE_FROM // 100)
            judge.append((_cut(x, range(start, len(x) - SPAR_STEPS + 1, _HOP)), y))
    (x_train, y_train), (x_test, y_test) = _stacked(learn), _stacked(judge)
    return SequenceSet(x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test, classes=len(CLASSES), channels=6)


def fold_of(person: int) -> int:
    """Number of the shipped network that has never seen a person."""
    return next(number for number, people in enumerate(FOLDS) if person in people)


def spar_model(fold: int, hidden: int = 64) -> Path:
    """File of the network that has never seen ``FOLDS[fold]``.

    Of 32 hidden elements there is that of the first fold.
    """
    return DATA / f"spar_lstm{hidden}_without_{'_'.join(map(str, FOLDS[fold]))}.onnx"


def _cut(x: np.ndarray, starts: range | np.ndarray, steps: int = SPAR_STEPS) -> np.ndarray:
    return np.stack([x[start : start + steps] for start in starts])


def _stacked(found: list[tuple[np.ndarray, int]]) -> tuple[np.ndarray, np.ndarray]:
    x = np.concatenate([each for each, _ in found])
    return x, np.concatenate([np.full(len(each), y, np.int64) for each, y in found])
