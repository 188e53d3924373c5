"""Jobs that follow one another at once, as their engine keeps something for the next."""

import numpy as np
import pytest

from gradloom.program.tiles.drafts import Block
from gradloom.program.tiles.tiling import Tiler
from gradloom.rtl.formats.tiles.codes import EDGE, WIDE, coded
from gradloom.rtl.formats.tiles.norm import NormOpcode, constant
from gradloom.rtl.machines.configs.diffusion import DiffusionConfig
from gradloom.sim.reference.tiles.program import TileMachine
from gradloom.sim.reference.tiles.vector import softmax

from .orders import ORDERS

SMALL = DiffusionConfig(x_slots=2, w_slots=4, element_slots=2, norm_slots=2)
FACTOR = dict(zip(("mantissa", "exponent"), constant(float(np.log2(np.e)))))
HIGH, WIDTH = 3, 3


def drafted(*, joined=True):
    """Rows of three tiles, in a machine of two slots, and one-tile softmaxes of another tensor between them."""
    t, random = Tiler(SMALL), np.random.default_rng(0)
    x, u, y, v = (t.value(name, EDGE * HIGH, EDGE * width) for name, width in zip("xuyv", (WIDTH, 1, WIDTH, 1)))
    given = {}
    for value in (x, u):
        given[value.name] = coded(random.standard_normal((value.rows, value.features)), WIDE)
        place = t.read(value, WIDE)
        t.program.arrays.append((place.offset, place.pack(given[value.name])))

    def job(made, at, opcode, source, place, **more):
        def commands(held, slot):
            result = {"o": slot, "fresh": 1} if at else {}
            yield opcode, {"rows": EDGE - 1, "features": EDGE - 1, **more, **held, **result}

        t.norm(made, at, {"a": Block.of(t.read(source, WIDE), [place])}, commands)

    for i in range(HIGH):
        first = len(t.drafts)
        for opcode, more in ((NormOpcode.LARGEST, {}), (NormOpcode.POWERS, FACTOR)):
            for j in range(WIDTH):
                job(y, [], opcode, x, (i, j), more=int(j > 0), **more)
        for j in range(WIDTH):
            job(y, [(i, j)], NormOpcode.SHARES, x, (i, j), **FACTOR)
        if joined:
            t.joined(first)
        job(v, [(i, 0)], NormOpcode.SOFTMAX, u, (i, 0), **FACTOR)
    for value in (y, v):
        t.read(value, WIDE)
    return t, y, v, given


@pytest.mark.parametrize("order", [None, *ORDERS])
def test_rows_of_several_tiles_are_done_at_once(order):
    t, *made, given = drafted()
    t.write()
    machine = TileMachine(SMALL, t.program.length, order)
    for offset, content in t.program.arrays:
        machine.write(offset, content)
    machine.run(t.program)
    for value, name in zip(made, "xu"):
        place = value.places[WIDE]
        assert machine.read(place.offset, place.size) == place.pack(coded(softmax(given[name].values, 1.0), WIDE))


def test_without_that_another_job_may_get_between():
    """The model then refuses what it was not asked to gather, or words are others."""
    opcodes = {}
    for joined in (True, False):
        t = drafted(joined=joined)[0]
        t.write()
        opcodes[joined] = [each.opcode for each in t.program.instructions if each.engine.name == "norm"]
    row = [NormOpcode.LARGEST] * WIDTH + [NormOpcode.POWERS] * WIDTH + [NormOpcode.SHARES] * WIDTH
    rows = [n for n in range(len(opcodes[True])) if opcodes[True][n : n + len(row)] == row]
    assert len(rows) == HIGH and opcodes[False] != opcodes[True]


def test_rows_that_nobody_reads_are_not_made():
    t, y, v, _ = drafted()
    del y.places[WIDE]
    assert {each.engine for each in t.write()} == {"norm"}
    opcodes = {each.opcode for each in t.program.instructions if each.engine.name == "norm"}
    assert opcodes == {NormOpcode.SOFTMAX}
