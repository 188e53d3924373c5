"""A board answers prompts beside a fine-tune; tokens are the reference's, and so is the fine-tune."""

import io
import os
from copy import deepcopy

import numpy as np
import pytest

from gradloom.boards.links.lines import Lines
from gradloom.boards.links.prompts import prompted
from gradloom.firmware.chip.card import read_header
from gradloom.firmware.chip.kept import newest
from gradloom.models.adapters.lora import Adapter, fresh_lora
from gradloom.program.descent import AdamW
from gradloom.rtl.formats.weights.linear import MASTER
from gradloom.sim.run.soc import SimulatedSoC, build_soc
from gradloom.systems.text.card.answers import RESIDENT, Answers
from gradloom.systems.text.card.course import qlora_course
from gradloom.systems.text.card.job import board_job
from gradloom.systems.text.card.trainer import JobTrainer
from gradloom.systems.text.operations.base import SPARE
from gradloom.systems.text.operations.learnt.rechosen import FRACS
from gradloom.systems.text.order import arranged
from gradloom.systems.text.run.training import Training, as_bytes, encoded
from gradloom.systems.text.small import frozen_of, random_tensors

from ....soc.test_serve import Line
from ..conftest import CONFIG, FAMILIES, LONG_HEADS, MODEL, TARGETS, TOKENS
from .test_board_job import EMPTY
from .test_instant_job import TEXTS
from .test_instant_job import course as instant
from .test_instant_job import reference as learner
from .test_instant_job import words_of as kept_words

MEMORY, STEPS = 1 << 24, 2
RULE = AdamW(lr=1e-2)
pytestmark = pytest.mark.skipif(not os.environ.get("GRADLOOM_DEEP"), reason="minutes: GRADLOOM_DEEP=1")
PROMPT, COUNT = np.random.default_rng(8).integers(0, MODEL.vocab, 32).tolist(), 32


def words_of(model, trainer):
    """Words of adapters in the machine's order, by ``NAME.a`` and ``NAME.b``, and their fraction bits."""
    found, frac = {}, {}
    for name, each in arranged(model, trainer.adapters).items():
        frac |= {f"{name}.{which}": trainer.exponents.frac[f"{name}.{which}"] for which in FRACS}
        for which, values in (("a", each.a), ("b", each.b * each.scale)):
            found[f"{name}.{which}"] = encoded(values, frac[f"{name}.{which}"] + SPARE, MASTER)
    return found, frac


@pytest.mark.parametrize("model", [MODEL, FAMILIES, LONG_HEADS], ids=["llama", "families", "heads of 128"])
def test_prompts_are_answered_beside_a_fine_tune(model):
    """Each by the adapter that it names, as the reference does; what the job learns is what it learns alone."""
    rng = np.random.default_rng(3)
    frozen = frozen_of(random_tensors(rng, model), model)
    adapters = {
        name: Adapter(rng.normal(0, 0.1, each.a.shape), rng.normal(0, 0.1, each.b.shape), each.scale)
        for name, each in fresh_lora(model, rank=2, targets=TARGETS).items()
    }
    used = {name: each for name, each in adapters.items() if ".layers.1." in name}
    made = board_job(qlora_course(frozen, (TOKENS,), used, [1], RULE, STEPS), CONFIG, answer=True)
    trainer = JobTrainer(frozen, dict(used), [1], RULE, frac=made.frac, exponents=deepcopy(made.exponents))
    resident = {"start": words_of(model, trainer)}
    for _ in range(STEPS):
        trainer.step(TOKENS)
    resident["kept"] = words_of(model, trainer)
    resident["base"] = {name: np.zeros_like(each) for name, each in resident["start"][0].items()}, {}
    answers = Answers(frozen=frozen, training=Training(frozen, TOKENS, used, [1], rule=RULE), frac=made.frac)
    kept = answered(made, answers, resident)
    for key, each in resident["kept"][0].items():
        data = as_bytes({key: each})[key]
        assert kept.words[made.layout[key] :][: len(data)] == data, key


def test_prompts_are_answered_beside_instantft(frozen):
    """The same with adapters from blocks to the head, whose cache a step begins at."""
    made = board_job(instant(frozen, STEPS, TEXTS[:1]), CONFIG, answer=True)
    trainer, first = learner(frozen, made), made.course.trainings[0]

    def held():
        return {
            t.name: encoded(x, made.frac[t.name], t.form) for t, x in first.instant.stacked(trainer.adapters).items()
        }

    resident = {"start": (held(), {})}
    for _ in range(STEPS):
        trainer.step(TEXTS[0])
    resident["kept"] = held(), {}
    resident["base"] = {name: np.zeros_like(each) for name, each in held().items()}, {}
    kept = answered(made, Answers(frozen=frozen, training=first, frac=made.frac), resident)
    assert kept.words == kept_words(made, trainer)


def answered(made, answers, resident):
    """Asks a board that fine-tunes by each of its adapters; returns what its card keeps at the end."""
    soc = SimulatedSoC(build_soc(CONFIG, memory_bytes=MEMORY), memory_bytes=MEMORY)
    try:
        soc.write_memory(0, np.random.default_rng(1).bytes(1 << 20))
        for section in made.sections[:-1]:
            soc.write_memory(section.offset, b"".join(section.parts))
        soc.insert(EMPTY.getvalue())
        while soc.hear(1 << 24) != "ready":
            pass
        header = made.job.header()
        soc.write_memory(4, header[4:])
        soc.write_memory(0, header[:4])
        while not soc.hear(1 << 24).startswith("steps"):
            pass
        board, replies = Lines(Line(soc, gap=60)), {}
        for name in RESIDENT:
            replies[name] = prompted(board, PROMPT, COUNT, RESIDENT.index(name))
            # The newest adapter is known when the job has ended.
            while name == RESIDENT[0] and not board.text.startswith("ready"):
                board.hear(())
        content = soc.content()
    finally:
        soc.close()
    for name, reply in replies.items():
        words, frac = resident[name]
        assert reply.tokens == answers.reply(PROMPT, COUNT, words, frac), name
    # Another adapter costs no cycle: its words come from another place.
    assert len({reply.took for reply in replies.values()}) == 1
    (area,), identity = read_header(content[:512])
    kept = newest(io.BytesIO(content), area.start, area.size // 2, identity)
    assert kept.runs == STEPS
    return kept
