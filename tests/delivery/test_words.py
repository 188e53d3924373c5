"""Words of a board's adapter, contents and manifests: their bytes, and what is refused of them."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

from gradloom.delivery.board import read_parent
from gradloom.delivery.content import Content, parse_table
from gradloom.delivery.keys import parse_keys, read_signer, write_keys
from gradloom.delivery.manifest import SIGNED, WORDS, Manifest
from gradloom.delivery.words import GROUP, decode, encode

OTHER = "payload: has other words than the card; name the card that it was signed for"
MANIFEST = Manifest(kind=WORDS, version=1, key=bytes(32), payload_bytes=3, payload=bytes(32), scale=1.0)


def test_groups_are_zero_plain_or_codes_with_a_shift():
    words = np.zeros(4 * GROUP, np.int32)
    words[GROUP : 2 * GROUP] = np.arange(-32, 32) * 8
    words[2 * GROUP :] = np.arange(2 * GROUP)
    coded = encode(words, 8, exact=3 * GROUP + 1)
    eights, plain, end = 1, 1 + 2 * (1 + GROUP), 1 + 2 * (1 + GROUP) + 1 + 4 * GROUP
    assert (len(coded), coded[0], coded[eights], coded[eights + 1 + GROUP], coded[plain]) == (end, 0, 0x82, 0x80, 0xFF)
    assert np.frombuffer(coded[eights + 1 :][:GROUP], np.int8).tolist() == [2 * each for each in range(-32, 32)]
    assert np.frombuffer(coded[plain + 1 :], "<i4").tolist() == list(range(GROUP, 2 * GROUP))
    assert np.array_equal(decode(coded, len(words)), words)
    # The group that ends there is not beyond it.
    assert encode(words, 8, exact=4 * GROUP)[plain] == 0x80 and encode(words, 8, exact=4 * GROUP - 1)[plain] == 0xFF


def test_four_bits_are_two_words_a_byte():
    words = np.arange(-32, 32) * 10
    coded = encode(words, 4)
    # Codes to 7 of words to 320: shifted by 6.
    assert coded[0] == 0x46 and len(coded) == 1 + GROUP // 2
    assert coded[1] == (np.rint(-320 / 64).astype(int) & 15) | (np.rint(-310 / 64).astype(int) & 15) << 4
    assert decode(coded, GROUP).tolist() == (np.rint(words / 64).astype(int) * 64).tolist()
    most = encode(np.full(GROUP, 15), 4)
    assert most[0] == 0x41 and decode(most, GROUP).tolist() == [14] * GROUP
    assert decode(encode(np.full(16, -9), 8), 16).tolist() == [-9] * 16


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (b"", 16),
        (encode(np.ones(16), 32)[:-1], 16),
        (encode(np.ones(16), 8)[:-1], 16),
        (encode(np.ones(16), 4)[:-1], 16),
        (encode(np.ones(16), 8) + b"\0", 16),
        (encode(np.ones(GROUP + 16), 8), GROUP),
        (encode(np.ones(GROUP), 8), GROUP + 16),
    ],
)
def test_other_words_are_refused(payload, count):
    with pytest.raises(ValueError, match=OTHER):
        decode(payload, count)


def test_bits_are_those_that_a_board_reads():
    with pytest.raises(ValueError, match="^bits=3: must be one of 32, 8, 4 for a board$"):
        encode(np.ones(16), 3)


def test_a_manifest_is_read_as_it_was_written():
    signed = MANIFEST.signed()
    assert len(signed) == SIGNED and Manifest.read(signed) == MANIFEST
    for fault in ({"scale": np.inf}, {"bound": np.inf}, {"scale": np.nan}):
        with pytest.raises(ValueError, match="^manifest: scale=.*, bound=.*: must be finite; get the package again$"):
            Manifest.read(replace(MANIFEST, **fault).signed())
    with pytest.raises(ValueError, match="^manifest: unused bytes are not zero; get the package again$"):
        Manifest.read(signed[:-1] + b"\1")
    with pytest.raises(ValueError, match="^format=1, kind=5: this gradloom reads format 1, kinds 1 to 4$"):
        Manifest.read(replace(MANIFEST, kind=5).signed())
    with pytest.raises(ValueError, match="^format=2, kind=4: "):
        Manifest.read(signed[:8] + b"\2\0" + signed[10:])
    with pytest.raises(ValueError, match="^package: is none of gradloom's: it must begin with GRADLOOM; name another"):
        Manifest.key_of(b"GRADLOO" + signed[8:])


def test_a_table_is_read_as_it_was_written():
    tensors = {f"model.layers.{n}.{name}": np.zeros((2, 3), np.float32) for n in (10, 9, 0) for name in ("b", "a")}
    made = Content({"r": 2}, {**tensors, "last": np.ones((4,), np.float32)})
    config, shapes, end = parse_table(made.table() + b"more")
    assert (config, made.layers, len(made.table()) % 64, end) == ({"r": 2}, 3, 0, len(made.table()))
    assert list(shapes) == ["last", *(f"model.layers.{n}.{name}" for name in "ab" for n in (0, 9, 10))]
    assert [name for name, _ in made.ordered()] == list(shapes) and shapes["last"] == (4,)
    with pytest.raises(ValueError, match=r"^adapter: has 1 tensors: must be below 65536, no \* in their names$"):
        Content({}, {"a*": np.zeros(1)}).table()
    with pytest.raises(ValueError, match="^adapter: has 65536 tensors: must be below 65536"):
        Content({}, dict.fromkeys(map(str, range(65536)), np.zeros(1))).table()


@pytest.mark.parametrize(
    "held",
    [
        {"config": {}, "tensors": [["a", [0], []]]},
        {"config": {}, "tensors": [["a", [2.0], []]]},
        {"config": [], "tensors": []},
        {"config": {}},
        {"config": {}, "tensors": [[1, [2], [3]]]},
        [],
    ],
)
def test_another_table_is_refused(held):
    text = json.dumps(held).encode()
    with pytest.raises(ValueError, match="^payload: its table is not as gradloom writes it; get the package again$"):
        parse_table(len(text).to_bytes(4, "little") + text)
    whole = Content({}, {"a": np.ones(1)}).table()
    with pytest.raises(ValueError, match="its table is not"):
        parse_table((len(whole) - 3).to_bytes(4, "little") + whole[4:])


def test_key_lists_have_a_state_a_key():
    one, two = bytes(range(32)), bytes(range(1, 33))
    written = write_keys([two], [one])
    assert written == b"\2" + one + b"\1" + two and parse_keys(written) == ({two}, {one})
    with pytest.raises(ValueError, match=f"^revoke={one.hex()[:16]}…: is trusted in the same list; leave it out of"):
        write_keys([one], [two, one])
    for wrong in (written[:-1], b"\3" + written[1:], b"\0" + written[1:]):
        with pytest.raises(ValueError, match="^key list: must be 33 bytes a key, of state 1 or 2; get it again$"):
            parse_keys(wrong)


@pytest.mark.parametrize("mode", (0o640, 0o601, 0o604, 0o620))
def test_a_secret_key_is_its_owner_s_alone(tmp_path, mode):
    key = tmp_path / "root"
    key.write_text(f"gradloom secret key {'0' * 128}\n")
    key.chmod(mode)
    with pytest.raises(ValueError, match=f"others may use it \\(mode {mode:o}\\), at most 600; chmod 600 "):
        read_signer(key)


def test_a_parent_is_a_package_of_words_that_is_no_change(tmp_path):
    words = np.arange(16, dtype="<i4")
    payload = encode(words, 32)
    whole = replace(MANIFEST, result=hashlib.sha256(words.tobytes()).digest())

    def read(manifest, payload=payload):
        (tmp_path / "a.pkg").write_bytes(manifest.signed() + bytes(64) + payload)
        return read_parent(tmp_path / "a.pkg", 16)

    assert np.array_equal(read(whole), words)
    for manifest in (replace(whole, kind=1), replace(whole, parent=bytes(31) + b"\1")):
        with pytest.raises(ValueError, match="must be a package of gradloom package sign --card, no change of another"):
            read(manifest)
    with pytest.raises(ValueError, match="must be a package of gradloom package sign"):
        read(whole, b"")
    with pytest.raises(ValueError, match="a.pkg: is damaged; get it again$"):
        read(whole, encode(words + 1, 32))
