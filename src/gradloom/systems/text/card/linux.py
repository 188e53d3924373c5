"""What a folder brings so that a board under Linux answers prompts.

Its exponents follow from the prompt that it is written with, to which ``gradloom infer --engine reference`` gives the
same answer. :class:`~gradloom.firmware.jobs.job.AnswerPlan` says what is in it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from gradloom.firmware.device.registers import COMMAND_BYTES
from gradloom.firmware.jobs.job import AnsweringProgram, AnswerPlan
from gradloom.program.memory import PAGE, rounded
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.workload import Progress

from ..operations.decode import Decode
from ..run.answers import AnswerImage, TokenReply
from ..run.decode import Decoding
from ..run.training import encoded
from .part import tabled

__all__ = ["AnswerHost", "recorded"]

#: Columns of a row of the tables.
_COLUMNS = ("program", "position", "row")
#: Tokens whose rows are made at a time.
_SOME = 4096


class AnswerHost(Protocol):
    """Writes down what memory has at first, and what else a folder holds."""

    def store(self, offset: int, content: Any, /) -> None: ...

    def held(self, content: bytes, /) -> int:
        """The place of bytes in the folder's data."""

    def reserve(self, end: int, /) -> None:
        """The window has so many bytes at least."""


def recorded(
    reply: TokenReply,
    prompt: Sequence[int],
    tokens: int,
    ends: Sequence[int],
    config: LanguageConfig,
    host: AnswerHost,
    tell: Progress,
) -> AnswerPlan:
    """Writes a model and its programs down; ``prompt``, ``tokens``, ``ends``: of a request that names no others.

    There are positions for whole tiles of the cache.
    """
    model, rows = reply.prompt.frozen.model, reply.prompt.step.tokens
    positions = min(rounded(len(prompt) + tokens - 1, rows), model.context)
    image = AnswerImage(reply, positions, config, tell=lambda text: tell(0, 0, text))
    tell(0, 0, "writing the model")
    for name, content in image.contents.items():
        host.store(image.layout[name], content)
    first = reply.decoding(0, prompt[0])
    start, programs = max(each.start for each in image.programs.values()), []
    for (tile, count), made in image.programs.items():
        decode = replace(first.decode, position=tile * rows, count=count)
        table = tabled(made.program, made.variables, (), _COLUMNS, 0)
        code = made.program.code
        programs.append(
            AnsweringProgram(
                position=decode.position,
                count=count,
                program=(start, len(code) // COMMAND_BYTES),
                code=host.held(code),
                table=(host.held(table), len(table)),
                input=made.layout[decode.input.name],
                angles=tuple(made.layout[name] for name in _angles(reply, decode)),
                logits=made.layout[decode.logits.name],
            )
        )
        start = rounded(start + len(code), PAGE)
    host.reserve(start)
    turned = [_angles(reply, replace(first.decode, position=at)) for at in range(positions)]
    return AnswerPlan(
        prompt=tuple(prompt),
        tokens=tokens,
        ends=tuple(ends),
        positions=positions,
        rows=rows,
        vocabulary=model.vocab,
        features=first.decode.input.features,
        embedding=host.held(_embedding(reply, first)),
        angles=host.held(b"".join(words.astype("<i4").tobytes() for each in turned for words in each.values())),
        angle_words=model.head_dim,
        programs=tuple(programs),
    )


def _angles(reply: TokenReply, decode: Decode) -> dict[str, np.ndarray]:
    """Words of the angles of an operation's tokens, by their names."""
    return reply.prompt.frozen.angles(decode.operations, decode.count, decode.position)


def _embedding(reply: TokenReply, first: Decoding) -> bytes:
    """Words of all tokens, a row each."""
    held, tensor = reply.prompt.frozen.embedding, first.decode.input
    frac = first.fracs[tensor.name]
    return b"".join(
        encoded(held[at : at + _SOME], frac, tensor.form).astype("<i4").tobytes() for at in range(0, len(held), _SOME)
    )
