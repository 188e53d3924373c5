"""What LOAD may bring: another codebook, and what stops the program because it has no place."""

import numpy as np
import pytest

from gradloom.firmware.device.host import ProgramError
from gradloom.program.assembler import Assembler, pack
from gradloom.rtl.engines.gradient.commands import HIDDEN_ARG
from gradloom.rtl.engines.gradient.parameters import SLOTS
from gradloom.rtl.engines.linear.commands import TABLE_ARG, TILE_ARG, TileKind
from gradloom.rtl.engines.linear.weights.tables import TableLoader
from gradloom.rtl.formats.codebook import FP4, NF2, NF3, NF4
from gradloom.rtl.formats.weights.linear import SCALE_MAX
from gradloom.rtl.formats.weights.tiles import untile_rows
from gradloom.rtl.machines.language import GRADIENT, LANGUAGE, LINEAR
from gradloom.rtl.shell.engines import CONTROL
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.sim.bench.engine import simulate
from gradloom.sim.reference import linear as reference
from gradloom.systems.text.program.engines.linear import LayerMap, LayerPlan, codebook_table, codebook_words
from gradloom.systems.text.run.linear import choose_exponents, mathematics, reference_step

from ..conftest import SMALL, make_layer
from ..test_linear_perf import RESULT, SOURCE, agree, load, store

BOOK = 1 << 16
BEAT = SMALL.data_bits // 8


def load_book(program, host, book, offset=BOOK):
    host.store(offset, codebook_words(book))
    table = codebook_table(offset, SMALL)
    load(program, LINEAR.load("tables"), table.beats, offset=table.offset, arg=table.argument)


@pytest.mark.parametrize("books", [(NF3, NF4, FP4), (NF2, NF3, NF2)], ids=lambda books: "-".join(b.name for b in books))
def test_layers_of_several_codebooks_in_one_program(machine, books):
    program, start, layers = Assembler(), 1 << 18, []
    for index, book in enumerate(books):
        layer = make_layer(32, 48, 4, 2, seed=index)
        # All codes there are: those that no encoder makes decode as the last level.
        assert set(np.unique(layer.codes)) == set(range(16))
        exponents = choose_exponents(layer, mathematics(layer, 0.3))
        plan = LayerPlan(
            shape=layer.shape, exponents=exponents, config=SMALL, place=LayerMap.place(layer.shape, SMALL, start)
        )
        start = plan.place.end
        machine._store(layer, exponents, plan.place)
        load_book(program, machine.host, book, BOOK + 64 * index)
        plan.product(program, backward=index == 1)
        layers.append((layer, plan, book))
    try:
        agree(machine, program)
        for index, (layer, plan, book) in enumerate(layers):
            e, job = plan.exponents, plan.job(backward=index == 1)
            w, _ = reference.decoded(layer.codes, layer.scale_codes, layer.absmax2, layer.offset, frac=e.w, book=book)
            words = {
                name: untile_rows(
                    machine.host.fetch(getattr(plan.place, name), 4 * rows * features), rows, features, SMALL.edge
                )
                for name, rows, features in (("x", 4, 48), ("dy", 4, 32), ("a", 2, 48), ("b", 2, 32))
            }
            a, b = reference.lanes(words["a"]), reference.lanes(words["b"])
            made = (
                reference.product(words["dy"], w.T, b, a.T, **job.shifts)
                if job.backward
                else reference.product(words["x"], w, a, b.T, **job.shifts)
            )
            found = machine.host.fetch(job.result.offset, 4 * made.y.size)
            assert np.array_equal(untile_rows(found, *made.y.shape, SMALL.edge), made.y), (index, book.name)
    finally:
        program = Assembler()
        load_book(program, machine.host, NF4)
        agree(machine, program)


DEPTH, LANES = SMALL.depth, SMALL.lane_depth
HIDDEN = {"slot": 1, "tokens": SMALL.tokens, "rank": SMALL.rank}


def tile(**fields):
    return pack(TILE_ARG, fields)


@pytest.mark.parametrize(
    "destination, beats, argument, at",
    [
        (LINEAR.load("operands"), 16, DEPTH - 1, 8),
        (LINEAR.load("operands"), 1, DEPTH, 0),
        (LINEAR.load("operands"), 1, 1 << 16, 0),
        (LINEAR.load("operands"), 1, (1 << 32) - 1, 0),
        (LINEAR.load("operands"), 8 * DEPTH + 1, 0, 8 * DEPTH),
        (LINEAR.load("lanes"), 9, LANES - 1, 8),
        (LINEAR.load("lanes"), 1, LANES, 0),
        (LINEAR.load("lanes"), 1, 1 << 31, 0),
        (LINEAR.load("tables"), 1, pack(TABLE_ARG, {"groups": SMALL.groups + 1}), 0),
        (LINEAR.load("tables"), 4097, pack(TABLE_ARG, {"groups": SMALL.groups}), 4096),
        (GRADIENT.load("hidden"), 1, pack(HIDDEN_ARG, HIDDEN | {"slot": SLOTS}), 0),
        (GRADIENT.load("hidden"), 1, pack(HIDDEN_ARG, HIDDEN | {"tokens": 0}), 0),
        (GRADIENT.load("hidden"), 1, pack(HIDDEN_ARG, HIDDEN | {"tokens": SMALL.tokens + 1}), 0),
        (GRADIENT.load("hidden"), 1, pack(HIDDEN_ARG, HIDDEN | {"rank": 0}), 0),
        (GRADIENT.load("hidden"), 1, pack(HIDDEN_ARG, HIDDEN | {"rank": 3}), 0),
        (GRADIENT.load("hidden"), 1, pack(HIDDEN_ARG, HIDDEN | {"rank": SMALL.rank + 2}), 0),
        (LINEAR.load("tiles"), 1, 0, 0),
        (LINEAR.load("tiles"), 17, 0, 16),
        (LINEAR.load("tiles"), 35, 0, 34),
        (LINEAR.load("tiles"), 18, tile(block=256 * SMALL.groups), 2),
        (LINEAR.load("tiles"), 18, tile(block=256 * SMALL.groups - 15, blocks_per_row=1), 17),
        (LINEAR.load("tiles"), 18, tile(block=(1 << 20) - 1, blocks_per_row=1023), 2),
        (LINEAR.load("tiles"), 1, tile(kind=3), 0),
        (LINEAR.load("tiles"), 7, tile(kind=TileKind.WORDS), 6),
        (LINEAR.load("tiles"), 130, tile(kind=TileKind.WORDS), 129),
        (LINEAR.load("tiles"), 6, tile(kind=TileKind.HALVES), 5),
        (77, 2, 0, 0),
    ],
    ids=str,
)
def test_a_load_without_a_place_stops_the_program_and_the_next_runs_right(machine, destination, beats, argument, at):
    program = Assembler()
    load(program, LINEAR.load("operands"), 3)
    load(program, destination, beats, arg=argument)
    load(program, LINEAR.load("operands"), 40)
    refused(machine, program, at)


_BEATS = SMALL.tokens * SMALL.rank // SMALL.beat_words
_STORED = GRADIENT.store("hidden")


@pytest.mark.parametrize(
    "source, beats, argument",
    [
        (len(LANGUAGE.stores), 1, 0),
        (255, 3, 0),
        *(
            (_STORED, _BEATS, pack(HIDDEN_ARG, HIDDEN | change))
            for change in (
                {"slot": SLOTS},
                {"tokens": 0},
                {"tokens": SMALL.tokens + 1},
                {"rank": 0},
                {"rank": 3},
                {"rank": SMALL.rank + 2},
            )
        ),
        (_STORED, _BEATS + 1, pack(HIDDEN_ARG, HIDDEN)),
        (_STORED, _BEATS - 1, pack(HIDDEN_ARG, HIDDEN)),
    ],
)
def test_a_store_of_what_is_not_there_stops_the_program_and_the_next_runs_right(machine, source, beats, argument):
    machine.host.set_watchdog(0)
    program = Assembler()
    store(program, GRADIENT.store("hidden"), _BEATS, arg=pack(HIDDEN_ARG, HIDDEN))
    store(program, source, beats, arg=argument)
    refused(machine, program, 0, start=RESULT)


@pytest.mark.parametrize(
    "value, good",
    [(1 << 16, True), (-1 << 16, True), ((1 << 16) + 1, False), ((-1 << 16) - 1, False), (1 << 30, False)],
)
@pytest.mark.parametrize("place", [0, 15])
def test_a_level_beyond_one_is_refused(machine, value, good, place):
    words = np.zeros(16, "<i4")
    words[place] = value
    program = Assembler()
    load(program, LINEAR.load("operands"), 3)
    try:
        table = codebook_table(SOURCE, SMALL)
        machine.host.store(SOURCE, words.tobytes())
        load(program, LINEAR.load("tables"), table.beats, arg=table.argument)
        if good:
            agree(machine, program)
        else:
            refused(machine, program, place // SMALL.beat_words, check=False)
    finally:
        program = Assembler()
        load_book(program, machine.host, NF4)
        agree(machine, program)


@pytest.mark.parametrize("place", range(4))
def test_what_is_clipped_is_counted_in_scales_and_offset(place):
    """Of two scales, the offset and a word that is none: 2.0 in all but one place, of 8 fraction bits."""
    unit = TableLoader(SMALL)
    words = [0x40000000] * 4
    words[place] = 0xFF000000
    told, scales = [], {}

    async def process(ctx):
        argument = {"groups": 2, "bias": 150 - 8, "levels": 0}
        beats = [pair[0] | pair[1] << 32 for pair in (words[:2], words[2:])]
        for cycle in range(20):
            index = cycle // 4
            ctx.set(unit.i.valid, cycle % 4 == 0 and index < len(beats))
            ctx.set(unit.i.payload, {"index": index, "arg": argument, "data": beats[index % 2]})
            await ctx.tick()
            told.append(ctx.get(unit.saturated))
            if ctx.get(unit.scale.valid):
                scales[ctx.get(unit.scale.index)] = ctx.get(unit.scale.value)
        scales["offset"] = ctx.get(unit.offset)

    simulate(unit, process)
    assert sum(told) == (place < 3)
    assert scales == {key: -SCALE_MAX if n == place else 512 for n, key in enumerate((0, 1, "offset"))}


def refused(machine, program, at, *, start=SOURCE, check=True):
    """Command 1 stopped at beat ``at``, with an interrupt; what follows computes right."""
    program.add(CONTROL, ControlOpcode.END)
    machine.host.store(0, program.code)
    with pytest.raises(ProgramError) as error:
        machine.host.run(0, len(program), timeout=20)
    assert (error.value.name, error.value.command, error.value.offset) == ("BAD_OPERAND", 1, start + at * BEAT)
    if not check:
        return
    layer = make_layer(16, 32, 2, 2)
    exponents = choose_exponents(layer, mathematics(layer, 0.3))
    expected = reference_step(layer, exponents, 0.3)
    found = machine.step(layer, exponents, 0.3)
    assert all(np.array_equal(words, expected.tensors[name]) for name, words in found.tensors.items())
