"""Renders conversations by a model's own chat template, as transformers does."""

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradloom.json_file import read_json

from ..files.language.gguf import GGUF_SUFFIX, GgufFile
from ..files.language.huggingface import CONFIG
from ..files.language.tokenizer import Tokenizer

__all__ = ["ChatTemplate", "ModelTexts", "open_texts"]

_CONFIG, _FILE, _SPECIAL = "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json"
_GGUF_TEMPLATE = "tokenizer.chat_template"
#: Tokens that templates name, by their names in GGUF files.
_TOKENS = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


class ChatTemplate:
    """A template of Jinja with the names that transformers gives to it.

    It runs in a sandbox that changes none of its values. A template that is no Jinja is refused.

    Parameters
    ----------
    source : str
    tokens : mapping
        Texts of special tokens by transformers' names, such as ``bos_token``.
    """

    def __init__(self, source: str, tokens: Mapping[str, str]) -> None:
        try:
            import jinja2
            from jinja2.ext import Extension, loopcontrols
            from jinja2.nodes import Node
            from jinja2.parser import Parser
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ModuleNotFoundError:
            raise ValueError("jinja2 is not installed: make llm in the clone, or pip install jinja2") from None

        class Answers(Extension):
            """Marks of answers, which change nothing of the text."""

            tags = {"generation"}

            def parse(self, parser: Parser) -> list[Node]:
                next(parser.stream)
                return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))

        def refused(message: str) -> None:
            raise jinja2.TemplateError(message)

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[Answers, loopcontrols]
        )
        environment.filters["tojson"] = _json
        environment.globals["raise_exception"] = refused
        environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
        self._error, self._tokens = jinja2.TemplateError, dict(tokens)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise ValueError(f"chat_template: is no template of Jinja: {_line(error)}") from None

    def render(self, messages: Sequence[Mapping[str, Any]], *, ask: bool = False) -> str:
        """The text of messages; with ``ask`` also what comes before the next answer.

        :class:`ValueError` has the template's own words where it refuses them.
        """
        try:
            return self._template.render(
                messages=messages, tools=None, documents=None, add_generation_prompt=ask, **self._tokens
            )
        except (self._error, TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
            raise ValueError(f"the model's chat template refuses it: {_line(error)}") from None


def _json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: Any = False
) -> str:
    """Jinja's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


class ModelTexts:
    """What a model's files say on its texts.

    Attributes
    ----------
    tokens : dict of str to str
        Special tokens by transformers' names.
    """

    def __init__(self, path: Path, tokens: Mapping[str, str], source: str | None) -> None:
        self.path, self.tokens, self._source = path, dict(tokens), source
        self._template: ChatTemplate | None = None

    @property
    def end(self) -> str | None:
        """Token behind a whole text."""
        return self.tokens.get("eos_token")

    @property
    def template(self) -> ChatTemplate:
        """Its chat template; a model without one is refused."""
        if self._template is None:
            if self._source is None:
                raise ValueError(f"{self.path} has no chat template; give another model, or texts that need none")
            try:
                self._template = ChatTemplate(self._source, self.tokens)
            except ValueError as error:
                raise ValueError(f"{self.path}: {error}") from None
        return self._template

    def question(self, tokenizer: Tokenizer, text: str) -> list[int]:
        """Tokens of a user's question, up to where the answer begins."""
        asked = self.template.render([{"role": "user", "content": text}], ask=True)
        tokens = tokenizer.spans([asked], around=False)[0][0]
        tokenizer.check(tokens)
        return tokens


def open_texts(path: Path | str) -> ModelTexts:
    """The chat template and special tokens of a model's file or folder.

    They are in ``chat_template.jinja`` or ``tokenizer_config.json`` in the folder or beside the file, else in the GGUF
    file.
    """
    path = Path(path)
    folder = path if path.is_dir() else path.parent
    found = [path]
    if path.is_dir():
        found = [] if (path / CONFIG).is_file() else list(path.glob(f"*{GGUF_SUFFIX}"))
    if len(found) == 1 and found[0].suffix == GGUF_SUFFIX:
        tokens, source = _of_gguf(GgufFile(found[0]))
    else:
        tokens, source = _of_folder(folder)
    beside = folder / _FILE
    if beside.is_file():
        source = beside.read_text(encoding="utf-8")
    return ModelTexts(path, tokens, source)


def _of_gguf(file: GgufFile) -> tuple[dict[str, str], str | None]:
    texts = file.get("tokenizer.ggml.tokens", list, [])
    tokens = {}
    for name, short in _TOKENS.items():
        number = file.get(f"tokenizer.ggml.{short}_token_id", int, -1)
        if 0 <= number < len(texts):
            tokens[name] = str(texts[number])
    return tokens, file.get(_GGUF_TEMPLATE, str) if _GGUF_TEMPLATE in file.fields else None


def _of_folder(folder: Path) -> tuple[dict[str, str], str | None]:
    tokens: dict[str, str] = {}
    source: str | None = None
    for name in (_SPECIAL, _CONFIG):
        if not (folder / name).is_file():
            continue
        try:
            held = read_json(folder / name)
        except ValueError as error:
            raise ValueError(f"{folder / name}: {error}") from None
        if not isinstance(held, dict):
            raise ValueError(f"{folder / name}: must be an object")
        for each in _TOKENS:
            token = held.get(each)
            token = token.get("content") if isinstance(token, dict) else token
            if isinstance(token, str):
                tokens[each] = token
        if held.get("chat_template") is not None:
            source = _default(held["chat_template"], folder / name)
    return tokens, source


def _default(found: Any, path: Path) -> str:
    """A template, or the one called default among several."""
    if isinstance(found, list):
        named = [each.get("template") for each in found if isinstance(each, dict) and each.get("name") == "default"]
        found = named[0] if named else None
    if not isinstance(found, str):
        raise ValueError(f"{path}: chat_template: must be a text, or a list with one called default")
    return found
