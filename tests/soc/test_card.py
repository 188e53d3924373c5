"""The firmware on its processor reads a memory card that answers as the specification says, and as broken ones do."""

import io
import random
import struct
import zlib

import pytest

from gradloom.firmware.chip.adapter_store import AdapterStore
from gradloom.firmware.chip.card import (
    ADAPTER,
    BLOCK,
    KEPT,
    CardError,
    Section,
    place,
    read_card,
    read_header,
    write_card,
)
from gradloom.firmware.chip.soc_image import build, compilers, image_text, source, sources_sum
from gradloom.sim.run.device import SimulationError
from gradloom.sim.run.soc import CARDS, SimulatedSoC

from .conftest import MEMORY

WEIGHTS = random.Random(1).randbytes(3 * BLOCK + 64)
OLD, NEW = random.Random(2).randbytes(192), random.Random(3).randbytes(256)
FIRST = place("weights", [WEIGHTS], 4096)
STORE = place("adapter", [NEW], FIRST.end, kind=ADAPTER)
LOADED = [
    "card: 2 sections",
    f"card: weights, {len(WEIGHTS)} bytes at 0x00001000",
    f"card: adapter, 256 bytes at 0x{STORE.offset + 64:08x}, number 1",
    "card: loaded",
]


@pytest.fixture
def soc(program):
    soc = SimulatedSoC(program, memory_bytes=MEMORY)
    yield soc
    soc.close()


@pytest.fixture(scope="module")
def impatient(tmp_path_factory):
    """The firmware, which waits less for what does not come."""
    found = compilers()
    if not found:
        pytest.skip("no RISC-V compiler is installed")
    folder = tmp_path_factory.mktemp("impatient")
    (folder / "board.h").write_text(
        f'#define GL_CARD_ROUNDS 5u\n#define GL_CARD_WAIT 200u\n#include "{source("soc_board.h")}"\n'
    )
    image = folder / "soc_image.mem"
    image.write_text(image_text(build(found[0], board_header=folder / "board.h"), found[0].name, sources_sum()))
    return image


def card(*sections):
    file = io.BytesIO()
    write_card(file, sections or (FIRST, STORE), memory_bytes=MEMORY)
    return file.getvalue()


def boot(soc):
    """What the UART says of the card."""
    lines = []
    while not lines or lines[-1] != "ready":
        lines.append(soc.hear())
    # Half a line may stand before it, if the processor was restarted.
    assert lines[0].endswith("gradloom: a=1")
    return lines[1:-1]


class Stored:
    """Where the adapter lies in a system's memory."""

    def __init__(self, soc):
        self.soc = soc

    def store(self, offset, values):
        self.soc.write_memory(offset, values)

    def fetch(self, offset, length):
        return self.soc.read_memory(offset, length)

    def adapters(self):
        return AdapterStore(self, STORE.offset, STORE.capacity)

    def find(self):
        found = self.adapters().find()
        return None if found is None else (found.sequence, found.data)


@pytest.mark.parametrize("kind, wait, rounds", [("large", 0, 0), ("large", 7, 3), ("standard", 1, 1), ("old", 2, 2)])
def test_a_card_is_loaded(soc, kind, wait, rounds):
    soc.insert(card(), card=CARDS[kind], card_wait=wait, card_rounds=rounds)
    assert boot(soc) == LOADED
    assert soc.read_memory(FIRST.offset, len(WEIGHTS)) == WEIGHTS
    assert Stored(soc).find() == (1, NEW)
    _, blocks, violations = soc.card()
    assert violations == 0
    # One command for a section: the card may have begun one more block when it is told to stop.
    assert 6 <= blocks <= 9


@pytest.mark.parametrize("kind, asleep, deaf", [("large", 1, 1), ("standard", 5, 0), ("large", 0, 5), ("old", 3, 2)])
def test_a_card_that_ignores_the_first_commands_is_loaded(soc, kind, asleep, deaf):
    soc.insert(card(), card=CARDS[kind], card_asleep=asleep, card_deaf=deaf)
    assert boot(soc) == LOADED
    assert soc.card()[2] == 0


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"card_asleep": 6}, "none"),
        ({"card_deaf": 6}, "error: the card does not take 3.3 V"),
        ({"card_deaf": 6, "card": CARDS["old"]}, "error: the card does not take 3.3 V"),
    ],
)
def test_a_card_that_answers_too_late_is_told(soc, settings, said):
    soc.insert(card(), **settings)
    assert boot(soc) == [f"card: {said}"]


def test_a_card_that_hangs_is_read_after_its_power_was_off(soc):
    """Its line stays low until it had no power for so many cycles: six words at the slow pace, on the board 100 ms."""
    soc.insert(card(), card_hung=3_500)
    assert boot(soc) == LOADED and soc.read_memory(FIRST.offset, len(WEIGHTS)) == WEIGHTS
    assert soc.card()[2] == 0  # no wire fed it meanwhile


def test_a_card_that_hangs_longer_is_told(soc):
    soc.insert(card(), card_hung=20_000)
    assert boot(soc) == ["card: error: the card does not reset"]


@pytest.mark.parametrize("how", ["rst", "restart"])
def test_a_reset_gives_the_slot_its_power_again(soc, how):
    soc.insert(card(), card_hung=1 << 40)
    while soc.powered():
        soc.spoken(200)
    soc.set("card_hung", 0)
    soc.set(how, 1)
    soc.spoken(1000)  # the button waits for four bytes on the card's line
    assert soc.powered()
    soc.set(how, 0)
    assert boot(soc) == LOADED


def test_stalls_change_nothing(soc):
    soc.set("stall", 100)
    soc.insert(card())
    assert boot(soc) == LOADED and soc.read_memory(FIRST.offset, len(WEIGHTS)) == WEIGHTS


def test_a_block_takes_no_more_than_the_line_needs(soc, program):
    """340 cycles for four bytes, of which the line takes 320."""
    soc.insert(card(place("x", [WEIGHTS[:BLOCK]], 4096)))
    boot(soc)
    other = SimulatedSoC(program, memory_bytes=MEMORY)
    other.insert(card(place("x", [random.Random(4).randbytes(9 * BLOCK)], 4096)))
    boot(other)
    other.close()
    assert (other.cycles - soc.cycles) / (8 * BLOCK / 4) < 360


@pytest.mark.parametrize(
    "kind, said",
    [
        ("none", "none"),
        ("multimedia", "error: this is no SD card"),
        ("wrong voltage", "error: the card does not take 3.3 V"),
        ("stuck", "error: the card does not reset"),
    ],
)
def test_what_is_no_card_for_us_is_told(soc, kind, said):
    soc.insert(card(), card=CARDS[kind])
    assert boot(soc) == [f"card: {said}"]
    assert soc.read_memory(FIRST.offset, 64) == bytes(64)


@pytest.mark.parametrize("flips, good", [(1, True), (2, True), (3, False)])
def test_a_block_that_arrives_damaged_is_read_again(soc, flips, good):
    soc.insert(card(), card_flip=3, card_flips=flips)
    assert boot(soc) == (LOADED if good else ["card: 2 sections", "card: error: weights: blocks arrive damaged"])
    if good:
        assert soc.read_memory(FIRST.offset, len(WEIGHTS)) == WEIGHTS


def test_a_block_that_the_card_cannot_read_is_told(soc):
    soc.insert(card(), card_token=4)
    assert boot(soc) == ["card: 2 sections", "card: error: weights: the card cannot read a block"]


def test_an_image_that_was_cut_is_told(soc):
    soc.insert(card()[: 3 * BLOCK])
    assert boot(soc) == ["card: 2 sections", "card: error: weights: the card refuses to read"]


@pytest.mark.parametrize("blocks", [4, 5])
def test_a_card_that_is_pulled_out_leaves_the_older_adapter(program, impatient, blocks):
    """After the first block of the adapter, or the second: the first that it begins to send is the header."""
    large = place("adapter", [random.Random(5).randbytes(3 * BLOCK)], 4096, kind=ADAPTER)
    soc = SimulatedSoC(program, memory_bytes=MEMORY, image=impatient)
    adapters = AdapterStore(Stored(soc), large.offset, large.capacity)
    adapters.write(OLD)
    soc.insert(card(large), card_mute=blocks)
    assert boot(soc) == ["card: 1 sections", "card: error: adapter: the card refuses to read"]
    assert soc.card()[1] == blocks and adapters.find().data == OLD
    started = large.offset + 64 + large.capacity + 64
    assert soc.read_memory(started, BLOCK) == large.parts[0][:BLOCK]
    soc.close()


def test_a_card_that_never_starts_is_told(program, impatient):
    soc = SimulatedSoC(program, memory_bytes=MEMORY, image=impatient)
    soc.insert(card(), card_rounds=1000)
    assert boot(soc) == ["card: error: the card does not start"]
    soc.close()


@pytest.mark.parametrize(
    "byte, said",
    [
        (0, ["card: error: gradloom card write did not write it"]),
        (4, ["card: error: its header is of another layout"]),
        (8, ["card: error: its header's sum is wrong"]),
        (40, ["card: error: its header's sum is wrong"]),
        (BLOCK - 1, ["card: error: its header's sum is wrong"]),
        (BLOCK + 700, ["card: 2 sections", "card: error: weights: its sum is wrong"]),
        (5 * BLOCK + 3, [*LOADED[:2], "card: error: adapter: its sum is wrong"]),
    ],
)
def test_a_damaged_image_is_told(soc, byte, said):
    Stored(soc).adapters().write(OLD)
    image = bytearray(card())
    image[byte] ^= 4
    soc.insert(bytes(image))
    assert boot(soc) == said
    assert Stored(soc).find() == (1, OLD)


#: Words of the second section, its place in the header, and what is said of it.
@pytest.mark.parametrize(
    "field, value, said",
    [
        (4, 5, "is of another kind"),
        (6, 2, "is of another kind"),
        (5, 0, "is outside the image"),
        (5, 6, "is outside the image"),
        (5, 1 << 30, "is outside the image"),
        (6, 1 << 31, "is outside the image"),
        (8, 0, "is outside the memory"),
        (8, 4100, "is outside the memory"),
        (8, 1 << 30, "is outside the memory"),
        (8, 0xFFFFFFC0, "is outside the memory"),
        (9, 1 << 29, "is outside the memory"),
        (9, 128, "is outside the memory"),
        (9, 260, "is outside the memory"),
    ],
)
def test_a_section_without_a_place_is_refused(soc, field, value, said):
    image = bytearray(card())
    struct.pack_into("<I", image, 32 + 40 + 4 * field, value)
    struct.pack_into("<I", image, 8, zlib.crc32(image[12:BLOCK]))
    soc.insert(bytes(image))
    assert boot(soc) == [*LOADED[:2], f"card: error: adapter: {said}"]


@pytest.mark.parametrize("how", ["rst", "restart"])
def test_a_reset_at_any_time_leaves_a_whole_adapter(soc, program, how):
    """In the middle of a card's stream, too: the card is not told of the reset. The button (``restart``) resets the
    processor alone."""

    def fresh():
        soc = SimulatedSoC(program, memory_bytes=MEMORY)
        Stored(soc).adapters().write(OLD)
        soc.insert(card(STORE))
        while soc.hear() != "card: 1 sections":
            pass
        return soc

    whole = fresh()
    before = whole.cycles
    while whole.hear() != "card: loaded":
        pass
    assert Stored(whole).find() == (2, NEW)
    took = whole.cycles - before
    whole.close()
    for part in range(1, 10):
        soc = fresh()
        with pytest.raises(SimulationError, match="silent"):
            soc.hear(took * part // 14)  # the rest is the UART's
        soc.set(how, 1)
        with pytest.raises(SimulationError, match="silent"):
            soc.hear(10)
        found = Stored(soc).find()
        assert found in ((1, OLD), (2, NEW)) and (part > 5 or found == (1, OLD))
        soc.set(how, 0)
        assert boot(soc)[-1] == "card: loaded"
        assert Stored(soc).find() == (found[0] + 1, NEW)
        soc.close()


def test_an_image_reads_back():
    first, store = read_card(card())
    assert (first.name, first.parts, first.offset) == ("weights", (WEIGHTS,), 4096)
    assert (store.name, store.parts, store.offset, store.capacity) == ("adapter", (NEW,), STORE.offset, 256)
    for cut, said in ((0, "not an image"), (BLOCK + 4, "section weights is damaged")):
        with pytest.raises(CardError, match=said):
            read_card(card()[:cut])
    with pytest.raises(CardError, match="the header is damaged"):
        read_card(card()[:100] + b"x" + card()[101:])


def test_room_for_what_a_job_learns_is_in_the_image_also_at_its_end():
    """A card with that room alone was an image without it, and no board could store there."""
    file = io.BytesIO()
    write_card(file, [Section(name="learnt", parts=(), offset=0, kind=KEPT, capacity=700)], memory_bytes=MEMORY)
    content = file.getvalue()
    ((area,), _) = read_header(content[:BLOCK])
    assert len(content) == area.start + area.size == BLOCK + 2 * 1024 and not any(content[BLOCK:])


@pytest.mark.parametrize(
    "sections, said",
    [
        ([Section(name="seventeen letters", parts=(), offset=4096)], "name='seventeen letters': must be 1 to 16"),
        ([Section(name="a", parts=(), offset=64)], "offset=64 of a: must be a multiple of 64, at least 4096"),
        ([Section(name="a", parts=(NEW,), offset=4096, kind=ADAPTER, capacity=64)], "capacity=64 of a: must be"),
        (
            [Section(name="a", parts=(bytes(MEMORY),), offset=4096)],
            "a ends at byte 1,052,672 of memory: there are 1,048",
        ),
        ([FIRST, Section(name="b", parts=(NEW,), offset=FIRST.end - 64)], "b and weights overlap in memory"),
        ([Section(name="a", parts=(), offset=4096)] * 13, "at most 12, not 13"),
    ],
)
def test_what_has_no_place_on_a_card_is_refused(sections, said):
    with pytest.raises(ValueError, match=said):
        write_card(io.BytesIO(), sections, memory_bytes=MEMORY)
