"""Text of the firmware on the UART, kept and sent again; with this machine's own compiler."""

import re
import shutil
import subprocess

import pytest

from gradloom.boards import find
from gradloom.firmware.chip import soc_image
from gradloom.preset import PRESETS
from gradloom.sim.bench.tuner import expected_lines
from gradloom.systems.images.program.digits import digits_data, digits_plan

PROGRAM = """
#include "soc_text.h"
int main(void)
{
    static char place[ROOM];

    put_text("before\\n");
    keep_text(place, sizeof place);
    put_text("kept ");
    put_number(12345);
    put_text("\\n");
    keep_text(0, 0);
    put_text("after\\n");
    put_kept();
    put_kept();
    return 0;
}
"""


NUMBERS = """
#include "soc_text.h"
int main(void)
{
    static const uint32_t name[2] = {0x64636261, 0x00676665};
    static const uint64_t numbers[] = {NUMBERS};
    static const uint32_t fixed[][2] = {FIXED};
    uint32_t i;

    for (i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        put_number(numbers[i]);
        put_text(" ");
        put_hex((uint32_t)numbers[i]);
        put_text("\\n");
    }
    for (i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        put_fixed(fixed[i][0], fixed[i][1]);
        put_text("\\n");
    }
    put_digits(0xabcdef, 3, put_character);
    for (i = 0; i < 9; i += 4) {
        put_text(" ");
        put_name(name, i);
    }
    return 0;
}
"""


def built(folder, text, *options):
    """A program with the firmware's text, which writes to its output."""
    (folder / "board.h").write_text("#include <stdio.h>\n#define gl_board_put(character) putchar(character)\n")
    (folder / "main.c").write_text(text)
    strict = ["-std=c99", "-Wall", "-Wextra", "-Werror", *soc_image.includes(), f"-I{folder}"]
    files = [str(folder / "main.c"), str(soc_image.source("soc_text.c"))]
    made = ["gcc", *strict, *options, '-DGL_BOARD_HEADER="board.h"', "-o", str(folder / "text"), *files]
    subprocess.run(made, check=True)
    return subprocess.run([str(folder / "text")], check=True, capture_output=True, text=True).stdout


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_numbers_are_written_as_they_are(tmp_path):
    """Decimals of 64 bits, words with a point whose further digits are cut off, names up to a zero."""
    numbers = [0, 9, 10, 65535, 65536, 99_999, 2**31, 2**32 - 1, 2**32, 2**48 - 1, 2**48, 10**19, 2**64 - 1]
    words = [(0, 0), (7, 0), (0x80000000, 16), (0xFFFFFFFF, 31), (1, 31), (123456789, 20), (-3 & 0xFFFFFFFF, 1)]
    listed = ",".join(f"{each}ull" for each in numbers), ",".join(f"{{{a}u,{b}u}}" for a, b in words)
    said = built(tmp_path, NUMBERS, f"-DNUMBERS={listed[0]}", f"-DFIXED={listed[1]}").splitlines()
    assert said[: len(numbers)] == [f"{each} 0x{each & 0xFFFFFFFF:08x}" for each in numbers]
    for line, (word, fraction) in zip(said[len(numbers) : -1], words, strict=True):
        size = (1 << 32) - word if word >> 31 else word
        cut = (size * 10**6) >> fraction
        assert line == f"{'-' if word >> 31 else ''}{cut // 10**6}.{cut % 10**6:06}"
    assert said[-1] == "def  abcd abcdefg"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize(
    "room, kept",
    [(64, "kept 12345\n"), (11, "kept 12345\n"), (7, "kept 12\nerror: no room for the last 4 characters\n")],
)
def test_text_is_kept_and_sent_again_as_often_as_asked(tmp_path, room, kept):
    assert built(tmp_path, PROGRAM, f"-DROOM={room}") == "before\nkept 12345\nafter\n" + 2 * kept


def test_all_lines_of_the_preset_have_room():
    room = re.search(r"^#define KEPT (\d+)u$", soc_image.source("tuner_main.c").read_text(), re.MULTILINE)
    assert room is not None
    plan = digits_plan(PRESETS["digits-ulx3s"].config, memory=find("ulx3s").memory_bytes)
    lines = [*expected_lines(plan, digits_data(plan.samples)), f"cycles: {1 << 32}"]
    assert len(lines) == plan.epochs + 6
    assert 1_500 < sum(len(line) + 1 for line in lines) < int(room[1]) // 2
