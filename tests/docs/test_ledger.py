"""Every figure of README and docs has its command, and the ledger has all of them."""

import importlib.util
import re
import shlex
import sys
from pathlib import Path

import pytest
import typer

ROOT = Path(__file__).parents[2]


def _load():
    spec = importlib.util.spec_from_file_location("ledger", ROOT / "docs" / "ledger.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["ledger"] = module
    spec.loader.exec_module(module)
    return module


ledger = _load()


@pytest.fixture(scope="module")
def found():
    return ledger.Ledger(ledger.read_claims(), ledger.read_results(), ledger.read_said())


def test_every_figure_has_a_command_and_the_last_run_stands_on_its_page(found):
    assert found.faults == []


def test_the_ledger_has_a_row_for_every_figure(found):
    rows = [
        line for line in found.page().splitlines() if re.search(r" \| (" + "|".join(ledger.KINDS) + r") \| `", line)
    ]
    assert len(rows) == len(found.entries) > 300
    assert "<!-- made by make docs: ledger -->" in ledger.PAGE.read_text(encoding="utf-8")


def test_every_kept_result_is_there(found):
    results = ledger.read_results()
    for each in ledger.read_claims()["result"]:
        assert set(results[each["id"]]) == {path.split(".")[-1] for path in each["keep"]}, each["id"]
    assert set(results) == {each["id"] for each in ledger.read_claims()["result"]}


def test_what_is_quick_is_what_the_last_run_said():
    """The others are renewed by ``make evidence``; their figures have tests of their own."""
    results = ledger.read_results()
    assert ledger.run(["budget", "peers"]) == results


def test_every_command_that_has_printed_is_used(found):
    commands = [each["command"] for each in ledger.read_claims()["said"]]
    assert sorted(ledger.read_said()) == sorted(commands)
    used = {part for entry in found.entries if entry.checked == "said" for part in entry.command.split("; ")}
    assert used == set(commands)
    figures = {figure for entry in found.entries for figure in entry.passage.figures}
    assert {each for listed in ledger.read_claims()["said"] for each in listed.get("but", ())} <= figures


def test_what_a_command_has_printed_is_read_again():
    """Of the quickest."""
    assert ledger.say(["python docs/examples/hardware/dataflows.py"]) == ledger.read_said()


@pytest.mark.parametrize(
    ("figure", "numbers", "is_there"),
    [
        ("1,234 cycles", ["1234"], True),
        ("1,234 cycles", ["1235"], False),
        ("22.27 M", ["22268272"], True),
        ("22.28 M", ["22268272"], False),
        ("22.27 M", ["22.27"], True),
        ("61.0 %", ["0.6099"], True),
        ("61.1 %", ["0.6099"], False),
        ("−0.5 points", ["0.50"], True),
        ("1.34x", ["1.339"], True),
        ("2.61 M", ["0.00000261"], False),
        ("8.4 ms", ["0.00843"], True),
        ("1e-5", ["1.04e-05"], True),
        ("1e-5", ["1.1e-05"], False),
    ],
)
def test_a_figure_is_a_number_as_precise_as_it_is_written(figure, numbers, is_there):
    assert ledger.is_said(figure, numbers) is is_there


def test_every_result_is_used(found):
    names = {wanted.split(".")[0] for claim in ledger.read_claims()["claim"] for wanted in claim.get("values", ())}
    assert {each["id"] for each in ledger.read_claims()["result"]} == names


def fault(command):
    """What is wrong with a command as a page writes it, or None."""
    words = shlex.split(command)
    while words and (words[0] == "time" or "=" in words[0]):
        words.pop(0)
    start, rest = words[0], words[1:]
    if start == "gradloom":
        from gradloom.cli import faces
        from gradloom.cli.main import app

        faces.take(rest)
        verb = typer.main.get_command(app)
        while hasattr(verb, "commands"):
            if not rest or rest[0] not in verb.commands:
                return f"no such verb: {command}"
            verb, rest = verb.commands[rest[0]], rest[1:]
        options = {each for parameter in verb.params for each in parameter.opts}
        strange = {word for word in rest if word.startswith("-")} - options
        return f"no such option: {strange}" if strange else None
    if start == "make":
        return None if re.search(rf"^{rest[0]}:", (ROOT / "Makefile").read_text(), re.M) else f"no target {rest[0]}"
    if start == "pytest":
        return next(
            (
                f"no such test: {word}"
                for word in rest
                if not word.startswith("-") and not (ROOT / word.split("::")[0]).exists()
            ),
            None,
        )
    if start == "python":
        if rest[0] == "-m":
            spec = importlib.util.find_spec(rest[1])
            path, options = Path(spec.origin) if spec else None, rest[2:]
        else:
            path, options = ROOT / rest[0], rest[1:]
        if path is None or not path.is_file():
            return f"no such script: {command}"
        text = path.read_text(encoding="utf-8")
        loops = re.search(r'add_argument\(f"--\{', text)
        return next(
            (
                f"{path.name} has no {word}"
                for word in options
                if word.startswith("--") and f'"{word}"' not in text and not (loops and f'"{word[2:]}"' in text)
            ),
            None,
        )
    return f"not a command of this project: {command}"


def test_every_command_is_there(found):
    commands = {part for entry in found.entries for part in entry.command.split("; ")}
    commands |= {part for each in ledger.read_claims()["result"] for part in each["command"].split("; ")}
    assert [said for said in map(fault, sorted(commands)) if said] == []


def typed(page):
    """Commands that a page's console blocks have a reader type, on one line each."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for line in re.findall(r"^ *\$ (.*)", block, re.MULTILINE):
            yield re.sub(r"\s+#.*", "", line)


@pytest.mark.parametrize("page", ledger.pages(), ids=lambda page: page.name)
def test_every_verb_that_a_page_has_its_reader_type_is_there(page):
    commands = [command for command in typed(page) if command.startswith(("gradloom ", "make ", "python docs"))]
    assert [said for said in map(fault, commands) if said and "make -C" not in said] == []


@pytest.mark.parametrize(
    "command",
    [
        "gradloom weave",
        "gradloom report DIR --levels 3",
        "make coffee",
        "pytest tests/none.py",
        "python docs/none.py",
        "python -m gradloom.none",
        "python docs/examples/quality/seeds.py --fast",
        "vivado",
    ],
)
def test_a_command_that_is_not_there_is_found(command):
    assert fault(command)


PAGE = """\
# Title
A mesh is small. It takes 1,234 cycles, as [they](say.md) say.

## Table
| figure | value | evidence and command |
| --- | --- | --- |
| speed | 75.5 MHz | place-and-route: `gradloom build ulx3s DIR` |
| another | 3 levels | the same command |
| energy | 4 J and 5 ms | somebody said so |

```console
$ takes 17 MHz
```
```text
loss 0.25731
```
"""


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(PAGE, encoding="utf-8")
    return path


def _faults(page, claims, results=None):
    return ledger.Ledger(claims, results or {}, of=[page]).faults


COVER = [
    {"page": "page.md", "match": "energy", "command": "make test", "kind": "published"},
    {"page": "page.md", "match": "loss", "command": "make test", "kind": "reference"},
]


def test_a_figure_without_a_command_is_a_fault(page):
    faults = _faults(page, {})
    assert [re.search(r"figures (.*); add", fault)[1] for fault in faults] == ["1,234 cycles", "5 ms", "0.25731"]


def test_a_figure_that_its_command_did_not_print_is_a_fault(page):
    claims = {"claim": COVER, "plain": [{"page": "page.md", "why": "a choice"}], "said": [{"command": "make test"}]}
    found = ledger.Ledger(claims, {}, {"make test": ["5e-3", "0.2573"]}, of=[page])
    assert [re.search(r": (\S+( ms)?) is no number of", fault)[1] for fault in found.faults] == ["0.25731"]
    claims["said"][0]["but"] = ["0.25731"]
    assert ledger.Ledger(claims, {}, {"make test": ["5e-3"]}, of=[page]).faults == []


def test_what_is_said_covers_it(page):
    claims = {"claim": COVER, "plain": [{"page": "page.md", "why": "a choice"}]}
    found = ledger.Ledger(claims, {}, of=[page])
    assert found.faults == []
    assert [(each.kind, each.command) for each in found.entries] == [
        ("place-and-route", "gradloom build ulx3s DIR"),
        ("place-and-route", "gradloom build ulx3s DIR"),
        ("published", "make test"),
        ("reference", "make test"),
    ]
    assert "Not yet shown on a board" in found.page()


def test_an_entry_that_covers_nothing_is_a_fault(page):
    claims = {
        "claim": [*COVER, {"page": "page.md", "match": "gone", "command": "make test", "kind": "proof"}],
        "plain": [{"page": "page.md", "section": "Title", "why": "a choice"}],
    }
    assert _faults(page, claims) == ["claims.toml: covers nothing: 'page.md', 'gone'"]


@pytest.mark.parametrize(
    "cycles, wanted, faults",
    [
        (1234, ["run.cycles"], 0),
        (1234, ["run.cycles:, cycles"], 0),
        (1235, ["run.cycles"], 1),
        pytest.param(234, ["run.cycles"], 1, id="a part of a number"),
        pytest.param(1234, ["run.cycles:, bytes"], 1, id="of another unit"),
        pytest.param(1234, ["run.cycles", "run.cycles"], 1, id="another value's place"),
    ],
)
def test_the_page_must_say_what_the_last_run_said(page, cycles, wanted, faults):
    claims = {
        "claim": [
            *COVER,
            {"page": "page.md", "section": "Title", "command": "make test", "kind": "forecast", "values": wanted},
        ],
        "result": [{"id": "run", "command": "make test", "keep": ["cycles"]}],
    }
    assert len(_faults(page, claims, {"run": {"cycles": cycles}})) == faults


def test_a_value_has_divisor_format_and_unit():
    results = {"run": {"bytes": 1_234_567, "rows": [{"a b": 3}]}}
    assert ledger.value("run.bytes/1e6:.2f", results) == "1.23"
    assert ledger.value("run.bytes/1e6:.1f MB", results) == "1.2 MB"
    assert ledger.value("run.bytes", results) == "1,234,567"
    assert ledger.value("run.rows.0.a b", results) == "3"


@pytest.mark.parametrize(
    "text, figures",
    [
        ("8 LUT levels at 94.2 %, 1.28x", ["8 LUT", "94.2 %", "1.28x"]),
        ("`64 bytes` in v0.21.2", []),
        ("rank 8, 3 × 3, 25 rows", []),
        ("3.85e-3 of [it](a%20b)", ["3.85e-3"]),
        ("12.6 MB and 1,000", ["12.6 MB", "1,000"]),
    ],
)
def test_what_looks_measured(text, figures):
    assert ledger.Passage("page", "section", text).figures == figures
