"""Where sections of a card lie in memory."""

import pytest

from gradloom.firmware.chip.adapter_store import HEADER_BYTES
from gradloom.firmware.chip.card import ADAPTER, PLAIN, Section, place

#: Bytes of a unit, of which a section has whole ones.
UNIT = 64


@pytest.mark.parametrize("start, offset", [(0, 0), (1, 4096), (4095, 4096), (4096, 4096), (4097, 8192), (12289, 16384)])
def test_a_section_begins_at_the_next_multiple_of_4_kb(start, offset):
    made = place("weights", [b"abc", b"de"], start)
    assert made == Section(name="weights", parts=(b"abc", b"de"), offset=offset, kind=PLAIN, capacity=0)


@pytest.mark.parametrize("size, room", [(0, UNIT), (1, UNIT), (64, 64), (65, 128)])
def test_an_adapters_store_has_the_room_that_it_needs(size, room):
    """In whole units, and one of nothing has room for one."""
    made = place("adapter", [bytes(size)], 4097, kind=ADAPTER)
    assert (made.offset, made.kind, made.capacity) == (8192, ADAPTER, room)
    assert made.end == 8192 + 2 * (HEADER_BYTES + room)
    made.check(made.end)
    with pytest.raises(ValueError, match="adapter ends at byte"):
        made.check(made.end - 1)
