"""Breakages of function are changes of the sources as they are, and each has a test that runs."""

import ast
import re

import pytest

from . import breakages
from .breakages import Breakage, listed, main
from .run import ROOMS, ROOT


def test_there_are_sixty_in_all_rooms():
    found = listed()
    assert len(found) >= 60 and len({each.what for each in found}) == len(found)
    assert {room for room in ROOMS for each in found if each.path.startswith(room)} == set(ROOMS)


@pytest.mark.parametrize("each", listed(), ids=lambda each: each.what.replace(" ", "-"))
def test_a_breakage_is_a_change_of_the_source(each):
    text = (ROOT / each.path).read_text()
    made = each.change().made(text)
    assert made != text
    if each.path.endswith(".py"):
        assert ast.dump(ast.parse(made)) != ast.dump(ast.parse(text))
    path, *names = each.test.split("::")
    assert (ROOT / path).exists()
    for name in names:
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE)


def test_what_no_test_finds_is_told(monkeypatch, capsys):
    """A copy of the tree in which one breakage is found and one is not."""

    class Tree:
        def __init__(self, folder):
            self.took = {}

        def timed(self, tests):
            self.took[tests] = 0.5

        def limit(self, tests):
            return 2 * self.took[tests]

        def changed(self, change, tests, limit):
            assert change.new == "broken" and tests == "tests/mutants" and limit == 1.0
            return ("failed" if change.old == '"""Breaks what' else "lived"), tests

    found = [
        Breakage(f"part {n}", "tests/mutants/breakages.py", old, "broken", "tests/mutants")
        for n, old in enumerate(('"""Breaks what', "LIST = "))
    ]
    monkeypatch.setattr(breakages, "Bench", Tree)
    monkeypatch.setattr(breakages, "listed", lambda: found)
    assert main([]) == 3
    said = capsys.readouterr().out.splitlines()
    assert "1 of 2 breakages were found" in said and "lived: tests/mutants/breakages.py: part 1" in said
    monkeypatch.setattr(breakages, "listed", lambda: found[:1])
    assert main(["tests/mutants"]) == 0
    monkeypatch.setattr(breakages, "listed", lambda: [*found[:1], Breakage("x", "README.md", "a", "b", "tests")])
    assert main(["tests"]) == 0
    with pytest.raises(ValueError, match="must have it once"):
        main(["README"])
