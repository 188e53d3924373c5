"""Commands of the vector engine with their loads and stores: what they wait for and what they tell, once."""

import pytest

from gradloom.rtl.formats.vector import VectorOpcode
from gradloom.rtl.machines.language import VECTOR
from gradloom.rtl.shell.engines import LOAD, STORE
from gradloom.systems.text.program.engines.side import SideTensor, vector

from ..conftest import CONFIG

A, B, MADE_O, MADE_Q = (SideTensor(offset=n << 16) for n in range(4))
END = SideTensor(offset=5 << 16, beats=3)
#: What leaves: nothing, results with each beat, some behind all operands, or both.
MADE = {
    "none": {},
    "o": {"o": MADE_O},
    "o and q": {"o": MADE_O, "q": MADE_Q},
    "sums": {"q": END},
    "o and sums": {"o": MADE_O, "q": END},
}


@pytest.mark.parametrize("limit", [8, 24, 1000])
@pytest.mark.parametrize("made", MADE)
def test_the_first_load_waits_and_the_last_that_leaves_tells(made, limit):
    opcode, operands = VectorOpcode.NORM_BACKWARD, {"tiles": 3, "tokens": 4}
    row = CONFIG.edge // CONFIG.beat_words
    pieces = vector(opcode, operands, CONFIG, a=A, b=B, **MADE[made], limit=limit, wait=(7,), post=(9,))
    loads, stores = (
        [each for piece in pieces for each in part(piece) if each.engine == engine]
        for part, engine in ((lambda piece: piece.instructions, LOAD), (lambda piece: piece.stores, STORE))
    )
    (command,) = (each for piece in pieces for each in piece.instructions if each.engine == VECTOR)
    every = [*loads, command, *stores]
    assert [each for each in every if each.wait] == loads[:1] and loads[0].wait == (7,)
    last = stores[-1] if stores else command
    assert [each for each in every if each.post] == [last] and last.post == (9,)
    total = 3 * 4 * row
    beats = [sum(each.operands["beats"] for each in some) for some in (loads, stores)]
    assert beats == [2 * total, sum(total if each.beats is None else each.beats for each in MADE[made].values())]
    assert len(pieces) == 1 or all(piece.read <= limit for piece in pieces)
