"""Tokens of the diffusion machine's programs are enough, and each is needed."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.rtl.formats.element import ElementOpcode
from gradloom.rtl.formats.norm import NormOpcode, constant
from gradloom.rtl.formats.tile_codes import NARROW, WIDE, coded
from gradloom.rtl.machines.configs import DiffusionConfig
from gradloom.rtl.plan.diffusion.jobs import Token
from gradloom.rtl.plan.diffusion.slots import Full, Slots
from gradloom.rtl.plan.diffusion.drafts import Block, Term
from gradloom.rtl.plan.diffusion.tiling import Tiler
from gradloom.sim.reference.tile_program import Machine

from ..workloads.test_diffusion_program import ORDERS as ENDS

SMALL = DiffusionConfig(x_slots=2, w_slots=4, element_slots=2, norm_slots=2)
ROWS = 12
ENGINES = ("product", "element", "norm")
#: Besides, one engine far behind the others.
ORDERS = (
    *ENDS,
    *(("load", "store", *(other for other in ENGINES if other != last), last, "update") for last in ENGINES),
)


def lowered():
    """Twelve row tiles: a product, its SiLU, a softmax of it, and a product of this; a SiLU and a softmax of inputs."""
    t = Tiler(SMALL)
    jobs(t, np.random.default_rng(0))
    t.write()
    return t.program


def jobs(t, rng):
    w = t.tiles(1, 16, 16, NARROW)
    t.program.arrays.append((w.offset, w.pack(coded(rng.standard_normal((16, 16)), NARROW))))
    x, y, z, p, q, u, v, r, s = (t.value(name, 64 * ROWS, 16) for name in "xyzpquvrs")
    for value, bits in ((x, NARROW), (u, WIDE), (v, WIDE)):
        given = t.read(value, bits)
        t.program.arrays.append((given.offset, given.pack(coded(rng.standard_normal((64 * ROWS, 16)), bits))))
    factor = dict(zip(("mantissa", "exponent"), constant(1.0)))

    def product(made, source):
        for i in range(ROWS):
            block = Block.of(t.read(source, NARROW), [(i, 0)])
            t.product(made, (i, 0), [Term(block, Block.of(w, [(0, 0)]), {"k_to": 15})])

    def silu(made, source):
        for i in range(ROWS):
            t.element(made, (i, 0), ElementOpcode.SILU, {"a": Block.of(t.read(source, WIDE), [(i, 0)])})

    def softmax(made, source):
        for i in range(ROWS):
            rule = {"rows": 63, "features": 15, "fresh": 1} | factor
            t.norm(
                made,
                [(i, 0)],
                {"a": Block.of(t.read(source, WIDE), [(i, 0)])},
                lambda held, slot, rule=rule: [(NormOpcode.SOFTMAX, rule | held | {"o": slot})],
            )

    product(y, x)
    silu(z, y)
    softmax(p, z)
    product(q, p)
    silu(r, u)
    softmax(s, v)
    for value in (q, r, s):
        t.read(value, WIDE)


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
