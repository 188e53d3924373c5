"""A text of tokens, of which some are learnt."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

__all__ = ["Example", "foretold", "targets_of"]


@dataclass(frozen=True)
class Example(Sequence[int]):
    """Tokens, and which of them are learnt.

    It stands where a plain sequence of tokens does, of which all are learnt but the first. Tokens behind the last
    one that is learnt change no loss, so a text is padded there.

    Attributes
    ----------
    tokens : tuple of int
    learnt : tuple of bool
        Of each token. The first has none before it to foretell it from, so it never is.
    """

    tokens: tuple[int, ...]
    learnt: tuple[bool, ...]

    def __post_init__(self) -> None:
        if len(self.learnt) != len(self.tokens):
            raise ValueError(f"learnt={len(self.learnt)}: must be as many as tokens, {len(self.tokens)}")
        if not any(self.learnt[1:]):
            raise ValueError("learnt: every token is masked, there is nothing to learn")

    @overload
    def __getitem__(self, place: int) -> int: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[int]: ...

    def __getitem__(self, place: int | slice) -> int | Sequence[int]:
        return self.tokens[place]

    def __len__(self) -> int:
        return len(self.tokens)


def targets_of(tokens: Sequence[int] | np.ndarray) -> np.ndarray:
    """What each token must foretell: the next one, or -1 where that is not learnt.

    Behind the last token there is none.
    """
    targets = np.append(np.asarray(tokens)[1:], -1)
    if isinstance(tokens, Example):
        targets[:-1][~np.asarray(tokens.learnt[1:])] = -1
    return targets


def foretold(tokens: Sequence[int] | np.ndarray) -> int:
    """How many tokens of a text have a loss."""
    return sum(tokens.learnt[1:]) if isinstance(tokens, Example) else len(tokens) - 1
