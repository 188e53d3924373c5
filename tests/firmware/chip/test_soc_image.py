"""The committed firmware image: of these sources, small, and the same when built again."""

import re
import struct
import subprocess
import sys

import pytest

from gradloom.boards.firmware_files import soc_files
from gradloom.firmware.chip import soc_image
from gradloom.firmware.chip.soc import RAM_BYTES
from gradloom.rtl.soc.slot import Slot, firmware_header


@pytest.mark.parametrize("main", soc_image.IMAGES)
def test_the_image_is_of_these_sources_and_small(main):
    notes, image = soc_image.read_image(soc_image.IMAGES[main])
    assert notes["sources"] == soc_image.sources_sum(main), f"python -m gradloom.firmware.chip.soc_image --main {main}"
    assert int(notes["bytes"]) == len(image) <= RAM_BYTES
    # A good part of either memory is for variables and stack.
    assert len(image) < {"soc": 56 << 10, "tuner": 16 << 10}[main]


@pytest.mark.parametrize("main", soc_image.IMAGES)
def test_the_image_is_what_its_compiler_makes(main):
    notes, image = soc_image.read_image(soc_image.IMAGES[main])
    found = {compiler.name: compiler for compiler in soc_image.compilers(soc_image.MARCH[main])}
    if not found:
        pytest.skip("no RISC-V compiler is installed")
    for name, compiler in found.items():
        again = soc_image.build(compiler, main=main)
        assert len(again) <= RAM_BYTES
        if name == notes["compiler"]:
            assert again == image
    if notes["compiler"] not in found:
        pytest.skip(f"the image was made by {notes['compiler']}; here is {', '.join(found)}")


@pytest.mark.parametrize("main", soc_image.IMAGES)
def test_a_designs_own_sources_make_the_same_image(tmp_path, main):
    if not soc_image.compilers(soc_image.MARCH[main]):
        pytest.skip("no RISC-V compiler is installed")
    for name, text in soc_files(main).items():
        path = tmp_path / "gradloom_soc" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    subprocess.run(
        [sys.executable, "-m", "gradloom_soc.soc_image", "--main", main, "-o", "again.mem"], cwd=tmp_path, check=True
    )
    image = soc_image.build(soc_image.compilers(soc_image.MARCH[main])[0], main=main)
    assert soc_image.read_image(tmp_path / "again.mem") == (
        soc_image.read_image(soc_image.IMAGES[main])[0]
        | {"compiler": soc_image.compilers(soc_image.MARCH[main])[0].name, "bytes": str(len(image))},
        image,
    )


def test_another_board_brings_its_own_header_and_memory(tmp_path):
    if not soc_image.compilers("rv32ima"):
        pytest.skip("no RISC-V compiler is installed")
    (tmp_path / "my_board.h").write_text(firmware_header(Slot(), memory=0x9000_0000, memory_bytes=1 << 28))
    (tmp_path / "user_board.h").write_text(
        "static inline void gl_board_put(char character) { *(volatile char *)0x10001000u = character; }\n"
        "static inline void gl_board_start(void) { }\n"
    )
    target = tmp_path / "my.mem"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "gradloom.firmware.chip.soc_image",
            "--board-header",
            "my_board.h",
            "--march",
            "rv32ima",
            "--ram-base",
            "0x200000",
            "-o",
            "my.mem",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.match(r"\d+ bytes of 65536", done.stdout)
    _, image = soc_image.read_image(target)
    assert image != soc_image.read_image()[1]


def test_an_image_says_what_does_not_build(tmp_path):
    found = soc_image.compilers()
    if not found:
        pytest.skip("no RISC-V compiler is installed")
    (tmp_path / "bad.h").write_text("#error this board is not ready\n")
    with pytest.raises(ValueError, match="this board is not ready"):
        soc_image.build(found[0], board_header=tmp_path / "bad.h")


def elf(address, data, used=None):
    """An ELF file of one segment."""
    header = b"\x7fELF\x01\x01" + bytes(22) + struct.pack("<I", 52) + bytes(10) + struct.pack("<HH", 32, 1) + bytes(6)
    return header + struct.pack("<8I", 1, 84, address, address, len(data), used or len(data), 5, 4) + data


def test_segments_are_laid_out_from_the_memorys_start():
    assert soc_image.image_bytes(elf(0x104, b"abcde"), 0x100) == b"\0\0\0\0abcde\0\0\0"
    with pytest.raises(ValueError, match="reaches from 0x0"):
        soc_image.image_bytes(elf(0, b"abcd"), 0x100)
    with pytest.raises(ValueError, match="the memory has 65536"):
        soc_image.image_bytes(elf(0, b"abcd", RAM_BYTES + 4))
    with pytest.raises(ValueError, match="not a 32-bit"):
        soc_image.image_bytes(b"MZ" + bytes(60))


def test_the_image_reads_back():
    text = soc_image.image_text(b"\x01\x02\x03\x04\x05\x06\x07\x08", "some compiler 1.0", "0" * 64)
    assert text.splitlines()[3:] == ["04030201", "08070605"]


def test_an_image_is_read_with_its_notes(tmp_path):
    path = tmp_path / "image.mem"
    path.write_text("// main: tuner\n// no note\n// made by: nobody, x: y\n01020304\n0000ff00\n")
    assert soc_image.read_image(path) == ({"main": "tuner"}, bytes([4, 3, 2, 1, 0, 0xFF, 0, 0]))


def test_a_key_is_put_where_the_firmware_has_its_place():
    words, key = soc_image.memory_text(), bytes(range(32))
    made = soc_image.trusting(words, key)
    before, after = (b"".join(int(line, 16).to_bytes(4, "little") for line in text.split()) for text in (words, made))
    at = after.index(key)
    assert after[:at] == before[:at] and after[at + 32 :] == before[at + 32 :] and before.count(after[at - 16 : at])
    assert made.count("\n") == words.count("\n") and len(after) == len(before)
    for text, given in ((words, key[:-1]), (words, key + b"\0"), ("00000000\n" * 9, key), (2 * words, key)):
        with pytest.raises(ValueError, match="^the firmware has no place for a key of 32 bytes: build it again$"):
            soc_image.trusting(text, given)
