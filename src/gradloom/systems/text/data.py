"""What a fine-tune learns and is judged by, and the turns of its texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from gradloom.models.files.language.tokenizer import Tokenizer
from gradloom.models.files.texts import read_text
from gradloom.models.texts.reader import ExampleCounts, Texts, has_records, read_records
from gradloom.models.texts.template import open_texts
from gradloom.output import some
from gradloom.systems.held_out import held_count, share_of
from gradloom.workload import Progress, silent

from .costs.fit import MIN_SEQ

__all__ = ["Data", "Turns", "read_data", "windows_of"]

Windows = Sequence[Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class Data:
    """Windows of ``seq`` tokens each.

    Attributes
    ----------
    learnt, judged : sequence
        Windows to learn from, and to judge by.
    tokens, left_out : int
        Of the texts to learn from; and of them those that no window has, or whose window learns nothing.
    counts : Counts, optional
        Of records, judged ones included where they are a share of them.
    """

    learnt: Windows
    judged: Windows = ()
    tokens: int
    left_out: int
    counts: ExampleCounts | None = None


@dataclass(frozen=True, kw_only=True)
class _Reader:
    """Reads windows of texts for a model."""

    path: Path
    tokenizer: Callable[[], Tokenizer]
    seq: int
    seed: int
    skip_bad: bool
    tell: Progress

    def flat(self, path: Path, option: str, share: float | None) -> Data:
        """Of a text, whose last windows are judged."""
        found, tokens = windows_of(path, self.tokenizer, self.seq, option)
        held = 0 if share is None else held_count(len(found), share, "window")
        learnt = found[: len(found) - held]
        return Data(
            learnt=learnt,
            judged=found[len(learnt) :],
            tokens=tokens - self.seq * held,
            left_out=tokens - self.seq * len(found),
        )

    def records(self, path: Path, option: str, share: float | None) -> Data:
        """Of records, some of which are judged, drawn by the seed."""
        read: Texts = read_records(
            path,
            self.tokenizer(),
            open_texts(self.path),
            self.seq,
            option=option,
            skip_bad=self.skip_bad,
            tell=lambda examples: self.tell(0, 0, f"reading {path.name}, {some(examples, 'example')}"),
        )
        counts, windows = read.counts, read.windows
        held = 0 if share is None else held_count(counts.examples, share, "example")
        drawn = np.random.default_rng(self.seed).permutation(counts.examples)[:held]
        judged = np.isin(read.records, drawn)
        learnt = windows.chosen(np.flatnonzero(~judged))
        return Data(
            learnt=learnt,
            judged=windows.chosen(np.flatnonzero(judged)),
            tokens=int(learnt.sizes.sum()) + counts.masked_tokens,
            left_out=counts.masked_tokens,
            counts=counts,
        )

    def read(self, path: Path, option: str, share: float | None = None) -> Data:
        return (self.records if has_records(path) else self.flat)(path, option, share)


def read_data(
    path: Path,
    model: Path,
    tokenizer: Callable[[], Tokenizer],
    seq: int,
    *,
    held_out: Path | str | None = None,
    seed: int = 0,
    skip_bad: bool = False,
    tell: Progress = silent,
) -> Data:
    """What to learn from ``path``: flat text, records, or a folder of both.

    ``model``: its file or folder, which has the chat template; ``tokenizer``: opens its tokenizer. ``held_out``: a
    share of the examples, of a flat text of its last windows; or another file or folder. Refusals name the options
    ``data`` and ``held_out``.
    """
    reader = _Reader(path=model, tokenizer=tokenizer, seq=seq, seed=seed, skip_bad=skip_bad, tell=tell)
    share = share_of(held_out)
    found = reader.read(path, "data", share)
    if held_out is None or share is not None:
        return found
    return replace(found, judged=reader.read(Path(held_out), "held_out").learnt)


@dataclass
class Turns:
    """Which texts each update is made of: all take turns.

    Parameters
    ----------
    texts : sequence
    count : int
        Of an update.
    seed : int, optional
        Of the order of each epoch; without, that of ``texts``.
    """

    texts: Windows
    count: int = 1
    seed: int | None = None
    _last: tuple[int, np.ndarray] | None = field(default=None, init=False, repr=False)

    def of(self, step: int) -> list[Sequence[int]]:
        """Texts of a step, from 0 on."""
        first = step * self.count
        return [self.texts[self._place(place)] for place in range(first, first + self.count)]

    def used(self, steps: int) -> list[Sequence[int]]:
        """All texts of the first steps, each once, in their order."""
        places = dict.fromkeys(map(self._place, range(min(steps * self.count, len(self.texts)))))
        return [self.texts[place] for place in places]

    def numbers(self, steps: int) -> list[int]:
        """Of each step of one text, which of :meth:`used` it is."""
        places = [self._place(step) for step in range(steps)]
        number = {place: at for at, place in enumerate(dict.fromkeys(places))}
        return [number[place] for place in places]

    def _place(self, number: int) -> int:
        epoch, place = divmod(number, len(self.texts))
        return place if self.seed is None else int(self._order(epoch)[place])

    def _order(self, epoch: int) -> np.ndarray:
        if self._last is None or self._last[0] != epoch:
            self._last = epoch, np.random.default_rng([self.seed or 0, epoch]).permutation(len(self.texts))
        return self._last[1]


def windows_of(
    text: Path, tokenizer: Callable[[], Tokenizer], seq: int, option: str = "data"
) -> tuple[list[list[int]], int]:
    """Windows of ``seq`` tokens of a flat text, and its number of tokens.

    ``option`` names the text in refusals. Tokens behind the last whole window are left out; a text shorter than one
    window is refused.
    """
    words = read_text(text, option)
    tokens = tokenizer().encode(words)
    if len(tokens) < seq:
        shorter = f", or give --seq {len(tokens)}" if len(tokens) >= MIN_SEQ else ""
        raise ValueError(
            f"{option}={text}: has {some(len(tokens), 'token')}, a window of seq={seq} needs at least {seq}; "
            f"give a longer text{shorter}"
        )
    return [tokens[at : at + seq] for at in range(0, len(tokens) - seq + 1, seq)], len(tokens)
