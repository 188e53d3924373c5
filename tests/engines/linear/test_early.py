"""Products that begin before all of their operands are on chip, and those that do not."""

import random
from dataclasses import replace

import numpy as np
import pytest

from gradloom.firmware.device.host import ProgramError
from gradloom.program.assembler import Assembler, pack
from gradloom.rtl.engines.linear.commands import OPERAND_ARG
from gradloom.rtl.machines.language import LINEAR
from gradloom.rtl.shell.engines import CONTROL
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.systems.text.program.engines.inputs import Inputs
from gradloom.systems.text.program.engines.linear import chain
from gradloom.systems.text.program.engines.side import append, load, store
from gradloom.systems.text.program.sections import cut
from gradloom.systems.text.run.linear import choose_exponents, mathematics, reference_step

from .conftest import SMALL, make_layer, stalled
from .test_linear_perf import LATENCIES, agree

RATE = 0.3
BEAT = SMALL.data_bits // 8


def _order(draw, steps, tiles):
    """Loads of tiles, between them those of operands, each with the number of the tile that needs it first: at random,
    but none so late that tiles keep it back, of which there is room for two."""
    made, steps = [], list(steps)
    for number, tile in enumerate(tiles):
        while steps and (draw.random() < 0.3 or steps[0][0] <= number - 2):
            made.append(steps.pop(0)[1])
        made.append(tile)
    return made + [step for _, step in steps]


def commands(job, draw, *, early, base, slot=0):
    """A product by hand; its operands are from word ``base`` on, if ``early`` over the end of their memory."""
    words, flag = job.operands[0].beats // 8, {"early": 1} if early else {}
    pieces, start = [], 0
    while start < words:
        size = min(draw.randint(1, words), words - start, SMALL.depth - (base + start) % SMALL.depth)
        pieces.append(
            (
                start // job.tokens,
                load(
                    job.operands[0].offset + start * 8 * BEAT,
                    8 * size,
                    LINEAR.load("operands"),
                    pack(OPERAND_ARG, {"word": (base + start) % SMALL.depth, **flag}),
                ),
            )
        )
        start += size
    before = [load(each.offset, each.beats, LINEAR.load("lanes"), each.argument) for each in job.lanes]
    if not early:
        before += [step for _, step in pieces]
    if before:
        before[-1] = replace(before[-1], post=(0,))
    program = Assembler()
    append(program, before)
    program.add(
        LINEAR,
        0,
        wait=(0,) if before else (),
        phase="backward" if job.backward else "forward",
        inner=job.inner,
        outer=job.outer,
        tokens=job.tokens,
        rank=job.rank,
        by_column=job.backward,
        slot=slot,
        x_base=base,
        b_base=job.inner * job.rank,
        **job.shifts,
        **flag,
    )
    append(program, [store(job.result.offset, job.result.beats, LINEAR.store("outputs"))])
    if job.tables:
        append(program, [load(job.tables.offset, job.tables.beats, LINEAR.load("tables"), job.tables.argument)])
    tiles = [load(tile.offset, tile.beats, LINEAR.load("tiles"), tile.argument) for tile in job.tiles]
    append(program, _order(draw, pieces if early else [], tiles))
    program.add(CONTROL, ControlOpcode.FENCE)
    return program.instructions


def plans(machine, shapes, seed, backward):
    """Jobs of random layers in memory, and what each makes."""
    found, start = [], 1 << 18
    for number, shape in enumerate(shapes):
        layer = make_layer(*shape, seed=seed + number)
        exponents = choose_exponents(layer, mathematics(layer, RATE))
        plan = machine.plan(layer, exponents, start)
        start = plan.place.end
        made = reference_step(layer, exponents, RATE).tensors["dx" if backward else "y"]
        found.append((plan, plan.job(backward=backward), made))
    return found


def program(work, draw, early):
    made = Assembler()
    for number, (_, job, _) in enumerate(work):
        room = SMALL.depth - job.operands[0].beats // 8
        is_early = early(number)
        base = draw.randint(max(room - 8, 0), SMALL.depth - 1) if is_early else draw.randint(0, room)
        append(made, commands(job, draw, early=is_early, base=base))
    return made


SHAPES = [(48, 64, 8, 4), (32, 112, 7, 4), (16, 16, 1, 2), (64, 128, 8, 2), (80, 48, 3, 4), (16, 96, 8, 4)]


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("seed, stall, latency", [(0, 0, 40), (1, 40, 3), (2, 128, 40), (3, 200, 1), (4, 90, 120)])
def test_late_operands_change_no_word(machine, seed, stall, latency, backward):
    """Each product's operands lie over those of the one before, and come as late as they may; every third waits for
    all of them."""
    draw = random.Random(seed)
    work = plans(machine, SHAPES, seed, backward)
    made = program(work, draw, lambda number: number % 3 != 2)
    made.add(CONTROL, ControlOpcode.END)
    with stalled(machine, stall, latency, seed):
        machine.host.store(0, made.code)
        machine.host.run(0, len(made), timeout=60)
    for plan, _, expected in work:
        np.testing.assert_array_equal(machine.results(plan, RATE)["dx" if backward else "y"], expected)


@pytest.mark.parametrize("latency", LATENCIES, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_the_forecast_of_late_operands_is_exact(machine, seed, latency):
    draw = random.Random(seed)
    work = plans(machine, SHAPES, seed, bool(seed % 2))
    agree(machine, program(work, draw, lambda number: draw.random() < 0.8), latency)


@pytest.mark.parametrize(
    "operands",
    [
        {"x_base": SMALL.depth, "outer": 1},
        {"inner": SMALL.depth // SMALL.tokens + 1},
        {"inner": 255, "tokens": 1},
        {"inner": SMALL.depth // SMALL.tokens + 1, "outer": 1, "early": 0},
    ],
    ids=str,
)
def test_a_product_that_memory_cannot_hold_is_refused(machine, operands):
    """Unless it is early, and reads its input for one panel of outputs: then the input passes through."""
    made = Assembler()
    made.add(LINEAR, 0, **{"inner": 2, "outer": 2, "tokens": SMALL.tokens, "early": 1} | operands)
    made.add(CONTROL, ControlOpcode.END)
    machine.host.store(0, made.code)
    with pytest.raises(ProgramError, match="BAD_OPERAND"):
        machine.host.run(0, len(made), timeout=20)


def test_words_that_nothing_took_are_forgotten_with_the_program_that_failed(machine):
    """Else a product of the next program would begin before its operands."""
    broken = Assembler()
    append(
        broken,
        [
            load(0, 8 * SMALL.tokens, LINEAR.load("operands"), pack(OPERAND_ARG, {"early": 1})),
            load(0, 1, LINEAR.load("lanes"), 1 << 31),
        ],
    )
    broken.add(CONTROL, ControlOpcode.END)
    machine.host.store(0, broken.code)
    with pytest.raises(ProgramError, match="BAD_OPERAND"):
        machine.host.run(0, len(broken), timeout=20)
    machine.host.reset()
    test_late_operands_change_no_word(machine, 5, 100, 40, False)


@pytest.mark.parametrize("step", [8, 40, 1 << 20])
def test_inputs_overwrite_only_those_of_products_that_are_done(machine, step):
    draw = random.Random(step)
    shapes = [
        (16 * draw.randint(1, 8), 16 * draw.randint(1, 8), draw.randint(1, 8), 2 * draw.randint(0, 2) or 4)
        for _ in range(12)
    ]
    jobs = [job for _, job, _ in plans(machine, shapes, 0, False)]
    inputs = Inputs(jobs, SMALL)
    memories = {LINEAR.load("operands"): [-1] * SMALL.depth, LINEAR.load("lanes"): [-1] * SMALL.lane_depth}
    freed = 0
    for index, job in enumerate(jobs):
        counts = dict.fromkeys(memories, 0)
        for each in inputs.loads(index, step):
            assert freed <= max(freed, each.freed) <= index
            freed = max(freed, each.freed)
            destination = each.step.operands["dest"]
            first = each.step.operands["arg"] & 0xFFFF
            place = memories[destination]
            for word in range(first, first + each.size):
                assert place[word] < freed, "this word is still in use"
                place[word] = index
            counts[destination] += each.size
            assert each.words == counts[LINEAR.load("operands")] and each.size * 8 <= max(step, 8)
        assert counts == {
            LINEAR.load("operands"): job.inner * job.tokens,
            LINEAR.load("lanes"): (job.inner + job.outer) * job.rank,
        }


def test_operands_that_are_used_again_stay_until_the_last_product_has_read_them(machine):
    shapes = [(32, 32, 8, 2), (16, 16, 8, 2), (48, 32, 8, 2), *[(16, 64, 8, 2)] * 8, (32, 32, 8, 2)]
    jobs = [job for _, job, _ in plans(machine, shapes, 0, False)]
    first, last = 2, len(jobs) - 1
    jobs = [replace(job, operands=jobs[0].operands) if n in (first, last) else job for n, job in enumerate(jobs)]
    inputs = Inputs(jobs, SMALL, lambda before, index: True)
    assert [n for n in range(len(jobs)) if inputs.again(n)] == [first]
    assert inputs.bases(first)[0] == inputs.bases(0)[0]
    assert not [each for each in inputs.loads(first, 8) if each.words]
    place = inputs.bases(0)[0]
    kept, over = range(place, place + jobs[0].words), 0
    for index in range(1, len(jobs)):
        for each in inputs.loads(index, 8):
            word = each.step.operands["arg"] & 0xFFFF
            if each.step.operands["dest"] == LINEAR.load("operands") and word in kept:
                assert first < each.freed <= index
                over += 1
    assert over
    assert not any(map(Inputs(jobs, SMALL).again, range(len(jobs))))


#: Outputs, inputs, tokens and rank of layers whose input, or its gradient, is larger than operand memory.
LARGE = [(48, 320, 8, 2), (16, 384, 7, 2), (320, 32, 8, 2)]


@pytest.mark.parametrize("shape", LARGE, ids=str)
@pytest.mark.parametrize("stall, latency", [(0, 40), (0, 3), (60, 3), (200, 1), (120, 120)])
def test_operands_that_pass_through_change_no_word(machine, shape, stall, latency):
    """A whole step: h and gradients too."""
    layer = make_layer(*shape, seed=stall)
    exponents = choose_exponents(layer, mathematics(layer, RATE))
    reference = reference_step(layer, exponents, RATE)
    with stalled(machine, stall, latency, stall):
        found = machine.step(layer, exponents, RATE)
    assert found.saturated == reference.saturated
    for name, words in found.tensors.items():
        np.testing.assert_array_equal(words, reference.tensors[name], name)


@pytest.mark.parametrize("latency", LATENCIES, ids=str)
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_the_forecast_of_operands_that_pass_through_is_exact(machine, latency, backward):
    """Small products stand between large ones."""
    work = plans(machine, [LARGE[0], (32, 112, 7, 4), LARGE[2], LARGE[1], (16, 16, 1, 2)], 1, backward)
    made = Assembler()
    chain(made, [job for _, job, _ in work], SMALL)
    agree(machine, made, latency)


@pytest.mark.parametrize("step", [8, 40, 1 << 20])
def test_operands_that_pass_through_follow_those_that_are_used(machine, step):
    """What is overwritten belongs to a product that is done, or to tiles of inputs that others are behind."""
    shapes = [(48, 96, 8, 4), (16, 320, 8, 2), (16, 384, 3, 2), (16, 16, 1, 2), (16, 336, 8, 2), (64, 128, 8, 2)]
    whole = [job for _, job, _ in plans(machine, shapes, 0, False)]
    jobs = [each for job in whole for each in cut(job, SMALL)]
    assert [job.words > SMALL.depth for job in jobs] == [False, True, False, False, True, False]
    inputs, before = Inputs(jobs, SMALL), np.cumsum([0] + [len(job.tiles) for job in jobs]).tolist()
    owners, waited = [(-1, 0)] * SMALL.depth, 0
    for index, job in enumerate(jobs):
        for each in inputs.loads(index, step):
            if each.step.operands["dest"] != LINEAR.load("operands"):
                continue
            place, tiles = each.behind
            reached = before[place] + tiles if place >= 0 else 0
            # They are loaded between tiles of their own product at the latest.
            assert reached <= before[index] + (each.words - each.size) // job.tokens * job.outer
            first = each.step.operands["arg"] & 0xFFFF
            for number in range(each.size):
                owner, tile = owners[first + number]
                if owner >= each.freed:
                    waited += 1
                    assert before[owner] + (tile + 1) * jobs[owner].outer + 4 <= reached
                owners[first + number] = index, (each.words - each.size + number) // job.tokens
    assert waited
