"""The clock of CPU time sees what a test costs, and fails what costs too much."""

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from .cpu import BUILDS, Budgets, slowest, spent

BUDGETS = Budgets(Path(__file__).with_name("budgets.toml").read_text(encoding="utf-8"))
BURN = "import time\nend = time.process_time() + {}\nwhile time.process_time() < end: pass"
TEXT = 'margin = 2\nmost = 0.1\nbuilds = 0.2\n[tests]\n"test_it.py::test_a_long_one" = 5\n'
TESTS = f"""
import subprocess, sys, time
import pytest

def burn(seconds):
    subprocess.run([sys.executable, "-c", {BURN!r}.format(seconds)], check=True)

@pytest.fixture(scope="module")
def shared():
    burn(0.5)

def test_a_child(): burn(0.5)
@pytest.mark.parametrize("n", [1])
def test_a_long_one(n): burn(0.5)
def test_sleep(): time.sleep(0.5)
def test_first(shared): pass
def test_second(shared): pass
def test_build(clock): clock.counted("builds", burn)(0.5)
"""
CONFTEST = f"""
import pytest
from tests.cpu import Budgets, Clock

CLOCK = Clock(Budgets({TEXT!r}))

def pytest_configure(config): config.pluginmanager.register(CLOCK)

@pytest.fixture
def clock(): return CLOCK
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cpu")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(TESTS)
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {Path(__file__).parents[1]}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-rEf", "test_it.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def test_a_test_its_fixture_and_its_builds_have_bounds_of_their_own(said):
    assert "6 passed, 3 errors" in said, said
    failed = {line.split()[1].partition("::")[2] for line in said.splitlines() if line.startswith("ERROR test_it")}
    assert failed == {"test_a_child", "test_first", "test_build"}, said


@pytest.mark.parametrize("name", ["test_it.py::test_a_child", "test_it.py::shared", BUILDS])
def test_a_line_names_what_takes_too_long_and_what_to_do(said, name):
    lines = [line for line in said.splitlines() if line.startswith(f"{name}: ")]
    assert (
        len(lines) == 1 and " s of CPU time, 2 x 0." in lines[0] and "name its bound in tests/budgets.toml" in lines[0]
    )


def test_processes_that_run_and_that_have_ended_are_counted():
    before = spent()
    with subprocess.Popen(
        [sys.executable, "-c", BURN.format(0.3) + "\nprint(flush=True)\ninput()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        process.stdout.readline()
        running = spent() - before
        process.communicate(b"\n")
    assert running >= 0.25 and spent() - before >= running
    before = spent()
    time.sleep(0.3)
    assert spent() - before < 0.2


def test_parameters_share_a_bound_unless_they_have_one():
    budgets = Budgets('margin = 2\nmost = 1\nbuilds = 7\n[tests]\n"a::b" = 3\n"a::b[c]" = 4\n')
    assert [budgets.bound(name) for name in ("a::b", "a::b[d]", "a::b[c]", "a::e[b]", BUILDS)] == [3, 3, 4, 1, 7]
    assert budgets.beyond({"a::b[c]": 8.0, "a::e": 2.0, BUILDS: 14.0}) == []
    assert [line.partition(":")[0] for line in budgets.beyond({"a::e": 2.1, BUILDS: 14.1})] == ["a", BUILDS]


def test_every_bound_is_of_a_test_there_is():
    root = Path(__file__).parents[1]
    for name in BUDGETS.tests:
        path, _, test = name.partition("::")
        assert f"def {test.partition('[')[0]}(" in (root / path).read_text(encoding="utf-8"), name


def test_files_with_long_tests_come_first(request):
    """Workers take files in their order."""
    assert request.config.option.loadscopereorder is False
    long = {name.partition("::")[0] for name in BUDGETS.tests}
    files = list(dict.fromkeys(item.nodeid.partition("::")[0] for item in request.session.items))
    assert set(files[: len(long & set(files))]) == long & set(files)


def test_the_slowest_are_told_with_their_folders():
    reports = [
        SimpleNamespace(nodeid="tests/a/x.py::one", cpu={"tests/a/x.py::one": 1.0, BUILDS: 5.0}),
        SimpleNamespace(nodeid="tests/b/y.py::two", cpu={"tests/b/y.py::two": 2.0, "tests/b::shared": 3.0}),
    ]
    lines = [line.strip() for line in slowest(reports, 2)]
    assert lines[1:3] == ["5.0 builds before tests/a/x.py::one", "3.0 tests/b::shared before tests/b/y.py::two"]
    assert lines[4:] == ["5.0 builds", "5.0 tests/b", "1.0 tests/a", "11.0 in all"]
