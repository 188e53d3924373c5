"""Documents and comments say what things are: operands, opcodes, first lines, plain words."""

import ast
import inspect
import re
import runpy
from pathlib import Path

import pytest

from gradloom.rtl.machines.diffusion import DIFFUSION
from gradloom.rtl.machines.images import IMAGES
from gradloom.rtl.machines.language import LANGUAGE
from gradloom.rtl.machines.recurrent import RECURRENT
from gradloom.rtl.shell.engines import CONTROL, LOAD, STORE

ROOT = Path(__file__).parents[2]
ENGINES = {
    each.spec.name: each for each in (CONTROL, LOAD, STORE, *IMAGES.own, *LANGUAGE.own, *RECURRENT.own, *DIFFUSION.own)
}


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


#: Phrases that readers stumble over, and what to write in their place.
BANNED = {
    r"\banew\b": "again, or: for each step",
    r"\bby turns\b": "alternately",
    r"\bin so many\b|\bof so many\b|\bonly so many\b|\bmost so many\b": "the quantity by its name",
    r"\bwhat moves\b|\bwhat is told\b|\btells of\b|\btold of\b": "a noun, and: reports",
    r"\bwhoever\b|\bwhatever\b": "the unit or the person that is meant",
    r"\bis that of\b.*\bthat of\b": "two sentences",
    r"\btakes what\b|\bgives what\b|\bdoes all that\b": "a noun for the object",
}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_in_plain_words(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = {
        f"{match[0]}: write {instead}"
        for phrase, instead in BANNED.items()
        for match in re.finditer(phrase, text, re.IGNORECASE)
    }
    assert found == set()


def test_documents_are_short_and_say_nouns():
    """At most 60,000 words with README and CHANGELOG, 6,000 or more of tutorials; "what" at most 1.5 in a thousand."""
    texts = {page: page.read_text(encoding="utf-8").split() for page in (*PAGES, ROOT / "CHANGELOG.md")}
    words = [word for text in texts.values() for word in text]
    assert len(words) <= 60_000
    assert sum(len(text) for page, text in texts.items() if page.parent.name == "tutorials") >= 6_000
    assert sum(bool(re.fullmatch(r"\W*what\W*", word, re.IGNORECASE)) for word in words) <= 1.5e-3 * len(words)


def test_the_newest_changes_are_told_in_60_lines():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert len(re.split(r"^## ", text, flags=re.MULTILINE)[1].splitlines()) <= 60


@pytest.mark.parametrize(
    "word", ["window", "slot", "kept", "packed", "card", "master", "two programs", "tap", "record"]
)
def test_words_of_our_own_are_in_the_glossary(word):
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| (?:[\w ]+, )?{word} \|", text, re.MULTILINE), word


ROOMS = ("rtl", "sim", "boards", "firmware", "src", "docs", "examples")


def docstrings(node, name=""):
    """Qualified name and docstring of a module, its classes and its functions; private and nested ones too."""
    doc = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
        node
    )
    if doc:
        yield name, doc
    for child in ast.iter_child_nodes(node):
        yield from docstrings(child, f"{name}.{child.name}".strip(".") if hasattr(child, "name") else name)


@pytest.mark.parametrize("room", ROOMS)
def test_first_lines_of_docstrings_are_whole_sentences(room):
    found = [
        (f"{path.relative_to(ROOT)} {name}", doc.splitlines()[0])
        for path in sorted((ROOT / room).rglob("*.py"))
        for name, doc in docstrings(ast.parse(path.read_text(encoding="utf-8")))
        if not doc.startswith("Generated from")
    ]
    assert found
    assert [(where, line) for where, line in found if line[-1] not in ".?"] == []
