"""What a job keeps on its card, in the firmware's C on this machine: the words, and a record for each run."""

import subprocess
from pathlib import Path

import pytest

HEADER = """
#include <stdint.h>
extern uintptr_t host_memory;
#define GL_MEMORY host_memory
#define GL_MEMORY_BYTES 262144u
#define GL_BOARD_CARD 1
"""


@pytest.fixture(scope="module")
def program(host_program):
    return host_program(Path(__file__).with_name("keep_host.c"), HEADER, ("soc_keep", "gradloom_sum"))


@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize("words", [1, 127, 128, 160])
@pytest.mark.parametrize(
    "runs", [(1, 2, 3), (31, 32, 33, 64, 65, 66), range(1, 103), (40, 50, 100, 101, 250, 251), (5, 40, 100)], ids=str
)
def test_words_and_records_come_back(program, words, runs, every):
    """A block has 32 records, and blocks of them that a copy has already are not written again."""
    subprocess.run([program, str(words), "100", str(every), *map(str, runs)], check=True)


@pytest.mark.parametrize("words", [1, 128, 160])
def test_what_is_damaged_or_of_another_does_not_come_back(program, words):
    """Each block of each copy with a bit that flipped: the other copy comes back, in all its words."""
    subprocess.run([program, "damaged", str(words)], check=True)
