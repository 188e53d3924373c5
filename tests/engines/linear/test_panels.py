"""Columns that do not divide a tile: parts go across tiles. RTL against reference and forecast, with stalls."""

import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from amaranth.hdl import Module, Signal

from gradloom import boards
from gradloom.boards.netlist.area import area
from gradloom.preset import find_preset
from gradloom.program.assembler import Assembler
from gradloom.rtl.emit.verilog import emit
from gradloom.rtl.engines.linear.commands import LinearOperands
from gradloom.rtl.engines.linear.feet import Foot
from gradloom.rtl.engines.linear.panels import Panel, crossings, starts_of
from gradloom.rtl.engines.linear.parts import PartSequencer
from gradloom.rtl.machines.language import GRADIENT, LINEAR
from gradloom.sim.bench.engine import simulate
from gradloom.sim.run.counted import MismatchError
from gradloom.systems.text.program.jobs import Transfer, in_panels
from gradloom.systems.text.run.linear import LinearMachine, choose_exponents, mathematics, reference_step

from ...deep import deep
from .conftest import SMALL, make_layer, stalled
from .test_linear_perf import agree, layer_plan, load, store

#: Panels of three tiles and four parts; eight outputs and twelve columns go across each other as two and twelve do not.
TWELVE = replace(SMALL, columns=12, tokens=32, depth=512, lane_depth=256, groups=16, ultra=1)
#: Panels of three tiles and eight parts, which are shorter than the way of weights to the array.
SIX = replace(SMALL, columns=6, tokens=16, depth=256, lane_depth=256, groups=16, rank=8, dots=2)
#: A whole beat of outputs, which goes across parts.
WIDE = replace(SIX, edge=32, columns=12, outputs=4)
CONFIGS = {"12 of 16": TWELVE, "6 of 16": SIX, "12 of 32": WIDE}
#: Arrays of the presets with the largest rank of adapters; columns that divide a tile, too.
LARGEST = replace(
    SMALL, edge=64, columns=12, outputs=8, dots=4, rank=16, tokens=16, depth=256, lane_depth=512, groups=32, ultra=1
)
RANKS = {"12 of 64": LARGEST, "8 of 64": replace(LARGEST, columns=8, outputs=4, dots=2, ultra=0)}


@pytest.fixture(scope="module", params=[*CONFIGS, *RANKS])
def machine(request):
    machine = LinearMachine((CONFIGS | RANKS)[request.param])
    yield machine
    machine.close()


def test_parts_of_panels():
    """A part begins the next tile where it has the last column of one; a few tiles need fewer parts."""
    config = replace(SMALL, edge=64, columns=12, rank=8, features=256)
    assert (config.span, config.subtiles) == (3, 16)
    assert crossings(config) == [5, 10, 15] and starts_of(config) == [(0, 0), (5, 4), (10, 8)]
    assert [config.parts(tiles) for tiles in (1, 2, 3)] == [6, 11, 16]
    assert config.tile_cycles(64) == 341 and SMALL.tile_cycles(8) == 32
    whole = [Transfer(number, 1, 0) for number in range(8)]
    assert [each.offset for each in in_panels(whole, 2, 1)] == list(range(8))
    assert [each.offset for each in in_panels(whole, 2, 3)] == [0, 2, 4, 1, 3, 5, 6, 7]


@pytest.mark.parametrize(
    "change, says",
    [
        ({"columns": 5}, "columns=5: must be even, 2 to 16"),
        ({"columns": 18}, "columns=18: must be an integer from 2 to 16"),
        ({"columns": 12, "rank": 6}, "rank=6: must be even, 2 to 4"),
        ({"columns": 4, "rank": 10}, "rank=10: must be even, 2 to 8"),
    ],
    ids=lambda each: str(each),
)
def test_what_does_not_go_together_is_refused(change, says):
    with pytest.raises(ValueError, match=says):
        replace(SMALL, **change)


def most_rank(config, *tiles):
    """Parts of the panels of a layer carry an index each."""
    return min(config.rank, -(-min(tiles) // config.span) * config.subtiles)


def panels_of(config, outer, rank):
    """Parts of each panel of a product, in the order in which they run: what is told of each."""
    for at in range(0, outer, config.span):
        wide = min(outer - at, config.span)
        ends = [((tile + 1) * config.edge - 1) // config.columns for tile in range(wide)]
        parts = range(max(ends[-1] + 1, 0 if at else rank))
        yield [
            {
                "crosses": part in ends[:-1],
                "ends": part in ends,
                "top": parts[-1],
                "last": at + config.span >= outer,
                "closes": sum(end <= part for end in ends[:-1]) == wide - 1,
                "begins": sum(end <= part for end in ends[:-1]),
                "first": part * config.columns % config.edge,
            }
            for part in parts
        ]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_panel_tells_its_tiles(name):
    config, m = CONFIGS[name], Module()
    args = SimpleNamespace(outer=Signal(8), rank=Signal(range(config.rank + 1)))
    part = Signal(range(config.subtiles))
    judged, starts, last_part, last_inner = (Signal(name=each) for each in ("judged", "starts", "part", "inner"))
    panel = Panel.of(
        m, config, args=args, judged=judged, part=part, starts=starts, last_part=last_part, last_inner=last_inner
    )

    async def process(ctx):
        for outer in range(1, 2 * config.span + 2):
            # The first part of a command may start at once, or later.
            for wait, (inner, rank) in enumerate(((1, 0), (2, 2), (1, config.rank))):
                ctx.set(part, 0)
                ctx.set(args.outer, outer)
                ctx.set(args.rank, rank)
                await one_cycle(ctx, judged)
                for _ in range(wait):
                    await ctx.tick()
                fresh = True
                for parts in panels_of(config, outer, rank):
                    for tile in range(inner):
                        for number, wanted in enumerate(parts):
                            ctx.set(part, number)
                            if not fresh:
                                await ctx.tick().repeat(3)
                            # Of the first part the panel's end is not told yet.
                            names = set(wanted) - ({"top"} if fresh else set())
                            told = {each: ctx.get(getattr(panel, each)) for each in names}
                            assert told == {each: wanted[each] for each in names}, (outer, inner, rank, number)
                            fresh = False
                            ctx.set(last_part, number == len(parts) - 1)
                            ctx.set(last_inner, tile == inner - 1)
                            await one_cycle(ctx, starts)

    async def one_cycle(ctx, signal):
        ctx.set(signal, 1)
        await ctx.tick()
        ctx.set(signal, 0)

    simulate(m, process)


@pytest.mark.parametrize("inner, outer, rank", [(1, 1, 0), (2, 1, 16), (1, 2, 16), (1, 4, 16)])
def test_each_tile_is_released_once(inner, outer, rank):
    """Parts that make h alone read columns behind a panel's last tile, which belong to none."""
    sequencer, released = PartSequencer(LARGEST), 0

    async def process(ctx):
        nonlocal released
        for always in (sequencer.full, sequencer.both):
            ctx.set(always, 1)
        operands = {"inner": inner, "outer": outer, "tokens": 1, "rank": rank}
        ctx.set(sequencer.command.p, {"opcode": 0, "args": LinearOperands.const(operands).as_value().value})
        ctx.set(sequencer.command.valid, 1)
        await ctx.tick()
        ctx.set(sequencer.command.valid, 0)
        while not ctx.get(sequencer.command.ready):
            released += ctx.get(sequencer.release)
            await ctx.tick()
        for _ in range(2 * LARGEST.columns):
            released += ctx.get(sequencer.release)
            await ctx.tick()
        assert not ctx.get(sequencer.error)

    simulate(sequencer, process)
    assert released == inner * outer


@deep
@pytest.mark.parametrize("tokens", [1, 2, 7, 11, 16])
@pytest.mark.parametrize("outputs, inputs", [(1, 1), (2, 3), (3, 1), (4, 2), (5, 6), (6, 3)])
def test_a_step_equals_the_reference_word_for_word(machine, outputs, inputs, tokens):
    edge = machine.config.edge
    rank = most_rank(machine.config, outputs, inputs)
    layer = make_layer(outputs * edge, inputs * edge, tokens, rank if tokens > 2 else 2, edge=edge, seed=tokens)
    _step(machine, layer)


@deep
@pytest.mark.parametrize("stall, latency", [(40, 3), (128, 40), (254, 40)])
def test_stalls_of_memory_change_no_word(machine, stall, latency):
    edge = machine.config.edge
    layer = make_layer(5 * edge, 4 * edge, 13, machine.config.rank, edge=edge, seed=stall)
    with stalled(machine, stall, latency, stall):
        _step(machine, layer)


@deep
@pytest.mark.parametrize("few, wide_outputs", [(1, False), (3, False), (6, False), (2, True), (5, True)])
def test_operands_that_pass_through_change_no_word(machine, few, wide_outputs):
    """Of layers with more inputs, or outputs on the way back, than operand memory holds; panels have 1 to 3 tiles."""
    config = machine.config
    many = config.depth // config.tokens + 3
    tiles = (many, few) if wide_outputs else (few, many)
    shape = tuple(config.edge * each for each in tiles) + (config.tokens, min(config.rank, config.subtiles))
    _step(machine, make_layer(*shape, edge=config.edge, seed=few))
    program = Assembler()
    layer_plan(shape, config=config).product(program, backward=wide_outputs)
    agree(machine, program)


def _step(machine, layer):
    exponents = choose_exponents(layer, mathematics(layer, 0.3))
    reference = reference_step(layer, exponents, 0.3)
    found = machine.step(layer, exponents, 0.3)
    for name, words in found.tensors.items():
        if not np.array_equal(words, reference.tensors[name]):
            raise MismatchError(f"{name} differs")
    assert found.saturated == reference.saturated


@deep
@pytest.mark.parametrize("inner, outer", [(1, 1), (2, 3), (3, 1), (1, 7), (2, 5)])
@pytest.mark.parametrize("tokens, rank", [(1, 0), (3, 4), (4, 2), (9, 16), (13, 0), (16, 4)])
def test_the_forecast_of_a_product(machine, inner, outer, tokens, rank):
    config, program = machine.config, Assembler()
    rank = min(rank, most_rank(config, outer))
    program.add(LINEAR, 0, phase="forward", inner=inner, outer=outer, tokens=tokens, rank=rank)
    store(program, LINEAR.store("outputs"), outer * tokens * 8)
    load(program, LINEAR.load("tiles"), (config.edge + 2) * inner * outer)
    agree(machine, program)


@deep
@pytest.mark.parametrize("seed", range(8))
def test_the_forecast_of_steps_of_layers(machine, seed):
    """Products with early operands, gradients and updates behind each other, at random latencies."""
    draw, config, program = random.Random(seed), machine.config, Assembler()
    edge = config.edge
    for _ in range(2):
        tiles = draw.randint(1, 5), draw.randint(1, 5)
        rank = draw.randrange(2, most_rank(config, *tiles) + 1, 2)
        shape = (edge * tiles[0], edge * tiles[1], draw.randint(1, 16), rank)
        plan = layer_plan(shape, config=config)
        plan.product(program)
        plan.product(program, backward=True)
        plan.gradients(program)
    assert GRADIENT.store("hidden")
    agree(machine, program, (draw.choice((1, 40, 90)), 10))


@pytest.mark.parametrize("ultra, block, large", [(0, 4, 0), (1, 2, 1)])
def test_half_of_the_sums_leave_block_rams_to_others(tmp_path, ultra, block, large):
    """Of a column of ``edge-qlora-kv260``: two banks of 1,024 sums."""
    emit(Foot(replace(find_preset("edge-qlora-kv260").config, ultra=ultra)), tmp_path / "foot", name="foot")
    total = area(tmp_path / "foot", boards.find("kv260"))["total"]
    assert (total["bram36"], total["uram"]) == (block, large)
