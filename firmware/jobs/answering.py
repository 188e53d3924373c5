"""Answers of a language model: the order of its programs, and folders that answer on a board.

A program verifies several tokens in about the time of one, for both read every weight. The text itself gives guesses:
what stood behind the same tokens before. A guess counts only where the logits before it choose it, so the answer is
that of token by token; a prompt needs no guesses.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..chip.steps import StepError, Steps
from ..device.host import Accelerator
from ..device.registers import COMMAND_BYTES
from .board_device import BoardDevice
from .job import TILE, AnsweringProgram, AnswerPlan, JobError, read_plan
from .job_run import begin, design_of, open_machine, write_stage

__all__ = ["LoadedModel", "TokenLoop", "answer_folder", "guessed"]

#: Tokens at most of what is found again.
_FOUND = 3
#: Seconds that a program may take, of which none takes one.
_PATIENCE = 600.0


def guessed(text: Sequence[int], count: int) -> list[int]:
    """What may stand behind a text: what stood behind its last tokens where the most of them stood before, last.

    ``count`` tokens, or none where the last one is new.
    """
    made = list(text)
    for size in range(min(_FOUND, len(text) - 1), 0, -1):
        for start in range(len(text) - size - 1, -1, -1):
            if made[start : start + size] == made[len(text) - size : len(text)]:
                # Behind a place so near to the end that it ends, the guess goes on with itself.
                for at in range(start + size, start + size + count):
                    made.append(made[at])
                return made[len(text) :]
    return []


@dataclass
class TokenLoop:
    """The tokens of an answer, by programs of several.

    ``programs`` have run, of which ``answering`` gave the ``said`` tokens.
    """

    programs: int = 0
    answering: int = 0
    said: int = 0

    @property
    def answered(self) -> float:
        """Tokens of the answer a program that gave some."""
        return self.said / max(self.answering, 1)

    def tokens(
        self,
        given: Sequence[int],
        count: int,
        together: Callable[[int], int],
        run: Callable[[int, Sequence[int]], Callable[[int], int]],
        *,
        ends: frozenset[int] = frozenset(),
    ) -> Iterator[int]:
        """At most ``count`` tokens behind those ``given``; one of ``ends`` is the last and is not given.

        ``together``: tokens that a program from a position on may have. ``run``: runs that of a position and its
        tokens, and returns what chooses the token behind each of them, by its number.
        """
        text, position, last = list(given), 0, len(given) + count
        while True:
            most = together(position)
            known = text[position : position + most]
            # More than the answer takes is no use.
            known += guessed(text, min(most, last - 1 - position) - len(known)) if len(known) < most else []
            # What fills a program counts for nothing, and its rows of the cache are written again.
            chosen = run(position, [*known, *(most - len(known)) * known[-1:] * (len(known) > 1)])
            self.programs += 1
            answering = False
            for number, following in enumerate(known[1:] + [-1]):
                position += 1
                if position < len(text):
                    continue
                token = chosen(number)
                if token in ends:
                    return
                text.append(token)
                self.answering += not answering
                answering = True
                self.said += 1
                yield token
                if len(text) == last:
                    return
                if token != following:
                    break


class _Code:
    """A program and its table, in a memory of their own."""

    def __init__(self, program: AnsweringProgram, data: BinaryIO) -> None:
        self.program, self.size = program, program.program[1] * COMMAND_BYTES
        self.content = bytearray(_read(data, program.code, self.size) + _read(data, *program.table))
        self._changed: set[int] = set()
        self._steps = Steps(self, self.size, [(0, program.program[1])])
        self.patch(program.position, 0)

    def fetch(self, offset: int, length: int) -> bytes:
        return bytes(self.content[offset : offset + length])

    def store(self, offset: int, content: bytes) -> None:
        if offset + len(content) > self.size:
            raise StepError("a patch is outside its program")
        if self.fetch(offset, len(content)) != content:
            self.content[offset : offset + len(content)] = content
            self._changed.add(offset // COMMAND_BYTES)

    def patch(self, position: int, row: int) -> None:
        try:
            self._steps.patch(0, (0, position, row))
        except (StepError, struct.error, IndexError) as fault:
            raise JobError(f"data.bin: the table of a program is refused: {fault}") from None

    def whole(self) -> bytes:
        """All commands."""
        self._changed.clear()
        return self.fetch(0, self.size)

    def changed(self) -> Iterator[tuple[int, bytes]]:
        """Offsets and commands that were patched since they were asked for."""
        for number in sorted(self._changed):
            yield self.program.program[0] + COMMAND_BYTES * number, self.fetch(COMMAND_BYTES * number, COMMAND_BYTES)
        self._changed.clear()


@dataclass
class LoadedModel:
    """A model in the memory of a machine, which answers; ``clipped`` words and ``cycles`` so far."""

    answers: AnswerPlan
    data: BinaryIO
    machine: Accelerator
    codes: Mapping[tuple[int, int], _Code]
    clipped: int = 0
    cycles: int = 0

    def run(self, position: int, tokens: Sequence[int]) -> Callable[[int], int]:
        """See :meth:`TokenLoop.tokens`."""
        answers, machine = self.answers, self.machine
        program = answers.at(position, len(tokens))
        code, row = self.codes[program.position, program.count], position - program.position
        code.patch(position, 4 * TILE * row)
        for offset, content in code.changed():
            machine.store(offset, content)
        size = 4 * answers.features
        machine.store(
            program.input, _tiles([_read(self.data, answers.embedding + size * each, size) for each in tokens])
        )
        size, names = 4 * answers.angle_words, len(program.angles)
        for number, offset in enumerate(program.angles):
            places = [answers.angles + size * (names * (position + each) + number) for each in range(program.count)]
            machine.store(offset, _tiles([_read(self.data, each, size) for each in places]))
        counters = machine.run(*program.program, timeout=_PATIENCE)
        self.clipped += counters.saturated
        self.cycles += counters.cycles
        return lambda number: self._likeliest(program, number)

    def _likeliest(self, program: AnsweringProgram, row: int) -> int:
        """The token with the largest logit behind one of a program's; of equals the lowest."""
        size, first = 4 * TILE, program.logits + 4 * TILE * row
        places = range(first, first + size * program.count * self.answers.logit_tiles, size * program.count)
        found = b"".join(self.machine.fetch(place, size) for place in places)
        logits = struct.unpack_from(f"<{self.answers.vocabulary}i", found)
        return logits.index(max(logits))


def answer_folder(
    folder: Path, device: BoardDevice, prompt: Sequence[int], tokens: int | None, tell: Callable[[int], object]
) -> tuple[TokenLoop, LoadedModel]:
    """Answers a prompt by a folder's model, with each token to ``tell`` as it comes.

    ``prompt``: tokens; none: the folder's. ``tokens``: of the answer at most; None: as the folder has it.
    Raises :class:`~.job.JobError` or :class:`~..device.host.AcceleratorError` with one line.
    """
    with ExitStack() as stack:
        stack.enter_context(device.held(f"an answer of {folder.name} (process {os.getpid()})"))
        plan = read_plan(folder)
        if plan.answers is None:
            raise JobError(f"{folder}: has no answers, but a fine-tune: run it, or write it by gradloom infer --job")
        answers = plan.answers
        given, most = _asked(answers, prompt, tokens)
        data = stack.enter_context(open(folder / "data.bin", "rb"))
        codes = {(each.position, each.count): _Code(each, data) for each in answers.programs}
        machine = open_machine(stack.enter_context(device.open()), design_of(plan.design), plan.window)
        reply, loop = LoadedModel(answers, data, machine, codes), TokenLoop()
        begin(machine, plan)
        for stage in plan.stages:
            write_stage(machine, stage, data)
        for code in codes.values():
            machine.store(code.program.program[0], code.whole())
        try:
            found = loop.tokens(given, most, lambda at: answers.at(at).count, reply.run, ends=frozenset(answers.ends))
            for each in found:
                tell(each)
        except BaseException:
            if machine.busy:
                machine.reset(timeout=5)
            raise
        return loop, reply


def _asked(answers: AnswerPlan, prompt: Sequence[int], tokens: int | None) -> tuple[Sequence[int], int]:
    """The prompt and how many tokens are wanted; :class:`~.job.JobError` where the folder has no room for them."""
    given, most = prompt or answers.prompt, answers.tokens if tokens is None else tokens
    for each in given:
        if not 0 <= each < answers.vocabulary:
            raise JobError(f"token={each}: must be from 0 to {answers.vocabulary - 1}, of the model's vocabulary")
    if most < 1 or len(given) + most - 1 > answers.positions:
        raise JobError(
            f"tokens={most}: must be at least 1, and with the prompt's {len(given)} at most {answers.positions + 1}, "
            "as many as the folder has programs for: ask for fewer by --tokens, or write it with more"
        )
    return given, most


def _read(data: BinaryIO, at: int, length: int) -> bytes:
    data.seek(at)
    return data.read(length)


def _tiles(rows: Sequence[bytes]) -> bytes:
    """Rows of words as they lie in memory: by tile, then row."""
    size = 4 * TILE
    return b"".join(row[at : at + size] for at in range(0, len(rows[0]), size) for row in rows)
