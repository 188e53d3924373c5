"""JSON that a user, or an earlier run, has written."""

import json
from pathlib import Path
from typing import Any

__all__ = ["read_json"]


def read_json(path: Path) -> Any:
    """Content of a file; :class:`ValueError` describes a fault.

    A byte-order mark at its start is no content.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except RecursionError:
        raise ValueError("its objects are nested too deeply: at most some hundred levels can be read") from None
