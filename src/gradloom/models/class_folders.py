"""Folders of a user's files, a folder a class."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from gradloom.output import some

__all__ = ["PARTS", "classes_in", "files_in", "in_turn", "inside", "parts_of"]

#: Parts of data: to learn from, and to judge by.
PARTS = ("train", "test")


def inside(folder: Path) -> list[Path]:
    """Files and folders but hidden ones, by name."""
    return sorted(each for each in folder.iterdir() if not each.name.startswith("."))


def parts_of(path: Path, classes: int, parts: Sequence[str] = PARTS) -> dict[str, list[Path]]:
    """Folders of the classes in each of ``parts``, in the order of their names.

    A folder of classes alone is to learn from, where that part alone is asked for. :class:`ValueError` where one part
    has not the classes of the other.
    """
    if parts == PARTS[:1] and path.is_dir() and not any((path / part).exists() for part in PARTS):
        return {PARTS[0]: classes_in(path, classes)}
    found = {part: _folders(path / part) for part in parts}
    for part, other in itertools.permutations(parts, 2):
        names = [folder.name for folder in found[part]]
        for folder in found[other]:
            if folder.name not in names:
                raise ValueError(
                    f"data={path}: class {folder.name} is in {other} and not in {part}: both must have the same folders"
                )
    return {part: classes_in(path / part, classes) for part in parts}


def classes_in(folder: Path, count: int) -> list[Path]:
    """Folders of ``count`` classes, in the order of their names."""
    found = _folders(folder)
    if len(found) != count:
        raise ValueError(f"data={folder}: has {some(len(found), 'class folder')}, the network has {count} classes")
    return found


def _folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise ValueError(
            f"data={folder.parent}: has no folder {folder.name}: must have train/CLASS and test/CLASS; or give "
            f"--held-out SHARE, with train/CLASS or CLASS alone"
        )
    found = inside(folder)
    for each in found:
        if not each.is_dir():
            raise ValueError(f"data={each}: is a file among folders of classes: put it into one of them")
    return found


def files_in(folder: Path, endings: Sequence[str], what: str) -> list[Path]:
    """Files of a folder, which all have one of the endings.

    ``what`` names them in messages.
    """
    files = inside(folder)
    if not files:
        raise ValueError(f"data={folder}: has no {what}")
    for file in files:
        if file.suffix.lower() not in endings:
            raise ValueError(f"data={file}: must end in {', '.join(endings)}; take it out of the folder")
    return files


def in_turn(folders: Sequence[Path], endings: Sequence[str], what: str) -> Iterator[tuple[Path, int]]:
    """``(file, label)`` of all classes in turn, so that each batch has several."""
    files = [[(file, label) for file in files_in(folder, endings, what)] for label, folder in enumerate(folders)]
    for n in range(max(map(len, files))):
        yield from (each[n] for each in files if n < len(each))
