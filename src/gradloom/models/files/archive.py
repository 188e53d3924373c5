"""Arrays out of a user's ``.npz`` file."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from .kinds import what_is

#: Bytes that an archive may hold: so many, and so many for each byte of the file.
_FREE, _RATIO = 1 << 28, 64

__all__ = ["read_labelled", "read_npz"]


def read_npz(path: Path, names: Iterable[str] = (), *, optional: Iterable[str] = ()) -> dict[str, np.ndarray]:
    """Arrays of a file by name.

    They are those of ``names``, and of ``optional`` those that are there; or all, without names.

    :class:`ValueError` describes the fault of the file.
    """
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    # Opened here: NumPy leaves the file open if its archive is broken.
    with path.open("rb") as opened:
        try:
            file = np.load(opened, allow_pickle=False)
        except Exception:  # what a damaged file raises is not documented
            kind = what_is(path)
            if kind and ".npz" not in kind:
                raise ValueError(f"{path}: is {kind}") from None
            raise ValueError(f"{path}: not a readable .npz file; is it truncated?") from None
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise ValueError(f"{path}: it holds one array, not an archive (.npz) of named ones")
        _check_size(path, file)
        names, found = tuple(names), [name for name in optional if name in file]
        missing = [name for name in names if name not in file]
        if missing:
            raise ValueError(f"{path}: {', '.join(missing)} missing: the file must hold {', '.join(names)}")
        arrays = {}
        for name in [*names, *found] or ([] if optional else file.files):
            try:
                arrays[name] = file[name]
            except Exception:
                raise ValueError(
                    f"{path}: {name} cannot be read; is the file truncated, or holds it Python objects "
                    f"instead of numbers?"
                ) from None
    return arrays


def read_labelled(path: Path, parts: Iterable[str]) -> dict[str, np.ndarray]:
    """``x_PART`` and ``y_PART`` of each of ``parts`` of a file."""
    return read_npz(path, [f"{array}_{part}" for part in parts for array in "xy"])


def _check_size(path: Path, file: Any) -> None:
    """Refuses an archive that is far larger than its file.

    This is before an array is read: a file of 5 MB can hold 5 GB.
    """
    # Reading ends where the declared size does.
    total = sum(entry.file_size for entry in file.zip.infolist())
    most = _FREE + _RATIO * path.stat().st_size
    if total > most:
        raise ValueError(
            f"{path}: its arrays take {total:,} bytes: at most {most:,}, which are {_FREE:,} and {_RATIO} "
            f"times the file; write it without compression, by numpy.savez"
        )
