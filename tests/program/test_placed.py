"""A placed program: where arrays lie, which commands move them, and what is refused."""

import numpy as np
import pytest

from gradloom.program.placed import Place, PlacedProgram
from gradloom.rtl.formats.tiles.records import tile_argument
from gradloom.rtl.machines.configs.diffusion import DiffusionConfig
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.machines.diffusion import NORM
from gradloom.rtl.machines.language import GRADIENT
from gradloom.rtl.shell.engines import LOAD, STORE

CONFIG = LanguageConfig(edge=16, columns=4, outputs=2, dots=1, rank=4, tokens=8, features=256, head=16)


def test_arrays_lie_behind_each_other_and_the_program_behind_them():
    program = PlacedProgram(CONFIG)
    x = program.put(np.arange(-6, 6).reshape(3, 4))
    y = program.room(5, 4)
    assert (x, y, y[2]) == (Place(0, (3, 4)), Place(64, (5, 4)), Place(96, (4,)))
    program.load(x, "gradient", "x", post=(3,))
    program.do("gradient", 0, tiles=1, tokens=2, rank=2, slot=0, shift=0)
    program.store(y[1], "gradient", "gradients", wait=(3,))
    program.end()
    load, gradient, store, _ = program.instructions
    assert (load.engine, load.operands["beats"], load.post, gradient.engine) == (LOAD, 6, (3,), GRADIENT)
    assert load.operands["dest"] == GRADIENT.load("x")
    assert (store.engine, store.operands["offset"], store.operands["beats"]) == (STORE, 80, 2)
    assert store.operands["source"] == GRADIENT.store("gradients") and store.wait == (3,)
    (at, content), (behind, code) = program.contents()
    assert (at, behind, code) == (0, 4096, program.code) and program.length == 4096 + 4 * 32
    assert np.array_equal(x.words(content), np.arange(-6, 6).reshape(3, 4))


def test_a_store_may_fill_a_slot():
    program = PlacedProgram(DiffusionConfig())
    place = program.room(1032)
    shape = {"arg": tile_argument(1, 64, 32, wide=True), "to_arg": tile_argument(5, 64, 32)}
    program.store(place, "element", "o", **shape, to=("norm", "b"), post=(2,))
    program.store(program.room(1032), "element", "o", **shape, to=("norm", "b"), only=True)
    both, only = (each.operands for each in program.instructions)
    assert (both["offset"], both["beats"], both["to"]) == (0, 129, NORM.load("b")) and both["to"].engine == "norm"
    assert (both["to_arg"], both["forward"], both["only"]) == (shape["to_arg"], 1, 0)
    # What is left out of memory is anywhere.
    assert (only["offset"], only["beats"], only["forward"], only["only"]) == (0, 129, 1, 1)
    assert program.instructions[0].post == (2,)
    # The command's words, as a machine reads them.
    words = np.frombuffer(program.code, "<u4").reshape(2, 8)
    assert words[1].tolist()[3:] == [0, 129 | 1 << 24, shape["arg"], shape["to_arg"], int(NORM.load("b")) | 3 << 8]


@pytest.mark.parametrize(
    "forwards, more, why",
    [
        (
            1,
            {"to": ("norm", "gain")},
            "to=norm.gain: takes no forwards; must be one of product.x, product.w, element.a",
        ),
        (0, {"to": ("norm", "a")}, "to=norm.a: this machine has no forwards; set forwards=1"),
        (1, {"only": True}, "only: a STORE that leaves memory as it is must have a load port, to"),
    ],
)
def test_forwards_that_no_port_takes_are_refused(forwards, more, why):
    program = PlacedProgram(DiffusionConfig(forwards=forwards))
    with pytest.raises(ValueError, match=why):
        program.store(program.room(1032), "element", "o", **more)


def test_what_does_not_fit_is_refused():
    program = PlacedProgram(CONFIG)
    with pytest.raises(ValueError, match=r"words from 0 to 2147483648: must fit 32 bits"):
        program.put([0, 1 << 31])
    with pytest.raises(ValueError, match=r"array of \(3,\) words: must fill whole beats of 64 bits"):
        program.load(program.put([1, 2, 3]), "gradient", "x")
    with pytest.raises(ValueError, match="engine 'scale': this machine has linear, gradient, update, vector"):
        program.do("scale", 0)


def test_rows_of_an_array_end_where_it_does():
    place = Place(64, (5, 2, 4))
    assert (place.length, place.rows(1, 3)) == (160, Place(96, (2, 2, 4)))
    assert place.rows(3, 9) == Place(160, (2, 2, 4)) and place[2] == Place(128, (2, 4))
    assert place[2][1] == Place(144, (4,))


def test_words_of_32_bits_are_held_to_the_last():
    program = PlacedProgram(CONFIG, first=100)
    low, high = -(1 << 31), (1 << 31) - 1
    place = program.put([low, high])
    assert place == Place(128, (2,)) and place.words(program.arrays[0][1]).tolist() == [low, high]
    with pytest.raises(ValueError, match=r"words from -2147483649 to 0: must fit 32 bits"):
        program.put([low - 1, 0])
    assert program.put(np.zeros(0)).length == 0
