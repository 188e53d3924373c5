"""Commands that the board encodes without the generator are the assembler's."""

import pytest

from gradloom.firmware.device.program import command, end, load, store
from gradloom.program.assembler import Assembler
from gradloom.rtl.machines.images import ARRAY
from gradloom.rtl.shell.engines import CONTROL, LOAD, STORE
from gradloom.rtl.shell.signature import ControlOpcode


def assembled(engine, opcode=0, **more):
    made = Assembler()
    made.add(engine, opcode, **more)
    return made.code


def test_commands_are_the_assemblers():
    assert end() == assembled(CONTROL, ControlOpcode.END)
    weights, lanes = ARRAY.load("books"), ARRAY.store("lanes")
    assert load(64, 5, int(weights), 9, wait=1 << 15, post=3) == assembled(
        LOAD, offset=64, beats=5, dest=weights, arg=9, wait=(15,), post=(0, 1)
    )
    assert store(32, 7, int(lanes), 1) == assembled(STORE, offset=32, beats=7, source=lanes, arg=1)
    assert command("control", 255, (1, 2, 3, 4, 5), wait=0xFFFF, post=0xFFFF, phase=7).hex() == (
        "ff e0 ffff ffff0000 00000000 01000000 02000000 03000000 04000000 05000000".replace(" ", "")
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"engine": "cell2"}, "engine must be one of control, load, store, not 'cell2'"),
        ({"opcode": 256}, "opcode must be between 0 and 255, not 256"),
        ({"opcode": -1}, "opcode must be between 0 and 255, not -1"),
        ({"phase": 8}, "phase must be between 0 and 7, not 8"),
        ({"phase": -1}, "phase must be between 0 and 7, not -1"),
        ({"wait": 1 << 16}, "wait must be a mask of 16 tokens, not 0x10000"),
        ({"post": -1}, "post must be a mask of 16 tokens, not -0x1"),
        ({"operands": (0,) * 6}, "operands must be at most 5 words, not 6"),
    ],
)
def test_what_no_command_has_is_refused(given, said):
    with pytest.raises(ValueError, match=f"^{said}$"):
        command(**{"engine": "load", "opcode": 0} | given)
