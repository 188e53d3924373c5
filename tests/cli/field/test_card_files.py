"""A card as a file: how it is opened, here and in a board."""

import contextlib

import numpy as np
import pytest

from gradloom.boards.links import cards, monitor
from gradloom.cli.field.cards import any_card, card_file
from gradloom.cli.field.installing import install
from gradloom.delivery.manifest import KEYS, SIGNED, SIZE, WORDS, Manifest
from gradloom.firmware.chip.card import CardError

from ...firmware.chip.deliver import base_of, fresh_card


def test_a_card_is_read_unless_it_is_to_be_written(tmp_path):
    card = tmp_path / "card.img"
    card.write_bytes(bytes(512))
    with card_file(card) as file:
        assert file.mode == "rb" and not file.writable()
    with card_file(card, write=True) as file:
        assert file.mode == "rb+" and file.write(b"x") == 1
    with any_card(card, None, baud=None) as file:
        assert not file.writable() and file.read(1) == b"x"
    with any_card(card, None, baud=None, write=True) as file:
        assert file.writable()


@pytest.mark.parametrize("write, more", [(False, ""), (True, ", which can be written")])
def test_what_is_no_card_is_named(tmp_path, write, more):
    with pytest.raises(ValueError, match=f"none.img: .*: name the card's device or its image{more}$"):
        with card_file(tmp_path / "none.img", write=write):
            raise AssertionError
    (tmp_path / "card.img").write_bytes(bytes(512))
    with pytest.raises(ValueError, match="card.img: has no table"):
        with card_file(tmp_path / "card.img", write=write):
            raise CardError("has no table")


@pytest.mark.parametrize("asked, used", [(None, monitor.BAUD), (9600, 9600)])
def test_a_board_is_asked_at_the_rate_that_is_named_or_the_usual_one(monkeypatch, asked, used):
    rates = []

    @contextlib.contextmanager
    def port(name, baud):
        rates.append((name, baud))
        yield "line"

    monkeypatch.setattr(monitor, "open_port", port)
    monkeypatch.setattr(cards, "SerialCard", lambda line, tell: (line, tell))
    with any_card(None, "/dev/ttyUSB0", baud=asked) as file:
        assert file == ("line", None)
    assert rates == [("/dev/ttyUSB0", used)]
    with pytest.raises(ValueError, match="baud=9600: must be left out without --port"):
        with any_card("card.img", None, baud=9600):
            raise AssertionError
    for both in ((None, None), ("card.img", "/dev/ttyUSB0")):
        with pytest.raises(ValueError, match="card, port: give one of them"):
            with any_card(*both, baud=None):
                raise AssertionError


def package(card, *, kind=WORDS, base=None, version=1, payload=b"words", cut=0, **more):
    """A package that nobody has signed, which is a board's to look at."""
    base = base_of(card) if base is None else base
    fields = {"key": bytes(32), "payload_bytes": len(payload), "payload": bytes(32), "base": base}
    made = Manifest(kind=kind, version=version, **fields | more).signed()
    return made + bytes(SIZE - SIGNED) + payload[: len(payload) - cut]


@pytest.mark.parametrize(
    "wrong, says",
    [
        ({}, None),
        ({"kind": KEYS, "base": bytes(32)}, None),
        ({"base": b"\1" * 32}, "base=.*: must be 0101010101010101…; name the card it was made for"),
        ({"parent": b"\1" * 32}, "parent: the package changes another adapter than the card has"),
        ({"kind": 1}, "is not for boards; sign it with --card"),
        ({"version": 0}, "version=0: must be above 0, which was installed"),
        ({"cut": 1}, f"has {SIZE + 4} bytes, must have {SIZE + 5}"),
    ],
)
def test_a_card_takes_what_was_made_for_it(tmp_path, wrong, says):
    """Words for this base; a key list has none. What is refused leaves the card as it was."""
    card = fresh_card(np.arange(160))
    (tmp_path / "card.img").write_bytes(card)
    (tmp_path / "one.pkg").write_bytes(package(card, **wrong))
    if says is None:
        said = install(tmp_path / "one.pkg", card=tmp_path / "card.img")
        assert (said["version"], said["said"], said["base"]) == (1, None, base_of(card).hex())
        assert (tmp_path / "card.img").read_bytes() != card
    else:
        with pytest.raises(ValueError, match=says):
            install(tmp_path / "one.pkg", card=tmp_path / "card.img")
        assert (tmp_path / "card.img").read_bytes() == card
