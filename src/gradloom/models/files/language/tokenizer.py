"""Converts text to tokens and back.

The vocabulary comes from a GGUF file or a Hugging Face folder.
"""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from gradloom.output import some

from ..keys import ANY, check_keys
from ..kinds import what_is
from .gguf import GGUF_SUFFIX, GgufFile
from .huggingface import CONFIG

__all__ = ["Tokenizer", "open_tokenizer"]

_FILE = "tokenizer.json"
#: Kinds of tokens in GGUF files.
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = range(1, 6)
#: Fields of GGUF files that are read here.
_HANDLED = frozenset(
    f"tokenizer.ggml.{key}"
    for key in ("model", "pre", "tokens", "token_type", "merges")
    + ("bos_token_id", "eos_token_id", "add_bos_token", "add_eos_token")
)
#: Other fields, with the values for which they change no token of a text.
_HARMLESS: dict[str, tuple[Any, ...]] = {
    f"tokenizer.ggml.{key}": values
    for key, values in {
        "add_space_prefix": (False,),
        "add_sep_token": (False,),
        "remove_extra_whitespaces": (False,),
        "scores": ANY,
        "token_type_count": ANY,
    }.items()
} | dict.fromkeys(
    tuple(
        f"tokenizer.ggml.{name}_token_id"
        for name in ("eot", "eom", "unknown", "seperator", "padding", "cls", "mask", "prefix", "suffix", "middle")
        + tuple(f"fim_{part}" for part in ("pre", "suf", "mid", "pad", "rep", "sep"))
    )
    + ("tokenizer.chat_templates", "tokenizer.huggingface.json"),
    ANY,
)
_CHAT = "tokenizer.chat_template"

#: Ways in which a text is split before byte pairs are merged, by ``tokenizer.ggml.pre``: digits that stand together in
#: newer splits, None in GPT-2's; whether a word that is a token is taken whole, with a first token before each text;
#: whether characters are composed first (NFC).
_SPLITS: dict[str, tuple[str | None, bool, bool]] = {
    "gpt-2": (None, False, False),
    "smollm": (None, False, False),
    "qwen2": ("", False, True),
} | dict.fromkeys(("llama-bpe", "llama-v3", "llama3"), ("{1,3}", True, False))
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class Tokenizer:
    """A model's own vocabulary, with ``encode`` and ``decode``.

    It has ``size`` tokens; ``control`` tokens are no text. ``before`` and ``after`` are tokens around each text,
    ``unused`` tokens that only pad the vocabulary. ``model_size``: tokens of the model, which may be more than the
    tokenizer's; those have no text.
    """

    def __init__(
        self,
        backend: Any,
        *,
        before: Sequence[int] = (),
        after: Sequence[int] = (),
        unused: Collection[int] = (),
        model_size: int | None = None,
    ) -> None:
        self._backend, self._before, self._after = backend, list(before), list(after)
        self._unused = frozenset(unused)
        own = max(backend.get_vocab().values(), default=-1) + 1
        self._model_size = model_size
        self.size: int = own if model_size is None else max(own, model_size)
        self.control = frozenset(token for token, added in backend.get_added_tokens_decoder().items() if added.special)

    def encode(self, text: str) -> list[int]:
        """Tokens of a text, with those that the model has around a text.

        They are what transformers has as ``input_ids``. :class:`ValueError` names a token that the model has not.
        """
        tokens = [*self._before, *self._backend.encode(text).ids, *self._after]
        self.check(tokens)
        return tokens

    def check(self, tokens: Iterable[int]) -> None:
        """Refuses tokens that the model has not."""
        most = max(tokens, default=0)
        if self._model_size is not None and most >= self._model_size:
            raise ValueError(
                f"token {most} ({self._backend.id_to_token(most)!r}) of the text: the model has {self._model_size} "
                f"tokens, so this is another model's tokenizer; put the model's own tokenizer.json beside its weights"
            )

    def spans(self, texts: Sequence[str], *, around: bool) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Tokens of texts, and the first character and the end of each.

        ``around``: with the tokens that the model has around a text, which have no characters. They are not checked.
        """
        before, after = (self._before, self._after) if around else ([], [])
        return [
            ([*before, *each.ids, *after], [(0, 0)] * len(before) + each.offsets + [(0, 0)] * len(after))
            for each in self._backend.encode_batch(list(texts), add_special_tokens=around)
        ]

    def token(self, text: str) -> int:
        """Number of a special token; one that is not there is refused."""
        number = self._backend.token_to_id(text)
        if number is None:
            raise ValueError(f"token {text!r}: the tokenizer does not have it")
        return int(number)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, control tokens included.

        :class:`ValueError` names a token out of range.
        """
        for token in tokens:
            if not 0 <= token < self.size:
                raise ValueError(f"token={token}: must be from 0 to {self.size - 1}")
        return self._backend.decode(
            [int(token) for token in tokens if token not in self._unused], skip_special_tokens=False
        )


def open_tokenizer(path: Path | str, *, model_size: int | None = None) -> Tokenizer:
    """The tokenizer of a model's file or folder.

    It is ``tokenizer.json`` in the folder or beside the file, else that in the GGUF file. ``model_size``: tokens of
    the model. Needs the extra ``llm``. :class:`ValueError` where both are there and differ.
    """
    try:
        import tokenizers
    except ModuleNotFoundError:
        raise ValueError("tokenizers is not installed: make llm in the clone, or pip install tokenizers") from None
    path = Path(path)
    beside = path / _FILE if path.is_dir() else path.with_name(_FILE)
    found = [path]
    if path.is_dir():
        found = [] if (path / CONFIG).is_file() else list(path.glob(f"*{GGUF_SUFFIX}"))
    file = GgufFile(found[0]) if len(found) == 1 and found[0].suffix == GGUF_SUFFIX else None
    if file is None or beside.is_file():
        backend = _from_json(tokenizers, beside)
        if file is not None:
            _check_same(beside, backend, file)
        return Tokenizer(backend, model_size=model_size)
    try:
        return _from_gguf(tokenizers, file, model_size)
    except ValueError as error:
        where = "" if str(error).startswith(str(file.path)) else f"{file.path}: "
        raise ValueError(f"{where}{error}; or put the model's {_FILE} beside the file") from None


def _from_json(tokenizers: Any, path: Path) -> Any:
    if not path.is_file():
        raise ValueError(f"{path}: no such file; transformers writes it by AutoTokenizer's save_pretrained")
    try:
        backend = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8-sig"))
    except Exception as error:  # the library raises nothing more special
        kind = what_is(path)
        raise ValueError(f"{path}: is {kind}" if kind else f"{path}: cannot be read as a tokenizer: {error}") from None
    # The file keeps what its last user had set; transformers sets it for each call.
    backend.no_truncation()
    backend.no_padding()
    if getattr(backend.model, "dropout", None):
        raise ValueError(f"{path}: dropout={backend.model.dropout}: must be null; a text has the same tokens each time")
    return backend


def _check_same(path: Path, backend: Any, file: GgufFile) -> None:
    """Refuses a tokenizer whose normal tokens are not the file's."""
    tokens = _texts(file, "tokens", [])
    kinds = file.get("tokenizer.ggml.token_type", list, [_NORMAL] * len(tokens))
    for number, (token, kind) in enumerate(zip(tokens, kinds)):
        if kind == _NORMAL and backend.id_to_token(number) != token:
            raise ValueError(
                f"{path}: token {number} is {backend.id_to_token(number)!r}, {file.path} has {token!r}: "
                f"it is another model's tokenizer; remove it from this folder"
            )


def _texts(file: GgufFile, key: str, default: list[str] | None = None) -> list[str]:
    """A field that must be a list of texts."""
    values = file.get(f"tokenizer.ggml.{key}", list, default)
    if not all(isinstance(each, str) for each in values):
        raise ValueError(f"{file.path}: tokenizer.ggml.{key} has other values than texts")
    return values


def _from_gguf(tokenizers: Any, file: GgufFile, model_size: int | None) -> Tokenizer:
    kind, split = file.get("tokenizer.ggml.model", str), file.get("tokenizer.ggml.pre", str, "default")
    if kind != "gpt2" or split not in _SPLITS:
        raise ValueError(
            f"{file.path}: its tokenizer is {kind!r} with splits {split!r}: must be 'gpt2' with one of "
            f"{', '.join(_SPLITS)}"
        )
    check_keys(
        {key: each for key, each in file.fields.items() if key.startswith("tokenizer.") and not key.startswith(_CHAT)},
        handled=_HANDLED,
        harmless=_HARMLESS,
    )
    tokens, kinds = _texts(file, "tokens"), file.get("tokenizer.ggml.token_type", list)
    merges = [tuple(merge.split(" ")) for merge in _texts(file, "merges")]
    if len(kinds) != len(tokens) or any(len(merge) != 2 for merge in merges):
        raise ValueError(f"{file.path}: its tokenizer is damaged: {some(len(tokens), 'token')}, {len(kinds)} types")
    vocabulary: dict[str, int] = {}
    for number, (token, each) in enumerate(zip(tokens, kinds)):
        if each not in (_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED):
            raise ValueError(f"tokenizer.ggml.token_type[{number}]={each}: must be from {_NORMAL} to {_UNUSED}")
        first = vocabulary.setdefault(token, number)
        if kinds[first] == _UNUSED:
            vocabulary[token] = number
        elif first != number and each != _UNUSED:
            raise ValueError(f"tokenizer.ggml.tokens[{number}]={token!r}: is token {first}, too")
    merged = {"".join(pair) for pair in merges}
    # The library ends without an exception where a merge makes no token.
    strange = merged.union(*merges) - vocabulary.keys()
    if strange:
        raise ValueError(f"{file.path}: its tokenizer is damaged: a merge needs token {min(strange)!r}")
    digits, whole, normal_form = _SPLITS[split]
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges, ignore_merges=whole))
    parts = tokenizers.pre_tokenizers
    splits: list[Any] = [parts.Digits(individual_digits=True)] if split == "smollm" else []
    if digits is not None:
        splits = [parts.Split(tokenizers.Regex(_WORDS.format(digits=digits)), "isolated")]
    splits.append(parts.ByteLevel(add_prefix_space=False, use_regex=digits is None))
    backend.pre_tokenizer = parts.Sequence(splits)
    backend.decoder = tokenizers.decoders.ByteLevel()
    if normal_form:
        backend.normalizer = tokenizers.normalizers.NFC()
    for token, each in zip(tokens, kinds):
        if each in (_UNKNOWN, _CONTROL, _USER_DEFINED):
            special = each != _USER_DEFINED
            added = tokenizers.AddedToken(token, normalized=False, special=special)
            (backend.add_special_tokens if special else backend.add_tokens)([added])

    def around(which: str, usual: bool) -> list[int]:
        if not file.get(f"tokenizer.ggml.add_{which}_token", bool, usual):
            return []
        number = file.get(f"tokenizer.ggml.{which}_token_id", int)
        if not 0 <= number < len(tokens):
            raise ValueError(f"tokenizer.ggml.{which}_token_id={number}: must be from 0 to {len(tokens) - 1}")
        return [number]

    return Tokenizer(
        backend,
        before=around("bos", whole),
        after=around("eos", False),
        unused=[number for number, each in enumerate(kinds) if each == _UNUSED and tokens[number] not in merged],
        model_size=max(model_size or 0, len(tokens)),
    )
