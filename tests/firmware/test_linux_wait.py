"""How the Linux program waits: an interrupt only wakes it, STATUS says what happened."""

import shutil
import subprocess
from pathlib import Path

import pytest

from gradloom.firmware.chip.soc_image import includes, source

OK, TIMEOUT, FAILED = "0", "-5", "-6"


@pytest.fixture(scope="module")
def wait(tmp_path_factory):
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    program = tmp_path_factory.mktemp("wait") / "wait"
    subprocess.run(
        [
            "gcc",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-unused-function",
            "-O1",
            "-std=c99",
            *includes(),
            "-o",
            str(program),
            str(Path(__file__).with_name("linux_wait.c")),
            str(source("gradloom.c")),
            str(source("linux_json.c")),
        ],
        check=True,
    )

    def run(wakes, *, endless=0, failing=0):
        done = subprocess.run(
            [str(program), str(wakes), str(endless), str(failing)], capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    return run


@pytest.mark.parametrize("wakes", [0, 1, 5])
def test_a_spurious_wake_up_is_no_end(wait, wakes):
    assert wait(wakes) == [OK, str(wakes + 1), str(wakes + 1), "0"]
    assert wait(wakes, failing=1) == [FAILED, str(wakes + 1), str(wakes + 1), "0"]


def test_a_program_that_never_ends_times_out(wait):
    status, unmasked, _, _ = wait(3, endless=1)
    assert status == TIMEOUT and int(unmasked) >= 4
