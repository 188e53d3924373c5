"""Refuses keys of configuration files that no reader knows.

A key that is ignored can change what a model computes. So each reader lists the keys that it reads, and those that
change nothing, with the values for which that holds.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

__all__ = ["ANY", "check_keys", "is_empty", "same", "shown"]

#: Instead of a list of values: the key changes nothing, whatever its value is.
ANY: tuple[Any, ...] = ()
#: Characters of a value in a message.
_SHOWN = 80


def check_keys(raw: Mapping[str, Any], *, handled: Collection[str], harmless: Mapping[str, tuple[Any, ...]]) -> None:
    """Refuses the first key that is not known to be harmless.

    Parameters
    ----------
    raw : mapping
        Content of a file, or an object in it.
    handled : collection of str
        Keys that the reader reads and checks itself.
    harmless : mapping of str to tuple
        Values with which a key changes nothing, beside null; :data:`ANY` for a key that never does. The first value
        is the one that the message names. A key that is in neither list must be empty (:func:`is_empty`).

    Raises
    ------
    ValueError
        Naming the key, its value and, where one is known, the value that it must have.
    """
    for key, value in raw.items():
        if key in handled or value is None:
            continue
        if key not in harmless:
            if is_empty(value):
                continue
            raise ValueError(
                f"{key}={shown(value)}: this key is not known, and may change what the model computes: remove it from "
                "the file if it does not"
            )
        values = harmless[key]
        if values and not any(same(value, each) for each in values):
            raise ValueError(f"{key}={shown(value)}: must be {shown(values[0])}; other values are not supported")


def is_empty(value: Any) -> bool:
    """Whether a value says nothing.

    It is null, false, or an empty text, list or object. The number 0 is not empty: it can be a setting.
    """
    return value is None or value is False or (isinstance(value, str | list | dict | tuple) and not value)


def shown(value: Any) -> str:
    """A value in a message as JSON has it, cut where it is long."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def same(value: Any, other: Any) -> bool:
    """Equality that tells true from 1."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)
