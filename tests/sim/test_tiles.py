"""Records of tiles in time: their steps, one behind the other, and their waits for room."""

from types import SimpleNamespace

import pytest

from gradloom.rtl.formats.tiles.records import tile_argument
from gradloom.sim.time.shell.shell import FIFO
from gradloom.sim.time.tiles import TileRecords

#: From a beat's last step to STORE.
MADE = 6 + FIFO


def records(*shapes, codes=8):
    """Rows, features and whether codes have 16 bits, of each STORE; ``codes``: what the engine gives in a step."""
    commands = [
        SimpleNamespace(operands={"arg": tile_argument(0, rows, features, wide=wide), "source": 5})
        for rows, features, wide in shapes
    ]
    queue = TileRecords(SimpleNamespace(commands=commands))
    queue.codes[5] = codes
    return queue


@pytest.mark.parametrize(
    "shape, codes, steps",
    [
        ((3, 20, True), 8, [13, 15, 16, 18, 19, 21, 22]),
        ((2, 20, True), 16, [13, 14, 15, 16, 17]),
        ((2, 40, False), 16, [13, 15, 16, 18, 19]),
        ((2, 40, True), 8, [13, 15, 17, 18, 20, 22, 23]),
        ((2, 8, False), 8, [13, 14, 15]),
    ],
)
def test_a_header_then_beats_by_their_steps(shape, codes, steps):
    """A step a cycle, from the third cycle on; two of a beat of more codes than the engine gives."""
    queue = records(shape, codes=codes)
    assert queue.alone and queue.ready(0) == 0
    queue.ahead(0, 10)
    assert list(queue.times) == [step + MADE for step in steps]
    assert (queue.ready(7), queue.ready(12)) == (10, 12)


@pytest.mark.parametrize("asked, taken, first", [(11, 14, 18), (16, 16, 19), (30, 30, 33)])
def test_the_next_record_follows_the_last_step(asked, taken, first):
    """Its request is taken when the header before is made."""
    queue = records((2, 32, True), (1, 8, False), codes=16)
    queue.ahead(0, 10)
    assert [time - MADE for time in queue.times] == [13, 14, 15, 16, 17]
    queue.ahead(1, asked)
    assert queue.ready(0) == taken
    assert [time - MADE for time in queue.times][5:] == [first, first + 1]


def test_no_beat_is_made_without_room():
    queue = records((30, 8, False))
    queue.ahead(0, 0)
    assert [time - MADE for time in queue.times] == list(range(3, 19))
    for cycle in (12, 40):
        queue.take(cycle)
    # A place is free in the cycle behind.
    assert [time - MADE for time in queue.times][-3:] == [18, 19, 41]
