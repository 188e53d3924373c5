"""The card's driver on this machine, with as many tries as on the board: half a second's worth."""

import shutil
import subprocess
from pathlib import Path

import pytest

import gradloom.sim
from gradloom.firmware.chip.soc_image import includes, source
from gradloom.sim.run.soc import CARDS

BENCH = Path(gradloom.sim.__file__).parent / "bench/harness"
TRIES = 1471
HEADER = """
#define GL_BOARD_CARD 1
#include <stdint.h>
void host_card(uint32_t, uint32_t);
void host_card_power(uint32_t);
void host_card_send(uint32_t);
uint32_t host_card_got(void);
void host_card_give(uint32_t);
uint32_t host_card_word(void);
uint32_t host_card_tries(void);
#define gl_board_card host_card
#define GL_BOARD_CARD_POWER host_card_power
#define gl_board_card_send host_card_send
#define gl_board_card_got host_card_got
#define gl_board_card_fetch() host_card_give(0xffffffffu)
#define gl_board_card_give host_card_give
#define gl_board_card_sum_sent() ((void)0)
#define gl_board_card_word host_card_word
#define gl_board_card_tries host_card_tries
#define gl_board_card_sum() 0u
"""


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    if shutil.which("gcc") is None or shutil.which("g++") is None:
        pytest.skip("gcc is not installed")
    folder = tmp_path_factory.mktemp("card")
    (folder / "board.h").write_text(HEADER)
    strict = ["-Wall", "-Wextra", "-Werror", "-O2"]
    for name in ("soc_sd", "gradloom_sum"):
        subprocess.run(
            [
                "gcc",
                "-std=c99",
                *strict,
                f'-DGL_BOARD_HEADER="{folder / "board.h"}"',
                *includes(),
                "-c",
                str(source(f"{name}.c")),
                "-o",
                str(folder / f"{name}.o"),
            ],
            check=True,
        )
    subprocess.run(
        [
            "g++",
            "-std=c++17",
            *strict,
            f"-I{BENCH}",
            str(Path(__file__).with_name("card_host.cpp")),
            str(folder / "soc_sd.o"),
            str(folder / "gradloom_sum.o"),
            "-o",
            str(folder / "host"),
        ],
        check=True,
    )

    def run(kind="large", *, asleep=0, deaf=0, hung=0, token=0):
        done = subprocess.run(
            [str(folder / "host"), *map(str, (CARDS[kind], asleep, deaf, hung, token, TRIES))],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        said, milliseconds, violations, dark, *read = done.stdout.splitlines()
        assert violations == "0" and (said == "ready") == bool(read)
        return said, int(milliseconds), int(dark), *read

    return run


@pytest.mark.parametrize("kind", ["large", "standard", "old"])
@pytest.mark.parametrize("asleep, deaf", [(0, 0), (3, 1), (700, 20), (TRIES - 1, 0)])
def test_a_card_may_wake_late(start, kind, asleep, deaf):
    said, milliseconds, dark, *_ = start(kind, asleep=asleep, deaf=deaf)
    assert said == "ready" and dark == 0
    assert milliseconds >= 0.33 * (asleep + deaf)


def test_half_a_second_is_waited_before_power_goes_and_after_it_and_no_more(start):
    said, milliseconds, dark, *_ = start(asleep=TRIES)
    assert said == "none" and 1100 <= milliseconds < 1150 and 100 <= dark < 120
    assert start("none")[0] == "none"
    assert start("stuck")[0] == "the card does not reset"


#: Cycles of the model for a millisecond at 400 kHz.
MILLISECOND = 400 * 20


@pytest.mark.parametrize("kind", ["large", "standard", "old"])
def test_a_card_that_hangs_answers_after_its_power_was_off_for_100_ms(start, kind):
    said, _, dark, *_ = start(kind, hung=100 * MILLISECOND)
    assert said == "ready" and 100 <= dark < 120


def test_a_card_that_hangs_for_good_is_told(start):
    assert start(hung=200 * MILLISECOND)[0] == "the card does not reset"


@pytest.mark.parametrize("kind", ["large", "standard"])
def test_a_read_ends_with_its_last_block(start, kind):
    *_, said, right, sent = start(kind)
    assert (said, int(right)) == ("read", 131) and 2 * 515 < int(sent) < 2 * 515 + 600


def test_a_block_that_cannot_be_read_ends_a_read(start):
    *_, said, right, _ = start(token=3)
    assert (said, int(right)) == ("the card cannot read a block", 128)
