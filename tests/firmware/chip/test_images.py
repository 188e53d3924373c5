"""Images of the firmware as texts of words, and the key that they trust."""

import pytest

from gradloom.firmware.chip.soc_image import memory_text, read_image, trusting


def test_an_image_is_read_with_its_notes(tmp_path):
    path = tmp_path / "image.mem"
    path.write_text("// main: tuner\n// no note\n// made by: nobody, x: y\n01020304\n0000ff00\n")
    assert read_image(path) == ({"main": "tuner"}, bytes([4, 3, 2, 1, 0, 0xFF, 0, 0]))


def test_a_key_is_put_where_the_firmware_has_its_place():
    words, key = memory_text(), bytes(range(32))
    made = trusting(words, key)
    before, after = (b"".join(int(line, 16).to_bytes(4, "little") for line in text.split()) for text in (words, made))
    at = after.index(key)
    assert after[:at] == before[:at] and after[at + 32 :] == before[at + 32 :] and before.count(after[at - 16 : at])
    assert made.count("\n") == words.count("\n") and len(after) == len(before)
    for text, given in ((words, key[:-1]), (words, key + b"\0"), ("00000000\n" * 9, key), (2 * words, key)):
        with pytest.raises(ValueError, match="^the firmware has no place for a key of 32 bytes: build it again$"):
            trusting(text, given)
