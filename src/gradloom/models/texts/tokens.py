"""Tokens of many texts, in a file without a name, and windows of them."""

import tempfile
from collections.abc import Sequence
from typing import Self, overload

import numpy as np

from .example import Example

__all__ = ["TokenStore", "Windows"]

#: Bit of a stored token that is learnt.
_LEARNT = 1 << 31


class TokenStore:
    """Tokens on disk, and where each window of them lies.

    Memory holds 12 bytes a window, whatever the texts' size. As a context it closes the file, which windows that were
    made by then still read.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()
        self._written = 0
        self._starts: list[np.ndarray] = []
        self._sizes: list[np.ndarray] = []
        self._pending: list[tuple[int, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, tokens: np.ndarray, learnt: np.ndarray) -> int:
        """Keeps tokens; returns the place of the first."""
        self._file.write((tokens.astype("<u4") | np.where(learnt, _LEARNT, 0).astype("<u4")).tobytes())
        start, self._written = self._written, self._written + len(tokens)
        return start

    def window(self, start: int, size: int) -> None:
        """Adds a window of kept tokens."""
        self._pending.append((start, size))
        if len(self._pending) == 4096:
            self._pack()

    def _pack(self) -> None:
        pairs = np.array(self._pending, np.int64).reshape(-1, 2)
        self._starts.append(pairs[:, 0])
        self._sizes.append(pairs[:, 1].astype(np.int32))
        self._pending = []

    def windows(self, seq: int, padding: int) -> "Windows":
        """All windows, padded to ``seq`` tokens."""
        self._pack()
        self._file.flush()
        starts, sizes = np.concatenate(self._starts), np.concatenate(self._sizes)
        tokens = np.memmap(self._file, "<u4", mode="r") if self._written else np.zeros(0, np.uint32)
        return Windows(tokens, starts, sizes, seq, padding)


class Windows(Sequence[Example]):
    """Windows of texts, read when they are asked for.

    Each has ``seq`` tokens; behind a shorter one stand tokens that are not learnt.
    """

    def __init__(self, tokens: np.ndarray, starts: np.ndarray, sizes: np.ndarray, seq: int, padding: int) -> None:
        self._tokens, self._starts, self.sizes = tokens, starts, sizes
        self.seq, self._padding = seq, padding

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, place: int) -> Example: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Example]: ...

    def __getitem__(self, place: int | slice) -> Example | Sequence[Example]:
        if isinstance(place, slice):
            return self.chosen(np.arange(len(self))[place])
        start, size = int(self._starts[place]), int(self.sizes[place])
        words, more = np.asarray(self._tokens[start : start + size]), self.seq - size
        tokens = (words & (_LEARNT - 1)).tolist() + [self._padding] * more
        # The first token of a window has none before it there.
        learnt = [False, *(words[1:] >= _LEARNT).tolist()] + [False] * more
        return Example(tuple(tokens), tuple(learnt))

    def chosen(self, places: np.ndarray) -> "Windows":
        """Some of them."""
        return Windows(self._tokens, self._starts[places], self.sizes[places], self.seq, self._padding)
