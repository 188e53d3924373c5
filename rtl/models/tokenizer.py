"""Converts text to tokens and back.

The vocabulary comes from a GGUF file or a Hugging Face folder.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .gguf import GGUF_SUFFIX, GgufFile

__all__ = ["Tokenizer", "open_tokenizer"]

#: What splits the text before byte pairs are merged, by ``tokenizer.ggml.pre``: whether digits stand alone.
_SPLITS = {"smollm": True, "gpt-2": False}
_CONTROL = 3


class Tokenizer:
    """A model's own vocabulary, with ``encode`` and ``decode``.

    It has ``size`` tokens; ``control`` tokens are no text.
    """

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.size: int = backend.get_vocab_size()
        self.control = frozenset(token for token, added in backend.get_added_tokens_decoder().items() if added.special)

    def encode(self, text: str) -> list[int]:
        """Tokens of a text; nothing is put before or after them."""
        return self._backend.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, control tokens included.

        :class:`ValueError` names a token out of range.
        """
        for token in tokens:
            if not 0 <= token < self.size:
                raise ValueError(f"token={token}: must be from 0 to {self.size - 1}")
        return self._backend.decode(list(map(int, tokens)), skip_special_tokens=False)


def open_tokenizer(path: Path | str) -> Tokenizer:
    """The tokenizer in a GGUF file, or ``tokenizer.json`` in a folder.

    Needs the extra ``llm``.
    """
    try:
        import tokenizers
    except ModuleNotFoundError:
        raise ValueError("tokenizers is not installed: make llm in the clone, or pip install tokenizers") from None
    path = Path(path)
    if path.suffix == GGUF_SUFFIX:
        return Tokenizer(_from_gguf(tokenizers, GgufFile(path)))
    file = path / "tokenizer.json" if path.is_dir() else path.with_name("tokenizer.json")
    if not file.is_file():
        raise ValueError(f"{file}: no such file")
    try:
        return Tokenizer(tokenizers.Tokenizer.from_file(str(file)))
    except Exception as error:  # the library raises nothing more special
        raise ValueError(f"{file}: cannot be read as a tokenizer: {error}") from None


def _from_gguf(tokenizers: Any, file: GgufFile) -> Any:
    kind = file.get("tokenizer.ggml.model", str)
    split = file.get("tokenizer.ggml.pre", str, "gpt-2")
    if kind != "gpt2" or split not in _SPLITS:
        raise ValueError(
            f"{file.path}: its tokenizer is {kind!r} with splits {split!r}: 'gpt2' with "
            f"{' or '.join(map(repr, _SPLITS))} is known; put a tokenizer.json beside it"
        )
    tokens = file.get("tokenizer.ggml.tokens", list)
    kinds = file.get("tokenizer.ggml.token_type", list, [0] * len(tokens))
    merges = [tuple(merge.split(" ")) for merge in file.get("tokenizer.ggml.merges", list)]
    if len(kinds) != len(tokens) or any(len(merge) != 2 for merge in merges):
        raise ValueError(f"{file.path}: its tokenizer is damaged: {len(tokens)} tokens, {len(kinds)} types")
    try:
        backend = tokenizers.Tokenizer(tokenizers.models.BPE(dict(zip(tokens, range(len(tokens)))), merges))
    except Exception as error:  # the library raises nothing more special
        raise ValueError(f"{file.path}: its tokenizer is damaged: {error}") from None
    parts = [tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)]
    if _SPLITS[split]:
        parts.insert(0, tokenizers.pre_tokenizers.Digits(individual_digits=True))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(parts)
    backend.decoder = tokenizers.decoders.ByteLevel()
    special = [token for token, each in zip(tokens, kinds) if each == _CONTROL]
    backend.add_special_tokens([tokenizers.AddedToken(token, normalized=False, special=True) for token in special])
    return backend
