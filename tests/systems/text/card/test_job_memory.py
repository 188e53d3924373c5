"""Memory of a job as a plan says it, beside the card's own."""

import dataclasses

import numpy as np
import pytest

from gradloom.models.adapters.lora import fresh_lora
from gradloom.program.descent import AdamW
from gradloom.systems.text.card.course import qlora_course
from gradloom.systems.text.card.job import board_job
from gradloom.systems.text.card.layout import laid_out, row_bytes, shape_of
from gradloom.systems.text.costs.request import BudgetRequest
from gradloom.systems.text.small import frozen_of, random_tensors

from ..conftest import CONFIG, FAMILIES, MODEL, TARGETS, TOKENS

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
