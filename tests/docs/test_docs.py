"""What documents say of the code is so."""
import re
import runpy
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]


@pytest.fixture(scope="module")
def renew():
    return runpy.run_path(str(DOCS / "renew.py"))


def test_the_register_manual_is_current(renew):
    assert (DOCS / "reference" / "registers.md").read_text(encoding="utf-8") == renew["registers"]()


def test_the_program_page_is_current(renew):
    text = (DOCS / "reference" / "program.md").read_text(encoding="utf-8")
    assert text == renew["program"](text)


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
    done = subprocess.run([sys.executable, DOCS / "examples" / "cycle_budget.py"],
                          capture_output=True, text=True, check=True)
    assert re.search(r"^together +[\d,]+$", done.stdout, re.M)


def test_every_verb_is_in_the_readme():
    from gradloom.rtl.cli.main import app
    verbs = {each.name or each.callback.__name__ for each in app.registered_commands}
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert {verb for verb in verbs if f"`{verb}`" not in text} == set()
