"""Steps by patches of one program are the steps that a host would lower anew, exponents and constants included."""

import os
import struct
import zlib
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gradloom.firmware.chip.steps import PatchField, PatchValue, StepError, StepTable
from gradloom.models.texts.example import Example
from gradloom.program.descent import AdamW
from gradloom.program.patches import Varying
from gradloom.systems.rates import CONSTANT, Schedule
from gradloom.systems.text.card.course import qlora_course
from gradloom.systems.text.card.job import board_job
from gradloom.systems.text.card.trainer import JobTrainer
from gradloom.systems.text.operations.base import SPARE
from gradloom.systems.text.operations.blocks.head import TARGETS
from gradloom.systems.text.operations.learnt.rechosen import HEADROOM, ChosenConstants, Rechosen, due
from gradloom.systems.text.program.step import lower
from gradloom.systems.text.run.training import as_bytes, encoded

from ...systems.text.card.job_memory import Firmware, Window, compiled, host, state_of
from ...systems.text.conftest import CONFIG, TOKENS

TEXTS = TOKENS, TOKENS[::-1], (7, 7, 1, 99, 100, 3, 2, 1, 0)
DEEP = bool(os.environ.get("GRADLOOM_DEEP"))


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("steps") / "libsteps.so")


@pytest.fixture(params=["firmware", "host"])
def driver(request):
    if request.param == "host":
        return host
    library = request.getfixturevalue("library")
    return lambda window: Firmware(library, window)


@pytest.fixture
def fresh(adapters):
    """B is zero: what the first step has no gradients of."""

    def make(layers):
        return {
            name: replace(each, b=np.zeros_like(each.b))
            for name, each in adapters.items()
            if int(name.split(".")[2]) in layers
        }

    return make


def job(frozen, adapters, rule, steps, texts=TEXTS, rates=CONSTANT, **more):
    return board_job(qlora_course(frozen, texts, adapters, [0, 1], rule, steps, rates), CONFIG, **more)


def follow(made, frozen, adapters, rule, steps, driver, texts=TEXTS, order=None, rates=CONSTANT):
    """Runs a job by the reference, and compares each program and each word of adapters with a host's.

    Returns losses, and the share of words that were clipped.
    """
    window = Window(made)
    prepared = driver(window)
    trainer = JobTrainer(
        frozen, dict(adapters), [0, 1], rule, frac=made.frac, exponents=deepcopy(made.exponents), schedule=rates
    )
    losses, clipped, words_made = [], 0, 0
    for step, number in enumerate(order or [step % len(texts) for step in range(steps)]):
        text = texts[number]
        training, frac = trainer.prepared(text)
        layout = made.layout.copy()
        for name in (training.step.input.name, TARGETS, *(each.name for each in trainer.cached(text))):
            layout.offsets[name] = made.layout[f"{number}:{name}"]
        assert state_of(window) == trainer.exponents.frac
        words = as_bytes({name: each for name, each in training.tables(frac).items() if name.endswith((".a", ".b"))})
        for name, data in words.items():
            assert window.fetch(made.layout[name], len(data)) == data, (step, name)
        program = prepared.prepare(step)
        expected = lower(training.operations, frac, layout, CONFIG, share=True).code
        assert window.code(program) == expected, step
        result = trainer.step(text)
        losses.append(result.loss)
        clipped, words_made = clipped + result.saturated, words_made + result.words
        window.put({name: result.values[name] for name in trainer.exponents.frac})
        prepared.measure(step + 1)
    return losses, clipped / words_made


@pytest.mark.parametrize("rule", [AdamW(lr=1e-2, weight_decay=0.1), 0.1], ids=["adamw", "sgd"])
@pytest.mark.parametrize("layers", [[0, 1], [1]], ids=["all layers", "the last"])
def test_patched_programs_are_those_lowered_anew(frozen, fresh, driver, rule, layers):
    adapters = fresh(layers)
    made = job(frozen, adapters, rule, 9)
    assert len(made.job.programs) == (2 if layers == [1] else 1)
    losses, clipped = follow(made, frozen, adapters, rule, 9, driver)
    assert np.isfinite(losses).all() and len(set(losses)) == 9 and clipped == 0


@pytest.mark.parametrize("decay", [0, 0.5])
def test_a_boards_rate_follows_a_schedule_and_its_texts_an_order(frozen, fresh, driver, decay):
    adapters, rule, order = fresh([1]), AdamW(lr=2e-2, weight_decay=decay), [0, 1, 2, 2, 0, 1, 1]
    rates = Schedule(shape="cosine", steps=7, warmup=2)
    made = job(frozen, adapters, rule, 7, order=order, rates=rates)
    losses, clipped = follow(made, frozen, adapters, rule, 7, driver, order=order, rates=rates)
    # The first step of a warm-up moves nothing.
    assert np.isfinite(losses).all() and clipped == 0 and losses[4] < losses[0]
    with pytest.raises(ValueError, match="schedule=cosine: a board changes the rate of AdamW alone"):
        job(frozen, adapters, 0.1, 7, rates=rates)
    masked = Example(TOKENS, (False, True) * 4 + (True,))
    with pytest.raises(ValueError, match="texts: all must have the same number of tokens that are learnt"):
        job(frozen, adapters, rule, 2, texts=(TOKENS, masked))


@pytest.mark.parametrize(
    "steps", [100, pytest.param(1000, marks=pytest.mark.skipif(not DEEP, reason="GRADLOOM_DEEP=1"))]
)
def test_a_long_job_is_the_host_driven_run(frozen, fresh, library, steps):
    """Words of adapters grow by bits and gradients shrink, so exponents move. Of 1,000 steps at this rate, some words
    are clipped. It takes 20 s, since each step is made by the reference and lowered anew."""
    adapters, rule = fresh([1]), AdamW(lr=1e-2)
    made = job(frozen, adapters, rule, steps)
    losses, clipped = follow(made, frozen, adapters, rule, steps, lambda window: Firmware(library, window))
    assert losses[-1] < losses[0] / 5 and clipped < 1e-4


def test_the_table_grows_by_a_row_a_step(frozen, fresh):
    """Ten thousand steps are no larger than their rows and the programs of two."""
    adapters, rule = fresh([1]), AdamW(lr=1e-2)
    short, long = (job(frozen, adapters, rule, steps) for steps in (4, 10_000))
    assert long.memory["programs"] == short.memory["programs"]
    rows = long.memory["step_table"] - short.memory["step_table"]
    columns = 1 + 3 + 2 * 4  # program, a text's three tensors, both rules
    assert rows == 4 * columns * (10_000 - 4)


# ---- refusals

#: Words of a table's header, and what the firmware makes of another one there.
HEADER = {
    0: "the step table is of another layout",
    1: "the step table is of another layout",
    4: "the step table has another number of rows or adapters",
    5: "the step table has another number of rows or adapters",
    6: "the step table has another number of rows or adapters",
    7: "the step table has another number of rows or adapters",
    8: "the step table has another number of rows or adapters",
    9: "the step table has another number of rows or adapters",
    10: "the step table has another number of programs",
    11: "the step table has another number of programs",
}


@pytest.fixture(scope="module")
def small(frozen):
    from gradloom.models.adapters.lora import fresh_lora

    from ...systems.text.conftest import MODEL

    adapters = {
        name: replace(each, a=each.a.astype(float), b=each.b.astype(float))
        for name, each in fresh_lora(MODEL, rank=2, targets=("q_proj",)).items()
        if ".layers.1." in name
    }
    return job(frozen, adapters, AdamW(lr=1e-2), 5)


def spoil(window, change):
    """Changes words of the table, by their place, and mends its sum."""
    at = window.made.job.table
    for place, value in change.items():
        window.store(at + 4 * place, struct.pack("<I", value))
    (size,) = struct.unpack("<I", window.fetch(at + 8, 4))
    if size % 4 == 0 and 48 <= size <= len(window.bytes) - at:
        window.store(at + 12, struct.pack("<I", zlib.crc32(window.fetch(at + 16, size - 16))))


def words_of(window, offset, count):
    return struct.unpack(f"<{count}I", window.fetch(window.made.job.table + offset, 4 * count))


@pytest.mark.parametrize("place", HEADER)
def test_a_damaged_header_of_the_table_is_refused(small, library, place):
    window = Window(small)
    spoil(window, {place: 0xFFFF_FFFC})
    with pytest.raises(StepError, match=HEADER[place]):
        Firmware(library, window)


def test_a_table_that_is_cut_or_damaged_is_refused(small, driver, library):
    for size in (0, 44, 0xFFFF_FFF0, 47):
        window = Window(small)
        window.store(small.job.table + 8, struct.pack("<I", size))
        with pytest.raises(StepError, match="the step table is outside the window"):
            Firmware(library, window)
    for place in (4, 60, 200):
        window = Window(small)
        window.store(small.job.table + 4 * place, b"\x55\x55")
        with pytest.raises(StepError, match="the step table's sum is wrong"):
            driver(window)


@pytest.mark.parametrize(
    "part, word, value, message",
    [
        ("row", 0, 2, "a step has no program"),
        ("adapter", 0, 2, "an adapter of the step table is outside the window"),
        ("adapter", 0, 1 << 30, "an adapter of the step table is outside the window"),
        ("adapter", 11, 1 << 30, "an adapter of the step table is outside the window"),
        ("program", 0, 1 << 20, "a patch is outside the step table"),
        ("program", 1, 1 << 30, "a patch is outside the step table"),
        ("value", 0, 8, "a patch is outside the step table"),
        ("value", 2, 1 << 30, "a patch is outside the step table"),
        ("value", 3, 2, "a patch is outside the step table"),
        ("value", 4, 0, "a patch is outside the step table"),
        ("value", 5, 1 << 30, "a patch is outside the step table"),
        ("field", 0, 0, "a patch is no field of a command"),
        ("field", 0, 33 << 8, "a patch is no field of a command"),
        ("field", 0, 6 << 8 | 27, "a patch is no field of a command"),
        ("field", 0, 1 << 17 | 1 << 8, "a patch is no field of a command"),
        ("field", 2, 0x7FFF, "a patch is no field of a command"),
        ("field", 2, 0xFFFF << 16, "a patch is no field of a command"),
        ("command", 0, 1 << 20, "a patch is outside its program"),
    ],
)
def test_a_patch_that_reaches_too_far_is_refused(small, library, part, word, value, message):
    """Each part of the table: the last row, the adapter, the second program, its last value, and that one's parts."""
    window = Window(small)
    _, _, _, _, steps, columns, rows, _, adapters, _, _, programs = words_of(window, 0, 12)
    values, at = words_of(window, programs + 8, 2)
    last = at + 24 * (values - 1)
    _, _, _, field, _, command = words_of(window, last, 6)
    places = {
        "row": rows + 4 * columns * (steps - 1),
        "adapter": adapters,
        "program": programs + 8,
        "value": last,
        "field": field,
        "command": command,
    }
    Firmware(library, window)
    spoil(window, {places[part] // 4 + word: value})
    with pytest.raises(StepError, match=message):
        Firmware(library, window)


def test_exponents_that_lie_too_far_apart_end_a_job(small, driver):
    window = Window(small)
    prepared = driver(window)
    prepared.prepare(0)
    a, reach = state_of(window), window.made.layout["exponents"] + 24
    window.store(reach - 24, struct.pack("<i", next(iter(a.values())) + 70))
    with pytest.raises(StepError, match="lie too far apart"):
        prepared.prepare(1)


class Bare(Window):
    """A window with a table of one row and a program of three commands, all ones."""

    def __init__(self, fields, row):
        table = StepTable(programs=((PatchValue(2, fields, (0, 2)),),), rows=((0, *row),), adapters=(), state=0)
        data = table.encoded()
        self.bytes = bytearray(b"\xff" * 96 + data)
        self.programs, self.made = [(0, 3)], SimpleNamespace(job=SimpleNamespace(table=96))

    def words(self):
        return [int.from_bytes(self.fetch(at, 4), "little") for at in range(0, 96, 4)]


@pytest.mark.parametrize(
    ("width", "signed", "row", "terms", "value"),
    [
        (5, True, (-20,), ((1, 1),), -16),
        (5, True, (-21,), ((1, 1),), None),
        (5, True, (11,), ((1, 1),), 15),
        (5, True, (12,), ((1, 1),), None),
        (5, False, (-4,), ((1, 1),), 0),
        (5, False, (-5,), ((1, 1),), None),
        (5, False, (4, -23), ((1, 1), (2, -1)), 31),
        (5, False, (4, -24), ((1, 1), (2, -1)), None),
        (32, False, (-5,), ((1, 1),), 0xFFFFFFFF),
    ],
)
def test_a_field_is_its_constant_and_variables_within_its_width(driver, width, signed, row, terms, value):
    """The constant is 4; all other bits stay."""
    position = 0 if width == 32 else 7
    window = Bare((PatchField(position, width, signed, 4, terms),), row)
    prepared = driver(window)
    if value is None:
        with pytest.raises(StepError, match="lie too far apart"):
            prepared.prepare(0)
        return
    assert prepared.prepare(0) == 0
    wanted = [0xFFFFFFFF] * 24
    mask = ((1 << width) - 1) << position
    for command in (0, 2):
        wanted[8 * command + 2] = 0xFFFFFFFF & ~mask | (value << position & mask)
    assert window.words() == wanted


# ---- the rule

GIVEN = ChosenConstants(x=10, w=16, dy=20)


def rechosen(**frac):
    keys = {"a": 20, "b": 20, "h": 12, "dh": 22, "ga": 8, "gb": 8} | frac
    return Rechosen(
        {"n": GIVEN}, {f"n.{k}": v for k, v in keys.items()}, dict.fromkeys(("n.h", "n.dh", "n.ga", "n.gb"), 5)
    )


def left(**words):
    return lambda name: np.array([words.get(name[2:], 0)])


def test_exponents_are_chosen_often_at_first():
    assert [step for step in range(1, 70) if due(step)] == [
        *range(1, 9),
        10,
        12,
        14,
        *range(16, 32, 4),
        32,
        40,
        48,
        56,
        64,
    ]
    assert all(due(step) == (step % 16 == 0) for step in range(64, 5000))


def test_words_get_a_bit_to_spare_and_zeros_say_nothing():
    made = rechosen()
    before = dict(made.frac)
    made.after(1, left())
    assert {key: made.frac[key] for key in ("n.a", "n.b")} == {key: before[key] for key in ("n.a", "n.b")}
    assert made.reach == rechosen().reach
    # A word of 31 bits has none to spare, one of 30 has, as has one of 29: only two bits make it finer.
    for bits, frac in ((31, 19), (30, 20), (29, 20), (28, 22), (1, 49)):
        made = rechosen()
        made.after(1, left(a=(1 << bits) - 1))
        assert made.frac["n.a"] == frac
        made = rechosen()
        made.after(1, left(b=-(1 << bits)))
        assert made.frac["n.b"] == frac


def test_a_reach_grows_at_once_and_falls_slowly():
    made = rechosen()
    made.after(1, left(ga=1 << 20))
    assert made.reach["n.ga"] == 21 - 8
    was = made.reach["n.ga"]
    made.after(2, left(ga=1))
    assert made.reach["n.ga"] == was - 1
    # Of h, gradients see 18 of its 24 bits.
    h = made.frac["n.h"]
    made.after(3, left(h=(1 << 17) - 1))
    assert made.reach["n.h"] == 17 + 6 - h and made.frac["n.h"] == h - HEADROOM


def test_sums_and_differences_keep_their_variables():
    x, y = Varying(5, "x"), Varying(3, "y")
    assert (7 - x + y, (7 - x + y).terms) == (5, {"x": -1, "y": 1})
    assert ((-x).terms, (x - x).terms, (x - (2 - y)).terms) == ({"x": -1}, {}, {"x": 1, "y": 1})
    assert type(x * 2) is int and max(x, 4) is x


def test_a_rebase_rounds_to_even(small, driver):
    """Words of an adapter move by a bit where its largest has none to spare."""
    window = Window(small)
    prepared = driver(window)
    name, place = next((key, small.layout[key]) for key in small.layout.offsets if key.endswith(".a"))
    words = np.array([0x7FFF_FFFF, -(1 << 31), 1, 2, 3, -1, -3, 5], np.int64)
    window.store(place, words.astype("<i4").tobytes())
    frac = state_of(window)[name]
    prepared.measure(1)
    assert state_of(window)[name] == frac - 1
    found = np.frombuffer(window.fetch(place, 32), "<i4")
    np.testing.assert_array_equal(
        found,
        encoded(
            words * 2.0 ** -(frac + SPARE), frac - 1 + SPARE, type("F", (), {"lo": -(1 << 31), "hi": (1 << 31) - 1})
        ),
    )
