"""Documents and comments say what things are: operands, opcodes, first lines, plain words."""
import inspect
import re
import runpy
from pathlib import Path

import pytest

from gradloom.rtl.machines.engines import IMAGES, LANGUAGE
from gradloom.rtl.shell.engines import CONTROL, LOAD, STORE

ROOT = Path(__file__).parents[2]
ENGINES = {each.spec.name: each for each in (CONTROL, LOAD, STORE, *IMAGES.own, *LANGUAGE.own)}


@pytest.fixture(scope="module")
def site():
    return runpy.run_path(str(ROOT / "docs" / "site.py"))


@pytest.mark.parametrize("name", ENGINES)
def test_every_opcode_and_operand_has_its_comment(name, site):
    spec = ENGINES[name].spec
    for opcode in spec.opcodes:
        said = re.search(rf"^ +{opcode.name} *=.*#: \w.*$", inspect.getsource(spec.opcodes), re.MULTILINE)
        assert said, f"{opcode.name} has no comment"
    layouts = [spec.default, *spec.operands.values(), *(port.arg for port in (*spec.loads, *spec.stores))]
    for layout in layouts:
        silent = [field for field, text in site["operands"](layout).items() if not text]
        assert silent == [], f"{layout}: {silent}"
