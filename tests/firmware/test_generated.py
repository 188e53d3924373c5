"""Header and constants come from the one register map, and hold nothing of their own."""

from pathlib import Path

import pytest

import gradloom.firmware
from gradloom.firmware import generate
from gradloom.firmware.chip.soc_image import source
from gradloom.firmware.device import program, registers
from gradloom.firmware.device.machine import PROGRAM_FORMAT, SHELL_ENGINES, SHELL_PHASES, TABLE_FORMAT
from gradloom.rtl.shell import table
from gradloom.rtl.shell.engines import STORE, Engines
from gradloom.rtl.shell.registers.errors import DESCRIPTIONS, Error
from gradloom.rtl.shell.registers.regtable import REGISTERS
from gradloom.rtl.shell.signature import Command, ControlOpcode

FOLDER = Path(gradloom.firmware.__file__).parent


@pytest.mark.parametrize(
    "file, text", [("gradloom_regs.h", generate.c_header), ("registers.py", generate.python_constants)]
)
def test_the_committed_file_is_what_the_register_map_gives(file, text):
    assert source(file).read_text(encoding="utf-8") == text(), "renew it: python -m gradloom.firmware.generate"


def test_the_constants_are_the_hardwares():
    assert {r.name: r.address for r in REGISTERS} == registers.REGISTERS
    fields = {f"{r.name}.{f.name}": (f.lsb, f.width) for r in REGISTERS for f in r.fields}
    assert fields == registers.FIELDS
    assert [r.name for r in REGISTERS if r.locked] == list(registers.LOCKED)
    assert {int(e): (e.name, DESCRIPTIONS[e]) for e in Error} == registers.ERRORS
    assert {e.name: int(e) for e in Engines()} == registers.ENGINES
    assert tuple(registers.ENGINES) == SHELL_ENGINES and Engines().phases == SHELL_PHASES
    assert (table.TABLE_FORMAT, table.PROGRAM_FORMAT) == (TABLE_FORMAT, PROGRAM_FORMAT)
    assert {o.name: o.value for o in ControlOpcode} == registers.CONTROL_OPCODES


def test_a_register_is_locked_if_its_description_says_so():
    """RDL gives a property of ours that is named without a value its default: "not locked"."""
    assert {r.name for r in REGISTERS if "Locked while" in r.description} == set(registers.LOCKED)


def test_a_command_is_laid_out_as_the_sequencer_reads_it():
    encoded = program.command("store", 9, (0x11223344, 5 | 4 << 24, 7), wait=0x8001, post=0x4002, phase=7)
    expected = Command.const(
        {
            "opcode": 9,
            "engine": STORE,
            "predicated": 0,
            "phase": 7,
            "wait": 0x8001,
            "post": 0x4002,
            "count": 0,
            "slot": 0,
            "args": 0x11223344 | (5 | 4 << 24) << 32 | 7 << 64,
        }
    )
    assert int.from_bytes(encoded, "little") == expected.as_bits()
    assert len(encoded) == registers.COMMAND_BYTES


@pytest.mark.parametrize(
    "change, message",
    [
        ({"engine": "GPU"}, "engine"),
        ({"opcode": 256}, "opcode"),
        ({"operands": (0,) * 6}, "operands"),
        ({"wait": 1 << 16}, "wait"),
        ({"post": -1}, "post"),
        ({"phase": 8}, "phase"),
    ],
)
def test_a_command_that_does_not_fit_its_fields_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        program.command(**{"engine": "load", "opcode": 0} | change)


def test_the_host_needs_neither_generator_nor_hdl():
    """A board has numpy; anything else would have to be installed there."""
    import ast

    host = {
        "__future__",
        "abc",
        "argparse",
        "collections",
        "contextlib",
        "ctypes",
        "dataclasses",
        "enum",
        "errno",
        "fcntl",
        "functools",
        "hashlib",
        "io",
        "json",
        "math",
        "mmap",
        "numpy",
        "os",
        "pathlib",
        "platform",
        "pynq",
        "re",
        "select",
        "shutil",
        "socket",
        "struct",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "time",
        "typing",
        "zlib",
    }
    for file in FOLDER.rglob("*.py"):
        if file.name in ("generate.py", "monocypher_source.py", "soc_image.py"):  # tools of the generator's side
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert {name.name.split(".")[0] for name in node.names} <= host, file.name
            elif isinstance(node, ast.ImportFrom) and not node.level:
                assert node.module.split(".")[0] in host, file.name
