"""Everything about registers comes from ``registers.rdl``."""

import re
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from gradloom.rtl.shell.registers import regmap
from gradloom.rtl.shell.registers.errors import DESCRIPTIONS, Error
from gradloom.rtl.shell.registers.regtable import REGISTERS

HERE = Path(regmap.__file__).parent


def test_generated_files_are_current():
    assert (HERE / "regtable.py").read_text() == regmap.regtable_source()
    assert (HERE / "error_codes.rdl").read_text() == regmap.error_codes_rdl()
    assert (HERE / "gradloom.xml").read_text() == regmap.ipxact()
    assert regmap.compile_rdl() == REGISTERS


def test_registers_are_words_that_do_not_overlap():
    addresses = [r.address for r in REGISTERS]
    assert addresses == sorted(set(addresses)) and all(a % 4 == 0 for a in addresses)
    for r in REGISTERS:
        masks = [f.mask for f in r.fields]
        assert sum(masks) < 1 << 32 and len({b for m in masks for b in range(32) if m >> b & 1}) == sum(
            f.width for f in r.fields
        )


def test_locked_registers_are_those_that_a_running_program_reads():
    machine = ["WINDOW_BASE_LO", "WINDOW_BASE_HI", "WINDOW_SIZE", "WATCHDOG", "BASE_ID", "CACHE_CLEAR"]
    assert {by: [r.name for r in REGISTERS if r.locked == by] for by in ("machine", "program", "request")} == {
        "machine": machine,
        "program": ["PROGRAM_OFFSET", "PROGRAM_COMMANDS"],
        "request": ["REQUEST_OFFSET", "REQUEST_COMMANDS"],
    }


def test_every_error_is_described_once():
    assert set(DESCRIPTIONS) == set(Error) and len({int(e) for e in Error}) == len(Error)


@pytest.fixture(scope="module")
def header():
    return regmap.c_header()


def test_the_c_header_compiles_and_agrees(header, tmp_path):
    (tmp_path / "regs.h").write_text(header)
    checks = [
        f'_Static_assert(offsetof(gradloom_t, {r.name}) == {r.address}, "{r.name}");'
        for r in REGISTERS
        if not r.name.startswith("PHASE_CYCLES")
    ]
    checks += [f'_Static_assert(GRADLOOM_ERROR_{e.name} == {e.value}, "{e.name}");' for e in Error]
    (tmp_path / "t.c").write_text('#include <stddef.h>\n#include "regs.h"\n' + "\n".join(checks))
    subprocess.run(["gcc", "-std=c11", "-Wall", "-Werror", "-fsyntax-only", tmp_path / "t.c"], check=True)


def test_manual_and_ipxact_name_every_register():
    manual = regmap.markdown()
    names = {e.text for e in ElementTree.fromstring(regmap.ipxact()).iter() if e.tag.endswith("}name")}
    for r in REGISTERS:
        assert f"## `{r.name}`" in manual
        assert re.sub(r"(PHASE_CYCLES)\d+", r"\1", r.name) in names


def test_the_manual_has_each_field_with_its_bits_and_what_it_is_after_a_reset():
    parts = re.split(r"^## `(\w+)` \(0x(\w+)\)$", regmap.markdown().split("\n## Error codes")[0], flags=re.MULTILINE)[
        1:
    ]
    assert [*zip(parts[::3], parts[1::3])] == [(r.name, f"{r.address:03X}") for r in REGISTERS]
    for register, text in zip(REGISTERS, parts[2::3], strict=True):
        rows = re.findall(r"^\| (\d+)(?::(\d+))? \| `(\w+)` \| [^|]+ \| (\S+) \| ", text, flags=re.MULTILINE)
        assert len(rows) == len(register.fields)
        for field, (top, low, name, reset) in zip(register.fields, rows, strict=True):
            assert name == field.name and (low == "") == (field.width == 1)
            assert sum(1 << bit for bit in range(int(low or top), int(top) + 1)) == field.mask
            assert reset == "–" or int(reset, 16) == field.reset


def test_output_is_the_same_each_time(header):
    assert header == regmap.c_header() and regmap.ipxact() == regmap.ipxact()
