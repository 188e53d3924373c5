"""What a card says of its job, and the words that an adapter becomes."""

import json

import numpy as np
import pytest

from gradloom.firmware.chip.card import NOTE, PLAIN, CardError, Section, write_card
from gradloom.rtl.formats.weights.tiles import untile_rows
from gradloom.systems.text.card.words import BoardWords, read_board

WORDS = bytes(range(64)) * 2
ABOUT = {
    "method": "instantft",
    "state": 520,
    "words": 100,
    "adapters": {
        "x.a": {"offset": 0, "bytes": 512, "frac": 4, "most": 100},
        "x.b": {"offset": 512, "bytes": 512, "frac": -1, "most": 7},
    },
}


def card(path, *sections):
    """An image of sections of a name, their bytes, and a kind; a note has no place in memory."""
    made = [
        Section(name=name, parts=(data,), offset=4096 * n * (kind != NOTE), kind=kind)
        for n, (name, data, kind) in enumerate(sections, 1)
    ]
    with open(path, "w+b") as file:
        write_card(file, made, memory_bytes=1 << 16)
    return open(path, "rb")


def test_a_card_is_read_from_its_first_byte(tmp_path):
    """Whoever has read from it before."""
    note = ("note", json.dumps(ABOUT).encode(), NOTE)
    with card(tmp_path / "card", note, ("words", WORDS, PLAIN), ("more", b"more", PLAIN)) as file:
        file.seek(77)
        found = read_board(file)
        file.seek(0)
        assert found.block == file.read(512)
    assert (found.about, found.words, found.exact) == (ABOUT, WORDS[:100], 130)


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ([("words", WORDS, PLAIN)], "has no fine-tune"),
        ([("note", b"{}", NOTE)], "has no fine-tune"),
        ([("note", b'{"a": 1}', NOTE), ("words", WORDS, PLAIN)], "has no room for signed adapters"),
    ],
)
def test_a_card_of_something_else_is_refused(tmp_path, sections, said):
    with card(tmp_path / "card", *sections) as file, pytest.raises(CardError, match=said):
        read_board(file)


def test_words_of_an_adapter_are_in_tiles_and_exponents_stay():
    """Rounded to the fraction bits of the job; a value beyond its exponent, and one of another size, are refused."""
    values = {"x.a": np.array([[1.03, -6.25]]), "x.b": np.array([[14.2, -6]])}

    class Given(BoardWords):
        def _blocks(self, adapter):
            return {name: np.tile(each, (1, 32)) for name, each in values.items()}

    held = bytes(1024) + b"rest"
    places = {name: each | {"bytes": 256, "offset": each["offset"] // 2} for name, each in ABOUT["adapters"].items()}
    job = Given(ABOUT | {"adapters": places}, b"", held)
    found = job.of("x").tobytes()
    assert found[512:] == held[512:] and len(found) == len(held)
    assert untile_rows(found[:256], 1, 64, 64).tolist() == [[16, -100] * 32]
    assert untile_rows(found[256:512], 1, 64, 64).tolist() == [[7, -3] * 32]
    values["x.a"] = np.array([[1.0, -6.3]])
    with pytest.raises(ValueError, match="a value of x.a is beyond the card's exponents"):
        job.of("x")
    values["x.a"] = np.ones((1, 4))
    with pytest.raises(ValueError, match="x.a has .* bytes, the card's job 256"):
        job.of("x")
