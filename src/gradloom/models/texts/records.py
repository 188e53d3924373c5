"""Reads records of texts, one a line: ``text``, ``prompt`` and ``completion``, or ``messages``."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .template import ChatTemplate, ModelTexts

__all__ = ["RECORDS", "Rendered", "lines_of", "rendered"]

#: Endings of files with a record a line.
RECORDS = (".jsonl", ".ndjson")
#: Fields of a record, by what it then is.
_KINDS: tuple[tuple[str, ...], ...] = (("text",), ("prompt", "completion"), ("messages",))
_WANTED = "must have text, or prompt and completion, or messages"
#: Fields that change what a template renders, and that are not handed to it.
_TOOLS = ("tools", "functions", "documents")
_ANSWER = "assistant"


@dataclass(frozen=True)
class Rendered:
    """A record as text.

    Attributes
    ----------
    text : str
    answers : sequence of (int, int), optional
        Ranges of characters that are learnt; None: all of them.
    around : bool
        Whether the model's own tokens around a text belong to it. A template writes them itself.
    """

    text: str
    answers: Sequence[tuple[int, int]] | None = None
    around: bool = True


def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines of a file that are not blank, with their numbers from 1 on."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if line.strip():
                yield number, line


def rendered(line: bytes, model: ModelTexts) -> Rendered:
    """The text of a line's record.

    :class:`ValueError` names field and value of what is not understood.
    """
    record = _record(line)
    for name in _TOOLS:
        if record.get(name):
            raise ValueError(f"{name}: must be left out, they are not handed to the chat template")
    kinds = [kind for kind in _KINDS if kind[0] in record]
    if len(kinds) != 1:
        found = ", ".join(map(str, record)) or "no field"
        raise ValueError(f"has {found}: {_WANTED}" + (", one of them" if kinds else ""))
    match kinds[0]:
        case ("text",):
            return Rendered(_text(record, "text", model.end))
        case ("messages",):
            return _conversation(_messages(record, "messages"), 0, model)
    prompt, completion = record["prompt"], record.get("completion")
    if completion is None or completion in ("", []):
        fault = "is missing" if completion is None else "is empty"
        raise ValueError(f"completion: {fault}: an example must have an answer to learn")
    if isinstance(prompt, list) or isinstance(completion, list):
        first = _messages(record, "prompt")
        return _conversation([*first, *_messages(record, "completion")], len(first), model)
    if not isinstance(prompt, str):
        raise ValueError(f"prompt: must be a text, or messages, not {_kind(prompt)}")
    text = prompt + _text(record, "completion", model.end)
    return Rendered(text, [(len(prompt), len(text))])


def _record(line: bytes) -> Mapping[str, Any]:
    try:
        record = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 ({error.reason} at byte {error.start})") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is no JSON: {error}; must be one object a line") from None
    if not isinstance(record, dict):
        raise ValueError(f"is {_kind(record)}: must be an object that {_WANTED.removeprefix('must ')}")
    return record


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _text(record: Mapping[str, Any], name: str, end: str | None) -> str:
    """A text that ends as the model's texts do."""
    text = record[name]
    if not isinstance(text, str):
        raise ValueError(f"{name}: must be a text, not {_kind(text)}")
    return text if end is None or text.endswith(end) else text + end


def _messages(record: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Messages, each with a role and a content."""
    found = record[name]
    if not isinstance(found, list) or not found:
        raise ValueError(f"{name}: must be a list of messages with role and content")
    for place, each in enumerate(found):
        where = f"{name}[{place}]"
        if not isinstance(each, dict):
            raise ValueError(f"{where}: must be an object with role and content, not {_kind(each)}")
        for key in ("role", "content"):
            if not isinstance(each.get(key), str):
                raise ValueError(f"{where}.{key}: must be a text, not {_kind(each.get(key))}")
        more = [key for key, value in each.items() if key not in ("role", "content") and value is not None]
        if more:
            raise ValueError(f"{where}.{more[0]}: must be left out, a message is role and content")
    return found


def _conversation(messages: list[dict[str, Any]], first: int, model: ModelTexts) -> Rendered:
    """A conversation, of which the answers from message ``first`` on are learnt.

    An answer reaches from where the template asks for it to where the template has ended it.
    """
    if not any(each["role"] == _ANSWER for each in messages[first:]):
        raise ValueError(f"messages: none has role={_ANSWER}: an example must have an answer to learn")
    if messages[0]["role"] == _ANSWER:
        raise ValueError(f"messages[0].role={_ANSWER}: an answer must follow a message that it answers")
    template, whole = model.template, model.template.render(messages)
    answers: list[tuple[int, int]] = []
    for place, each in enumerate(messages):
        where = f"messages[{place}]"
        if not _renders(template, messages, place, whole):
            raise ValueError(f"{where}.role={each['role']}: the model's chat template does not know it, or not there")
        if each["role"] != _ANSWER:
            continue
        if not each["content"].strip():
            raise ValueError(f"{where}.content: is empty: an answer must have a text")
        asked = template.render(messages[:place], ask=True)
        after = whole if place == len(messages) - 1 else template.render(messages[: place + 1])
        if not (whole.startswith(after) and after.startswith(asked)):
            raise ValueError(
                f"{where}: the model's chat template changes what it rendered before; give each answer as an example "
                f"of its own, by prompt and completion"
            )
        if place >= first:
            answers.append((len(asked), len(after)))
    return Rendered(whole, answers, around=False)


def _renders(template: ChatTemplate, messages: Sequence[Mapping[str, Any]], place: int, whole: str) -> bool:
    """Whether a message is in the text of its conversation."""
    each = messages[place]
    if each["content"].strip() and each["content"].strip() in whole:
        return True
    other = [*messages]
    other[place] = {**each, "content": each["content"] + "x"}
    return template.render(other) != whole
