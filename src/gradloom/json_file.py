"""JSON that a user or an earlier run has written, and that we write."""

import json
import math
from pathlib import Path
from typing import Any

__all__ = ["json_text", "read_json"]


def read_json(path: Path) -> Any:
    """Content of a file; :class:`ValueError` describes a fault.

    A byte-order mark at its start is no content. A file of another kind is called what it is.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        from .models.files.kinds import what_is

        raise ValueError(f"it is {kind}" if (kind := what_is(path)) else str(error)) from None
    except RecursionError:
        raise ValueError("its objects are nested too deeply: at most some hundred levels can be read") from None


def json_text(value: Any, *, indent: int = 2) -> str:
    """``value`` as JSON, with a line's end; arrays as lists.

    A number that is not finite, which JSON does not have, is null.
    """
    return json.dumps(_plain(value), indent=indent, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str | int | None):
        return value
    return _plain(value.tolist()) if hasattr(value, "tolist") else str(value)
