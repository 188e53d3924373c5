"""Tokens of the diffusion machine's programs are enough, and each is needed."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from gradloom.program.placed import PlacedProgram
from gradloom.program.tiles import jobs as jobs_module
from gradloom.program.tiles.drafts import Block, Draft, Sketch, Term
from gradloom.program.tiles.jobs import LoadJob, StoreJob, TileJob, Token, write
from gradloom.program.tiles.order import ordered
from gradloom.program.tiles.pace import PacedCommand
from gradloom.program.tiles.slots import Full, Slots
from gradloom.program.tiles.tiling import Tiler
from gradloom.rtl.formats.tiles.codes import NARROW, WIDE, coded
from gradloom.rtl.formats.tiles.element import ElementOpcode
from gradloom.rtl.formats.tiles.functions import SILU
from gradloom.rtl.formats.tiles.norm import NormOpcode, constant
from gradloom.rtl.formats.tiles.records import tile_argument
from gradloom.rtl.machines.configs.diffusion import DiffusionConfig
from gradloom.sim.reference.tiles.program import TileMachine

from .orders import ORDERS as ENDS

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


@pytest.mark.parametrize("count, span", [(128, 1), (129, 2), (257, 4), (128 * 64 + 1, 64)])
def test_as_few_commands_post_as_a_counter_needs(count, span):
    """Of LOADs that run ahead, one of ``span`` posts: up to 128 tokens may be there, and one of 64 posts at least."""
    loads, products = ([PacedCommand(queue, 1, lambda *_: None) for _ in range(count)] for queue in ("load", "product"))
    for load, product in zip(loads, products):
        product.after.append(load)
    waits, posts = jobs_module._tokens([*loads, *products])
    posting = {*range(span - 1, count, span), count - 1}
    assert [n for n, each in enumerate(loads) if posts[each]] == sorted(posting)
    assert [n for n, each in enumerate(products) if waits[each]] == [*range(0, count, span)]


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
        "norm", [LoadJob("a", place, 2080, arg, (0,))], [(NormOpcode.SOFTMAX, rows | factor)] * 8, uses={("a", 0)}
    )
    element = TileJob(
        "element", [LoadJob("a", place, 2080, arg, (0,))], [(ElementOpcode.SCALE, rows | factor)], uses={("a", 0)}
    )
    wide, taken = tile_argument(0, 64, 16, wide=True), tile_argument(slot, 64, 16)
    norm.stores = [StoreJob("o", place + 4096, 2080, wide)]
    element.stores = [StoreJob("o", place + 8192, 2080, wide, to=("norm", "a"), to_arg=taken, only=True)]
    write(program, [norm, element])
    first, _ = (each.operands for each in program.instructions if each.engine.name == "store")
    assert first.get("forward", 0) == slot


def test_a_program_that_waits_for_nothing_is_found():
    program = lowered()
    commands = [replace(each, post=()) for each in program.instructions]
    with pytest.raises(RuntimeError, match="no command can start; at the heads are"):
        ran(program, commands, None)


def made_slots(count, uses, **beats):
    """``uses``: jobs that read each record; a record has a beat unless ``beats`` says more."""
    known = defaultdict(lambda: 1, {int(name[1:]): value for name, value in beats.items()})
    return Slots("x", count, defaultdict(tuple, uses), known)


def store(record):
    return StoreJob("o", record, 16, to=("product", "x"))


def test_jobs_that_look_up_a_table_stay_behind_the_one_that_writes_it():
    """A table is a record of no beats for the order, of a number that no record in memory and no other table has."""

    def task(**what):
        return Sketch(Draft("element", None, 0), TileJob("element", **what), []).task(DiffusionConfig(norm_lanes=16))

    writers = [task(table=number) for number in range(3)] + [task(chained=True)]
    assert [list(each.writes.values()) for each in writers] == [[0]] * 4
    kept = [offset for each in writers for offset in each.writes]
    assert len(set(kept)) == 4 and max(kept) < 0
    reader = task(tables=(0, 2))
    assert reader.reads == {("table", kept[0]): 0, ("table", kept[2]): 0} and not reader.writes
    assert not task().reads and not task().writes
    # In whatever order they are given, a reader goes behind the writer of its table and in front of the next one.
    assert ordered([writers[0], reader, writers[2]], 4, {"element": {}}) == [0, 1, 2]
    assert not task(table=1).reads


def test_records_stay_until_their_slots_are_taken():
    slots = made_slots(4, {})
    assert slots.take((10, 11), (), 0) == (0, [0, 1]) and slots.take((20,), {0, 1}, 0) == (2, [0])
    # What another block brought is there.
    assert slots.take((11, 20), (), 0) == (1, []) and slots.take((11,), (), 0) == (1, [])
    # Nobody needs what is there; slot 2 stays for a block of the same job.
    assert slots.take((30, 31), {2}, 0) == (0, [0, 1])
    assert slots.records == [30, 31, 20, None]
    with pytest.raises(Full):
        slots.take((40, 41, 42), {1}, 0)
    with pytest.raises(ValueError, match="x: a product needs 5 tiles at once, there are 4 slots"):
        slots.take(tuple(range(5)), (), 0)


def test_a_block_goes_on_where_another_lies():
    slots = made_slots(8, {n: (n - 1, n, n + 1) for n in range(1, 6)})
    assert slots.take((1, 2), (), 0) == (0, [0, 1])
    assert slots.take((1, 2, 3), (), 1) == (0, [2])
    assert slots.take((2, 3, 4), (), 2) == (1, [2])


def test_room_is_made_where_load_has_least_to_bring():
    slots = made_slots(2, {1: (9,), 2: (5,)}, _1=8)
    slots.take((1, 2), (), 0)
    # Record 1 is read again last, but is longer.
    assert slots.take((3,), (), 1) == (1, [0])


def test_what_is_read_last_goes_first_unless_it_was_read_just_now():
    uses = {1: [9], 2: [5], 3: [7], 4: [20]}
    slots = made_slots(4, uses)
    for number in (1, 2, 3, 4):
        slots.read((slots.take((number,), (), 0)[0],), 0)
    assert slots.take((5,), (), 4) == (3, [0])
    # Nobody reads record 5.
    assert slots.take((6,), (), 4) == (3, [0]) and slots.take((7,), {3}, 4) == (0, [0])
    # Job 4 has read slots 0 and 3, whose records nobody else reads; LOAD would wait for it.
    slots.read((0, 3), 4)
    slots.uses[2] = ()
    assert slots.take((8,), (), 6) == (1, [0])


def test_records_that_are_forwarded_stay_until_their_reader():
    uses = {1: [9], 2: [5], 3: [6], 4: [8], 5: [8], 6: [4]}
    slots = made_slots(4, uses)
    slots.take((1,), (), 0)
    stores = {record: store(record) for record in (2, 3, 4, 5, 6)}
    for record, reader in ((2, 5), (3, 6), (4, 8)):
        assert slots.forward(stores[record], (record,), 0, reader) == record - 1
    # A quarter of all slots is left for others, and what is read sooner stays.
    assert slots.forward(stores[5], (5,), 0, 8) is None and slots.records == [1, 2, 3, 4]
    # The one that is read last is loaded instead.
    assert slots.forward(stores[6], (6,), 0, 4) == 0 and stores[4].to is None
    assert slots.records == [6, 2, 3, None] and all(stores[record].to for record in (2, 3, 6))
    # What was read is no longer to be forwarded.
    slots.read((1,), 5)
    slots.clear()
    assert slots.records == [None] * 4 and stores[2].to and stores[3].to is stores[6].to is None


def test_blocks_follow_from_the_first_slot_on_where_all_is_forgotten():
    slots = made_slots(4, {})
    slots.read((0, 1), 7)
    assert slots.take((1, 2), (), 8) == (2, [0, 1])
    slots.read((2,), 8)
    slots.clear()
    assert slots.take((1, 2), (), 9) == (0, [0, 1]) and slots.take((3, 4), {0, 1}, 9) == (2, [0, 1])


def test_a_block_that_is_forwarded_takes_all_its_slots():
    slots = made_slots(4, {1: [3], 2: [3], 3: [4]})
    assert slots.forward(store(2), (1, 2), 0, 3) == 1 and slots.records == [None, 2, None, None]
    assert slots.forward(store(3), (3,), 0, 4) == 2
    # Record 1 comes from memory.
    assert slots.take((1, 2), (), 3) == (0, [0])
    # Three quarters of all slots at most.
    assert made_slots(4, {}).forward(store(9), (6, 7, 8, 9), 0, 5) is None
    assert made_slots(4, {}).forward(store(9), (7, 8, 9), 0, 5) == 2


def test_a_record_that_is_read_before_a_forwards_reader_is_not_driven_out():
    slots = made_slots(2, {1: [3], 2: [8]})
    slots.take((1,), (), 0), slots.take((2,), (), 0)
    assert slots.forward(store(4), (4,), 0, 9) is None
    assert slots.forward(store(3), (3,), 0, 7) == 1 and slots.records == [1, 3]
