"""Tokens of the diffusion machine's programs are enough, and each is needed."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from gradloom.rtl.formats.element import ElementOpcode
from gradloom.rtl.formats.norm import NormOpcode, constant
from gradloom.rtl.formats.tile_codes import NARROW, WIDE, coded
from gradloom.rtl.machines.configs import DiffusionConfig
from gradloom.rtl.plan.diffusion.jobs import Token, write
from gradloom.rtl.plan.diffusion.slots import Full, Slots
from gradloom.rtl.plan.diffusion.tiling import Block, Term, Tiler
from gradloom.sim.reference.tile_program import Machine

from ..workloads.test_diffusion_program import ORDERS

SMALL = DiffusionConfig(x_slots=4, w_slots=4, element_slots=2, norm_slots=2)
ROWS = 12


def lowered():
    """Twelve row tiles: a product, its SiLU, a softmax of it, and a product of this."""
    needs = defaultdict(set)
    for _ in range(2):
        t = Tiler(SMALL, needs)
        jobs(t, np.random.default_rng(0))
        needs = t.found
    write(t.program, t.jobs)
    return t.program


def jobs(t, rng):
    w = t.tiles(1, 16, 16, NARROW)
    t.program.arrays.append((w.offset, w.pack(coded(rng.standard_normal((16, 16)), NARROW))))
    x, y, z, p, q = (t.value(name, 64 * ROWS, 16) for name in "xyzpq")
    given = t.read(x, NARROW)
    t.program.arrays.append((given.offset, given.pack(coded(rng.standard_normal((64 * ROWS, 16)), NARROW))))
    factor = dict(zip(("mantissa", "exponent"), constant(1.0)))

    def product(made, source):
        for i in range(ROWS):
            block = Block.of(t.read(source, NARROW), [(i, 0)])
            t.product(made, (i, 0), [Term(block, Block.of(w, [(0, 0)]), {"k_to": 15})])

    product(y, x)
    for i in range(ROWS):
        t.element(z, (i, 0), ElementOpcode.SILU, {"a": Block.of(t.read(y, WIDE), [(i, 0)])})
    for i in range(ROWS):
        rule = {"rows": 63, "features": 15, "fresh": 1} | factor
        t.norm(
            p,
            [(i, 0)],
            {"a": Block.of(t.read(z, WIDE), [(i, 0)])},
            lambda held, slot, rule=rule: [(NormOpcode.SOFTMAX, rule | held | {"o": slot})],
        )
    product(q, p)
    t.read(q, WIDE)


def ran(program, commands, order):
    machine = Machine(SMALL, program.length)
    for offset, content in program.arrays:
        machine.memory[offset : offset + len(content)] = content
    machine.run(commands, order)
    return bytes(machine.memory)


@pytest.fixture(scope="module")
def made():
    program = lowered()
    return program, ran(program, program.instructions, None)


@pytest.mark.parametrize("order", ORDERS)
def test_orders_that_tokens_allow_leave_the_same_memory(made, order):
    program, memory = made
    assert ran(program, program.instructions, order) == memory


@pytest.mark.parametrize("token", Token)
def test_every_token_is_needed(made, token):
    """Where nobody waits for it, some order reads or overwrites what is not there yet."""
    program, memory = made
    commands = [replace(each, wait=tuple(t for t in each.wait if t != token)) for each in program.instructions]

    def wrong(order):
        try:
            return ran(program, commands, order) != memory
        except ValueError:
            return True

    assert any(wrong(order) for order in ORDERS)


def test_a_program_that_waits_for_nothing_is_found():
    program = lowered()
    commands = [replace(each, post=()) for each in program.instructions]
    with pytest.raises(RuntimeError, match="no command can start; at the heads are"):
        ran(program, commands, None)


def test_blocks_stay_until_their_slots_are_taken():
    slots = Slots("x", 4)
    assert slots.take((10, 11), ()) == 0 and slots.take((20,), ()) == 2
    assert slots.find((10, 11)) == 0 and slots.find((11,)) is None
    # Two slots in a row are free only at the start, where nobody needs what is there.
    assert slots.take((30, 31), {2}) == 0
    assert slots.find((10, 11)) is None and slots.find((20,)) == 2
    with pytest.raises(Full):
        slots.take((40, 41, 42), {1})
    with pytest.raises(ValueError, match="x: a product needs 5 tiles at once, there are 4 slots"):
        slots.take(range(5), ())
