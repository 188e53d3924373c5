"""A whole fine-tune as a job on a memory card."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gradloom.firmware.chip.card import DELIVERY, KEPT, NOTE, Section, write_card
from gradloom.firmware.chip.soc import HEADER_BYTES, JobKept, JobResult, Limits, ResultKind, SocJob
from gradloom.firmware.chip.steps import STATE_BYTES, initial_state
from gradloom.firmware.device.registers import COMMAND_BYTES
from gradloom.json_file import json_text
from gradloom.output import grouped
from gradloom.program.memory import PAGE, rounded
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.shell.table import needed_table

from ..operations.base import SPARE
from ..operations.blocks.head import LOSS, TARGETS
from ..operations.learnt.rechosen import FRACS, REACHES, Rechosen
from ..program.layout import Layout
from ..run.step import place_frozen
from ..run.training import as_bytes
from .answers import Answers, answers_of
from .course import Course
from .layout import STATE, JobLayout
from .part import BoardPart
from .trial import HELD, held_data, trial_of

__all__ = ["STATE", "BoardJob", "board_job", "write_card_image"]

#: Cycles without progress after which the board gives a step up; no command takes so long.
_WATCHDOG = 100_000_000
#: Memory cards erase at most so much at once: a write that power cuts leaves the other copy alone.
_ERASED = 4 << 20
#: Cycles after which a board keeps what it has learnt: a minute.
_KEEP_CYCLES = 12_000_000_000
#: Cycles, about, after which a step lets a token of a prompt pass.
_YIELD_EVERY = 100_000


@dataclass(frozen=True, kw_only=True)
class BoardJob:
    """Contents of the card, the job's header last.

    ``course``: what the job repeats. ``layout``: places in the window of tensors that outlive a step; the window
    begins at ``job.window_offset`` of the memory; ``memory``: bytes of the board's memory by class.
    """

    sections: tuple[Section, ...]
    job: SocJob
    course: Course
    layout: Layout
    memory: Mapping[str, int]

    @property
    def frac(self) -> Mapping[str, int]:
        """Fraction bits of every tensor in the first step."""
        return self.course.frac

    @property
    def exponents(self) -> Rechosen:
        """Those of adapters that change."""
        return self.course.exponents


#: Of a job's header, the section that a part is in.
_FIELDS = {"answers": "prompts", "trial": "trial"}


def _paged(size: int) -> int:
    return rounded(size, PAGE)


def _whole(data: bytes) -> bytes:
    """Pads data to a multiple of 64.

    Tensors and programs are placed at such multiples.
    """
    return data + bytes(-len(data) % 64)


@dataclass(kw_only=True)
class _Placing:
    """A job while its window is filled; ``brought`` are its first bytes."""

    course: Course
    layout: Layout = field(default_factory=Layout)
    brought: bytearray = field(default_factory=bytearray)

    def bring(self, name: str, data: bytes) -> None:
        """Places data that is there before the first step."""
        self.layout.place(name, len(data))
        self.brought.extend(_whole(data))

    def words(self) -> None:
        """Places what is kept: words that learn, their exponents and moments."""
        first, chosen = self.course.data, self.course.exponents
        for name in self.course.words:
            self.bring(name, first[name])
        self.bring(
            STATE,
            initial_state(
                (
                    [chosen.frac[f"{name}.{each}"] for each in FRACS],
                    [chosen.reach[f"{name}.{each}"] for each in REACHES],
                )
                for name in chosen.constants
            ),
        )
        for name in self.course.words.values():
            self.bring(name, first[name])

    def texts(self, own: Sequence[str]) -> None:
        """Tables, and the tensors ``own`` of each text."""
        for name, data in self.course.data.items():
            if name not in own and name not in self.layout.offsets:
                self.bring(name, data)
        for number, training in enumerate(self.course.trainings):
            data_of = training.start_data(self.course.frac) | as_bytes({TARGETS: training.targets})
            for name in own:
                self.bring(f"{number}:{name}", data_of[name])


def board_job(
    course: Course,
    config: LanguageConfig,
    tell: Callable[[int, int, str], None] | None = None,
    *,
    every: int = 0,
    cycles: int = _KEEP_CYCLES,
    limits: Limits | None = None,
    answer: bool = False,
    coded: bool = False,
    held_out: Sequence[int] | None = None,
    order: Sequence[int] = (),
) -> BoardJob:
    """The job of a fine-tune.

    ``every``, ``cycles``, ``limits``: see :class:`~gradloom.firmware.chip.soc.JobKept` and
    :class:`~gradloom.firmware.chip.soc.Limits`. With ``answer`` the board answers prompts by its UART meanwhile
    (:mod:`~.answers`), ``coded`` by a head in codes. On ``held_out``, as long as a text, it tries adapters that are
    installed (:mod:`~.trial`).
    ``order``: number of each step's text, each text first in turn.

    In the window lie the adapters, their exponents and moments (the kept words), tables and texts, the
    frozen matrices, the loss and forward caches of texts, tensors that are measured between steps, the places that
    tensors of a step share, programs, and the table of steps. Where the first step on a text keeps something, later
    ones begin there, by a program of their own.
    """
    trainings, frac, steps = course.trainings, course.frac, course.steps
    first = trainings[0]
    if held_out is not None and len(held_out) != len(first.tokens):
        raise ValueError("texts: all must have the same number of tokens")
    told = tell or (lambda done, total, text: None)
    placing = _Placing(course=course)
    layout = placing.layout
    placing.words()
    own = first.step.input.name, TARGETS
    placing.texts(own)
    held = None if held_out is None else replace(first, tokens=held_out, rule=None)
    if held is not None:
        for name, data in held_data(held, frac).items():
            placing.bring(HELD + name, data)
    place_frozen(first, layout)
    frozen = first.frozen
    frozen_parts = [frozen.stream(name, config) for name in layout.offsets if name in frozen.words]
    made = JobLayout(
        layout=layout,
        operations=first.operations,
        own=own,
        cached=course.cached,
        exponents=course.exponents,
        moments=tuple(course.words.values()),
        texts=len(trainings),
        order=order,
        rates=course.rates,
    )
    made.rest(len(first.tokens), config.data_bits // 8)
    for tensor in course.cached if held is not None else ():
        layout.tensor(replace(tensor, name=HELD + tensor.name))
    told(0, steps, "writing programs")
    kinds = [first.operations]
    if course.cached and steps > len(trainings):
        kinds.append(course.later().operations)
    made.write(kinds, frac, config, steps, _YIELD_EVERY if answer else None)
    parts: dict[str, BoardPart] = {}
    if answer:
        asked = Answers(frozen=frozen, training=first, frac=frac, coded=coded)
        parts["prompts"] = answers_of(asked, made, course.words, _signed(layout), config, made.window)
    if held is not None:
        start = _paged(parts["prompts"].end) if parts else made.window
        parts["trial"] = trial_of(held, frac, made, config, start)
    window = _paged(max((part.end for part in parts.values()), default=made.window))
    kept = JobKept(offset=0, bytes=made.kept, every=every, cycles=cycles, log=HEADER_BYTES + window, records=steps)
    job = SocJob(
        window_bytes=window,
        programs=tuple(made.placed),
        machine=needed_table(config),
        watchdog=_WATCHDOG,
        kept=kept,
        limits=limits or Limits(),
        results=(JobResult(name="loss", offset=layout[LOSS], kind=ResultKind.LOSS, words=4),),
        table=made.table_offset,
        **{field: parts[name].description for field, name in _FIELDS.items() if name in parts},
    )
    at = HEADER_BYTES
    codes = [_whole(each.code) for each in made.placed]
    frozen_at = at + min(layout[name] for name in frozen.words if name in layout.offsets)
    sections = (
        Section(name="adapters, texts", parts=(bytes(placing.brought),), offset=at),
        Section(name="weights", parts=tuple(map(_whole, frozen_parts)), offset=frozen_at),
        Section(name="programs", parts=(*codes, made.table), offset=at + made.placed[0].offset),
        *(Section(name=name, parts=(bytes(part.content),), offset=at + part.offset) for name, part in parts.items()),
        Section(name="learnt", parts=(), offset=0, kind=KEPT, capacity=kept.room, unit=_ERASED),
        Section(name="signed", parts=(), offset=at, kind=DELIVERY, capacity=_signed(layout), unit=_ERASED),
        Section(name="job", parts=(job.header(),), offset=0),
    )
    model = replace(frozen.model, layers=len(first.layers))
    memory = made.memory(model)
    if parts:
        memory |= {"parts": window - made.window}
    return BoardJob(sections=sections, job=job, course=course, layout=layout, memory=memory)


def _signed(layout: Layout) -> int:
    """Bytes of the words that a signed adapter brings.

    They are adapters and their exponents, the first in the window.
    """
    return layout[STATE] + rounded(layout.sizes[STATE])


def write_card_image(job: BoardJob, output: Path, facts: Mapping[str, Any], *, memory_bytes: int) -> dict[str, Any]:
    """Writes ``card.img`` and ``job.json``.

    Both have ``facts`` of the fine-tune and the places of what learns among the kept words, tiles of 64
    features of ``[rank, features]``: ``frac`` is the number of their fraction bits on the card, ``exponent`` the place
    among the kept words of that number less 14, on the board; without it they stay. ``most``: the largest word with
    which the job may begin. ``job.json`` also has the places of sections in the
    board's memory. ``gradloom card collect`` reads the card's.
    """
    about = _about(job, facts)
    note = Section(name="about", parts=(json.dumps(about, separators=(",", ":")).encode(),), offset=0, kind=NOTE)
    with grouped(output, verb="card", last="job.json") as stage:
        with (stage / "card.img").open("w+b") as file:
            sections = write_card(file, (*job.sections[:-1], note, job.sections[-1]), memory_bytes=memory_bytes)
            size = file.seek(0, 2)
        told = {
            **about,
            "card_bytes": size,
            "memory_bytes": sum(job.memory.values()),
            "commands": [len(each.code) // COMMAND_BYTES for each in job.job.programs],
            "sections": sections,
            "memory": dict(job.memory),
        }
        (stage / "job.json").write_text(json_text(told), encoding="utf-8")
    return told


def _about(job: BoardJob, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What makes PEFT's files of the kept words."""
    kept = job.job.kept
    assert kept is not None
    return {
        **facts,
        "words": _signed(job.layout),
        "state": job.layout[STATE],
        "kept": {"bytes": kept.bytes, "every": kept.every, "cycles": kept.cycles},
        "adapters": {name: _place(job, name) for name in job.course.words},
        "moments": {
            name: {"offset": job.layout[name], "bytes": job.layout.sizes[name]} for name in job.course.words.values()
        },
    }


def _place(job: BoardJob, name: str) -> dict[str, int]:
    """Where a tensor that learns is among the kept words."""
    place = {"offset": job.layout[name], "bytes": job.layout.sizes[name], "frac": job.frac[name]}
    place["most"] = job.course.most[name]
    stem, _, which = name.rpartition(".")
    if stem not in job.exponents.constants:
        return place
    number = list(job.exponents.constants).index(stem)
    exponent = job.layout[STATE] + STATE_BYTES * number + 4 * FRACS.index(which)
    return place | {"frac": job.frac[name] + SPARE, "exponent": exponent}
