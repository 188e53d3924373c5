"""A board's answer to a prompt, by its UART."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from gradloom.boards.links.cards import SerialCard
from gradloom.boards.links.monitor import BAUD, open_port
from gradloom.boards.links.prompts import prompted
from gradloom.firmware.chip.card import BLOCK, NOTE, read_header, read_section, section_of
from gradloom.output import some
from gradloom.systems.results import Inferred

from .answers import CONTEXT, RESIDENT

__all__ = ["ask_board"]

Progress = Callable[[int, int, str], None]


def ask_board(
    port: str,
    prompt: str | Sequence[int],
    *,
    baud: int = BAUD,
    tokens: int = 32,
    adapter: str = "kept",
    model: Path | str | None = None,
    chat: bool = False,
    progress: Progress | None = None,
) -> Inferred:
    """Sends a prompt to a board, and returns its answer.

    ``model`` names the tokenizer of a text; without, the board's card does. With ``chat`` the prompt is a question. See
    :func:`gradloom.infer`.
    """
    if adapter not in RESIDENT:
        raise ValueError(f"adapter={adapter}: must be one of {', '.join(RESIDENT)}, which are resident on a board")
    if not 1 <= tokens < CONTEXT:
        raise ValueError(f"tokens={tokens}: must be from 1 to {CONTEXT - 1}")
    told = progress or (lambda done, total, text: None)
    with open_port(port, baud) as line:
        card = SerialCard(line, told)
        try:
            about = _about(card)
            named, tokenizer = model or about.get("model", ""), None
            if isinstance(prompt, str):
                tokenizer = _tokenizer(named)
                numbers = _texts(named).question(tokenizer, prompt) if chat else tokenizer.encode(prompt)
            else:
                numbers = [int(each) for each in prompt]
            most = CONTEXT - tokens
            if not 1 <= len(numbers) <= most:
                raise ValueError(
                    f"prompt has {some(len(numbers), 'token')}: must have 1 to {most} with --tokens {tokens}"
                )
            made: list[int] = []

            def next_token(token: int) -> None:
                made.append(token)
                told(len(made), tokens, "the board answers")

            reply = prompted(card.lines, numbers, tokens, RESIDENT.index(adapter), told=next_token)
        except ValueError as error:
            raise ValueError(f"port={port}: {error}") from None
    found = reply.tokens
    answer: Inferred = {"model": about.get("model"), "adapter": adapter}
    if tokenizer:
        found = found[: next((n for n, token in enumerate(found) if token in tokenizer.control), None)]
        answer["text"] = tokenizer.decode(found)
    return answer | {"tokens": found, "waited": reply.waited, "cycles": reply.took}


def _about(card: SerialCard) -> dict[str, Any]:
    """The card's note."""
    sections, _ = read_header(card.read(BLOCK) or b"")
    note = section_of(sections, NOTE)
    if note is None:
        raise ValueError("the card has no fine-tune: write one with gradloom card write --answer")
    about: dict[str, Any] = json.loads(read_section(cast(BinaryIO, card), note).rstrip(b"\0"))
    if not about.get("answer"):
        raise ValueError("the card's job answers no prompts: write it again with gradloom card write --answer")
    return about


def _texts(model: Path | str) -> Any:
    from gradloom.models.files.language.checkpoint import find_weights
    from gradloom.models.texts.template import open_texts

    return open_texts(find_weights(model))


def _tokenizer(model: Path | str) -> Any:
    from gradloom.models.files.language.checkpoint import find_model, find_weights
    from gradloom.models.files.language.tokenizer import open_tokenizer

    return open_tokenizer(find_weights(model), model_size=find_model(str(model)).vocab)
