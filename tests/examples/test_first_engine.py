"""The page "Your first engine" is whole: its text alone makes a wheel with which all that it says runs."""

import ast
import io
import json
import re
import runpy
import shlex
import sys
import tokenize
from pathlib import Path

import pytest

from ..deep import deep
from ..tools.installed import ROOT, Installed, build_wheel, gradloom_wheel, tracked

PAGE = ROOT / "docs/tutorials/your-first-engine.md"
EXAMPLE = "examples/first_engine/"


@pytest.fixture(scope="module")
def text():
    """The page as the site has it."""
    return runpy.run_path(str(ROOT / "docs/site.py"))["on_page_markdown"](PAGE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def files(text):
    """Files that the page shows, by path."""
    return dict(re.findall(r'^```\w+ title="(.*?)"\n(.*?)^```', text, re.MULTILINE | re.DOTALL))


def code_lines(path, text):
    """Lines without blanks, comments and docstrings."""
    if not path.endswith(".py"):
        return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in text.splitlines())
    silent = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in silent
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            lines -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines)


def test_the_page_shows_every_file_with_code(files):
    own = {name for name in tracked() if name.startswith(EXAMPLE)}
    assert set(files) == {name for name in own if code_lines(name, (ROOT / name).read_text(encoding="utf-8"))}


def test_the_engine_is_small(files):
    assert sum(code_lines(*each) for each in files.items()) <= 350


@pytest.fixture(scope="module")
def installed(files, tmp_path_factory):
    """An environment with gradloom's wheel and the one that the page's files make."""
    folder = tmp_path_factory.mktemp("first_engine")
    made = Installed(Path(sys.executable), gradloom_wheel(folder / "gradloom"), folder)
    for name, content in {**files, f"{EXAMPLE}first_engine/__init__.py": ""}.items():
        (folder / "work" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "work" / name).write_text(content, encoding="utf-8")
    made.install(build_wheel(folder / "work" / EXAMPLE, folder))
    return made


def test_what_the_page_runs_does_what_it_says(installed, text):
    commands = [
        shlex.split(line)
        for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL)
        for line in re.findall(r"^\$ (.*)", block, re.MULTILINE)
    ]
    verbs = [words[1:] for words in commands if words[0] == "gradloom"]
    assert [words[0] for words in verbs] == ["list", "list", "generate", "selftest", "finetune"]
    (pip, tests) = [words for words in commands if words[0] != "gradloom"]
    assert pip[:2] == ["pip", "install"] and pip[-1] + "/" == EXAMPLE  # the fixture did
    said = [installed.verb(*words) for words in verbs]
    assert "scale-genesys2" in said[0] and "first-engine" in said[0] and re.search(r"^scale\b", said[1], re.MULTILINE)
    assert "to scale.factors and back" in said[3] and "False" not in said[3]
    (promised,) = re.findall(r"```text\n(.*?)\n```", text, re.DOTALL)
    assert promised in said[-1]
    metrics = json.loads((installed.folder / "work/run/metrics.json").read_text())
    assert metrics["cycles"] == metrics["forecast"] and metrics["equal_to_reference"]["words"] > 0
    assert metrics["loss_after"] < metrics["loss_before"] / 10 and metrics["units"]["loss"].endswith("squared error")
    assert "passed" in installed.python_with(*tests[1:], "-p", "no:cacheprovider")


@deep
def test_the_rest_of_its_tests_pass(installed):
    """Levels of logic, and both machines; the page itself runs one of them."""
    said = installed.python_with(
        "-m", "pytest", f"{EXAMPLE}tests", "-k", "levels or fine_tune", "-p", "no:cacheprovider"
    )
    assert "3 passed" in said
