"""Single changes of sources are made where something runs, and tests find them or not."""

import ast
import subprocess
from pathlib import Path

from . import run
from .changes import changes_of
from .run import (
    EQUIVALENT,
    ROOT,
    Bench,
    Verdicts,
    drawn,
    equivalents,
    files_of,
    images_of,
    lines_of,
    room_of,
    statement_of,
)

PYTHON = '''"""1 + 1"""
__all__ = ["f"]


def f(a: int = 3, *, é="é") -> "a == 1":
    """a < b"""
    if not a & é == 2 and a > 1:  # a < b
        raise ValueError(f"a={a + 1}: 4")
    with m.If(a[4:]):
        return Mux(a, Signal(8, init=a), True)


if __name__ == "__main__":
    f()
'''
C = """/* 1 + 1 */
#define A 1
int f(int *a, const int b) { // 2 - 1
    a += b - 10; return a->x >= 0x1f && '1' != b;
}
"""
ONE = """from time import sleep


def f(a):
    while a > 0:
        sleep(0.01)
        a = a - 1
    return a
"""


def test_changes_are_those_of_what_runs(tmp_path):
    (tmp_path / "a.py").write_text(PYTHON)
    found = changes_of(tmp_path, Path("a.py"))
    assert [(each.line, each.kind, each.old, each.new) for each in found] == [
        (5, "constant", "3", "4"),
        (7, "dropped negation", "not a & é == 2", "(a & é == 2)"),
        (7, "dropped term", "a & é", "(a)"),
        (7, "operator", "&", "|"),
        (7, "comparison", "==", "!="),
        (7, "constant", "2", "3"),
        (7, "operator", "and", "or"),
        (7, "comparison", ">", ">="),
        (7, "constant", "1", "2"),
        (9, "dropped condition", "a[4:]", "1"),
        (9, "constant", "4", "5"),
        (10, "swapped arms", "Mux(a, Signal(8, init=a), True)", "Mux(a, True, Signal(8, init=a))"),
        (10, "constant", "8", "9"),
        (10, "dropped reset", "a", "0"),
        (10, "constant", "True", "False"),
    ]
    for each in found:
        assert ast.unparse(ast.parse(each.made(PYTHON))) != ast.unparse(ast.parse(PYTHON))
    (tmp_path / "a.c").write_text(C)
    found = changes_of(tmp_path, Path("a.c"))
    assert [(each.line, each.old, each.new) for each in found] == [
        (4, "-", "+"),
        (4, "10", "11"),
        (4, ">=", ">"),
        (4, "&&", "||"),
        (4, "!=", "=="),
    ]


def test_room_of_a_room_find_what_they_look_at(tmp_path, monkeypatch):
    """Of two functions one is tested; a change that hangs is found, too."""
    root = tmp_path / "root"
    for name, text in {
        "rtl/room/one.py": ONE,
        "rtl/room/two.py": "def g(a):\n    return a & 6\n",
        "tests/room/test_one.py": "from rtl.room.one import f\n\n\ndef test_f():\n    assert f(2) == 0\n",
        "pyproject.toml": "",
        "conftest.py": "",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for words in (("init", "-q"), ("add", ".")):
        subprocess.run(["git", *words], cwd=root, check=True)
    assert files_of(Path("rtl/room/two.py"), root) == ["tests/room/test_one.py"]
    made = drawn(["rtl"], 99, 3, root)
    assert made == drawn(["rtl"], 99, 3, root) != drawn(["rtl"], 99, 4, root) and len(set(made)) == len(made) == 7
    bench = Bench(tmp_path / "copy", root)
    # Of one that hangs this is what it takes.
    monkeypatch.setattr(run, "_MORE", 4)
    told = {str(each): bench.judge(each) for each in made}
    assert {test for found, test in told.values() if found == "failed"} == {"tests/room/test_one.py::test_f"}
    hangs = next(each for each in made if each.kind == "operator" and each.old == "-")
    assert bench.judge(hangs, 0.1) == ("undecided", "")
    found = {name: verdict for name, (verdict, _) in told.items()}
    assert found == {
        "rtl/room/one.py:5 comparison: > -> >=": "failed",
        "rtl/room/one.py:5 constant: 0 -> 1": "failed",
        "rtl/room/one.py:7 operator: - -> +": "hung",
        "rtl/room/one.py:7 constant: 1 -> 2": "lived",
        "rtl/room/two.py:2 operator: & -> |": "lived",
        "rtl/room/two.py:2 dropped term: a & 6 -> (a)": "lived",
        "rtl/room/two.py:2 constant: 6 -> 7": "lived",
    }
    assert (root / "rtl/room/one.py").read_text() == (bench.folder / "rtl/room/one.py").read_text()
    ran = {str(each.path) for each in made if bench.reached(each, "tests/room/test_one.py")}
    assert ran == {"rtl/room/one.py"}


def test_a_statement_is_without_its_body():
    lines = [PYTHON.splitlines().index(each) + 1 for each in ("    with m.If(a[4:]):", "    f()")]
    assert [statement_of(PYTHON, each) for each in lines] == [range(9, 10), range(14, 15)]
    assert statement_of("a = f(\n    1,\n    2,\n)\n", 3) == range(1, 5)
    assert statement_of("if (\n    a\n):\n    f(\n        1)\n", 2) == range(1, 4)


def test_verdicts_hold_as_long_as_what_they_are_of(tmp_path):
    """What was found for as long as the source stays; what lived, as the tests stay, too."""
    for name, text in {"rtl/room/two.py": "def g(a):\n    return a[1] & a[1]\n", "tests/room/test_two.py": ""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    *_, one, two = (each for each in changes_of(tmp_path, Path("rtl/room/two.py")) if each.kind == "constant")
    (three,) = (each for each in changes_of(tmp_path, Path("rtl/room/two.py")) if each.kind == "operator")
    assert str(one) == str(two)
    written = tmp_path / "build" / "mutants.jsonl"
    verdicts = Verdicts(written, tmp_path)
    assert verdicts.told(one) is None
    verdicts.tell(one, "failed")
    verdicts.tell(two, "lived")
    again = Verdicts(written, tmp_path)
    assert (again.told(one), again.told(two), again.told(three)) == ("failed", "lived", None)
    (tmp_path / "tests/room/test_two.py").write_text("def test_g(): pass\n")
    assert (again.told(one), again.told(two)) == ("failed", None)
    (tmp_path / "rtl/room/two.py").write_text("def g(a):\n    return a[1] & a[1]  # or more\n")
    assert again.told(one) is None
    assert lines_of(one, tmp_path)[0] == "return a[1] & a[1]  # or more"


def test_tests_that_name_a_source_come_first(tmp_path):
    for name, text in {
        "firmware/soc_one.c": "",
        "tests/firmware/test_b.py": '"soc_one"',
        "tests/firmware/chip/test_c.py": "soc_one.c",
        "tests/firmware/test_a.py": "soc_one_more",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert files_of(Path("firmware/soc_one.c"), tmp_path) == [
        "tests/firmware/chip/test_c.py",
        "tests/firmware/test_b.py",
        "tests/firmware/test_a.py",
    ]


def test_an_engines_time_and_reference_are_judged_by_its_tests_too():
    own = files_of(Path("sim/time/norm.py"))
    assert "tests/engines/vector/test_softmax_engine.py" in files_of(Path("sim/reference/vector_softmax.py"))
    assert "tests/engines/head/test_head.py" in files_of(Path("rtl/units/lora_gradient.py"))
    assert "tests/choosing/test_images.py" in files_of(Path("src/gradloom/models/datasets.py"))
    assert files_of(Path("rtl/shell/faults.py"))[-1] == "tests/emit/test_documented_ports.py"
    assert own[-1] == "tests/engines/norm/test_wide.py" and "tests/sim/test_perf.py" in own
    assert "tests/engines/update/test_codes.py" in files_of(Path("sim/reference/update.py"))
    assert not any(each.startswith("tests/engines") for each in files_of(Path("sim/time/shell/bus.py")))


def test_what_runs_from_an_image_is_judged_by_tests_that_run_it():
    own = files_of(Path("firmware/chip/runs/soc_main.c"))
    assert images_of(Path("firmware/chip/runs/soc_main.c")) == ["soc"] and "tests/soc/test_serve.py" in own
    assert len(set(own)) == len(own) and all((ROOT / each).is_file() for each in own)
    assert images_of(Path("firmware/driver/gradloom.c")) == ["soc", "tuner"]
    assert files_of(Path("firmware/chip/runs/tuner_main.c"))[-1] == "tests/boards/ulx3s/test_data.py"
    assert not images_of(Path("firmware/chip/soc_image.py"))


def test_a_change_that_a_compiler_refuses_is_found(monkeypatch):
    monkeypatch.setattr(Bench, "__init__", lambda bench: vars(bench).update(folder=ROOT, took={}))
    monkeypatch.setattr(Bench, "timed", lambda bench, tests: bench.took.update({tests: 0}))
    monkeypatch.setattr(Bench, "changed", lambda *_: ("failed", "the compiler of soc"))
    assert Bench().judge(drawn(["firmware/chip/runs"], 1, 0)[0]) == ("failed", "the compiler of soc")


def test_every_source_has_a_room():
    listed = subprocess.run(["git", "ls-files", "--", *run.ROOMS], cwd=ROOT, capture_output=True, text=True, check=True)
    sources = [Path(each) for each in listed.stdout.splitlines() if each.endswith((".py", ".c", ".v"))]
    rooms = {path: room_of(path) for path in sources if not (ROOT / path).is_symlink()}
    assert all((ROOT / room).is_dir() and room != Path("tests") for room in rooms.values())
    assert rooms[Path("rtl/catalog.py")] == Path("tests/emit")
    assert rooms[Path("src/gradloom/output.py")] == Path("tests/cli")


def test_equivalent_changes_are_changes_of_the_sources():
    """A line that is no more, or a change that cannot be drawn, does not stay on the list."""
    possible = {
        (path, *lines_of(each))
        for path in {path for path, _, _ in equivalents()}
        for each in changes_of(ROOT, Path(path))
    }
    assert set(equivalents()) <= possible, EQUIVALENT
