"""Memory of a job as a plan says it, beside the card's own."""

import dataclasses

import numpy as np
import pytest

from gradloom.models.adapters.lora import fresh_lora
from gradloom.program.descent import AdamW
from gradloom.systems.text.card.answers import Answers
from gradloom.systems.text.card.course import qlora_course
from gradloom.systems.text.card.job import board_job
from gradloom.systems.text.card.layout import laid_out, row_bytes, shape_of
from gradloom.systems.text.coded_head import coded_head
from gradloom.systems.text.costs.request import BudgetRequest
from gradloom.systems.text.reference.llama import Llama, greedy
from gradloom.systems.text.small import frozen_of, random_tensors

from ..conftest import CONFIG, FAMILIES, MODEL, TARGETS, TOKENS, exact_llama

TEXTS = TOKENS, TOKENS[::-1], (*TOKENS[1:], 7)


@pytest.mark.parametrize(
    "model, first, steps, optimizer",
    [
        (MODEL, 0, 2, "adamw"),
        (MODEL, 1, 5, "adamw"),
        (MODEL, 1, 3, "adamw"),
        (MODEL, 0, 4, "sgd"),
        (FAMILIES, 1, 3, "adamw"),
    ],
)
def test_a_planned_job_is_the_card_s(model, first, steps, optimizer):
    """By class; of the same texts, before anything is known of values."""
    frozen = frozen_of(random_tensors(np.random.default_rng(3), model), model)
    adapters = fresh_lora(model, rank=2, targets=TARGETS, layers=range(first, model.layers))
    rule = AdamW(lr=1e-2) if optimizer == "adamw" else 1e-2
    made = board_job(qlora_course(frozen, TEXTS, adapters, range(model.layers), rule, steps), CONFIG)
    request = BudgetRequest(
        model=model, rank=2, targets=TARGETS, seq=len(TOKENS), from_layer=first, optimizer=optimizer
    )
    shape = shape_of(request, texts=min(steps, len(TEXTS)), steps=steps)
    assert laid_out(shape, CONFIG) == made.memory and min(made.memory.values()) >= 0
    assert sum(made.memory.values()) == made.job.kept.log + -(-16 * steps // 64) * 64
    longer = laid_out(dataclasses.replace(shape, steps=steps + 1), CONFIG)
    if first == 0 or steps > len(TEXTS):
        assert longer["step_table"] - made.memory["step_table"] == row_bytes(bool(first), rule)
    assert made.memory.get("forward_cache", 0) == (first > 0) * min(steps, 3) * 4608


def test_answers_by_a_head_in_codes():
    """The card brings it beside the words that learning takes; a reply is the one in floating point with its values."""
    frozen = frozen_of(random_tensors(np.random.default_rng(3)))
    adapters = fresh_lora(MODEL, rank=2, targets=TARGETS)
    course = qlora_course(frozen, TEXTS[:1], adapters, range(MODEL.layers), AdamW(lr=1e-2), 1)
    words, codes = (board_job(course, CONFIG, answer=True, coded=coded) for coded in (False, True))
    stream, parts = (
        frozen.stream("head.0", CONFIG),
        [dict((s.name, s) for s in made.sections) for made in (words, codes)],
    )
    assert [stream in each["prompts"].parts[0] for each in parts] == [False, True]
    assert codes.memory["parts"] - words.memory["parts"] >= len(stream) - 4096
    assert parts[0]["weights"] == parts[1]["weights"]
    llama = exact_llama(frozen)
    replies = []
    for coded in (False, True):
        answers = Answers(frozen=frozen, training=course.trainings[0], frac=codes.frac, coded=coded)
        replies.append(answers.reply(TOKENS[:4], 8, {}, {}))
        if coded:
            llama.head = coded_head(Llama(MODEL, frozen.tensor)).weight().astype(np.float64)
        assert replies[-1] == list(greedy(llama, TOKENS[:4], 8))
    assert replies[0] != replies[1]
