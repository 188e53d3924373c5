"""What a card says that is installed, block by block, and requests as they lie in its inbox."""

import io
import struct
import zlib

import pytest

from gradloom.firmware.chip.card import BLOCK, PARTS, CardError, Entry
from gradloom.firmware.chip.delivered import Area, DeliveryRequest, Installed, StorePlace

IMAGE, NONE = 0x1234, 2
AREA = Area(
    entry=Entry(name="delivery", kind=0, start=4 * BLOCK, size=PARTS * 2 * BLOCK, total=0, offset=0, capacity=0),
    image=IMAGE,
)
OLD, NEW = StorePlace(3, 30, b"o" * 32), StorePlace(4, 40, b"n" * 32)


def state(sequence=1, current=0, places=(NEW, OLD), magic=b"GLDS", layout=1, image=IMAGE, trial=0):
    """A block of a state, with versions 9 and 2, request 7 and keys of version 5."""
    head = struct.pack("<4s9I", magic, layout, sequence, image, current, 9, 2, 7, 5, 0)
    head += b"".join(struct.pack("<2I32s", each.version, each.total, each.result) for each in places)
    head = head.ljust(500, b"\0") + struct.pack("<I", trial)
    head = head.ljust(BLOCK - 4, b"\0")
    return head + zlib.crc32(head).to_bytes(4, "little")


def found(*states):
    """What is installed by the states of a card, in parts 3 and 4."""
    card = bytearray((4 + PARTS * 2) * BLOCK)
    for number, block in enumerate(states, 3):
        at = (4 + 2 * number) * BLOCK
        card[at : at + len(block)] = block
    return AREA.state(io.BytesIO(bytes(card)))


@pytest.mark.parametrize(
    ("current", "places", "wanted"),
    [
        (0, (NEW, OLD), (NEW, OLD)),
        (1, (OLD, NEW), (NEW, OLD)),
        (0, (NEW, StorePlace(0, 0, bytes(32))), (NEW, None)),
        (NONE, (NEW, OLD), (None, None)),
    ],
)
def test_a_state_has_the_place_in_use_and_the_other(current, places, wanted):
    got = found(state(current=current, places=places))
    assert (got.current, got.older, got.trial) == (*wanted, False)
    assert (got.sequence, got.highest, got.least, got.request, got.keys_version) == (1, 9, 2, 7, 5)
    assert found(state(trial=1)).trial and found(state(trial=1 << 24)).trial


@pytest.mark.parametrize(
    "block",
    [state(magic=b"GLDT"), state(layout=2), state(image=1), state(current=3), bytes(BLOCK), state()[:-1] + b"?"],
)
def test_another_block_is_no_state(block):
    assert found(block) == Installed()


@pytest.mark.parametrize(("one", "other", "newest"), [(1, 2, 2), (2, 1, 2), (2**32 - 1, 0, 0), (0, 2**32 - 1, 0)])
def test_the_newest_of_two_states_counts(one, other, newest):
    """Numbers go round."""
    assert found(state(one), state(other)).sequence == newest
    assert found(state(one), b"").sequence == one and found(bytes(BLOCK), state(other)).sequence == other


def test_a_request_lies_in_the_inbox_in_whole_blocks():
    card = io.BytesIO(b"\xff" * (4 + PARTS * 2) * BLOCK)
    AREA.ask(card, DeliveryRequest.INSTALL, 8, b"package")
    head = struct.pack("<4s3I", b"GLDQ", 1, 8, 7)
    content = card.getvalue()
    assert content[4 * BLOCK : 5 * BLOCK] == (head + zlib.crc32(head).to_bytes(4, "little")).ljust(BLOCK, b"\0")
    assert content[5 * BLOCK : 6 * BLOCK] == b"package".ljust(BLOCK, b"\0") and set(content[6 * BLOCK :]) == {255}
    AREA.ask(card, DeliveryRequest.ROLLBACK, 9, bytes(AREA.room))
    with pytest.raises(CardError, match="^package: has 513 bytes, the card's inbox 512; sign it with fewer bits$"):
        AREA.ask(card, DeliveryRequest.INSTALL, 8, bytes(AREA.room + 1))
