"""A whole fine-tune as a job on a memory card."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.firmware.card import Section, write_card
from gradloom.firmware.registers import COMMAND_BYTES
from gradloom.firmware.soc import HEADER_BYTES, MAX_PROGRAMS, Job, Kept, Program, Result, ResultKind
from gradloom.rtl.machines.configs import LanguageConfig
from gradloom.rtl.models.lora import Adapter
from gradloom.rtl.output import grouped
from gradloom.rtl.plan.language.descent import AdamW
from gradloom.rtl.plan.language.exponents import HEADROOM
from gradloom.rtl.plan.language.operations import SPARE
from gradloom.rtl.plan.language.step import Layout, lower
from gradloom.rtl.plan.language.transformer import LOSS, TARGETS

from .step import Frozen, Training, as_bytes, largest, place_frozen
from .trainer import Trainer

__all__ = ["BoardJob", "board_job", "rehearsed", "write_card_image"]

#: Cycles without progress after which the board gives a step up; no command takes so long.
_WATCHDOG = 100_000_000
_PAGE = 4096
#: Steps after which the adapter is kept: of a whole model that takes the processor as long as a step.
_KEEP = 16


@dataclass(frozen=True, kw_only=True)
class BoardJob:
    """Contents of the card, the job's header last.

    ``frac``: fraction bits of every tensor in every step; ``layout``: places in the window of tensors that outlive a
    step; the window begins at ``job.window_offset`` of the memory; ``memory``: bytes of the window by purpose.
    """

    sections: tuple[Section, ...]
    job: Job
    frac: Mapping[str, int]
    layout: Layout
    memory: Mapping[str, int]


def _whole(data: bytes) -> bytes:
    """Pads data to a multiple of 64.

    Tensors and programs are placed at such multiples.
    """
    return data + bytes(-len(data) % 64)


def rehearsed(trainings: Sequence[Training], steps: int) -> dict[str, int]:
    """Fraction bits that serve all steps.

    The board cannot choose them again. They follow from the first text's step in floating point, with the adapters in
    their first state, and as far from there as ``steps`` updates may bring them: a new B is zero, and with it gradients
    that the second step already has.
    """
    first = trainings[0]
    rule = first.rule
    assert rule is not None
    now = first.exact()
    random = np.random.default_rng(0)

    def moved(name: str, values: np.ndarray, which: str, scale: float) -> np.ndarray:
        # AdamW moves a word by about its rate each step, SGD by so much of a gradient.
        far = rule.lr if isinstance(rule, AdamW) else rule * np.abs(now.values[f"{name}.g{which}"]).max() * scale
        return values + random.choice((-1.0, 1.0), values.shape) * steps * far

    later = {
        name: replace(each, a=moved(name, each.a, "a", 1.0), b=moved(name, each.b, "b", each.scale))
        for name, each in first.loras.items()
    }
    then = replace(first, adapters=later)
    reached = largest(now)
    for name, value in largest(then.exact()).items():
        reached[name] = max(reached[name], value)
    return then.fracs(reached, headroom=HEADROOM)


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

    In the window lie the adapters, one behind the other (the kept words), tables and texts, the frozen matrices, the
    loss and forward caches of texts, the places that tensors of a step share, and programs. Where the first layers have
    no adapter, the first step on a text keeps their output, and later ones begin there.
    """
    if not 1 <= steps <= MAX_PROGRAMS:
        raise ValueError(f"steps={steps}: a job has from 1 to {MAX_PROGRAMS}")
    if len({len(text) for text in texts}) != 1:
        raise ValueError("texts: all must have the same number of tokens")
    told = tell or (lambda done, total, text: None)
    told(0, steps, "choosing exponents")
    trainings = [Training(frozen, text, adapters, layers, rule=rule) for text in texts[:steps]]
    frac = rehearsed(trainings, steps)

    layout, brought = Layout(), bytearray()

    def bring(name: str, data: bytes) -> None:
        layout.place(name, len(data))
        brought.extend(_whole(data))

    first = trainings[0].data(frac)
    for name in adapters:
        for which in "ab":
            bring(f"{name}.{which}", first[f"{name}.{which}"])
    kept = layout.end
    own = trainings[0].step.input.name, TARGETS
    for name, data in first.items():
        if name not in own and name not in layout.offsets:
            bring(name, data)
    for number, training in enumerate(trainings):
        data_of = training.start_data(frac) | as_bytes({TARGETS: training.targets})
        for name in own:
            bring(f"{number}:{name}", data_of[name])
    place_frozen(trainings[0], layout)
    frozen_parts = [frozen.stream(name) for name in layout.offsets if name in frozen.words]

    layout.place(LOSS, config.data_bits // 8)
    cached = Trainer(frozen, dict(adapters), layers, rule).cached(texts[0])
    for number in range(len(trainings)):
        for tensor in cached:
            layout.place(f"{number}:{tensor.name}", 4 * tensor.rows * tensor.features)

    programs: list[bytes] = []
    end = shared = 0
    for step in range(steps):
        told(step, steps, "writing programs")
        number = step % len(trainings)
        mine = layout.copy()
        for name in (*own, *(tensor.name for tensor in cached)):
            mine.offsets[name] = layout[f"{number}:{name}"]
        training = replace(trainings[number], number=step + 1)
        if cached and step >= len(trainings):
            held = {tensor.name: (np.zeros((tensor.rows, tensor.features)), frac[tensor.name]) for tensor in cached}
            training = replace(
                training, layers=[each for each in layers if each >= int(cached[0].name.split(".")[0])], kept=held
            )
        programs.append(lower(training.operations, frac, mine, config, share=True).code)
        end, shared = max(end, mine.end), max(shared, mine.shared_bytes)
    start = -(-end // _PAGE) * _PAGE
    placed: list[Program] = []
    for code in programs:
        placed.append(Program(code, start, checked=False))
        start += -(-len(code) // 64) * 64
    window = -(-start // _PAGE) * _PAGE
    job = Job(
        window_bytes=window,
        programs=tuple(placed),
        watchdog=_WATCHDOG,
        kept=Kept(offset=0, bytes=kept, store=HEADER_BYTES + window, every=_KEEP),
        results=(Result(name="loss", offset=layout[LOSS], kind=ResultKind.LOSS, words=4),),
    )
    at = HEADER_BYTES
    caches = sum(4 * each.rows * each.features for each in cached) * len(trainings)
    memory = {
        "adapters": kept,
        "moments, tables and texts": len(brought) - kept,
        "weights": sum(len(_whole(each)) for each in frozen_parts),
        "forward caches": caches,
        "tensors of a step": shared,
        "programs": sum(len(_whole(each)) for each in programs),
    }
    memory["padding and loss"] = window - sum(memory.values())
    frozen_at = at + min(layout[name] for name in frozen.words if name in layout.offsets)
    sections = (
        Section(name="adapters, texts", parts=(bytes(brought),), offset=at),
        Section(name="weights", parts=tuple(map(_whole, frozen_parts)), offset=frozen_at),
        Section(name="programs", parts=tuple(map(_whole, programs)), offset=at + placed[0].offset),
        Section(name="job", parts=(job.header(),), offset=0),
    )
    return BoardJob(sections=sections, job=job, frac=frac, layout=layout, memory=memory)


def write_card_image(job: BoardJob, output: Path, facts: Mapping[str, Any], *, memory_bytes: int) -> dict[str, Any]:
    """Writes ``card.img`` and ``job.json``.

    The latter has ``facts`` of the fine-tune, the places of sections in the board's memory, and the places of the words
    of each adapter among the kept words, tiles of 64 features of ``[rank, features]``, with their fraction bits.
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
            name: {"offset": job.layout[name], "bytes": job.layout.sizes[name], "frac": job.frac[name] + SPARE}
            for name in job.layout.offsets
            if name.endswith((".a", ".b"))
        },
    }
