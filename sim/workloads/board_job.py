"""A whole fine-tune as a job on a memory card."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.firmware.card import Section, write_card
from gradloom.firmware.registers import COMMAND_BYTES
from gradloom.firmware.soc import HEADER_BYTES, Job, Kept, Program, Result, ResultKind
from gradloom.firmware.steps import MAX_STEPS, STATE_BYTES, AdapterPlaces, StepTable, initial_state, values_of
from gradloom.rtl.machines.configs import LanguageConfig
from gradloom.rtl.models.lora import Adapter
from gradloom.rtl.output import grouped
from gradloom.rtl.plan.language.descent import AdamW
from gradloom.rtl.plan.language.operations import SPARE, Tensor, Update
from gradloom.rtl.plan.language.rechosen import FRACS, REACHES, Rechosen, constants
from gradloom.rtl.plan.language.step import Layout
from gradloom.rtl.plan.language.stepped import SteppedProgram, schedule, scheduled, stepped
from gradloom.rtl.plan.language.transformer import LOSS, TARGETS

from .step import Frozen, Training, as_bytes, largest, place_frozen
from .trainer import Trainer

__all__ = ["STATE", "BoardJob", "board_job", "rehearsed", "write_card_image"]

#: Cycles without progress after which the board gives a step up; no command takes so long.
_WATCHDOG = 100_000_000
_PAGE = 4096
#: Steps after which the adapter is kept: of a whole model that takes the processor as long as a step.
_KEEP = 16
#: Bits to spare in tensors whose exponents hold for all steps.
_HEADROOM = 4
#: Texts whose step is made in floating point before the job, at most.
_REHEARSED = 4
#: Name of the exponents of adapters that the job changes.
STATE = "exponents"


@dataclass(frozen=True, kw_only=True)
class BoardJob:
    """Contents of the card, the job's header last.

    ``frac``: fraction bits of every tensor in the first step; those of adapters are ``exponents`` too, which change.
    ``layout``: places in the window of tensors that outlive a step; the window begins at ``job.window_offset`` of the
    memory; ``memory``: bytes of the window by purpose.
    """

    sections: tuple[Section, ...]
    job: Job
    frac: Mapping[str, int]
    exponents: Rechosen
    layout: Layout
    memory: Mapping[str, int]


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
    frac = replace(widest, adapters=later).fracs(reached, headroom=_HEADROOM)
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

    def adapters(self) -> int:
        """Places adapters and their state; returns their bytes."""
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
        return self.layout.end

    def texts(self, own: Sequence[str]) -> None:
        """Tables, moments, and the tensors ``own`` of each text."""
        for name, data in self.trainings[0].data(self.frac).items():
            if name not in own and name not in self.layout.offsets:
                self.bring(name, data)
        for number, training in enumerate(self.trainings):
            data_of = training.start_data(self.frac) | as_bytes({TARGETS: training.targets})
            for name in own:
                self.bring(f"{number}:{name}", data_of[name])

    def measured(self) -> int:
        """Places what is measured between steps; returns its bytes."""
        start = self.layout.end
        for each in self.trainings[0].operations:
            if isinstance(each, Update):
                self.layout.adapter(each.adapter, each.linear, len(self.trainings[0].tokens))
        return self.layout.end - start

    def places(self) -> tuple[AdapterPlaces, ...]:
        """Of what is measured, in the order of the state."""
        return tuple(
            AdapterPlaces(
                tuple((self.layout[f"{name}.{each}"], self.layout.sizes[f"{name}.{each}"] // 4) for each in FRACS),
                given.x,
                given.w,
                given.dy,
            )
            for name, given in self.exponents.constants.items()
        )


def board_job(
    frozen: Frozen,
    texts: Sequence[Sequence[int]],
    adapters: Mapping[str, Adapter],
    layers: Sequence[int],
    rule: float | AdamW,
    steps: int,
    config: LanguageConfig,
    tell: Callable[[int, int, str], None] | None = None,
) -> BoardJob:
    """The job of ``steps`` updates, each from one of ``texts`` in turn.

    All texts have the same number of tokens.

    In the window lie the adapters, one behind the other, and their exponents (the kept words), tables and texts, the
    frozen matrices, the loss and forward caches of texts, tensors that are measured between steps, the places that
    tensors of a step share, programs, and the table of steps. Where the first layers have no adapter, the first step on
    a text keeps their output, and later ones begin there, by a program of their own.
    """
    if not 1 <= steps <= MAX_STEPS:
        raise ValueError(f"steps={steps}: a job has from 1 to {MAX_STEPS}")
    if len({len(text) for text in texts}) != 1:
        raise ValueError("texts: all must have the same number of tokens")
    told = tell or (lambda done, total, text: None)
    told(0, steps, "choosing exponents")
    trainings = [Training(frozen, text, adapters, layers, rule=rule) for text in texts[:steps]]
    frac, exponents = rehearsed(trainings)
    placing = _Placing(trainings=trainings, frac=frac, exponents=exponents)
    layout = placing.layout
    kept = placing.adapters()
    own = trainings[0].step.input.name, TARGETS
    placing.texts(own)
    place_frozen(trainings[0], layout)
    frozen_parts = [frozen.stream(name) for name in layout.offsets if name in frozen.words]
    layout.place(LOSS, config.data_bits // 8)
    cached = Trainer(frozen, dict(adapters), layers, rule).cached(texts[0])
    for number in range(len(trainings)):
        for tensor in cached:
            layout.place(f"{number}:{tensor.name}", 4 * tensor.rows * tensor.features)
    measured = placing.measured()

    told(0, steps, "writing programs")
    names = (*own, *(tensor.name for tensor in cached))
    made: list[SteppedProgram] = []
    end = shared = 0
    for training in _kinds(trainings[0], cached, frac, again=steps > len(trainings)):
        mine = layout.copy()
        for name in names:
            mine.offsets[name] = layout[f"0:{name}"]
        made.append(stepped(training.operations, 1, frac, mine, config, adapters=exponents.constants, texts=names))
        end, shared = max(end, mine.end), max(shared, mine.shared_bytes)
    table, placed = _table(placing, made, names, steps), []
    start = -(-end // _PAGE) * _PAGE
    for each in made:
        placed.append(Program(each.program.code, start, checked=False))
        start += -(-len(each.program.code) // 64) * 64
    window = -(-(start + len(table)) // _PAGE) * _PAGE
    job = Job(
        window_bytes=window,
        programs=tuple(placed),
        watchdog=_WATCHDOG,
        kept=Kept(offset=0, bytes=kept, store=HEADER_BYTES + window, every=_KEEP),
        results=(Result(name="loss", offset=layout[LOSS], kind=ResultKind.LOSS, words=4),),
        table=start,
    )
    at = HEADER_BYTES
    codes = [_whole(each.code) for each in placed]
    memory = {
        "adapters": kept,
        "moments, tables and texts": len(placing.brought) - kept,
        "weights": sum(len(_whole(each)) for each in frozen_parts),
        "forward caches": sum(4 * each.rows * each.features for each in cached) * len(trainings),
        "tensors of a step": measured + shared,
        "programs": sum(map(len, codes)),
        "table of steps": len(table),
    }
    memory["padding and loss"] = window - sum(memory.values())
    frozen_at = at + min(layout[name] for name in frozen.words if name in layout.offsets)
    sections = (
        Section(name="adapters, texts", parts=(bytes(placing.brought),), offset=at),
        Section(name="weights", parts=tuple(map(_whole, frozen_parts)), offset=frozen_at),
        Section(name="programs", parts=(*codes, table), offset=at + placed[0].offset),
        Section(name="job", parts=(job.header(),), offset=0),
    )
    return BoardJob(sections=sections, job=job, frac=frac, exponents=exponents, layout=layout, memory=memory)


def _kinds(first: Training, cached: Sequence[Tensor], frac: Mapping[str, int], *, again: bool) -> Iterator[Training]:
    """A step on a new text, and one on a text with a forward cache."""
    yield first
    if cached and again:
        held = {tensor.name: (np.zeros((tensor.rows, tensor.features)), frac[tensor.name]) for tensor in cached}
        learning = [each for each in first.layers if each >= int(cached[0].name.split(".")[0])]
        yield replace(first, layers=learning, kept=held)


def _table(placing: _Placing, made: Sequence[SteppedProgram], names: Sequence[str], steps: int) -> bytes:
    """The table of steps.

    A row has a program's number, offsets of ``names``, and columns of the optimiser.
    """
    texts, layout = len(placing.trainings), placing.layout
    _, rules = scheduled(placing.trainings[0].operations)
    columns = ["program", *names, *schedule(rules, 1)]
    variables = {name: index for index, name in enumerate(columns)}
    for number, name in enumerate(placing.exponents.constants):
        for place, which in enumerate(FRACS):
            variables[f"{name}.{which}"] = len(columns) + number * STATE_BYTES // 4 + place
    return StepTable(
        programs=tuple(values_of(each.patches, variables) for each in made),
        rows=tuple(
            (
                int(len(made) > 1 and step >= texts),
                *(layout[f"{step % texts}:{name}"] for name in names),
                *schedule(rules, step + 1).values(),
            )
            for step in range(steps)
        ),
        adapters=placing.places(),
        state=layout[STATE],
    ).encoded()


def write_card_image(job: BoardJob, output: Path, facts: Mapping[str, Any], *, memory_bytes: int) -> dict[str, Any]:
    """Writes ``card.img`` and ``job.json``.

    The latter has ``facts`` of the fine-tune, the places of sections in the board's memory, and the places of the words
    of each adapter among the kept words, tiles of 64 features of ``[rank, features]``: ``frac`` is the number of their
    fraction bits on the card, ``exponent`` the place among the kept words of that number less 14, on the board.
    """
    kept = job.job.kept
    assert kept is not None
    with grouped(output, last="job.json") as stage:
        with (stage / "card.img").open("w+b") as file:
            sections = write_card(file, job.sections, memory_bytes=memory_bytes)
            size = file.seek(0, 2)
        told = _told(job, kept, facts, sections, size)
        (stage / "job.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return told


def _told(
    job: BoardJob, kept: Kept, facts: Mapping[str, Any], sections: list[dict[str, Any]], size: int
) -> dict[str, Any]:
    """Content of ``job.json``."""
    return {
        **facts,
        "card_bytes": size,
        "memory_bytes": job.job.window_offset + job.job.window_bytes,
        "commands": [len(each.code) // COMMAND_BYTES for each in job.job.programs],
        "sections": sections,
        "memory": dict(job.memory),
        "kept": {"store": kept.store, "bytes": kept.bytes, "every": kept.every},
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
    }
