"""Checkpoints of long fine-tunes, one file each."""

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.output import marked, some, staged_file

__all__ = ["FILE", "ResumePoint"]

#: In the output folder, until the fine-tune is complete.
FILE = "checkpoint.npz"


class ResumePoint:
    """The checkpoint of an output folder.

    Parameters
    ----------
    folder : Path
    request : mapping
        Plain data by field: all that results depend on.
    every : int
        Steps between checkpoints; 0: there are none.
    """

    def __init__(self, folder: Path, request: Mapping[str, Any], *, every: int) -> None:
        self.path, self.every = folder / FILE, every
        self.request = json.loads(json.dumps(request))
        #: What this run has kept, in words; empty before.
        self.kept = ""

    def load(self) -> dict[str, Any]:
        """Loads the kept state.

        :class:`ValueError` where there is none, or the request differs from its own.
        """
        if not self.path.is_file():
            raise ValueError(f"resume: {self.path.parent} has no {FILE}; leave --resume out to begin")
        try:
            with np.load(self.path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            begun, state = json.loads(bytes(arrays.pop("state")).decode())
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise ValueError(f"resume: {self.path} is no checkpoint ({error}); leave --resume out to begin") from None
        for name in dict.fromkeys((*self.request, *begun)):
            now, then = self.request.get(name), begun.get(name)
            if now != then:
                raise ValueError(
                    f"{name}={_short(now)}: must be {_short(then)}, as the fine-tune in "
                    f"{self.path.parent} was begun; or leave --resume out"
                )
        found: dict[str, Any] = _whole(state, arrays)
        return found

    def keep(self, step: int, state: Mapping[str, Any]) -> None:
        """Replaces the checkpoint after ``step`` steps, if it is time."""
        if not self.every or step % self.every:
            return
        arrays: dict[str, np.ndarray] = {}
        text = json.dumps([self.request, _flat(state, arrays)])
        made = io.BytesIO()
        np.savez(made, state=np.frombuffer(text.encode(), np.uint8), **arrays)  # type: ignore[arg-type]
        marked(self.path.parent, verb="finetune")
        with staged_file(self.path) as file:
            file.write(made.getbuffer())
        self.kept = f"{self.path} has {some(step, 'step')}"

    def remove(self) -> None:
        """The fine-tune is complete."""
        self.path.unlink(missing_ok=True)


def _short(value: Any) -> str:
    text = f"{value}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _flat(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """``value`` as JSON, with its arrays in ``arrays``.

    Keys of mappings keep their types.
    """
    if isinstance(value, np.ndarray):
        name = f"a{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    if isinstance(value, Mapping):
        return {"items": [[_flat(key, arrays), _flat(each, arrays)] for key, each in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_flat(each, arrays) for each in value]}
    if isinstance(value, list):
        return [_flat(each, arrays) for each in value]
    return value.item() if isinstance(value, np.generic) else value


def _whole(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_whole(each, arrays) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, held),) = value.items()
    if kind == "array":
        return arrays[held]
    if kind == "tuple":
        return tuple(_whole(each, arrays) for each in held)
    return dict(_pairs(held, arrays))


def _pairs(held: list[Any], arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[Any, Any]]:
    for key, each in held:
        yield _whole(key, arrays), _whole(each, arrays)
