"""Reads a text to learn from."""

import json
from pathlib import Path

from .kinds import what_is

__all__ = ["read_text"]

#: Endings of files that hold records and no flat text.
_RECORDS = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", ".arrow")
_NEEDED = "a text is needed"
_REMEDY = "must be flat text: write the texts themselves to a file"


def read_text(path: Path, option: str = "text") -> str:
    """A file's text without a byte-order mark.

    ``option`` names it in refusals. :class:`ValueError` where it is not flat text in UTF-8: records of JSON, a table,
    or a file of another kind.
    """
    kind = what_is(path)
    if kind is not None and path.stat().st_size:
        raise ValueError(f"{option}={path}: is {kind}, {_NEEDED}")
    if path.suffix.lower() in _RECORDS:
        raise ValueError(f"{option}={path}: holds records ({path.suffix}), {_REMEDY}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{option}={path}: is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8"
        ) from None
    if "\0" in text:
        raise ValueError(
            f"{option}={path}: is not UTF-8 text: character {text.index(chr(0))} is 0; is it UTF-16? Save it as UTF-8"
        )
    if _is_json(text):
        raise ValueError(f"{option}={path}: holds records of JSON, {_REMEDY}")
    return text


def _is_json(text: str) -> bool:
    """Whether a text, or its first line, is records of JSON."""
    start = text.lstrip()
    if start[:1] not in ("{", "["):
        return False
    for each in (start.split("\n", 1)[0], start):
        try:
            found = json.loads(each)
        except (ValueError, RecursionError):
            continue
        # A list of numbers or words, as a line may be, is text.
        return isinstance(found, dict) or bool(found) and isinstance(found[0], dict)
    return False
