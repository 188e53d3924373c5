"""Products whose first outputs others wait for are done in parts, in an order that makes all before it is read."""

from dataclasses import replace
from itertools import pairwise

import pytest

from gradloom.models.language import BUILT_IN
from gradloom.preset import find_preset
from gradloom.rtl.engines.linear.commands import OPERAND_ARG
from gradloom.rtl.machines.language import LINEAR
from gradloom.rtl.shell.engines import LOAD
from gradloom.systems.text.operations.products import Product
from gradloom.systems.text.operations.tensors import EDGE, TensorSlice, Words
from gradloom.systems.text.operations.transformer import StepOperations
from gradloom.systems.text.program.layout import Layout
from gradloom.systems.text.program.parted import parted
from gradloom.systems.text.program.planned import exponents
from gradloom.systems.text.program.step import lower

CONFIG = find_preset("edge-qlora-kv260").config
#: Heads of two tiles.
LONG = replace(BUILT_IN["smollm2-135m"], name="long", hidden=1152, head_dim=128)


def listed(model, tokens=64):
    return StepOperations(replace(model, layers=1), tokens, {}, [0], head=False).operations()


def tiles(values):
    for value in values:
        for part in value.tiles if isinstance(value, Words) else [value] if isinstance(value, TensorSlice) else []:
            yield from ((part.name, tile) for tile in part.order)


@pytest.mark.parametrize("model", [BUILT_IN["smollm2-135m"], LONG], ids=lambda model: model.name)
@pytest.mark.parametrize("columns", [8, 12])
def test_every_tile_is_made_once_and_before_it_is_read(model, columns):
    operations = listed(model)
    ever = {tile for each in operations for tile in tiles(each.results)}
    made: list[tuple[str, int]] = []
    for part in parted(operations, replace(CONFIG, columns=columns)):
        results = list(tiles(part.operation.results))
        own = results if part.outputs is None else [results[tile] for tile in part.outputs]
        read = set(tiles(vars(part.operation).values())) - set(results)
        assert read & ever <= set(made)
        made += own
    assert len(made) == len(set(made)) and set(made) == ever


def test_queries_and_gradients_of_heads_come_in_parts():
    """Scores of the first heads stand before the last queries; other products are whole."""
    found = list(parted(listed(BUILT_IN["smollm2-135m"]), CONFIG))
    ranges = {each.operation.y.name: [] for each in found if each.outputs}
    for each in found:
        if each.outputs:
            ranges[each.operation.y.name].append(each.outputs)
    assert ranges == dict.fromkeys(["0.raw_q", "0.dcontext"], [range(0, 3), range(3, 6), range(6, 9)])
    names = [each.operation.y.name for each in found if isinstance(each.operation, Product)]
    assert names.index("0.scores") < max(place for place, name in enumerate(names) if name == "0.raw_q")
    assert not [each for each in parted(listed(BUILT_IN["smollm2-135m"], 8), CONFIG) if each.outputs]


def test_a_part_finds_the_operands_of_the_one_before():
    """Its words were loaded to where it reads, by loads that stand before it, and nothing is there in their place."""
    operations, layout = listed(BUILT_IN["smollm2-135m"]), Layout()
    program = lower(operations, exponents(operations), layout, CONFIG)
    held, shared, last = {}, 0, ()
    for step in program.instructions:
        place = step.operands
        if step.engine == LOAD and place["dest"] == LINEAR.load("operands"):
            first = OPERAND_ARG.from_bits(place["arg"]).word
            for word in range(place["beats"] // 8):
                held[(first + word) % CONFIG.depth] = place["offset"] + word * 8 * CONFIG.data_bits // 8
        elif step.engine == LINEAR and not place["early"]:
            found = [held[place["x_base"] + word] for word in range(place["inner"] * place["tokens"])]
            assert all(after - before == EDGE * 4 for before, after in pairwise(found))
            assert place["x_base"] + len(found) <= CONFIG.depth
            shared += 1
            last = found
    # q behind k, v behind q, up behind gate, parts, and the identity.
    assert shared >= 8 and last
    # Between sections a request may change what is on chip.
    paused = lower(operations, exponents(operations), Layout(), CONFIG, yield_every=100_000)
    assert all(step.operands["early"] for step in paused.instructions if step.engine == LINEAR)
