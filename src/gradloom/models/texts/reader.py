"""Reads what a language model learns from: records, and folders of them and of texts."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from ..files.kinds import what_is
from ..files.language.tokenizer import Tokenizer
from ..files.texts import read_text
from .records import RECORDS, Rendered, lines_of, rendered
from .template import ModelTexts
from .tokens import TokenStore, Windows

__all__ = ["ExampleCounts", "Texts", "has_records", "read_records"]

#: Records whose tokens are made at a time.
_BATCH = 128
_FLAT = ".txt"


@dataclass(kw_only=True)
class ExampleCounts:
    """What was read, and what was left out.

    Attributes
    ----------
    examples : int
        Records that are learnt.
    tokens, learnt : int
        Of their windows, without padding; and how many are foretold.
    padding : int
        Tokens behind windows that are shorter.
    split : int
        Examples that are longer than a window.
    masked_windows, masked_tokens : int
        Windows of longer examples that were left out, since nothing in them is learnt; and their tokens.
    bad_lines : int
        Lines that were left out.
    first_bad : str, optional
        What is wrong with the first of them.
    """

    examples: int = 0
    tokens: int = 0
    learnt: int = 0
    padding: int = 0
    split: int = 0
    masked_windows: int = 0
    masked_tokens: int = 0
    bad_lines: int = 0
    first_bad: str | None = None


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Windows of records, and the record of each by its number."""

    windows: Windows
    records: np.ndarray
    counts: ExampleCounts = field(default_factory=ExampleCounts)


def has_records(path: Path) -> bool:
    """Whether a file or folder has examples, and is no flat text."""
    return path.is_dir() or path.suffix.lower() in RECORDS


def read_records(
    path: Path,
    tokenizer: Tokenizer,
    model: ModelTexts,
    seq: int,
    *,
    option: str = "data",
    skip_bad: bool = False,
    tell: Callable[[int], None] = lambda examples: None,
) -> Texts:
    """Windows of ``seq`` tokens of all records of a file or folder.

    Of a folder each ``.txt`` is one text. An example that is longer has several windows, each beginning with the last
    token of the one before, so that every token is foretold once; a shorter one is padded with tokens that are not
    learnt, so attention never crosses examples. Tokens are kept on disk. ``tell`` hears of examples done.

    Raises
    ------
    ValueError
        One line with ``option``, file, line and field of what is not understood; with ``skip_bad`` such lines are
        counted and left out.
    """
    counts, each_has = ExampleCounts(), array("i")
    padding = 0 if model.end is None else tokenizer.token(model.end)

    def bad(where: str, error: ValueError) -> None:
        if not skip_bad:
            raise ValueError(f"{option}={where}: {error}") from None
        counts.bad_lines += 1
        counts.first_bad = counts.first_bad or f"{where}: {error}"

    good = _good(path, model, option, bad)
    with TokenStore() as store:
        while batch := list(islice(good, _BATCH)):
            for (where, each), tokens, spans in zip(batch, *_encoded(tokenizer, [each for _, each in batch])):
                learnt = _learnt(each, spans)
                try:
                    if not learnt.any():
                        raise ValueError("every token is masked: an example must have an answer to learn")
                    tokenizer.check(tokens)
                except ValueError as error:
                    bad(where, error)
                    continue
                each_has.append(_cut(tokens, learnt, seq, store, counts))
                counts.examples += 1
            tell(counts.examples)
        if not counts.examples:
            raise ValueError(f"{option}={path}: has no example" + (f"; {counts.first_bad}" if counts.first_bad else ""))
        windows = store.windows(seq, padding)
    records = np.repeat(np.arange(len(each_has), dtype=np.int32), np.frombuffer(each_has, np.int32))
    return Texts(windows=windows, records=records, counts=counts)


def _files(path: Path, option: str) -> list[Path]:
    """Files to read, in order of their names."""
    if not path.is_dir():
        return [path]
    found = sorted(each for each in path.iterdir() if not each.name.startswith("."))
    for each in found:
        if each.is_dir() or each.suffix.lower() not in (_FLAT, *RECORDS):
            raise ValueError(f"{option}={each}: must be {_FLAT} or {' or '.join(RECORDS)}; move it out of the folder")
    if not found:
        raise ValueError(f"{option}={path}: has no {_FLAT} or {' or '.join(RECORDS)} file")
    return found


def _good(
    path: Path, model: ModelTexts, option: str, bad: Callable[[str, ValueError], None]
) -> Iterator[tuple[str, Rendered]]:
    """Records that are understood, and where they are."""
    for file in _files(path, option):
        if file.suffix.lower() == _FLAT:
            text = read_text(file, option)
            yield str(file), Rendered(text if model.end is None else text + model.end)
            continue
        kind = what_is(file)
        if kind is not None:
            raise ValueError(f"{option}={file}: is {kind}, lines of JSON are needed")
        for number, line in lines_of(file):
            where = f"{file}: line {number}"
            try:
                made = rendered(line, model)
            except ValueError as error:
                bad(where, error)
                continue
            yield where, made


def _encoded(tokenizer: Tokenizer, found: Sequence[Rendered]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Tokens of texts, and the range of characters of each token."""
    tokens: list[np.ndarray] = [np.zeros(0, np.int64)] * len(found)
    spans = list(tokens)
    for around in (False, True):
        places = [place for place, each in enumerate(found) if each.around is around]
        for place, (ids, ranges) in zip(places, tokenizer.spans([found[each].text for each in places], around=around)):
            tokens[place], spans[place] = np.array(ids, np.int64), np.array(ranges, np.int64).reshape(-1, 2)
    return tokens, spans


def _learnt(each: Rendered, spans: np.ndarray) -> np.ndarray:
    """Which tokens are learnt: those with a character of an answer."""
    learnt = np.ones(len(spans), bool)
    if each.answers is not None:
        learnt[:] = False
        for first, last in each.answers:
            learnt |= (spans[:, 1] > first) & (spans[:, 0] < last)
    learnt[:1] = False
    return learnt


def _cut(tokens: np.ndarray, learnt: np.ndarray, seq: int, store: TokenStore, counts: ExampleCounts) -> int:
    """Keeps the windows of an example; returns how many."""
    first, found = store.add(tokens, learnt), 0
    counts.split += len(tokens) > seq
    for start in range(0, max(len(tokens) - 1, 1), seq - 1):
        size = min(seq, len(tokens) - start)
        targets = int(learnt[start + 1 : start + size].sum())
        if not targets:
            counts.masked_windows += 1
            counts.masked_tokens += size
            continue
        store.window(first + start, size)
        found += 1
        counts.tokens += size
        counts.learnt += targets
        counts.padding += seq - size
    return found
