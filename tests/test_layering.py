"""Imports point one way: config, formats, units, top, emit; then boards, sim and firmware."""
import ast
import functools
import graphlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("rtl", "boards", "sim", "firmware")
#: The front door may look upwards, and only inside functions; so may the generator of generated files.
UPWARD = {"rtl/cli.py", "rtl/cli_language.py", "rtl/cli_sweep.py", "rtl/cli_verbs.py",
          "src/gradloom/__init__.py", "src/gradloom/__main__.py"}
SOURCES = sorted(path.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*.py"))
UNITS = [f"rtl/{name}" for name in ("array", "quant", "lora", "loss", "nn", "memory", "control", "stream", "vector")]


def of(*folders, without=()):
    return [path for path in SOURCES if str(path).startswith(tuple(f"{folder}/" for folder in folders))
            and str(path) not in without]


@functools.cache
def parsed(path):
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


@functools.cache
def imports(path):
    """``(module, lazy)`` of every import, relative ones as the room they lead to."""
    return tuple(_imports(path))


def _imports(path):
    tree = parsed(path)
    inside = {id(node) for function in ast.walk(tree)
              if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) for node in ast.walk(function)}
    package = ["gradloom", *path.parent.parts]
    for node in ast.walk(tree):
        lazy = id(node) in inside
        if isinstance(node, ast.Import):
            yield from ((alias.name, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[:len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *((node.module or "").split(".") if node.module else [])])
            yield module, lazy
            yield from ((f"{module}.{alias.name}", lazy) for alias in node.names)


def leads_to(path, *packages):
    return [module for module, _ in imports(path)
            if any(module == name or module.startswith(f"{name}.") for name in packages)]


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_no_file_imports_a_room_by_its_folder(path):
    assert not [module for module, _ in imports(path) if module.split(".")[0] in ROOMS]


def test_no_two_files_import_each_other():
    """Nor do more of them in a circle, be it for types alone."""
    named = {".".join(("gradloom", *path.with_suffix("").parts)): path for path in SOURCES}
    graphlib.TopologicalSorter({path: {named[module] for module, lazy in imports(path) if module in named and not lazy}
                                for path in SOURCES}).prepare()


@pytest.mark.parametrize("path", of("rtl", without=UPWARD), ids=str)
def test_rtl_imports_no_other_room(path):
    assert not leads_to(path, "gradloom.sim", "gradloom.boards", "gradloom.firmware")


@pytest.mark.parametrize("path", sorted(UPWARD))
def test_the_front_door_looks_upwards_only_when_used(path):
    upward = ("gradloom.sim", "gradloom.boards", "gradloom.firmware")
    assert not [module for module, lazy in imports(Path(path)) if module.startswith(upward) and not lazy]


@pytest.mark.parametrize("path", of("rtl/formats"), ids=str)
def test_formats_import_nothing_above_them(path):
    allowed = ("gradloom.rtl.formats", "gradloom.rtl.config")
    assert not [module for module, _ in imports(path)
                if module.startswith("gradloom.rtl.") and not module.startswith(allowed)]


@pytest.mark.parametrize("path", of("sim/reference"), ids=str)
def test_the_reference_imports_no_hardware(path):
    """The reference shares formats, configuration and plans with the hardware, and nothing that computes."""
    allowed = ("gradloom.rtl.formats", "gradloom.rtl.config", "gradloom.rtl.plan", "gradloom.rtl.models")
    assert not [module for module, _ in imports(path) if module.startswith("gradloom.rtl")
                and not module.startswith(allowed)]


@pytest.mark.parametrize("path", of(*UNITS), ids=str)
def test_units_do_not_know_the_top(path):
    assert not leads_to(path, "gradloom.rtl.top", "gradloom.rtl.emit", "gradloom.rtl.presets",
                        "gradloom.rtl.cli", "gradloom.rtl.units")


@pytest.mark.parametrize("path", of("firmware"), ids=str)
def test_drivers_run_without_a_simulator(path):
    assert not leads_to(path, "gradloom.sim")


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_components_keep_their_annotations(path):
    """Postponed annotations break Amaranth's annotated components."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if "wiring.Component" in text:
        assert "from __future__ import annotations" not in text


@pytest.mark.parametrize("path", of("rtl"), ids=str)
def test_nothing_reads_the_environment_when_imported(path):
    tree = parsed(path)
    inside = {id(node) for function in ast.walk(tree)
              if isinstance(function, (ast.FunctionDef, ast.Lambda)) for node in ast.walk(function)}
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)
                and node.attr in ("environ", "getenv") and id(node) not in inside]
