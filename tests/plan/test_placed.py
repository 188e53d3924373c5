"""A placed program: where arrays lie, which commands move them, and what is refused."""

import numpy as np
import pytest

from gradloom.rtl.machines.configs import LanguageConfig
from gradloom.rtl.machines.engines import GRADIENT
from gradloom.rtl.plan.program.placed import Place, PlacedProgram
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


def test_what_does_not_fit_is_refused():
    program = PlacedProgram(CONFIG)
    with pytest.raises(ValueError, match=r"words from 0 to 2147483648: must fit 32 bits"):
        program.put([0, 1 << 31])
    with pytest.raises(ValueError, match=r"array of \(3,\) words: must fill whole beats of 64 bits"):
        program.load(program.put([1, 2, 3]), "gradient", "x")
    with pytest.raises(ValueError, match="engine 'scale': this machine has linear, gradient, update, vector"):
        program.do("scale", 0)
