"""Commands by named fields: their bits, and values that no field holds."""

import pytest
from amaranth.hdl import signed
from amaranth.lib import data

from gradloom.program.assembler import Assembler, fields, most, pack
from gradloom.rtl.machines.language import GRADIENT
from gradloom.rtl.shell.engines import CONTROL, LOAD
from gradloom.rtl.shell.signature import COMMAND_BYTES, Command, ControlOpcode

LAYOUT = data.StructLayout({"a": 3, "b": signed(5), "c": 8})


def test_fields_lie_behind_each_other_in_twos_complement():
    assert fields(LAYOUT) == {"a": (0, 3, False), "b": (3, 5, True), "c": (8, 8, False)}
    assert pack(LAYOUT, {"c": 0x81, "a": 5, "b": -3}) == 5 | 0b11101 << 3 | 0x81 << 8
    assert most(LAYOUT, "a") == 7 and most(LAYOUT, "c") == 255


@pytest.mark.parametrize(
    "field, low, high, bits", [("a", 0, 7, 3), ("b", -16, 15, 5), ("c", 0, 255, 8)], ids=["a", "b", "c"]
)
def test_a_value_beyond_its_field_is_refused(field, low, high, bits):
    for value in (low, high):
        assert pack(LAYOUT, {field: value}) == (value & ((1 << bits) - 1)) << fields(LAYOUT)[field][0]
    for value in (low - 1, high + 1):
        with pytest.raises(ValueError, match=rf"^{field}={value}: the field has {bits} bits$"):
            pack(LAYOUT, {field: value})


def bits_of(program, field, place=0):
    word = int.from_bytes(program.code[COMMAND_BYTES * place : COMMAND_BYTES * (place + 1)], "little")
    offset, width, _ = fields(Command)[field]
    return word >> offset & ((1 << width) - 1)


def test_a_command_has_tokens_as_masks_and_slots():
    program = Assembler()
    program.add(LOAD, dest=GRADIENT.load("x"), offset=4096, beats=3, wait=(0, 3), post=(5,), slots=(7, 2))
    program.add(LOAD, dest=GRADIENT.load("x"), offset=0, beats=1)
    assert [bits_of(program, name) for name in ("engine", "wait", "post", "predicated", "slot", "count")] == [
        int(LOAD),
        0b1001,
        0b100000,
        1,
        7,
        2,
    ]
    assert [bits_of(program, name, 1) for name in ("wait", "post", "predicated", "slot", "count")] == [0] * 5
    offset, width, _ = fields(LOAD.layout(0))["beats"]
    assert bits_of(program, "args") >> offset & ((1 << width) - 1) == 3
    assert len(program) == 2 and program.instructions[0].operands["offset"] == 4096


def test_no_token_survives_a_yield():
    program = Assembler()
    with pytest.raises(ValueError, match=r"YIELD posts \(1,\), must post nothing: no token survives it"):
        program.add(CONTROL, ControlOpcode.YIELD, post=(1,))
    program.add(CONTROL, ControlOpcode.YIELD)
    program.add(CONTROL, ControlOpcode.END, post=(1,))
    assert len(program) == 2


def test_parts_of_another_program_and_bits_as_they_are():
    program, other = Assembler(), Assembler()
    for beats in (1, 2, 3):
        other.add(LOAD, dest=GRADIENT.load("x"), offset=0, beats=beats)
    program.extend(other, 1, 2)
    program.extend(other)
    assert [each.operands["beats"] for each in program.instructions] == [2, 1, 2, 3]
    assert program.code == other.code[COMMAND_BYTES : 2 * COMMAND_BYTES] + other.code
    program.add_bits(LOAD, 1, (1 << 160) - 1)
    assert [bits_of(program, name, 4) for name in ("engine", "opcode", "args")] == [int(LOAD), 1, (1 << 160) - 1]
    assert len(program) == 5 and len(program.code) == 5 * COMMAND_BYTES
