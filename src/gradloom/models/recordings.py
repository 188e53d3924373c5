"""Recordings of sensors and of sound in folders, a folder a class."""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from gradloom.options import check_request
from gradloom.output import some

from .class_folders import PARTS, classes_in, files_in, in_turn, inside, parts_of
from .sound import Sound, read_wav

__all__ = ["WHOLE", "Cut", "labelled_recordings", "learnt_recordings"]


@dataclass(frozen=True)
class Cut:
    """How recordings become sequences.

    Attributes
    ----------
    window, hop : int, optional
        Steps of a sequence, and from one to the next. Without ``window`` a recording is a sequence; without ``hop``
        windows do not overlap.
    columns : str, optional
        Names of CSV files' columns between commas; without, all are taken.
    sound : str, optional
        Front end of WAV files; see :meth:`Sound.of`.
    """

    window: int | None = None
    hop: int | None = None
    columns: str | None = None
    sound: str | None = None

    def __post_init__(self) -> None:
        if self.hop is not None and self.window is None:
            raise ValueError(f"hop={self.hop}: must be left out without window")
        if self.columns is not None and self.sound is not None:
            raise ValueError(f"columns={self.columns}: must be left out with sound, whose features are the columns")

    def refuse(self, path: Path) -> None:
        """Refuses what only a folder's recordings have."""
        where = f"with data={path}, whose arrays are cut already"
        check_request(where, needless={field.name: getattr(self, field.name) for field in fields(self)})


#: Every recording is a sequence.
WHOLE = Cut()


def learnt_recordings(
    path: Path, *, classes: int, channels: int, cut: Cut, parts: Sequence[str] = PARTS
) -> dict[str, np.ndarray]:
    """``x_train``, ``y_train`` and the same of other ``parts`` of a folder.

    It has ``train/CLASS/FILE`` and ``test/CLASS/FILE``, CSV or WAV. Classes are numbered in the order of their names.
    Any fault is a :class:`ValueError` in one line.
    """
    found = {}
    for part, folders in parts_of(path, classes, parts).items():
        found[f"x_{part}"], found[f"y_{part}"] = _labelled(folders, channels, cut)
    return found


def labelled_recordings(
    path: Path, *, classes: int | None, channels: int, cut: Cut
) -> tuple[np.ndarray, np.ndarray | None]:
    """``(sequences [n, steps, channels], labels or None)`` of a folder.

    It has recordings without labels; or a folder a class; or ``test`` with these, as for a fine-tune.
    """
    folder = path / "test" if (path / "test").is_dir() else path
    if any(each.is_dir() for each in inside(folder)):
        if classes is None:
            raise ValueError(f"data={folder}: has folders of classes, the network has no classes: give their files")
        return _labelled(classes_in(folder, classes), channels, cut)
    files = files_in(folder, _endings(cut), "recordings")
    return _cut([(file, 0) for file in files], channels, cut, folder)[0], None


def _labelled(folders: Sequence[Path], channels: int, cut: Cut) -> tuple[np.ndarray, np.ndarray]:
    return _cut(in_turn(folders, _endings(cut), "recordings"), channels, cut, folders[0].parent)


def _endings(cut: Cut) -> tuple[str, ...]:
    return (".csv",) if cut.sound is None else (".wav",)


def _cut(files: Iterable[tuple[Path, int]], channels: int, cut: Cut, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Sequences of all recordings, and their labels."""
    sound = None if cut.sound is None else Sound.of(cut.sound)
    columns = [] if cut.columns is None else [each.strip() for each in cut.columns.split(",")]
    sequences: list[np.ndarray] = []
    labels = []
    for file, label in files:
        read = _table(file, columns) if sound is None else sound.features(read_wav(file, sound.rate))
        if read.shape[1] != channels:
            raise ValueError(f"data={file}: has {some(read.shape[1], 'channel')}, the network takes {channels}")
        steps = len(read) if cut.window is None else cut.window
        if not 0 < steps <= len(read):
            raise ValueError(f"data={file}: has {some(len(read), 'step')}: at least {max(steps, 1)}")
        if sequences and len(sequences[0]) != steps:
            raise ValueError(
                f"data={file}: has {some(steps, 'step')}, the recordings before it {len(sequences[0])}: "
                f"give --window STEPS, which cuts all to one length"
            )
        starts = range(0, len(read) - steps + 1, cut.hop or steps)
        sequences += [read[start : start + steps] for start in starts]
        labels += [label] * len(starts)
    return np.stack(sequences).astype(np.float32), np.array(labels)


def _table(file: Path, columns: Sequence[str]) -> np.ndarray:
    """Numbers ``[rows, columns]`` of a CSV file.

    A first row without a number names the columns, of which those asked for are taken in their order.
    """
    names: list[str] = []
    rows: list[list[float]] = []
    try:
        with file.open(newline="", encoding="utf-8-sig") as opened:
            reader = csv.reader(opened)
            for row in filter(None, reader):
                if not names and not rows and all(_number(each) is None for each in row):
                    names = [each.strip() for each in row]
                    continue
                width = len(names or rows[:1] and rows[0] or row)
                if len(row) != width:
                    raise ValueError(f"line {reader.line_num} has {some(len(row), 'column')}, those before it {width}")
                rows.append([_finite(each, reader.line_num) for each in row])
    except (UnicodeDecodeError, csv.Error, ValueError) as error:
        raise ValueError(f"data={file}: {error}") from None
    if not rows:
        raise ValueError(f"data={file}: has no row of numbers")
    if not columns:
        return np.array(rows)
    for name in columns:
        if names.count(name) != 1:
            has = f"columns {', '.join(names)}" if names else "no row that names its columns"
            raise ValueError(f"data={file}: has {has}; columns={','.join(columns)}: must be among them, each once")
    return np.array(rows)[:, [names.index(name) for name in columns]]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _finite(text: str, line: int) -> float:
    value = _number(text)
    if value is None or not np.isfinite(value):
        raise ValueError(f"line {line}: {text!r} is no finite number; numbers stand between commas")
    return value
