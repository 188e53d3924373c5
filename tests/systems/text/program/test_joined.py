"""LOADs of tiles that are one: those that the machine takes behind each other, and no others."""

from dataclasses import replace

import pytest

from gradloom.preset import find_preset
from gradloom.program.assembler import Assembler
from gradloom.rtl.engines.linear.commands import TILE_ARG
from gradloom.rtl.formats.weights.weight_stream import StreamShape
from gradloom.rtl.machines.language import LINEAR
from gradloom.systems.text.program.engines.linear import Exponents, LayerMap, LayerPlan, LayerShape, codes, joined
from gradloom.systems.text.program.engines.side import load
from gradloom.systems.text.program.jobs import in_panels

CONFIGS = [find_preset(name).config for name in ("edge-qlora-genesys2", "edge-qlora-kv260")]
#: Of five rows of three tiles.
STREAM = StreamShape(outputs=320, inputs=192)
TILES = LINEAR.load("tiles")


def loads(config, backward=False):
    """Of a product's tiles, in their order."""
    stream = replace(STREAM, span=config.span)
    _, tiles = codes(stream, 0, stream.header_bytes, 16, config, backward=backward)
    inner = stream.tiles[0] if backward else stream.tiles[1]
    return [load(each.offset, each.beats, TILES, each.argument) for each in in_panels(tiles, inner, config.span)]


def taken(step, config):
    """Offset and argument of each tile as the machine takes them from a command."""
    first = TILE_ARG.from_bits(step.operands["arg"])
    for number in range(step.operands["beats"] // 66):
        along, row = divmod(number, config.span)
        yield (
            step.operands["offset"] + number * 66 * 32,
            first.block + along + row * 64 * first.blocks_per_row,
            first.blocks_per_row,
        )


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: f"span {config.span}")
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("parted", [0, 1, 2, 4])
def test_a_command_brings_the_tiles_of_its_parts(config, backward, parted):
    """Also where something else comes in between."""
    alone, other = loads(config, backward), load(0, 8, LINEAR.load("operands"))
    steps = [*alone[:parted], other, *alone[parted:]] if parted else alone
    made = list(joined(steps, config))
    found = [each for step in made if step is not other for each in taken(step, config)]
    assert found == [each for step in alone for each in taken(step, config)]
    # Forward a command a row, or a panel, and three of the two rows behind it; amid a panel two more begin.
    least = 15 if backward else 5 if config.span == 1 else 4
    assert len(made) <= least + (3 if parted else 0)


def test_tokens_and_other_arguments_stay_apart():
    config = CONFIGS[0]
    one, two = loads(config)[:2]
    assert len(list(joined([one, two], config))) == 1
    assert len(list(joined([replace(one, post=(3,)), two], config))) == 2
    assert len(list(joined([one, replace(two, wait=(3,))], config))) == 2
    assert next(joined([one, replace(two, post=(3,))], config)).post == (3,)
    for change in ({"arg": two.operands["arg"] + 1}, {"offset": two.operands["offset"] + 32}, {"dest": TILES + 1}):
        assert len(list(joined([one, replace(two, operands=two.operands | change)], config))) == 2
    # Dense words that lie behind each other.
    dense = [
        load(
            each.operands["offset"],
            66,
            TILES,
            TILE_ARG.const({"block": number, "blocks_per_row": 0, "kind": 1}).as_bits(),
        )
        for number, each in enumerate((one, two))
    ]
    assert len(list(joined(dense, config))) == 2


def test_a_product_has_few_commands():
    config, shape = CONFIGS[1], LayerShape(outputs=320, inputs=192, tokens=1, rank=2)
    zero = Exponents(**dict.fromkeys(Exponents.__dataclass_fields__, 12))
    plan = LayerPlan(shape=shape, exponents=zero, place=LayerMap.place(shape, config), config=config)
    program = Assembler()
    plan.product(program)
    brought = [each for each in program.instructions if each.operands.get("dest") == TILES]
    assert sum(each.operands["beats"] for each in brought) == 15 * 66 and len(brought) < 8
