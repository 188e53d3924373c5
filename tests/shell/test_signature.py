"""A command's words are those of the page that tells about them."""

import hashlib
import re
from pathlib import Path

from gradloom.preset import PRESETS
from gradloom.rtl.shell.signature import (
    COMMAND_BYTES,
    FORWARD_BITS,
    TOKENS,
    Command,
    ControlOpcode,
    ControlOperands,
    LoadOperands,
    StoreOperands,
    store_request,
)
from gradloom.rtl.shell.table import PROGRAM_FORMAT

PAGE = Path(__file__).parents[2] / "docs/reference/program.md"
#: Fields by the first words of their lines.
NAMES = {"wait mask": "wait", "post mask": "post", "number of slots": "count", "first slot": "slot"}


def bits(layout):
    """First and last bit of each field."""
    return {name: (field.offset, field.offset + field.width - 1) for name, field in layout}


def test_a_command_is_as_the_page_says():
    found, word = {}, 0
    for line in re.findall(r"^\| (?:w\d)? ?\| [\d:]+ \| .*$", PAGE.read_text(), re.MULTILINE):
        number, where, name = re.fullmatch(r"\| (?:w(\d))? ?\| ([\d:]+) \| (?:predicate: )?([\w ]+).*", line).groups()
        word = int(number or word)
        last, _, first = where.partition(":")
        name = name.strip()
        found[NAMES.get(name, name)] = (32 * word + int(first or last), 32 * word + int(last))
    assert len(found) == 8 and COMMAND_BYTES == 32 and TOKENS == 16
    assert bits(Command) == found | {"_reserved": (88, 95), "args": (96, 255)}
    said = dict(re.findall(r"^\| (\d) ([A-Z]+) \| .*$", PAGE.read_text(), re.MULTILINE)[:6])
    assert {str(each.value): each.name for each in ControlOpcode} == said


def test_operands_have_whole_words():
    """A command has five words for them."""
    block = {"offset": (0, 31), "beats": (32, 55), "arg": (64, 95)}
    assert bits(LoadOperands) == block | {"dest": (56, 63), "_reserved": (96, 159)}
    forward = {"to_arg": (96, 127), "to": (128, 135), "forward": (136, 136), "only": (137, 137)}
    assert bits(StoreOperands) == block | {"source": (56, 63), "_reserved": (138, 159)} | forward
    assert bits(ControlOperands) == {"slot": (0, 31), "count": (32, 63), "_reserved": (64, 159)}
    assert FORWARD_BITS == 138
    for forwards in (0, 1):
        asked = bits(StoreOperands)
        names = ("source", "arg", "beats", *(forward if forwards else ()))
        assert {name: last - first for name, (first, last) in bits(store_request(forwards)).items()} == {
            name: asked[name][1] - asked[name][0] for name in names
        }


def test_programs_of_another_layout_have_another_format():
    """A board refuses what was made for operands that lie elsewhere, instead of reading them wrongly."""
    engines = {each.name: each for preset in PRESETS.values() for each in preset.config.machine.engines}
    told = [f"{field}: {shape}" for field, shape in bits(Command).items()] + [
        f"{name} {place} {field}: {shape}"
        for name, engine in sorted(engines.items())
        for place, layout in [
            *((opcode.name, engine.layout(opcode)) for opcode in engine.spec.opcodes),
            *((port.name, port.arg) for port in (*engine.spec.loads, *engine.spec.stores)),
        ]
        for field, shape in bits(layout).items()
    ]
    assert len(told) > 500
    digest = hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]
    assert (PROGRAM_FORMAT, digest) == (2, "fa28837f83ed24f5"), "operands lie elsewhere: raise PROGRAM_FORMAT"
