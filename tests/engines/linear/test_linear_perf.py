"""The forecast of the linear machine against traces of its RTL: every command to the cycle."""

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from gradloom.program.assembler import Assembler, Instruction, pack
from gradloom.program.descent import AdamW
from gradloom.program.progress import StuckError
from gradloom.rtl.engines.gradient.commands import HIDDEN_ARG
from gradloom.rtl.engines.linear.commands import TILE_ARG, TileKind
from gradloom.rtl.engines.update.commands import UpdateOpcode
from gradloom.rtl.engines.update.engine import UpdateEngine
from gradloom.rtl.formats.vector import VectorOpcode
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.machines.language import GRADIENT, LINEAR, UPDATE
from gradloom.rtl.shell.engines import CONTROL, LOAD, STORE
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.sim.time.forecast import MemoryTime, forecast
from gradloom.sim.time.timing import compare
from gradloom.systems.text.program.engines.linear import Exponents, LayerMap, LayerPlan, LayerShape, chain
from gradloom.systems.text.program.engines.side import SideTensor, append, vector
from gradloom.systems.text.run.products import forecast_products

from .conftest import SMALL
from .side import weave

#: Any will do: no cycle depends on a value.
EXPONENTS = Exponents(x=20, w=17, a=17, b=17, h=15, y=15, dy=20, dh=15, dx=15, ga=15, gb=15)
#: PACK and UNPACK: see ``test_pack_perf.py``.
RULES = [UpdateOpcode.SGD, UpdateOpcode.ADAMW]
LATENCIES = [(1, 1), (3, 2), (40, 10), (120, 300)]
START = 1 << 17  # of what programs load; they lie before it
SOURCE, RESULT = 1 << 18, 1 << 19
#: Operands of the vector engine's operations, and results.
OPERANDS = {
    VectorOpcode.WEIGHTS: "a -",
    VectorOpcode.SWIGLU: "ab o",
    VectorOpcode.SWIGLU_BACKWARD: "abc oq",
    VectorOpcode.NORM_SUMS: "a -",
    VectorOpcode.NORM: "a o",
    VectorOpcode.NORM_BACKWARD_SUMS: "ab -",
    VectorOpcode.NORM_BACKWARD: "ab o",
    VectorOpcode.ADD: "ab o",
    VectorOpcode.ROPE: "ab o",
    VectorOpcode.NORM_BACKWARD_ADD: "abc o",
}
#: Those of vectors that learn, which seeded programs do not draw.
LEARNT = {VectorOpcode.SCALE: "a o", VectorOpcode.SCALE_BACKWARD: "ab oq", VectorOpcode.NORM_BACKWARD_GAIN: "ab oq"}


def agree(machine, program, latency=(40, 10), offset=0, port_reads=0):
    """The forecast of ``program``, which ends, has been held against the RTL."""
    program.add(CONTROL, ControlOpcode.END)
    device, host = machine.device, machine.host
    settings = dict(zip(("read_latency", "write_latency", "port_reads"), (*latency, port_reads)))
    try:
        for name, value in settings.items():
            device.set(name, value)
        device.take_trace()  # of what ran before
        host.store(offset, program.code)
        counters = host.run(offset, len(program), timeout=60)
        trace = device.take_trace()
    finally:
        for name, value in (("read_latency", 40), ("write_latency", 10), ("port_reads", 0)):
            device.set(name, value)
    told = forecast(program, config=machine.config, program_offset=offset, memory=MemoryTime(**settings))
    assert compare(told, trace).exact == 1
    assert told.total == counters.cycles
    assert list(told.phases.values()) == list(counters.phases.values())
    assert (told.read_beats, told.write_beats) == (counters.read_beats, counters.write_beats)
    return told


def layer_plan(shape, start=START, config=SMALL):
    outputs, inputs, tokens, rank = shape
    shape = LayerShape(outputs=outputs, inputs=inputs, tokens=tokens, rank=rank)
    return LayerPlan(shape=shape, exponents=EXPONENTS, place=LayerMap.place(shape, config, start), config=config)


def load(program, destination, beats, *, offset=SOURCE, **more):
    program.add(LOAD, 0, **{"arg": 0} | more, offset=offset, beats=beats, dest=destination)


def store(program, source, beats, *, offset=RESULT, **more):
    program.add(STORE, 0, **{"arg": 0} | more, offset=offset, beats=beats, source=source)


# -- single commands


@pytest.mark.parametrize("latency", LATENCIES, ids=str)
@pytest.mark.parametrize(
    "destination, beats",
    [
        (LINEAR.load("tables"), 1),
        (LINEAR.load("tables"), 7),
        (LINEAR.load("tiles"), 18),
        (LINEAR.load("tiles"), 36),
        (LINEAR.load("operands"), 1),
        (LINEAR.load("operands"), 300),
        (LINEAR.load("lanes"), 33),
        (UPDATE.load("directions"), 200),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_load(machine, destination, beats, latency):
    program = Assembler()
    load(program, destination, beats, offset=SOURCE + 40)
    if destination is LINEAR.load("tables"):  # tiles wait for tables
        load(program, LINEAR.load("tiles"), 18)
    try:
        agree(machine, program, latency)
    finally:
        machine.host.reset()  # what is left in the engines would meet the next program


@pytest.mark.parametrize("by_column", [0, 1], ids=["forward", "backward"])
@pytest.mark.parametrize("inner, outer", [(1, 1), (2, 3), (3, 1)])
@pytest.mark.parametrize("tokens, rank", [(1, 0), (3, 4), (4, 2), (5, 0), (8, 4)])
def test_a_product(machine, inner, outer, tokens, rank, by_column):
    program = Assembler()
    program.add(
        LINEAR,
        0,
        phase="backward" if by_column else "forward",
        inner=inner,
        outer=outer,
        tokens=tokens,
        rank=rank,
        by_column=by_column,
    )
    store(program, LINEAR.store("outputs"), outer * tokens * 8)
    load(program, LINEAR.load("tiles"), 18 * inner * outer)
    told = agree(machine, program)
    assert told.array_cycles == inner * outer * SMALL.subtiles * max(tokens, SMALL.columns)


@pytest.mark.parametrize("tiles, tokens, rank", [(1, 1, 2), (1, 8, 4), (4, 3, 2), (3, 8, 4), (16, 8, 4)])
def test_a_gradient(machine, tiles, tokens, rank):
    program = Assembler()
    program.add(GRADIENT, 0, tiles=tiles, tokens=tokens, rank=rank)
    store(program, GRADIENT.store("gradients"), tiles * rank * 8)
    load(program, GRADIENT.load("x"), tiles * tokens * 8)
    agree(machine, program)


@pytest.mark.parametrize("latency", LATENCIES, ids=str)
@pytest.mark.parametrize("beats", [1, 7, 128])
@pytest.mark.parametrize("opcode", RULES, ids=lambda opcode: opcode.name)
def test_an_update(machine, opcode, beats, latency):
    program = Assembler()
    update(program, opcode, beats)
    agree(machine, program, latency)


def update(program, opcode, beats, *, late=(), shift=lambda: 0):
    program.add(UPDATE, opcode, beats=beats, beta1=1 << 16, beta2=(1 << 17) - 1)
    load(program, UPDATE.load("directions"), beats, offset=SOURCE + shift())
    load(program, UPDATE.load("words"), beats, offset=SOURCE + shift())
    if opcode is UpdateOpcode.ADAMW:
        store(program, UPDATE.store("moments"), 2 * beats, offset=RESULT + shift(), wait=late)
    store(
        program,
        UPDATE.store("words"),
        beats,
        offset=RESULT + shift(),
        wait=() if opcode is UpdateOpcode.ADAMW else late,
    )
    if opcode is UpdateOpcode.ADAMW:
        load(program, UPDATE.load("moments"), 2 * beats, offset=SOURCE + shift())


@pytest.mark.parametrize("latency", LATENCIES, ids=str)
@pytest.mark.parametrize("tiles, tokens, limit", [(1, 1, 384), (3, 5, 24), (13, 8, 384), (15, 8, 1500)])
@pytest.mark.parametrize("opcode", OPERANDS | LEARNT, ids=lambda opcode: opcode.name)
def test_a_vector_operation(machine, opcode, tiles, tokens, limit, latency):
    """The last of them fills both queues of results."""
    program = Assembler()
    append(program, operation(opcode, tiles, tokens, limit))
    agree(machine, program, latency)


@pytest.mark.parametrize("latency", LATENCIES, ids=str)
@pytest.mark.parametrize("opcode", [VectorOpcode.NORM, VectorOpcode.ROPE], ids=lambda opcode: opcode.name)
def test_results_that_wait_for_a_store_of_others(machine, opcode, latency):
    """The vector engine stands still when its results have no room, and its operands queue up."""
    program, pieces = Assembler(), operation(opcode, 14, 8, 1500)
    append(program, [each for piece in pieces for each in piece.instructions])
    program.add(GRADIENT, 0, tiles=2, tokens=8, rank=4)
    store(program, GRADIENT.store("gradients"), 2 * 4 * 8, offset=RESULT + (1 << 18))
    append(program, [each for piece in pieces for each in piece.stores])
    load(program, GRADIENT.load("x"), 2 * 8 * 8)
    agree(machine, program, latency)


@pytest.mark.parametrize("latency", LATENCIES, ids=str)
@pytest.mark.parametrize("opcode", [VectorOpcode.ADD, VectorOpcode.SWIGLU], ids=lambda each: each.name)
def test_operands_that_wait_for_results_that_wait(machine, opcode, latency):
    """Results have no room until STORE is free, so operands have none, and a LOAD waits amid its beats."""
    program, pieces = Assembler(), operation(opcode, 28, 8, 360)
    loads = [each for piece in pieces for each in piece.instructions]
    append(program, loads[:5])
    program.add(GRADIENT, 0, tiles=14, tokens=8, rank=4)
    load(program, GRADIENT.load("x"), 14 * 8 * 8)
    store(program, GRADIENT.store("gradients"), 14 * 4 * 8, offset=RESULT + (1 << 18))
    append(program, loads[5:])
    append(program, [each for piece in pieces for each in piece.stores])
    agree(machine, program, latency)


def operation(opcode, tiles, tokens, limit, shift=lambda: 0):
    streams, results = (OPERANDS | LEARNT)[opcode].split()
    tensors = {
        name: SideTensor(offset=SOURCE + shift(), repeated=opcode is VectorOpcode.ROPE and name == "b")
        for name in streams
    }
    tensors |= {name: SideTensor(offset=RESULT + (n << 17) + shift()) for n, name in enumerate(results.strip("-"))}
    return vector(opcode, {"tiles": tiles, "tokens": tokens}, SMALL, limit=limit, **tensors)


# -- programs


@pytest.mark.parametrize("latency", LATENCIES, ids=str)
@pytest.mark.parametrize("rule", [0.3, AdamW(lr=1e-3)], ids=["sgd", "adamw"])
@pytest.mark.parametrize(
    "shape", [(32, 48, 8, 4), (64, 16, 3, 2), (80, 96, 8, 4), (16, 16, 1, 2), (32, 32, 5, 4), (32, 32, 2, 4)], ids=str
)
def test_a_step(machine, shape, rule, latency):
    plan, program = layer_plan(shape), Assembler()
    plan.product(program)
    plan.keep_hidden(program)
    plan.product(program, backward=True)
    plan.restore_hidden(program)
    plan.gradients(program)
    plan.update(program, rule)
    agree(machine, program, latency)


@pytest.mark.parametrize("latency", LATENCIES, ids=str)
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("tokens, rank", [(1, 0), (3, 4), (8, 4), (8, 2), (8, 0)])
def test_a_chain(machine, tokens, rank, backward, latency):
    """Narrow layers in between: the next one's inputs come late."""
    jobs, start = [], START
    for outputs, inputs in ((48, 64), (16, 64), (16, 64), (64, 64), (96, 64), (64, 96)):
        plan = layer_plan((outputs, inputs, tokens, max(rank, 2)), start)
        start = plan.place.end
        job = plan.job(backward=backward)
        jobs.append(job if rank else replace(job, rank=0, lanes=()))
    program = Assembler()
    chain(program, jobs, SMALL)
    agree(machine, program, latency, offset=96)


def _any_product(program, draw, late):
    tokens, inner, outer = draw.randint(1, SMALL.tokens), draw.randint(1, 3), draw.randint(1, 3)
    program.add(
        LINEAR,
        0,
        inner=inner,
        outer=outer,
        tokens=tokens,
        rank=draw.choice((0, 2, 4)),
        by_column=draw.randint(0, 1),
        slot=inner % 2,
    )
    load(program, LINEAR.load("tables"), draw.randint(1, 5))
    store(program, LINEAR.store("outputs"), outer * tokens * 8, offset=RESULT + 8 * draw.randint(0, 40), wait=late)
    for tiles in _pieces(draw, inner * outer):
        kind, beats = draw.choice(list(TileKind)), 18 * tiles
        if kind != TileKind.CODES:
            beats = kind.row_beats * (SMALL.edge * (tiles - 1) + draw.randint(1, SMALL.edge))
        load(
            program,
            LINEAR.load("tiles"),
            beats,
            offset=SOURCE + 8 * draw.randint(0, 40),
            arg=pack(TILE_ARG, {"kind": kind}),
        )
        if draw.random() < 0.3:  # adapter rows are read between writes
            load(program, LINEAR.load("lanes"), draw.randint(1, 40))


def _any_gradient(program, draw, late):
    tokens, tiles, rank = draw.randint(1, SMALL.tokens), draw.randint(1, 4), draw.choice((2, 4))
    program.add(GRADIENT, 0, tiles=tiles, tokens=tokens, rank=rank)
    store(program, GRADIENT.store("gradients"), tiles * rank * 8, offset=RESULT + 8 * draw.randint(0, 40), wait=late)
    for beats in _pieces(draw, tiles * tokens * 8):
        load(program, GRADIENT.load("x"), beats, offset=SOURCE + 8 * draw.randint(0, 40))


def _any_hidden(program, draw, late):
    """h to memory and back, beside products and gradients."""
    tokens, rank = draw.randint(1, SMALL.tokens), draw.choice((2, 4))
    argument = pack(HIDDEN_ARG, {"slot": draw.randint(0, 1), "tokens": tokens, "rank": rank})
    beats = tokens * rank // 2
    if draw.random() < 0.5:
        store(
            program, GRADIENT.store("hidden"), beats, offset=RESULT + 8 * draw.randint(0, 40), wait=late, arg=argument
        )
    else:
        load(program, GRADIENT.load("hidden"), beats, offset=SOURCE + 8 * draw.randint(0, 40), arg=argument)


def _any_vector(program, draw, late):
    """Its stores cannot wait long: all pieces of a command come in turns."""
    pieces = operation(
        draw.choice(list(OPERANDS)),
        draw.randint(1, 6),
        draw.randint(1, SMALL.tokens),
        draw.choice((48, 100, 384, 1500)),
        shift=lambda: 8 * draw.randint(0, 40),
    )
    append(program, pieces)


def _any_update(program, draw, late):
    update(
        program,
        draw.choice(RULES),
        draw.randint(1, UpdateEngine.depth),
        late=late,
        shift=lambda: 8 * draw.randint(0, 40),
    )


def _pieces(draw, left):
    while left:
        piece = draw.randint(1, left)
        left -= piece
        yield piece


@pytest.mark.parametrize("seed", [*range(24), 351, 376])
def test_any_commands_in_any_order(machine, seed):
    """Loads in pieces off any alignment, stores that wait until results stand in the way of everything behind them."""
    draw, program = random.Random(seed), Assembler()
    for _ in range(draw.randint(2, 6)):
        late = draw.choice(((), (5,)))
        if late:
            load(program, LINEAR.load("operands"), draw.randint(1, 600), post=late)
        draw.choice((_any_product, _any_gradient, _any_update, _any_hidden, _any_vector))(program, draw, late)
        if draw.random() < 0.3:
            program.add(CONTROL, ControlOpcode.FENCE)
    latency = draw.choice((*LATENCIES, (17, 4), (41, 60), (90, 900)))
    offset = draw.choice((0, 32, 160, 224))
    agree(machine, program, latency, offset=offset, port_reads=draw.choice((0, 1, 2, 5)))


@pytest.mark.parametrize("latency", LATENCIES, ids=str)
@pytest.mark.parametrize("rule", [0.3, AdamW(lr=1e-3)], ids=["sgd", "adamw"])
@pytest.mark.parametrize("seed, limit", [(0, 384), (1, 96), (2, 60), (3, 240)])
def test_work_between_the_tiles_of_a_product(machine, rule, seed, limit, latency):
    """Vectors, gradients and updates in any order of their commands, with pieces of gradients amid those of vectors."""
    draw = random.Random(seed)
    plan = layer_plan((draw.choice((32, 64)), 48, draw.randint(1, 8), 4))
    beside = layer_plan((96, 112, draw.randint(1, 8), 4), plan.place.end)
    gradients, updates = plan.gradient_pieces(limit=limit), plan.update_pieces(rule, limit=limit)
    others = [
        operation(opcode, draw.randint(1, 6), draw.randint(1, 8), limit, shift=lambda: 8 * draw.randint(0, 40))
        for opcode in OPERANDS
    ]
    others += [[update] for update in updates]
    draw.shuffle(others)
    pieces = [piece for command in others for piece in command]
    for place, piece in zip(sorted(draw.sample(range(len(pieces) + len(gradients)), len(gradients))), gradients):
        pieces.insert(place, piece)
    programs = [Assembler() for _ in range(2)]
    chain(programs[0], [beside.job()], SMALL)
    append(programs[1], weave(programs[0].instructions, pieces, SMALL.data_bits // 8))
    agree(machine, programs[1], latency)


def test_refuses_what_never_ends():
    with pytest.raises(StuckError, match="command 0: the program stops at this command"):
        forecast([Instruction(CONTROL, ControlOpcode.FENCE, {}, wait=(1,))], config=SMALL)
    with pytest.raises(ValueError, match="read_latency=0"):
        forecast([], config=SMALL, memory=MemoryTime(read_latency=0))


# -- full size, by the forecast alone

#: Outputs and inputs of the linears of a SmolLM2-135M block.
BLOCK = ((576, 576), (192, 576), (192, 576), (576, 576), (1536, 576), (1536, 576), (576, 1536))


def block(tokens, rank, *, backward, blocks=1):
    """The forecast of so many blocks back to back."""
    config, start, jobs = LanguageConfig(), 1 << 18, []
    for outputs, inputs in BLOCK:
        plan = layer_plan((outputs, inputs, tokens, max(rank, 2)), start, config)
        start = plan.place.end
        job = plan.job(backward=backward)
        jobs.append(job if rank else replace(job, rank=0, lanes=()))
    return forecast_products(jobs * blocks, config=config)


def test_documented_cycles_of_a_block_are_the_forecast():
    page = (Path(__file__).parents[3] / "docs" / "explanation" / "language-machine.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (none|rank \d) \| (forward|backward) \| ([\d,]+) \|", page, re.MULTILINE)
    assert len(rows) == 6
    for tokens, adapter, direction, cycles in rows:
        rank = 0 if adapter == "none" else int(adapter.split()[1])
        told = block(int(tokens), rank, backward=direction == "backward")
        assert told.total == int(cycles.replace(",", "")), (tokens, adapter, direction)


@pytest.mark.parametrize("tokens", [16, 32, 64])
def test_an_adapter_costs_three_percent_at_most(tokens):
    """Of the cycles of a block that follows another; the first of all also waits for its own inputs."""
    cycles = {}
    for rank in (0, 8):
        counts = [
            sum(block(tokens, rank, backward=backward, blocks=n).total for backward in (False, True)) for n in (1, 2)
        ]
        cycles[rank] = counts[1] - counts[0]
    assert cycles[0] < cycles[8] <= 1.03 * cycles[0]
