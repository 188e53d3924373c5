"""The backward products of the head have parts as long as the machine has room for."""

from dataclasses import replace

import pytest

from gradloom.preset import find_preset
from gradloom.rtl.machines.language import LINEAR
from gradloom.systems.text.card.layout import Shape
from gradloom.systems.text.operations.instant import InstantStep
from gradloom.systems.text.program.planned import planned_step
from gradloom.systems.text.small import SMALL

MODEL = replace(SMALL, layers=1, vocab=64 * 72)
RANKS = {"model.layers.0.self_attn.v_proj": 2}


@pytest.mark.parametrize(
    "preset, parts", [("edge-qlora-genesys2", [16, 16, 16, 16, 8]), ("edge-qlora-kv260", [56, 16])]
)
def test_parts_follow_the_machine(preset, parts):
    """In a planned step, in a card's, and in one of InstantFT."""
    config = find_preset(preset).config
    program, _ = planned_step(MODEL, RANKS, [0], config, tokens=9, rule=None)
    wide = [
        each.operands["inner"]
        for each in program.instructions
        if each.engine == LINEAR and each.operands["by_column"] and each.operands["inner"] in parts
    ]
    assert wide == parts
    _, operations = Shape(model=MODEL, ranks=tuple(RANKS.items()), tokens=9).operations(config)
    instant = InstantStep(MODEL, 9, 2, [0], head_part=config.head_part).operations()
    for made in (operations, instant):
        assert [each.x.count for each in made if getattr(each, "x", None) and each.x.name == "1.dlogits"] == parts
