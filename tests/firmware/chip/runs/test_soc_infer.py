"""Prompts by UART in the firmware's C on this machine, with an accelerator that does what the test says."""

import struct
import subprocess
import zlib
from pathlib import Path

import pytest

HEADER = """
#include <stdint.h>
#include <stdio.h>
extern uintptr_t host_memory;
#define GL_MEMORY host_memory
#define GL_BOARD_CARD 1
#define GL_BOARD_LISTEN() 0u
#define GL_BOARD_HEARD 256u
#define GL_BOARD_CYCLES() 0u
#define gl_board_put(character) putchar(character)
"""
#: Offset of the window in memory, its bytes, and what lies in it.
WINDOW, BYTES = 4096, 1 << 16
WORDS, PROGRAM, TABLE, PART, INPUT, LOGITS, CACHE, RESIDENT, EMBEDDING = (
    0, 1024, 2048, 4096, 5120, 6144, 8192, 10240, 16384
)  # fmt: skip
#: Rows of the embedding, features of a row, and bytes of an adapter, whose last 48 are exponents.
VOCABULARY, FEATURES, KEPT, STATE = 70, 128, 160, 112
#: Tokens of prompt and answer, and bits that words of the embedding have less.
POSITIONS, SHIFT, STRIDE = 32, 6, 96
JOB_ANSWERS, JOB_ADAPTER = 20, 7


@pytest.fixture(scope="module")
def program(host_program):
    names = ("soc_infer", "soc_part", "soc_line", "soc_text", "gradloom_steps", "gradloom_sum")
    return host_program(Path(__file__).with_name("infer_host.c"), HEADER, names)


def words(*values):
    return struct.pack(f"<{len(values)}I", *(value & 0xFFFFFFFF for value in values))


def table(columns=5, steps=1, missing=0):
    """The five words of the one command are a position, a row, angles, an adapter, and an exponent of that adapter.

    ``missing``: words at the end, where its one adapter is.
    """
    head, field, command = 48 + 8 + 5 * 24, 12, 4
    rows = head + 5 * field + command
    adapter = rows + 4 * columns * steps
    body = words(steps, columns, rows, 1, adapter, WORDS + STATE, 1, 48)
    body += words(5, 48 + 8)
    for number in range(5):
        body += words(number, 0xFFFFFFFF, 1, head + number * field, 1, head + 5 * field)
    # Columns 1 to 4, and the second exponent; a term is a variable's number and 1.
    for variable in (1, 2, 3, 4, columns + 1):
        body += words(32 << 8, 0, variable + 1)
    body += words(0) + words(*(0,) * columns * steps) + words(*(0,) * 16)
    body = body[: len(body) - 4 * missing]
    return words(0x54534C47, 1, 16 + len(body), zlib.crc32(body)) + body


def embedding():
    """Words of 16 bits, in tiles of 64 rows and 64 features: of token t the feature f is 300 t - 5 f."""
    tiles = [(row, column) for row in range(2) for column in range(FEATURES // 64)]
    return b"".join(
        struct.pack("<h", 300 * token - 5 * feature if token < VOCABULARY else 0)
        for row, column in tiles
        for token in range(64 * row, 64 * row + 64)
        for feature in range(64 * column, 64 * column + 64)
    )


PARTS = {
    "magic": 0x4E414C47, "layout": 1, "sum": None, "program": PROGRAM, "commands": 1, "table": TABLE,
    "positions": POSITIONS, "cache": CACHE, "cached": 1024, "angles": STRIDE, "input": INPUT, "features": FEATURES,
    "embedding": EMBEDDING, "vocabulary": VOCABULARY, "shift": SHIFT, "logits": LOGITS, "state": STATE, "words": KEPT,
    "base": RESIDENT, "start": RESIDENT + 512, "kept": RESIDENT + 1024,
}  # fmt: skip


def image(job=(), steps=None, **parts):
    """Memory with a job that answers prompts; ``parts``: what its description says otherwise; ``job``: its header."""
    found = PARTS | parts
    rest = words(*list(found.values())[3:])
    part = words(found["magic"], found["layout"], zlib.crc32(rest) if found["sum"] is None else found["sum"]) + rest
    window = bytearray(b"\x55" * BYTES)
    exponents = words(*range(-40, -28))
    steps = table() if steps is None else steps
    for at, content in (
        (WORDS, words(*range(1, STATE // 4 + 1)) + exponents),
        (PROGRAM, bytes(32)),
        (TABLE, steps),
        (PART, part),
        (EMBEDDING, embedding()),
        (LOGITS, bytes(4 * VOCABULARY)),
    ):
        window[at : at + len(content)] = content
    header = {4: WINDOW, 5: BYTES, JOB_ADAPTER: WORDS, 8: KEPT, JOB_ANSWERS: PART} | dict(job)
    return words(*(header.get(place, 0) for place in range(32))).ljust(WINDOW, b"\0") + bytes(window)


@pytest.fixture
def said(program, tmp_path):
    """``said(content, *lines)``: what the firmware says, the sums of its lines checked and left out."""

    def run(content, *lines):
        (tmp_path / "image").write_bytes(content)
        done = subprocess.run(
            [program, tmp_path / "image"], input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=20
        )
        assert done.returncode == 0, done.stderr
        found = []
        for line in done.stdout.splitlines():
            if line.startswith(("token ", "answer", "refused ", "busy ")):
                line, sum = line[:-9], line[-8:]
                assert zlib.crc32(line.encode()) == int(sum, 16)
            found.append(line)
        return found

    return run


def numbers(*values):
    return "".join(f" {value:08x}" for value in values)


def ask(*tokens, name=9, adapter=1, most=2, stop=1000):
    return f"line ask{numbers(name, adapter, most, stop, *tokens)}"


def run(position, adapter=1):
    """The first words of the program of a position."""
    at = RESIDENT + 512 * adapter
    return f"run {PROGRAM:x} 1 {position} {position * 256} {position * STRIDE} {at} -39"


def state(word, made, waited=0, took=0, name=9):
    return f"{word}{numbers(name, made, waited, took)}"


def test_tokens_of_a_prompt_go_through_the_program_and_the_likeliest_follow(said):
    """A position each; no word of the answer before the prompt's last token. The longest wait and run are told."""
    logit, other = (f"word {LOGITS + 4 * number} " for number in (69, 3))
    found = said(
        image(),
        ask(5, 69, most=2),
        "step 1 0",
        f"show {INPUT} {FEATURES}",
        "step 3 1",
        "served 7 100",
        "step 1 0",
        f"{other}5",
        f"{logit}6",
        "step 1 0",
        f"show {INPUT} {FEATURES}",
        "served 9 50",
        "step 1 0",
        f"{logit}{(1 << 32) - 6}",
        "step 2 0",
        "step 4 0",
        f"line again{numbers(9, 0)}",
        f"line again{numbers(9, 1)}",
        f"line again{numbers(8, 0)}",
        f"line again{numbers(9)}",
        f"line again{numbers(9, 0)} more",
    )
    rows = [" ".join(str(300 * token - 5 * f << SHIFT) for f in range(FEATURES)) for token in (5, 69)]
    tokens = [f"token{numbers(9, 0, 69)}", f"token{numbers(9, 1, 3)}"]
    ended = state("answered", 2, 9, 93)
    assert found == [
        "open", state("answers", 0), run(0), rows[0], run(1), rows[1], tokens[0], run(2), tokens[1], ended,
        *tokens, ended, tokens[1], ended,
    ]  # fmt: skip


def test_of_equal_logits_the_first_is_taken_and_a_token_ends_the_answer(said):
    found = said(image(), ask(4, most=9, stop=0), "step 2 0", "step 3 0")
    assert found == ["open", state("answers", 0), run(0), f"token{numbers(9, 0, 0)}", state("answered", 1)]
    found = said(image(), f"word {LOGITS + 12} 5", ask(4, most=2, stop=0), "step 4 0")
    assert found[2:] == [run(0), f"token{numbers(9, 0, 3)}", run(1), f"token{numbers(9, 1, 3)}", state("answered", 2)]
    negative = [f"word {LOGITS + 4 * number} {(1 << 32) - 1 - (number == 2)}" for number in range(VOCABULARY)]
    found = said(image(), *negative[:2], negative[2], ask(4, most=1, adapter=2), "step 2 0")
    assert found[-2] == f"token{numbers(9, 0, 3)}"


def test_each_adapter_is_a_place_and_the_base_has_words_of_nothing(said):
    """The job's words as it began and as they were kept last; the base's are zero, with the exponents of the start."""
    for adapter in range(3):
        found = said(image(), "copy 2", ask(4, adapter=adapter), "step 1 0")
        assert found[1:] == [state("answers", 0), run(0, adapter)]
    resident = [f"show {RESIDENT + 512 * number} {KEPT // 4 + 1}" for number in range(3)]
    base, start, kept = (each.split() for each in said(image(), f"word {WORDS} 77", "copy 2", *resident)[1:])
    own = [str(each) for each in (*range(1, 29), *range(-40, -28))]
    filler = str(0x55555555)
    assert start == [*own, filler] and kept == ["77", *own[1:], filler]
    assert base == ["0"] * 28 + own[28:] + [filler]
    cached = said(image(), f"show {CACHE} 257")[1].split()
    assert cached == ["0"] * 256 + [filler]


def test_one_prompt_at_a_time_and_the_same_again_is_told_its_state(said):
    found = said(image(), ask(4), "step 1 0", ask(4), ask(4, name=10), "close", ask(5, name=11))
    done = [f"token{numbers(9, 0, 0)}", f"refused{numbers(9)} another job begins"]
    assert found[1:] == [
        state("answers", 0),
        run(0),
        state("answers", 0),
        state("busy", 0),
        *done,
        f"refused{numbers(11)} no job on the board answers prompts",
    ]


@pytest.mark.parametrize(
    "asked, why",
    [
        (ask(), "prompt and answer are longer than the context"),
        (ask(4, most=0), "prompt and answer are longer than the context"),
        (ask(*[4] * 16, most=17), None),
        (ask(*[4] * 16, most=18), "prompt and answer are longer than the context"),
        (ask(*[4] * 64, most=1), "prompt and answer are longer than the context"),
        (ask(4) + " x", ""),
        (ask(4, adapter=2), None),
        (ask(4, adapter=3), "there is no such adapter"),
        (ask(VOCABULARY - 1), None),
        *((ask(*tokens), "a token is beyond the vocabulary") for tokens in ((VOCABULARY, 4), (4, 1 << 31, 4))),
        (ask(4, VOCABULARY), "a token is beyond the vocabulary"),
        *((f"line ask{numbers(*range(1, 1 + count))}", "") for count in range(4)),
        ("line asks 00000009", ""),
        (f"line as{numbers(9, 1, 2, 1000, 4)}", ""),
    ],
)
def test_what_a_prompt_may_be(said, asked, why):
    """None: it is answered; a line that is no request has no answer."""
    found = said(image(), asked, "step 1 0")[1:]
    if why is None:
        assert found[0] == state("answers", 0) and found[1].startswith("run ")
    else:
        assert found == ([f"refused{numbers(9)} {why}"] if why else [])


def test_an_accelerator_that_fails_ends_the_answer(said):
    found = said(image(), ask(4), "step 1 0", "step 1 -1", "step 2 0", ask(4, name=10), "step 1 0")
    assert found[2:] == [run(0), f"refused{numbers(9)} the accelerator stopped", state("answers", 0, name=10), run(0)]


@pytest.mark.parametrize(
    "changed, why",
    [
        ({}, "open"),
        ({"job": {JOB_ANSWERS: 0}.items()}, "open"),
        ({"magic": 1}, "the description of prompts is of another layout"),
        ({"layout": 2}, "the description of prompts is of another layout"),
        ({"sum": 0}, "the sum of the description of prompts is wrong"),
        ({"job": {JOB_ANSWERS: BYTES - 80}.items()}, "the description of prompts is outside the window"),
        ({"program": PROGRAM + 4}, "the description of prompts is outside the window"),
        ({"program": BYTES}, "the description of prompts is outside the window"),
        ({"program": 0, "commands": BYTES // 32}, "open"),
        ({"commands": BYTES // 32 + 1}, "the description of prompts is outside the window"),
        ({"features": FEATURES - 2}, "the description of prompts is outside the window"),
        ({"shift": 31}, "open"),
        ({"shift": 32}, "the description of prompts is outside the window"),
        ({"positions": 64}, "open"),
        ({"positions": 65}, "the description of prompts is outside the window"),
        ({"state": KEPT}, "open"),
        ({"state": KEPT + 4}, "the description of prompts is outside the window"),
        ({"words": KEPT + 4}, "the description of prompts is outside the window"),
        ({"words": KEPT - 2}, "the description of prompts is outside the window"),
        ({"input": BYTES - 4 * FEATURES}, "open"),
        ({"input": BYTES - 4 * FEATURES + 4}, "the description of prompts is outside the window"),
        ({"logits": BYTES - 4 * VOCABULARY}, "open"),
        ({"logits": BYTES - 4 * VOCABULARY + 4}, "the description of prompts is outside the window"),
        ({"cache": BYTES - 1024}, "open"),
        ({"cache": BYTES - 1020}, "the description of prompts is outside the window"),
        # The embedding has whole tiles of rows.
        ({"embedding": BYTES - 2 * FEATURES * 128}, "open"),
        ({"embedding": BYTES - 2 * FEATURES * 128 + 4}, "the description of prompts is outside the window"),
        ({"base": BYTES - KEPT}, "open"),
        *(
            ({name: BYTES - KEPT + 4}, "the description of prompts is outside the window")
            for name in ("base", "start", "kept")
        ),
        ({"steps": table(columns=6)}, "the table of prompts has other columns"),
        ({"steps": table(missing=1)}, "the step table has another number of rows or adapters"),
        ({"steps": bytes(400)}, "the step table is of another layout"),
    ],
)
def test_a_description_that_does_not_hold_is_refused(said, changed, why):
    """And then no prompt is answered, as where there is no description."""
    found = said(image(**changed), ask(4))
    opened = why == "open" and "job" not in changed
    assert found == [why, state("answers", 0) if opened else f"refused{numbers(9)} no job on the board answers prompts"]
