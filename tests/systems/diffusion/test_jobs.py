"""Tokens of the diffusion machine's programs are enough, and each is needed."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.program.placed import PlacedProgram
from gradloom.program.tiles import jobs as jobs_module
from gradloom.program.tiles.drafts import Block, Term
from gradloom.program.tiles.jobs import LoadJob, StoreJob, TileJob, Token, write
from gradloom.program.tiles.slots import Full, Slots
from gradloom.program.tiles.tiling import Tiler
from gradloom.rtl.formats.tiles.codes import NARROW, WIDE, coded
from gradloom.rtl.formats.tiles.element import ElementOpcode
from gradloom.rtl.formats.tiles.functions import SILU
from gradloom.rtl.formats.tiles.norm import NormOpcode, constant
from gradloom.rtl.formats.tiles.records import tile_argument
from gradloom.rtl.machines.configs.diffusion import DiffusionConfig
from gradloom.sim.reference.tiles.program import TileMachine

from .test_program import ORDERS as ENDS

SMALL = DiffusionConfig(x_slots=2, w_slots=4, element_slots=2, norm_slots=2)
ROWS = 12
ENGINES = ("product", "element", "norm")
#: Besides, one engine far behind the others.
ORDERS = (
    *ENDS,
    *(("load", "store", *(other for other in ENGINES if other != last), last, "update") for last in ENGINES),
)


def lowered():
    """Twelve row tiles: a product, its SiLU, a softmax of it, and a product of this; SiLU and softmax of inputs."""
    t = Tiler(SMALL)
    jobs(t, np.random.default_rng(0))
    t.write()
    return t.program


def test_a_result_that_nobody_reads_is_not_made():
    t = Tiler(SMALL)
    x, dead, y = (t.value(name, 64, 16) for name in ("x", "dead", "y"))
    block = {"a": Block.of(t.read(x, WIDE), [(0, 0)])}
    for made in (dead, y):
        t.element(made, (0, 0), ElementOpcode.FUNCTION, block, [SILU.value.operands()])
    t.read(y, WIDE)
    (job,) = t.write()
    assert [store.offset for store in job.stores] == [y.places[WIDE].offset]


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
            block = {"a": Block.of(t.read(source, WIDE), [(i, 0)])}
            t.element(made, (i, 0), ElementOpcode.FUNCTION, block, [SILU.value.operands()])

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
    machine = TileMachine(SMALL, program.length, order)
    for offset, content in program.arrays:
        machine.memory[offset : offset + len(content)] = content
    machine.execute(commands)
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


def test_an_engine_waits_for_what_is_forwarded_to_it(made, monkeypatch):
    """Without waits for STOREs of other engines' results some order goes wrong."""
    _, memory = made
    original = jobs_module._linked

    def linked(program, given):
        found = original(program, given)
        for each in found:
            own = (other for other in each.after if other.queue != "store" or other.after[0].queue == each.queue)
            each.after = list(own) if each.queue in ENGINES else each.after
        return found

    with monkeypatch.context() as patch:
        patch.setattr(jobs_module, "_linked", linked)
        program = lowered()

    def wrong(order):
        try:
            return ran(program, program.instructions, order) != memory
        except ValueError:
            return True

    assert any(wrong(order) for order in ORDERS)


@pytest.mark.parametrize("slot", [0, 1])
def test_a_forward_waits_for_what_reads_its_slot(slot):
    """Norm reads slot 0 for long; element's record is there sooner, and passes only where it fills another slot."""
    program, arg = PlacedProgram(SMALL), tile_argument(0, 64, 16)
    place = program.room(4096).offset
    rows, factor = {"rows": 63, "features": 15, "fresh": 1}, dict(zip(("mantissa", "exponent"), constant(1.0)))
    norm = TileJob(
        "norm", [LoadJob("a", place, 2064, arg, (0,))], [(NormOpcode.SOFTMAX, rows | factor)] * 8, uses={("a", 0)}
    )
    element = TileJob(
        "element", [LoadJob("a", place, 2064, arg, (0,))], [(ElementOpcode.SCALE, rows | factor)], uses={("a", 0)}
    )
    wide, taken = tile_argument(0, 64, 16, wide=True), tile_argument(slot, 64, 16)
    norm.stores = [StoreJob("o", place + 4096, 2064, wide)]
    element.stores = [StoreJob("o", place + 8192, 2064, wide, to=("norm", "a"), to_arg=taken, only=True)]
    write(program, [norm, element])
    first, _ = (each.operands for each in program.instructions if each.engine.name == "store")
    assert first.get("forward", 0) == slot


def test_a_program_that_waits_for_nothing_is_found():
    program = lowered()
    commands = [replace(each, post=()) for each in program.instructions]
    with pytest.raises(RuntimeError, match="no command can start; at the heads are"):
        ran(program, commands, None)


def test_blocks_stay_until_their_slots_are_taken():
    slots = Slots("x", 4, {})
    assert slots.take((10, 11), (), 0) == 0 and slots.take((20,), (), 0) == 2
    assert slots.find((10, 11)) == 0 and slots.find((11,)) is None
    # Two slots in a row are free only at the start, where nobody needs what is there.
    assert slots.take((30, 31), {2}, 0) == 0
    assert slots.find((10, 11)) is None and slots.find((20,)) == 2
    with pytest.raises(Full):
        slots.take((40, 41, 42), {1}, 0)
    with pytest.raises(ValueError, match="x: a product needs 5 tiles at once, there are 4 slots"):
        slots.take(tuple(range(5)), (), 0)


def test_what_is_read_last_goes_first_unless_it_was_read_just_now():
    uses = {(1,): [9], (2,): [5], (3,): [7], (4,): [20]}
    slots = Slots("x", 4, uses)
    for number in (1, 2, 3, 4):
        slots.read((slots.take((number,), (), 0),), 0)
    assert slots.take((5,), (), 4) == 3 and slots.take((6,), (), 4) == 0
    # Job 4 has read slot 1, whose record nobody else reads; LOAD would wait for it.
    slots.read((0, 1, 3), 4)
    del uses[2,]
    assert slots.take((7,), (), 6) == 2


def test_slots_that_forwards_fill_stay_until_their_reader():
    uses = {(1,): [9], (2,): [5], (3,): [6]}
    slots = Slots("x", 4, uses)
    first = slots.take((1,), (), 0)
    assert slots.keep((2,), 0, 5) and slots.keep((3,), 0, 6) and slots.held[(1,)] == first
    # A quarter of all slots is left for others.
    assert slots.keep((4,), 0, 8) and not slots.keep((5,), 0, 8)
    slots.clear()
    assert set(slots.held) == {(2,), (3,), (4,)} == set(slots.kept)
    assert slots.take((6,), (), 1) == first
    with pytest.raises(Full):
        slots.take((7,), {first}, 1)
    assert slots.drop() == (4,) and slots.drop() == (3,) and slots.drop() == (2,) and slots.drop() is None


def test_a_record_that_is_read_before_a_forwards_reader_is_not_driven_out():
    slots = Slots("x", 2, {(1,): [3], (2,): [8]})
    slots.take((1,), (), 0), slots.take((2,), (), 0)
    assert not slots.keep((4,), 0, 9) and slots.keep((3,), 0, 7)
    assert slots.find((2,)) is None and slots.find((1,)) == 0
