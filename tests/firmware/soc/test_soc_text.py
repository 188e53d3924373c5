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


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize(
    "room, kept",
    [(64, "kept 12345\n"), (11, "kept 12345\n"), (7, "kept 12\nerror: no room for the last 4 characters\n")],
)
def test_text_is_kept_and_sent_again_as_often_as_asked(tmp_path, room, kept):
    (tmp_path / "board.h").write_text("#include <stdio.h>\n#define gl_board_put(character) putchar(character)\n")
    (tmp_path / "main.c").write_text(PROGRAM)
    program = tmp_path / "text"
    subprocess.run(
        [
            "gcc",
            "-std=c99",
            "-Wall",
            "-Wextra",
            "-Werror",
            f"-DROOM={room}",
            *soc_image.includes(),
            f"-I{tmp_path}",
            '-DGL_BOARD_HEADER="board.h"',
            "-o",
            str(program),
            str(tmp_path / "main.c"),
            str(soc_image.source("soc_text.c")),
        ],
        check=True,
    )
    done = subprocess.run([str(program)], capture_output=True, text=True, check=True)
    assert done.stdout == "before\nkept 12345\nafter\n" + 2 * kept


def test_all_lines_of_the_preset_have_room():
    room = re.search(r"^#define KEPT (\d+)u$", soc_image.source("tuner_main.c").read_text(), re.MULTILINE)
    assert room is not None
    plan = digits_plan(PRESETS["digits-ulx3s"].config, memory=find("ulx3s").memory_bytes)
    lines = [*expected_lines(plan, digits_data(plan.samples)), f"cycles: {1 << 32}"]
    assert len(lines) == plan.epochs + 6
    assert 1_500 < sum(len(line) + 1 for line in lines) < int(room[1]) // 2
