"""Fields that vary: which bits of a program, and what they hold for other values."""

from types import SimpleNamespace

import pytest
from amaranth.hdl import signed
from amaranth.lib import data

from gradloom.program.assembler import Assembler, fields
from gradloom.program.patches import Patch, Varying, patched, patches
from gradloom.rtl.machines.language import GRADIENT
from gradloom.rtl.shell.engines import LOAD
from gradloom.rtl.shell.signature import Command


def terms(value):
    return int(value), getattr(value, "terms", None)


def test_sums_and_differences_keep_variables():
    x, y = Varying(5, "x"), Varying(3, "y")
    assert terms(x + 2) == terms(2 + x) == (7, {"x": 1})
    assert terms(x - 2) == (3, {"x": 1}) and terms(2 - x) == (-3, {"x": -1}) and terms(-x) == (-5, {"x": -1})
    assert terms(x + y) == (8, {"x": 1, "y": 1}) and terms(x - y) == (2, {"x": 1, "y": -1})
    assert terms(x - x) == (0, {}) and terms(x + x) == (10, {"x": 2})
    assert terms(x * 2) == (10, None) and terms(x >> 1) == (2, None)


def loads(*offsets):
    program = Assembler()
    for offset in offsets:
        program.add(LOAD, dest=GRADIENT.load("x"), offset=offset, beats=1)
    return program


def word_of(program, patch):
    at = 32 * patch.command + 4 * patch.word
    field = int.from_bytes(program.code[at : at + 4], "little") >> patch.position
    return field & ((1 << patch.width) - 1)


def test_a_patch_finds_its_field_and_says_what_it_holds():
    x, y = Varying(4096, "x"), Varying(64, "y")
    program = loads(128, x - y + 32, y)
    made = patches(program.instructions, {"x": 4096, "y": 64})
    assert [each.command for each in made] == [1, 2] and [each.terms for each in made] == [
        (("x", 1), ("y", -1)),
        (("y", 1),),
    ]
    assert [each.constant for each in made] == [32, 0]
    assert [word_of(program, each) for each in made] == [4096 - 64 + 32, 64]
    other = {"x": 1 << 20, "y": 4096}
    again = loads(128, other["x"] - other["y"] + 32, other["y"])
    assert [word_of(again, each) for each in made] == [each.value(other) for each in made]
    # The command's other bits are the same.
    for each in made:
        assert isinstance(each, Patch) and not each.signed


def test_what_cancels_does_not_vary_and_a_multiple_is_refused():
    x = Varying(64, "x")
    assert patches(loads(x - x + 32).instructions, {"x": 64}) == []
    with pytest.raises(ValueError, match="offset: a field in two words, or a multiple of a variable"):
        patches(loads(x + x).instructions, {"x": 64})


def test_a_program_with_other_values_is_the_one_that_is_lowered_with_them():
    before, now = {"x": 4096, "y": 64}, {"x": 1 << 20, "y": 4096}
    x, y = (Varying(value, name) for name, value in before.items())
    made = patched(loads(128, x - y + 32, y), before, now)
    again = loads(128, now["x"] - now["y"] + 32, now["y"])
    assert made.code == again.code
    assert [each.operands for each in made.instructions] == [each.operands for each in again.instructions]
    with pytest.raises(ValueError, match="offset=-32"):
        patched(loads(x), before, {"x": -32})


def command(layout, **operands):
    """A command whose operands begin with a word."""
    return SimpleNamespace(engine=SimpleNamespace(layout=lambda opcode: layout), opcode=0, operands=operands)


def test_a_field_that_ends_with_a_word_varies_whole_and_of_a_longer_one_the_first_part():
    layout = data.StructLayout(
        {"low": 24, "signed": signed(8), "first": 20, "long": 16, "more": 20, "wide": signed(16)}
    )
    offset, width, _ = fields(layout)["long"]
    assert fields(Command)["args"][0] % 32 == 0 and (offset, width) == (32 + 20, 16)

    def made(**operands):
        found = patches([command(layout, **operands)], {"x": int(*operands.values())})
        return [(each.word, each.position, each.width, each.signed) for each in found]

    start = fields(Command)["args"][0] // 32
    assert made(signed=Varying(-5, "x")) == [(start, 24, 8, True)]
    assert made(low=Varying(5, "x")) == [(start, 0, 24, False)]
    assert made(long=Varying(4095, "x")) == [(start + 1, 20, 12, False)] == made(long=Varying(0, "x"))
    (more,) = patches([command(layout, long=Varying(4096 + 5, "x"))], {"x": 4096 + 5})
    assert (more.width, [more.value({"x": 4096 + each}) for each in (0, 7, 4095)]) == (12, [0, 7, 4095])
    with pytest.raises(ValueError, match="a field in two words"):
        made(wide=Varying(1, "x"))
