"""Arrays out of a user's ``.npz`` file."""
from collections.abc import Iterable
from pathlib import Path

import numpy as np

__all__ = ["read_npz"]


def read_npz(path: Path, names: Iterable[str] = (), *, optional: Iterable[str] = ()) -> dict[str, np.ndarray]:
    """Arrays of a file by name: those of ``names``, and of ``optional`` those that are there; or all, without names.

    :class:`ValueError` says what is wrong with the file.
    """
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    # Opened here: NumPy leaves the file open if its archive is broken.
    with path.open("rb") as opened:
        try:
            file = np.load(opened, allow_pickle=False)
        except Exception:  # what a damaged file raises is not documented
            raise ValueError(f"{path}: not a readable .npz file; is it truncated?") from None
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise ValueError(f"{path}: it holds one array, not an archive (.npz) of named ones")
        names, found = tuple(names), [name for name in optional if name in file]
        missing = [name for name in names if name not in file]
        if missing:
            raise ValueError(f"{path}: {', '.join(missing)} missing: the file must hold {', '.join(names)}")
        arrays = {}
        for name in [*names, *found] or ([] if optional else file.files):
            try:
                arrays[name] = file[name]
            except Exception:
                raise ValueError(f"{path}: {name} cannot be read; is the file truncated, or holds it Python objects "
                                 f"instead of numbers?") from None
    return arrays
