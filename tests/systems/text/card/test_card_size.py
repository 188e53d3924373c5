"""Bytes that a card has for many steps of SmolLM2-135M: its real program and table, without weights."""

import pytest

from gradloom.firmware.chip.steps import STATE_BYTES, AdapterPlaces, StepTable, values_of
from gradloom.models.language import BUILT_IN
from gradloom.preset import find_preset
from gradloom.program.descent import AdamW
from gradloom.systems.text.operations.blocks.head import HEAD_MATRIX, TARGETS
from gradloom.systems.text.operations.learnt.rechosen import FRACS
from gradloom.systems.text.operations.learnt.training import training_operations
from gradloom.systems.text.operations.learnt.updates import Update
from gradloom.systems.text.operations.tensors import EDGE
from gradloom.systems.text.operations.transformer import StepOperations
from gradloom.systems.text.program.layout import Layout
from gradloom.systems.text.program.planned import exponents
from gradloom.systems.text.program.stepped import schedule, scheduled, stepped

MODEL, TOKENS = BUILT_IN["smollm2-135m"], 64


@pytest.fixture(scope="module")
def card():
    """Bytes of program and all else by the steps of a job on eight texts, adapters of rank 8 on q and v."""
    ranks = {each.name: 8 for each in MODEL.linears if each.projection in ("q_proj", "v_proj")}
    step = StepOperations(MODEL, TOKENS, ranks, range(MODEL.layers))
    operations = training_operations(step, dict.fromkeys(ranks, 2.0), AdamW(lr=1e-3))
    layout, texts = Layout(), (step.input.name, TARGETS)
    layout.place(HEAD_MATRIX, 2 * MODEL.vocab * MODEL.hidden)
    for each in operations:
        if isinstance(each, Update):
            layout.adapter(each.adapter, each.linear, TOKENS)
    learnt = layout.end - layout.sizes[HEAD_MATRIX]
    layout.place(texts[0], 4 * TOKENS * MODEL.hidden)
    layout.place(TARGETS, 4 * TOKENS)
    made = stepped(
        operations,
        1,
        exponents(operations),
        layout,
        find_preset("edge-qlora-genesys2").config,
        adapters=ranks,
        texts=texts,
    )
    columns = ["program", *texts, *schedule(scheduled(operations)[1], 1)]
    variables = {name: index for index, name in enumerate(columns)}
    for number, name in enumerate(ranks):
        variables |= {f"{name}.{which}": len(columns) + number * STATE_BYTES // 4 + n for n, which in enumerate(FRACS)}
    values = values_of(made.patches, variables)
    frozen = sum(layout.sizes[each.name] for each in MODEL.linears) + layout.sizes[HEAD_MATRIX]
    text = 4 * TOKENS * (MODEL.hidden + 1)
    # Tables of angles and norms, and the rows of the identity.
    rest = 4 * (4 * TOKENS * EDGE + (2 * MODEL.layers + 2) * MODEL.hidden + TOKENS * EDGE) + STATE_BYTES * len(ranks)

    def size(steps):
        table = StepTable(
            programs=(values,),
            rows=((0,) * len(columns),) * steps,
            adapters=(AdapterPlaces(((0, 64),) * 6, 0, 0, 0),) * len(ranks),
            state=0,
        ).encoded()
        return (
            len(made.program.code),
            len(table),
            frozen + learnt + 8 * text + rest + len(made.program.code) + len(table),
        )

    size.step_tensors = layout.shared_bytes
    return size


def test_a_card_of_a_hundred_steps_has_one_program(card):
    program, table, whole = card(100)
    assert program < 5.3e6 and table < 50_000 and 110e6 < whole <= 130e6


def test_the_tensors_of_a_step_share_59_megabytes(card):
    assert 55e6 < card.step_tensors < 60e6


def test_ten_thousand_steps_add_less_than_half_a_megabyte(card):
    assert card(10_000)[2] - card(100)[2] == 9_900 * 4 * 11
