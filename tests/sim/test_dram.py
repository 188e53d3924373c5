"""Times of DRAMs: what the bench takes, what boards have. ``test_perf.py`` has a forecast with one beside the RTL."""

import dataclasses

import pytest

from gradloom import boards
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.sim.run.memory import dram_of
from gradloom.sim.time.shell.dram import Dram, DramTime

FIELDS = {"refresh_every": 1000, "refresh_for": 100, "beat": 128, "turn": 5, "miss": 7, "page": 12, "bank": 3}


def test_a_word_has_all_fields():
    each = Dram(**FIELDS)
    assert Dram.of(each.word) == each and Dram.of(0) is None
    assert each.word & 0xFFFF == 1000 and each.word >> 58 == 3 and each.word < 1 << 61


@pytest.mark.parametrize(
    "field, value, most",
    [("turn", 256, 255), ("refresh_every", 1 << 16, 65535), ("beat", 257, 256), ("bank", 5, 4), ("miss", -1, 255)],
)
def test_fields_have_bounds(field, value, most):
    with pytest.raises(ValueError, match=f"{field}={value}: must be .*{most}"):
        Dram(**FIELDS | {field: value})
    with pytest.raises(ValueError, match="refresh_for=1000: must be less than refresh_every=1000"):
        Dram(**FIELDS | {"refresh_for": 1000})


def test_bursts_wait_for_bus_page_and_refresh():
    """By hand: 16 beats keep the bus for 8 cycles; pages of 4 KB are 256 beats of 16 bytes."""
    time = DramTime(Dram(**FIELDS), 16)
    assert time.read(100, 0, 16, 40) == 7  # a closed page
    assert time.read(101, 16, 16, 40) == 14  # the bus is free at 155
    time.write(300, 0, 0, 16)
    assert time.read(301, 32, 16, 0) == 12  # the write ends at 308, the bus turns round until 313
    assert time.read(500, 8 * 256, 16, 0) == 7  # another page of the same bank
    assert time.read(600, 256, 16, 0) == 7  # in another bank
    assert time.read(950, 8 * 256, 16, 60) == 1100 - 1010  # in the refresh before 1,100, which closes the page
    assert time.read(1200, 8 * 256, 16, 0) == 0  # it is open again
    assert time.read(1250, 256, 16, 0) == 7  # the refresh closed this one, too
    assert time.read(2250, 8 * 256, 16, 0) == 7  # after a long rest


def test_a_boards_dram_in_cycles():
    """A port of 16 bytes at 200 MHz takes a sixth of 19.2 GB/s."""
    assert dram_of("kv260", ImageConfig()) == Dram(1560, 70, 43, 3, 6, 13, 3)
    assert dram_of(None, ImageConfig()) is None
    with pytest.raises(ValueError, match="board=ulx3s: no DRAM with known times"):
        dram_of("ulx3s", ImageConfig())
    with pytest.raises(ValueError, match="clock_mhz=250: a port of 256 bits is faster .*; must be at most 225"):
        boards.find("genesys2").dram_cycles(clock_mhz=250, port_bits=256)


@pytest.mark.parametrize("field, value", [("page_bytes", 6000), ("banks", 0)])
def test_pages_and_banks_are_powers_of_two(field, value):
    with pytest.raises(ValueError, match=f"{field}={value}: must be a power of two"):
        dataclasses.replace(boards.find("kv260").dram, **{field: value})
