"""Laws of a simulated design: one simulation runs all that a file has, and each is a test case."""

import ast
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gradloom.sim.run.builds import runner

__all__ = ["cases", "verdicts"]

ROOT = Path(__file__).parents[1]


def cases(module, *given):
    """Parameters for ``pytest.mark.parametrize``: ``given`` and a law each, for all cocotb tests of a module.

    Those of one simulation are of one group: workers are not to run it twice.
    """
    text = ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
    laws = [
        node.name
        for node in ast.parse(text).body
        if isinstance(node, ast.AsyncFunctionDef)
        and any("cocotb.test" in ast.unparse(each) for each in node.decorator_list)
    ]
    group = "-".join(map(str, (module, *given)))
    return [
        pytest.param(*given, law, id="-".join(map(str, (*given, law))), marks=pytest.mark.xdist_group(group))
        for law in laws
    ]


def verdicts(directory, **options):
    """By law, why it failed, or None; ``options`` of :func:`~gradloom.sim.run.builds.runner.run_cocotb`."""
    why = None
    try:
        runner.run_cocotb(directory=directory, **options)
    except RuntimeError as error:
        if not (directory / "results.xml").exists():
            raise
        why = str(error)
    return {
        case.get("name"): why if {"failure", "error"} & {each.tag for each in case} else None
        for case in ElementTree.parse(directory / "results.xml").iter("testcase")
    }
