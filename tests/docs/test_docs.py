"""What documents say of the code is so."""

import ast
import dataclasses
import importlib
import json
import os
import re
import runpy
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from gradloom.preset import PRESETS
from gradloom.rtl.shell.registers.errors import Error

from ..conftest import skipped

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


@pytest.fixture(scope="module")
def made():
    """Text of a table that the site has from code, by its name."""
    parts = runpy.run_path(str(DOCS / "site.py"))["PARTS"]
    return lambda name: "\n".join(parts[name]())


def test_every_mark_of_a_page_has_its_table_and_every_table_its_page(made):
    marks = {
        mark
        for page in PAGES
        for mark in re.findall(r"<!-- made by make docs: (\w+) -->", page.read_text(encoding="utf-8"))
    }
    assert marks == set(runpy.run_path(str(DOCS / "site.py"))["PARTS"])


def test_the_register_manual_has_every_register(made):
    text = made("registers")
    assert all(f"`{name}`" in text for name in ("ID", "STATUS", "WINDOW_SIZE", "ERROR_CODE", "CYCLES_LO"))


def test_every_preset_is_in_the_table_of_machines(made):
    text = made("machines")
    assert all(text.count(f"`{name}`") == 1 for name in PRESETS)


def test_every_port_of_every_machine_is_in_the_table_of_ports(made):
    text = made("ports")
    for preset in PRESETS.values():
        engines = preset.config.machine.engines
        for port in (*engines.loads, *engines.stores):
            assert f"| {int(port)} | `{port}` |" in text, f"{preset.name}: {port}"


def test_every_error_is_in_the_table_of_errors(made):
    assert all(f"`{code.name}`" in made("errors") for code in Error)


def test_the_table_of_parameters_explains_all(made):
    free = {
        field.name
        for preset in PRESETS.values()
        for field in dataclasses.fields(preset.config)
        if field.metadata["low"] < field.metadata["high"]
    }
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|", made("parameters"), re.MULTILINE)
    assert {name for name, _ in rows} == free and all(meaning.endswith(".") for _, meaning in rows)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


# The page on the KV260 names files of a generated design.
@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "kv260.md"], ids=lambda page: page.name)
def test_modules_and_files_that_are_named_exist(page):
    rooms = r"`((?:rtl|sim|boards|firmware|tests|docs)/[\w/.-]+)`"
    for name in re.findall(rooms, page.read_text(encoding="utf-8")):
        assert (ROOT / name).exists(), name


def test_the_diagram_is_well_formed():
    assert ElementTree.parse(DOCS / "explanation" / "architecture.svg").getroot().tag.endswith("svg")


def test_the_cycle_budget_runs():
    done = subprocess.run(
        [sys.executable, DOCS / "examples" / "programs" / "cycle_budget.py"], capture_output=True, text=True, check=True
    )
    assert re.search(r"^together +[\d,]+$", done.stdout, re.M)


def test_every_verb_is_on_the_page_of_the_command_line():
    from gradloom.cli.main import app

    verbs = {each.name or each.callback.__name__ for each in app.registered_commands}
    text = (DOCS / "reference" / "command-line.md").read_text(encoding="utf-8")
    assert {verb for verb in verbs if f"`{verb}`" not in text} == set()


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 700


def test_the_readme_has_the_two_commands_with_their_times_and_what_is_skipped():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in ("make demo", "make test"):
        assert re.search(rf"^\$ {command} +# \d+ minutes", text, re.MULTILINE), command
        assert re.search(rf"^{command.removeprefix('make ')}:", rules, re.MULTILINE), command
    assert "counts what is skipped, by reason" in text


def test_skipped_tests_are_counted_by_reason():
    assert skipped(
        ["Skipped: gcc is not installed", "Skipped: minutes: GRADLOOM_DEEP=1", "Skipped: GRADLOOM_DEEP=1"]
    ) == ["skipped 2: takes minutes, make evidence runs it", "skipped 1: gcc is not installed"]


def test_every_test_that_takes_minutes_is_run_by_a_part_of_the_evidence():
    rules = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    run = {
        word
        for line in rules.splitlines()
        if "GRADLOOM_DEEP=1" in line
        for word in line.split()
        if word[:6] == "tests/"
    }
    deep = re.compile(r"^from \.+deep import|^from \.+ import .*\bdeep\b", re.MULTILINE)
    files = [each for each in sorted((ROOT / "tests").rglob("test_*.py")) if deep.search(each.read_text("utf-8"))]
    assert len(files) > 30
    where = [each.relative_to(ROOT).as_posix() for each in files]
    assert [each for each in where if not any(each == path or each.startswith(f"{path}/") for path in run)] == []


def test_python_of_the_readme_runs(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before, after, _ = map(float, done.stdout.splitlines()[0].split())
    assert before < after and done.stdout.splitlines()[1] == "True"


def test_the_notebook_runs(tmp_path):
    """Its cells, one behind the other, with plots drawn to memory."""
    notebook = json.loads((DOCS / "tutorials" / "first_finetune.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(each["source"]) for each in notebook["cells"] if each["cell_type"] == "code"]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(cells)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"MPLBACKEND": "agg"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.match(r"[\d.]+% before, [\d.]+% after\n", done.stdout)


@pytest.mark.parametrize("path", sorted((DOCS / "examples").rglob("*.py")), ids=lambda path: path.name)
def test_names_that_an_example_imports_exist(path):
    """Some examples need packages or minutes that the tests have not; a name that has moved is seen all the same."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("gradloom"):
            continue
        try:
            module = importlib.import_module(node.module)
        except ModuleNotFoundError as error:
            assert not error.name.startswith("gradloom"), node.module
            continue
        for each in node.names:
            if not hasattr(module, each.name):
                importlib.import_module(f"{node.module}.{each.name}")
