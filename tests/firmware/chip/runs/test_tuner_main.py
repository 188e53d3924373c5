"""The firmware that fine-tunes alone on this machine, with an accelerator that does what the test says."""

import base64
import random
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

HEADER = """
#include <stdint.h>
#include <stdio.h>
extern uintptr_t host_memory;
uint32_t host_listen(void);
uint32_t host_cycles(void);
#define GL_MEMORY host_memory
#define GL_BOARD_CARD 1
#define GL_BOARD_LISTEN host_listen
#define GL_BOARD_HEARD 256u
#define GL_BOARD_CYCLES host_cycles
#define gl_board_put(character) putchar(character)
#define gl_board_start() ((void)0)
"""
MEMORY, BLOCK, PIECE, KEPT = 1 << 17, 4096, 512, 4096
#: Offsets in a block of what is told of it, and in memory of the biases and of the adapter.
TOLD, BIASES, RESULT, PROGRAM = 64, 1024, 2048, 0x1_0000
#: A silent look at the UART, and one after which 2^26 cycles have gone.
QUIET, LONG = "\1", "\2"
WRONG, NO_DATA, OTHER = "no such request", "no data in memory", "the memory has another sum"
#: A line of a request that has no sum of its own.
TURN = "\n{} {:08x}\n"


@pytest.fixture(scope="module")
def program(host_program):
    return host_program(Path(__file__).with_name("tuner_host.c"), HEADER, ("soc_line", "soc_text", "gradloom_sum"))


def words(*values):
    return struct.pack(f"<{len(values)}I", *(value & 0xFFFFFFFF for value in values))


def stage(name, block=0, blocks=1, runs=1, told=TOLD, program=PROGRAM, commands=7):
    return name.encode().ljust(8, b"\0") + words(program, commands, block, blocks, runs, told)


def image(*stages, magic=0x4E544C47, size=MEMORY, count=None, adapter=(), biases=(), pause=3, labels=()):
    """Memory with a header; ``labels``: by the number of their block."""
    count = len(stages) if count is None else count
    found = bytearray(MEMORY)
    header = words(magic, size, count, RESULT, len(adapter), pause, BIASES, len(biases)) + b"".join(stages)
    parts = [(0, header), (BIASES, words(*biases)), (RESULT, words(*adapter))]
    for at, part in parts + [(BLOCK * (block + 1) - 4, words(label)) for block, label in enumerate(labels, 2)]:
        found[at : at + len(part)] = part
    return bytes(found)


def left(*told, at=TOLD, block=0, cycles=5, status=0):
    """What a program leaves in a block."""
    return words(status, cycles, BLOCK * block + at, len(told), *told)


def loss(value, samples, right, **place):
    return left(value & 0xFFFFFFFF, value >> 32, samples, right, **place)


def ask(*fields):
    line = " ".join(each if isinstance(each, str) else f"{each:08x}" for each in fields)
    return TURN.format(line, zlib.crc32(line.encode()))


def answer(*fields):
    return ask(*fields).strip("\n")


def data(at, content):
    return ask("data", at, base64.b64encode(content).decode())


@pytest.fixture
def board(program, tmp_path):
    """``board(content, *runs, heard=, none=)``: lines of the UART, the programs, and the memory at the end."""

    def run(content, *runs, heard="", none=0):
        (tmp_path / "memory").write_bytes(content)
        (tmp_path / "runs").write_bytes(words(none) + b"".join(runs))
        done = subprocess.run(
            [program, tmp_path / "memory", tmp_path / "runs"], input=heard.encode(), capture_output=True, timeout=20
        )
        assert done.returncode == 0
        programs = [tuple(map(int, line.split())) for line in done.stderr.decode().splitlines()]
        return done.stdout.decode().splitlines(), programs, (tmp_path / "memory").read_bytes()

    return run


def test_stages_go_over_their_blocks_and_tell_their_losses(board):
    """A program's window begins at its block. Sums have 64 bits, means 16 behind the point, cut off."""
    stages = stage("cache", 2, 3, told=0, commands=9), stage("epoch", 2, 2, runs=2), stage("verylong", 4)
    loose = [(1 << 34) + 12345, (3 << 31) - 1], [0, 65535 * 7]
    runs = [left(cycles=0xFFFFFFFF) for _ in range(3)]
    runs += [loss(value, 9, 4 + place, block=2 + place) for pair in loose for place, value in enumerate(pair)]
    runs += [loss(7 << 42, 0x8001, 0x12345, block=4, cycles=0)]
    adapter = random.Random(4).choices(range(1 << 32), k=9)
    lines, programs, _ = board(image(*stages, adapter=adapter), *runs)

    def mean(total, samples):
        at = total // samples
        return f"{at >> 16}.{(at % 65536) * 10**6 >> 16:06}"

    assert lines == [
        f"epoch 1: loss {mean(sum(loose[0]), 18)}, 9 of 18 right",
        f"epoch 2: loss {mean(sum(loose[1]), 18)}, 9 of 18 right",
        f"verylong: loss {mean(7 << 42, 0x8001)}, {0x12345} of {0x8001} right",
        f"adapter: 9 words, sum 0x{zlib.crc32(words(*adapter)):08x}",
        f"cycles: {3 * 0xFFFFFFFF + 4 * 5}",
        "done",
    ]
    commands = zip((2, 3, 4, 2, 3, 2, 3, 4), [9] * 3 + [7] * 5, strict=True)
    assert programs == [(BLOCK * at, MEMORY - BLOCK * at, PROGRAM - BLOCK * at, each) for at, each in commands]


def test_answers_are_the_first_of_the_greatest_sums(board):
    biases = [-5, 3, 3, 0]
    sums = ([9, 0, 1, 2], [8, 1, 1, 3], [-900, -907, -908, -905], [2, -3, 0, 9], [-1, -2, -1 << 31, 0x7FFFFFFF])
    wanted = [max(range(4), key=lambda each: one[each] + biases[each]) for one in sums]
    # The third and the last are labelled wrong.
    labels = [one + (place in (2, 4)) for place, one in enumerate(wanted)]
    stages = stage("answers", 2, len(sums)), stage("last", 2)
    runs = [left(*one, block=block) for block, one in enumerate((*sums, sums[0]), 2)]
    runs[-1] = left(*sums[0], block=2)
    lines, *_ = board(image(*stages, biases=biases, labels=labels), *runs)
    assert wanted == [0, 1, 1, 3, 3]
    assert lines == [
        *(f"answers: {' '.join(map(str, wanted))}", "answers: 3 of 5 right"),
        *(f"last: {wanted[0]}", "last: 1 of 1 right", "cycles: 30", "done"),
    ]


def test_what_cannot_run_is_told_and_ends_all(board):
    """And a stage behind the last does not run."""
    two = stage("one", 1, 2, runs=2), stage("two", 1)
    for content, runs, none, told in (
        (image(), (), 1, ["failed"]),
        (image(magic=0), (), 0, [f"error: {NO_DATA}", "failed"]),
        (image(count=17), (), 0, [f"error: {NO_DATA}", "failed"]),
        (image(count=16), (), 0, ["cycles: 0", "done"]),
        (
            image(stage("one"), stage("two"), count=1),
            [loss(9, 9, 9)],
            0,
            ["one: loss 0.000015, 9 of 9 right", "cycles: 5", "done"],
        ),
        (image(stage("one"), size=99), (), 0, ["error: the driver refused the window", "failed"]),
        (image(*two), [loss(9, 9, 9, block=1), left(status=-6, block=2)], 0, ["failed"]),
    ):
        lines, *_ = board(content, *runs, none=none)
        assert lines == told


def repeat(number, *lines):
    return ["", f"repeat {number} of the lines since power-up:", *lines]


def test_lines_are_repeated_after_a_silence(board):
    """Every request, and what is none, begins the silence anew; without a header it is 2^27 cycles long."""
    told = ["cycles: 0", "done"]
    assert board(image(), heard=2 * QUIET)[0] == told
    assert board(image(), heard=3 * QUIET)[0] == [*told, *repeat(1, *told)]
    assert board(image(), heard=6 * QUIET)[0] == [*told, *repeat(1, *told), *repeat(2, *told)]
    for line in (ask("stop"), ask("told", 1)):
        assert len(board(image(), heard=2 * QUIET + line + 2 * QUIET)[0]) == 3
        assert len(board(image(), heard=2 * QUIET + line + 3 * QUIET)[0]) == 7
    bare = [f"error: {NO_DATA}", "failed"]
    assert board(image(magic=0), heard=LONG + 99 * QUIET)[0] == bare
    assert board(image(magic=0), heard=2 * LONG)[0] == [*bare, *repeat(1, *bare)]


def test_lines_without_room_are_counted_and_the_kept_ones_are_read(board):
    """What is told after the run is not kept."""
    runs = 150
    lines, *_ = board(image(stage("s", runs=runs)), *[loss(65536, 1, 1)] * runs, heard=3 * QUIET + ask("told", 0))
    text = "".join(f"s {number}: loss 1.000000, 1 of 1 right\n" for number in range(1, 151))
    text += f"cycles: {5 * runs}\ndone\n"
    again = lines[lines.index("done") + 1 :]
    gone = f"error: no room for the last {len(text) - KEPT} characters"
    first = base64.b64encode(text[:PIECE].encode()).decode()
    assert again == [*repeat(1, *text[:KEPT].splitlines()), gone, answer("told", 0, KEPT, first)]
    assert board(image(), heard=ask("told", 0))[0][-1][:22] == f"told 00000000 {len('cycles: 0done') + 2:08x}"


def test_requests_reach_all_of_the_memory_and_nothing_else(board):
    rest, chosen = random.Random(5), bytearray(image())
    chosen[PIECE:] = rest.randbytes(MEMORY - PIECE)
    other = rest.randbytes(PIECE)
    code = base64.b64encode(other).decode()
    asked = [
        (ask("give", at), answer("give", at, base64.b64encode(chosen[at : at + PIECE]).decode()))
        for at in (PIECE, 7 * PIECE, MEMORY - PIECE)
    ]
    asked += [(data(at, other), answer("data", at)) for at in (3 * PIECE, MEMORY - PIECE)]
    asked += [(ask("told", KEPT - PIECE), answer("told", KEPT - PIECE, 15, "A" * 683 + "="))]
    for word, most, more, why in (
        ("give", MEMORY, [], "outside the memory"),
        ("data", MEMORY, [code], "outside the memory"),
        ("told", KEPT, [], "outside the lines"),
    ):
        asked += [(ask(word, at, *more), answer("fault", at, why)) for at in (4, PIECE + 256, most, most + 4, 1 << 31)]
    for fields in (("data", PIECE), ("data", PIECE, "AAAA"), ("data", PIECE, code, "more"), ("data", PIECE, code[:-4])):
        asked += [(ask(*fields), answer("fault", PIECE, "no piece"))]
    for fields in (("stop", 0), ("give",), ("give", 0, 0), ("told", 0, 0), ("start", 0, 0), ("dat", 0), ("gives", 0)):
        asked += [(ask(*fields), answer("fault", 0, WRONG))]
    asked += [(ask("give", 0)[:-2] + "x\n", answer("fault", 0, "damaged"))]
    lines, _, memory = board(bytes(chosen), heard="".join(each for each, _ in asked))
    assert lines[2:] == [each for _, each in asked]
    chosen[3 * PIECE : 4 * PIECE] = chosen[-PIECE:] = other
    assert memory == bytes(chosen)


def test_a_run_starts_of_a_memory_with_the_sum_that_is_asked(board):
    """The words that are in use count; what is kept then are the lines of the last run."""
    content = image(stage("s", told=3 * PIECE), size=2 * PIECE)
    total = zlib.crc32(content[: 2 * PIECE])
    told = [[f"s: loss {part}.000000, 1 of 1 right", "cycles: 5", "done"] for part in (1, 2)]
    parts = [loss(part << 16, 1, 1, at=3 * PIECE) for part in (1, 2)]
    runs, wrong = (parts[0], words(0) + parts[1]), answer("fault", total ^ 1, OTHER)
    lines, *_ = board(content, *runs, heard=ask("start", total ^ 1) + ask("start", total) + 3 * QUIET)
    assert lines == [*told[0], wrong, answer("starts", total), *told[1], *repeat(1, *told[1])]
    for change in ({"size": size} for size in (MEMORY + 4, 2 * PIECE + 1, 2 * PIECE + 2, 1 << 31)):
        assert board(image(**change), heard=ask("start", 5))[0][2:] == [answer("fault", 5, NO_DATA)]
    for whole, said in ((image(magic=1), NO_DATA), (image(), OTHER)):
        assert board(whole, heard=ask("start", 5))[0][2:] == [answer("fault", 5, said)]
