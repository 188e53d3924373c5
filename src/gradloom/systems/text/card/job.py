"""A whole fine-tune as a job on a memory card."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.firmware.card import DELIVERY, KEPT, NOTE, Section, write_card
from gradloom.firmware.registers import COMMAND_BYTES
from gradloom.firmware.soc import HEADER_BYTES, JobKept, JobResult, Limits, ResultKind, SocJob
from gradloom.firmware.steps import MAX_STEPS, STATE_BYTES, initial_state
from gradloom.json_file import json_text
from gradloom.models.adapters.lora import Adapter
from gradloom.models.texts.example import foretold
from gradloom.output import grouped
from gradloom.program.descent import AdamW
from gradloom.program.memory import PAGE, rounded
from gradloom.rtl.machines.configs.language import LanguageConfig

from ..operations.base import SPARE, Operation
from ..operations.exponents import of_any_text
from ..operations.learnt.rechosen import FRACS, REACHES, Rechosen, constants
from ..operations.tensors import Tensor
from ..operations.transformer import LOSS, TARGETS
from ..program.layout import Layout
from ..recipe import CONSTANT, Schedule
from ..run.frozen import Frozen
from ..run.step import place_frozen
from ..run.trainer import Trainer
from ..run.training import Training, as_bytes, largest
from .answers import Answers, answers_of
from .layout import STATE, JobLayout
from .part import BoardPart
from .trial import HELD, held_data, trial_of

__all__ = ["STATE", "BoardJob", "board_job", "rehearsed", "write_card_image"]

#: Cycles without progress after which the board gives a step up; no command takes so long.
_WATCHDOG = 100_000_000
#: Memory cards erase at most so much at once: a write that power cuts leaves the other copy alone.
_ERASED = 4 << 20
#: Cycles after which a board keeps what it has learnt: a minute.
_KEEP_CYCLES = 12_000_000_000
#: Cycles, about, after which a step lets a token of a prompt pass.
_YIELD_EVERY = 100_000
#: Bits to spare in tensors whose exponents hold for all steps.
_HEADROOM = 4
#: Texts whose step is made in floating point before the job, at most.
_REHEARSED = 4


@dataclass(frozen=True, kw_only=True)
class BoardJob:
    """Contents of the card, the job's header last.

    ``frac``: fraction bits of every tensor in the first step; those of adapters are ``exponents`` too, which change.
    ``layout``: places in the window of tensors that outlive a step; the window begins at ``job.window_offset`` of the
    memory; ``memory``: bytes of the board's memory by class.
    """

    sections: tuple[Section, ...]
    job: SocJob
    frac: Mapping[str, int]
    exponents: Rechosen
    layout: Layout
    memory: Mapping[str, int]


#: Of a job's header, the section that a part is in.
_FIELDS = {"answers": "prompts", "trial": "trial"}


def _paged(size: int) -> int:
    return rounded(size, PAGE)


def _whole(data: bytes) -> bytes:
    """Pads data to a multiple of 64.

    Tensors and programs are placed at such multiples.
    """
    return data + bytes(-len(data) % 64)


def rehearsed(trainings: Sequence[Training]) -> tuple[dict[str, int], Rechosen]:
    """Fraction bits that serve all steps, and the first ones of adapters.

    They follow from steps in floating point: of the first texts with the adapters in their first state, and of the
    first text with the adapters moved by an update. A new B is zero, and with it gradients that the second step
    already has.
    """
    first = trainings[0]
    rule = first.rule
    assert rule is not None
    now = first.exact()

    def moved(name: str, which: str, values: np.ndarray, scale: float) -> np.ndarray:
        gradient = now.values[f"{name}.g{which}"]
        gradient = gradient.T if which == "b" else gradient
        if not isinstance(rule, AdamW):
            return values - rule * scale * gradient
        # AdamW moves a word by about its rate, and what is zero now will go one way or the other.
        random = np.random.default_rng(0).choice((-1.0, 1.0), values.shape)
        return values - rule.lr * np.where(gradient, np.sign(gradient), random)

    later = {
        name: replace(each, a=moved(name, "a", each.a, 1.0), b=moved(name, "b", each.b, each.scale))
        for name, each in first.loras.items()
    }
    reached = largest(now)
    others = trainings[1:_REHEARSED]
    for made in (replace(first, adapters=later).exact(), *(each.exact() for each in others)):
        for name, value in largest(made).items():
            reached[name] = max(reached[name], value)
    # The text whose embeddings reach furthest has the fewest fraction bits.
    entry = first.step.input.name
    widest = max(trainings, key=lambda each: float(np.abs(each.starts[entry][1]).max()))
    frac = replace(widest, adapters=later).fracs(of_any_text(reached), headroom=_HEADROOM)
    found = constants(first.operations, frac)
    given = {name: found[name] for name in first.loras}
    keys = [f"{name}.{which}" for name in given for which in FRACS]
    reach = {key: math.frexp(reached[key])[1] for key in keys if key.rsplit(".", 1)[1] in REACHES}
    chosen = Rechosen(given, {key: frac[key] for key in keys}, reach)
    for name, each in given.items():
        chosen.choose(name, each)
    return frac | chosen.frac, chosen


@dataclass(kw_only=True)
class _Placing:
    """A job while its window is filled; ``brought`` are its first bytes."""

    trainings: Sequence[Training]
    frac: Mapping[str, int]
    exponents: Rechosen
    layout: Layout = field(default_factory=Layout)
    brought: bytearray = field(default_factory=bytearray)

    def bring(self, name: str, data: bytes) -> None:
        """Places data that is there before the first step."""
        self.layout.place(name, len(data))
        self.brought.extend(_whole(data))

    def adapters(self) -> None:
        """Places adapters, their state and moments: the words that are kept."""
        first = self.trainings[0].data(self.frac)
        for name in self.exponents.constants:
            for which in "ab":
                self.bring(f"{name}.{which}", first[f"{name}.{which}"])
        chosen = self.exponents
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
        for name in chosen.constants:
            for which in "ab":
                self.bring(f"{name}.m{which}", first[f"{name}.m{which}"])

    def texts(self, own: Sequence[str]) -> None:
        """Tables, and the tensors ``own`` of each text."""
        for name, data in self.trainings[0].data(self.frac).items():
            if name not in own and name not in self.layout.offsets:
                self.bring(name, data)
        for number, training in enumerate(self.trainings):
            data_of = training.start_data(self.frac) | as_bytes({TARGETS: training.targets})
            for name in own:
                self.bring(f"{number}:{name}", data_of[name])


def board_job(
    frozen: Frozen,
    texts: Sequence[Sequence[int]],
    adapters: Mapping[str, Adapter],
    layers: Sequence[int],
    rule: float | AdamW,
    steps: int,
    config: LanguageConfig,
    tell: Callable[[int, int, str], None] | None = None,
    *,
    every: int = 0,
    cycles: int = _KEEP_CYCLES,
    limits: Limits | None = None,
    answer: bool = False,
    held_out: Sequence[int] | None = None,
    order: Sequence[int] = (),
    rates: Schedule = CONSTANT,
) -> BoardJob:
    """The job of ``steps`` updates, each from one of ``texts`` in turn.

    All texts have the same number of tokens. ``every``, ``cycles``, ``limits``: see
    :class:`~gradloom.firmware.soc.JobKept` and :class:`~gradloom.firmware.soc.Limits`. With ``answer`` the board
    answers prompts by its UART meanwhile (:mod:`~.board_answers`). On ``held_out``, as long as a text, it tries
    adapters that are installed (:mod:`~.board_trial`). ``order``: number of each step's text, each text first in turn;
    ``rates``: how the learning rate changes.

    In the window lie the adapters, their exponents and moments (the kept words), tables and texts, the
    frozen matrices, the loss and forward caches of texts, tensors that are measured between steps, the places that
    tensors of a step share, programs, and the table of steps. Where the first layers have no adapter, the first step on
    a text keeps their output, and later ones begin there, by a program of their own.
    """
    if not 1 <= steps <= MAX_STEPS:
        raise ValueError(f"steps={steps}: a job has from 1 to {MAX_STEPS}")
    if len({len(text) for text in (*texts, *(() if held_out is None else (held_out,)))}) != 1:
        raise ValueError("texts: all must have the same number of tokens")
    if len({foretold(text) for text in texts}) != 1:
        raise ValueError("texts: all must have the same number of tokens that are learnt")
    if not isinstance(rule, AdamW) and rates.varies:
        raise ValueError(f"schedule={rates.shape}: a board changes the rate of AdamW alone; give --optimizer adamw")
    told = tell or (lambda done, total, text: None)
    told(0, steps, "choosing exponents")
    trainings = [Training(frozen, text, adapters, layers, rule=rule) for text in texts[:steps]]
    frac, exponents = rehearsed(trainings)
    placing = _Placing(trainings=trainings, frac=frac, exponents=exponents)
    layout = placing.layout
    placing.adapters()
    own = trainings[0].step.input.name, TARGETS
    placing.texts(own)
    held = None if held_out is None else Training(frozen, held_out, adapters, layers)
    if held is not None:
        for name, data in held_data(held, frac).items():
            placing.bring(HELD + name, data)
    place_frozen(trainings[0], layout)
    frozen_parts = [frozen.stream(name) for name in layout.offsets if name in frozen.words]
    cached = Trainer(frozen, dict(adapters), layers, rule).cached(texts[0])
    made = JobLayout(
        layout=layout,
        operations=trainings[0].operations,
        own=own,
        cached=cached,
        exponents=exponents,
        texts=len(trainings),
        order=order,
        rates=rates,
    )
    made.rest(len(texts[0]), config.data_bits // 8)
    told(0, steps, "writing programs")
    kinds = _kinds(trainings[0], cached, frac, again=steps > len(trainings))
    made.write(kinds, frac, config, steps, _YIELD_EVERY if answer else None)
    parts: dict[str, BoardPart] = {}
    if answer:
        asked = Answers(frozen=frozen, training=trainings[0], frac=frac)
        parts["prompts"] = answers_of(asked, made, _signed(layout), config, made.window)
    if held is not None:
        start = _paged(parts["prompts"].end) if parts else made.window
        parts["trial"] = trial_of(held, frac, made, config, start)
    window = _paged(max((part.end for part in parts.values()), default=made.window))
    kept = JobKept(offset=0, bytes=made.kept, every=every, cycles=cycles, log=HEADER_BYTES + window, records=steps)
    job = SocJob(
        window_bytes=window,
        programs=tuple(made.placed),
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
    model = replace(frozen.model, layers=len(layers))
    memory = made.memory(model)
    if parts:
        memory |= {"parts": window - made.window}
    return BoardJob(sections=sections, job=job, frac=frac, exponents=exponents, layout=layout, memory=memory)


def _signed(layout: Layout) -> int:
    """Bytes of the words that a signed adapter brings.

    They are adapters and their exponents, the first in the window.
    """
    return layout[STATE] + rounded(layout.sizes[STATE])


def _kinds(
    first: Training, cached: Sequence[Tensor], frac: Mapping[str, int], *, again: bool
) -> Iterator[Sequence[Operation]]:
    """A step on a new text, and one on a text with a forward cache."""
    yield first.operations
    if cached and again:
        held = {tensor.name: (np.zeros((tensor.rows, tensor.features)), frac[tensor.name]) for tensor in cached}
        learning = [each for each in first.layers if each >= int(cached[0].name.split(".")[0])]
        yield replace(first, layers=learning, kept=held).operations


def write_card_image(job: BoardJob, output: Path, facts: Mapping[str, Any], *, memory_bytes: int) -> dict[str, Any]:
    """Writes ``card.img`` and ``job.json``.

    Both have ``facts`` of the fine-tune and the places of the words of each adapter among the kept words, tiles of 64
    features of ``[rank, features]``: ``frac`` is the number of their fraction bits on the card, ``exponent`` the place
    among the kept words of that number less 14, on the board. ``job.json`` also has the places of sections in the
    board's memory. ``gradloom card collect`` reads the card's.
    """
    about = _about(job, facts)
    note = Section(name="about", parts=(json.dumps(about, separators=(",", ":")).encode(),), offset=0, kind=NOTE)
    with grouped(output, last="job.json") as stage:
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
        "adapters": {
            f"{name}.{which}": {
                "offset": job.layout[f"{name}.{which}"],
                "bytes": job.layout.sizes[f"{name}.{which}"],
                "frac": job.frac[f"{name}.{which}"] + SPARE,
                "exponent": job.layout[STATE] + STATE_BYTES * number + 4 * FRACS.index(which),
            }
            for number, name in enumerate(job.exponents.constants)
            for which in "ab"
        },
        "moments": {
            name: {"offset": job.layout[name], "bytes": job.layout.sizes[name]}
            for each in job.exponents.constants
            for name in (f"{each}.ma", f"{each}.mb")
        },
    }
