"""A user's text, of which a part is held out."""

from dataclasses import dataclass
from pathlib import Path

from gradloom.models.files.language.tokenizer import Tokenizer
from gradloom.models.files.texts import read_text
from gradloom.output import some

__all__ = ["Split", "split"]

#: Share of the tokens that are held out, and windows of them that are judged at most.
_SHARE, _JUDGED = 0.2, 8


@dataclass(frozen=True, kw_only=True)
class Split:
    """Tokens to learn from, and windows of the others that are judged."""

    learnt: list[int]
    judged: list[list[int]]

    def windows(self, seq: int) -> list[list[int]]:
        """Of what is learnt, of ``seq`` tokens each."""
        return [self.learnt[at : at + seq] for at in range(0, len(self.learnt) - seq + 1, seq)]


def split(text: Path, tokenizer: Tokenizer, seq: int) -> Split:
    """A text whose last fifth is held out, at least ``seq`` tokens.

    :class:`ValueError` where what is left is no window.
    """
    tokens = tokenizer.encode(read_text(text))
    held = max(int(len(tokens) * _SHARE), seq)
    if len(tokens) - held < seq:
        most = len(tokens) // 2
        shorter = f", or give --seq {most}" if most >= 2 else ""
        raise ValueError(
            f"data={text}: has {some(len(tokens), 'token')}, seq={seq} needs at least {2 * seq}, a window to "
            f"learn from and "
            f"one that is held out; give a longer text{shorter}"
        )
    learnt, rest = tokens[: len(tokens) - held], tokens[len(tokens) - held :]
    judged = [rest[at : at + seq] for at in range(0, len(rest) - seq + 1, seq)]
    # Evenly over the part.
    count = min(len(judged), _JUDGED)
    return Split(learnt=learnt, judged=[judged[number * len(judged) // count] for number in range(count)])
