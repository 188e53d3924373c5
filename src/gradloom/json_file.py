"""JSON that a user, or an earlier run, has written."""

import json
from pathlib import Path
from typing import Any

__all__ = ["read_json"]


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
