"""Imports point one way between rooms, which are found and not listed."""

import ast
import functools
import graphlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Folders that the package has by links; the product itself stands in the package.
LINKED = ("rtl", "boards", "sim", "firmware")
PACKAGE = ROOT / "src/gradloom"
#: How many folders deep a room lies, below the folders where that is not one.
DEPTH = {"rtl": 2, "sim": 2, "rtl/engines": 3, "systems": 2}
#: The front door may look upwards, and only inside functions.
UPWARD = {"__init__.py", "__main__.py", *(str(path.relative_to(PACKAGE)) for path in PACKAGE.glob("cli/**/*.py"))}
#: Files by their place in the package.
FILES = {
    path.relative_to(base): path
    for base, rooms in ((ROOT, LINKED), (PACKAGE, [path.name for path in PACKAGE.iterdir() if not path.is_symlink()]))
    for room in rooms
    for path in ((base / room).rglob("*.py") if (base / room).is_dir() else [base / room])
    if path.suffix == ".py"
}
SOURCES = sorted(FILES)
#: Folders of systems.
SYSTEMS = ("images", "text", "diffusion", "sequences")
#: Hardware below whole machines, of which it knows nothing.
UNITS = ("rtl/systolic", "rtl/stream", "rtl/units", "rtl/engines", "rtl/shell")


def of(*folders, without=()):
    return [
        path
        for path in SOURCES
        if str(path).startswith(tuple(f"{folder}/" for folder in folders)) and str(path) not in without
    ]


@functools.cache
def parsed(path):
    return ast.parse(FILES[path].read_text(encoding="utf-8"))


@functools.cache
def imports(path):
    """``(module, lazy)`` of every import, relative ones as the room they lead to."""
    return tuple(_imports(path))


def statements(node, lazy=False):
    """``(statement, whether it stands in a function)`` of all below a node; expressions hold none."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, (ast.stmt, ast.excepthandler, ast.match_case)):
            yield each, lazy
            yield from statements(each, lazy or isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))


def _imports(path):
    package = ["gradloom", *path.parent.parts]
    for node, lazy in statements(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *((node.module or "").split(".") if node.module else [])])
            yield module, lazy
            yield from ((f"{module}.{alias.name}", lazy) for alias in node.names)


def leads(module, *packages):
    return any(module == name or module.startswith(f"{name}.") for name in packages)


def offending(paths, offends):
    """Paths and the modules that they import and must not: some thousand files are one test, not a thousand."""
    assert paths
    return {str(path): found for path in paths if (found := [module for module, _ in imports(path) if offends(module)])}


def test_no_file_imports_a_room_by_its_folder():
    assert offending(SOURCES, lambda module: module.split(".")[0] in LINKED) == {}


def test_no_two_files_import_each_other():
    """Nor do more of them in a circle, be it for types alone."""
    named = {".".join(("gradloom", *path.with_suffix("").parts)): path for path in SOURCES}
    graphlib.TopologicalSorter(
        {path: {named[module] for module, lazy in imports(path) if module in named and not lazy} for path in SOURCES}
    ).prepare()


def room(path):
    """The room of a file: its folder, cut to the depth of rooms there."""
    folders = path.parent.parts
    depth = next((DEPTH[key] for n in range(len(folders), 0, -1) if (key := "/".join(folders[:n])) in DEPTH), 1)
    return "/".join(folders[:depth])


def rooms_imported(path, named):
    """Rooms of the modules that a file imports when it is imported itself."""
    found = {named[module] for module, lazy in imports(path) if module in named and not lazy}
    return {room(other) for other in found} - {room(path)}


def test_no_two_rooms_import_each_other():
    """Nor do more of them in a circle: a room can be read, and taken away, with what is below it."""
    named = {".".join(("gradloom", *path.with_suffix("").parts)): path for path in SOURCES}
    graph = {}
    for path in SOURCES:
        graph.setdefault(room(path), set()).update(rooms_imported(path, named))
    assert len(graph) > 20
    graphlib.TopologicalSorter(graph).prepare()


def test_no_files_import_each_other():
    """Nor when a function first needs it, nor for type checkers: each can be read after those that it imports."""
    named = {".".join(("gradloom", *path.with_suffix("").parts)): path for path in SOURCES}
    graph = {path: {named[module] for module, _ in imports(path) if module in named} for path in SOURCES}
    assert sum(map(len, graph.values())) > 2000
    graphlib.TopologicalSorter(graph).prepare()


#: What hardware takes of the package's root: how files are written, and how objects are named that load late.
SMALL = ("gradloom.__version__", "gradloom.json_file", "gradloom.output", "gradloom.plugins")


def test_rtl_is_hardware_and_imports_no_other_room():
    found = offending(
        of("rtl"), lambda module: module.startswith("gradloom.") and not module.startswith(("gradloom.rtl", *SMALL))
    )
    assert found == {}


def for_checkers(path):
    """Modules that a file imports for type checkers alone."""
    return {
        each.module
        for node in parsed(path).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for each in node.body
        if isinstance(each, ast.ImportFrom)
    }


def test_the_front_door_looks_upwards_only_when_used():
    upward = ("gradloom.sim", "gradloom.boards", "gradloom.firmware")
    for path in map(Path, sorted(UPWARD)):
        found = {module for module, lazy in imports(path) if module.startswith(upward) and not lazy}
        early = [each for each in found if each not in for_checkers(path) and each.rpartition(".")[0] not in found]
        assert not early, path


def test_files_and_programs_know_no_system():
    above = "gradloom.systems", "gradloom.choosing", "gradloom.sweeping", "gradloom.cli", "gradloom.sim"
    assert offending(of("models", "program", "delivery"), lambda module: leads(module, *above)) == {}


def test_formats_import_nothing_above_them():
    found = offending(
        of("rtl/formats"),
        lambda module: module.startswith("gradloom.rtl.") and not module.startswith("gradloom.rtl.formats"),
    )
    assert found == {}


def test_the_reference_imports_no_hardware():
    """The reference shares formats, configuration and plans with the hardware, and nothing that computes."""
    allowed = ("gradloom.rtl.formats", "gradloom.rtl.machines.configs", "gradloom.program", "gradloom.models")
    found = offending(
        of("sim/reference"), lambda module: module.startswith("gradloom.rtl") and not module.startswith(allowed)
    )
    assert found == {}


def components():
    """Modules that define a component."""
    return {
        ".".join(("gradloom", *path.with_suffix("").parts))
        for path in of("rtl")
        if any(isinstance(each, ast.FunctionDef) and each.name == "elaborate" for each, _ in statements(parsed(path)))
    }


def test_planners_specifications_and_requests_import_no_component():
    """What they take from an engine stands in its parameters, commands or specification."""
    hardware = components()
    assert len(hardware) > 90
    for path in of("program", "models", "systems", "sim/reference", "choosing"):
        assert not hardware.intersection(module for module, _ in imports(path)), path
    for path in of("rtl/engines"):
        if path.stem in ("spec", "commands", "parameters"):
            assert not hardware.intersection(module for module, _ in imports(path)), path


#: Every workload's task, and a fine-tune whose cycles are forecast.
_BY_REFERENCE = """
import importlib, sys
for name in ("images.task", "images.answer", "text.qlora", "text.instant_text", "text.answer", "diffusion.task",
             "sequences.task"):
    importlib.import_module(f"gradloom.systems.{name}")
import gradloom
for preset in ("digits-ulx3s", "lstm-kv260"):
    gradloom.finetune(preset, engine="reference", limit=4, epochs=1, batch=2, output=f"{sys.argv[1]}/{preset}")
print(*(name for name in sys.modules if name.startswith("gradloom.rtl.")))
"""


def test_a_run_by_the_reference_imports_no_component(tmp_path):
    """No engine's unit, of the machine at hand or of another; the forecast is made all the same."""
    done = subprocess.run([sys.executable, "-c", _BY_REFERENCE, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert len(loaded) > 50 and not loaded & components()
    assert json.loads((tmp_path / "lstm-kv260/metrics.json").read_text())["forecast"]["cell"]


_OWN = """
import sys
import gradloom
gradloom.finetune("digits-ulx3s", engine="reference", limit=4, epochs=1, batch=2, output=sys.argv[1])
print(*(name.removeprefix("gradloom.") for name in sys.modules if name.startswith("gradloom.")))
"""


def test_a_fine_tune_loads_its_own_system_and_engines(tmp_path):
    """Of others it knows the options alone, which are those of one function."""
    done = subprocess.run([sys.executable, "-c", _OWN, str(tmp_path / "run")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    engines = {name.split(".")[2] for name in loaded if name.startswith("rtl.engines.")}
    assert engines == {"array", "encode", "head"}
    others = {name for name in loaded if name.startswith("systems.") and name.split(".")[1] in SYSTEMS[1:]}
    assert others == {f"systems.{system}{part}" for system in SYSTEMS[1:] for part in ("", ".workload")}
    assert len(loaded) <= 110


_LISTED = """
import contextlib, io, sys
from gradloom.cli.main import main
with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
    main(sys.argv[1:])
print("edge-qlora" in said.getvalue() or "Usage" in said.getvalue(), *sys.modules)
"""


@pytest.mark.parametrize("words", ["--help", "list presets"])
def test_help_and_presets_load_neither_amaranth_nor_numpy(words):
    """Configurations take sizes from modules that import neither: half the time of a start was theirs."""
    done = subprocess.run([sys.executable, "-c", _LISTED, *words.split()], capture_output=True, text=True, check=True)
    shown, *loaded = done.stdout.split()
    assert shown == "True" and "gradloom.cli.main" in loaded
    assert {name.split(".")[0] for name in loaded}.isdisjoint(("amaranth", "numpy"))


def test_units_do_not_know_the_top():
    above = "gradloom.rtl.machines", "gradloom.rtl.emit", "gradloom.preset", "gradloom.cli", "gradloom.rtl.catalog"
    assert offending(of(*UNITS), lambda module: leads(module, *above)) == {}


def test_drivers_run_without_a_simulator():
    assert offending(of("firmware"), lambda module: leads(module, "gradloom.sim")) == {}


#: Folders of tests that go through several rooms, and of what such tests read.
ACROSS = {"docs", "examples", "fuzz", "golden", "integrate", "mutants", "proofs", "tools", "witness"}


def test_tests_mirror_the_rooms():
    """A folder of tests has the name of its room, below tests/; those of systems and engines, one deeper."""
    parts = [path.parent.parts for path in SOURCES if path.parent.parts]
    rooms = {each[1] if each[0] == "rtl" else each[0] for each in parts if each != ("rtl",)}
    assert folders_of("") == rooms | ACROSS
    assert folders_of("systems") == {each[1] for each in parts if each[0] == "systems" and len(each) > 1}
    assert folders_of("cli") <= {each[1] for each in parts if each[0] == "cli" and len(each) > 1}
    assert folders_of("engines") <= {each[2] for each in parts if each[:2] == ("rtl", "engines") and len(each) > 2}


def folders_of(room):
    return {each.name for each in (ROOT / "tests" / room).iterdir() if each.is_dir() and each.name[0] not in "_."}


def test_components_keep_their_annotations():
    """Postponed annotations break Amaranth's annotated components."""
    texts = {path: FILES[path].read_text(encoding="utf-8") for path in SOURCES}
    found = [path for path, text in texts.items() if "wiring.Component" in text]
    assert len(found) > 90 and not [path for path in found if "from __future__ import annotations" in texts[path]]


def test_few_functions_return_a_dict_of_anything():
    """Others return a dataclass or a TypedDict, which says what a result has."""
    untyped = [
        (path, each.name)
        for path in SOURCES
        for each, _ in statements(parsed(path))
        if isinstance(each, ast.FunctionDef) and each.returns and "dict[str, Any]" in ast.unparse(each.returns)
    ]
    assert len(untyped) <= 104


def test_few_public_classes_share_a_name():
    """Those that do are kinds of operations, whose names programs and files tell, and hardware."""
    homes = {}
    for path in SOURCES:
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and node.name[0] != "_":
                homes.setdefault(node.name, set()).add(path)
    assert len(homes) > 500 and sum(len(paths) > 1 for paths in homes.values()) <= 15


def test_nothing_reads_the_environment_when_imported():
    def reads(path):
        if not re.search(r"\b(environ|getenv)\b", FILES[path].read_text(encoding="utf-8")):
            return False
        inside = {
            id(node)
            for function in ast.walk(parsed(path))
            if isinstance(function, (ast.FunctionDef, ast.Lambda))
            for node in ast.walk(function)
        }
        return any(
            isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv") and id(node) not in inside
            for node in ast.walk(parsed(path))
        )

    assert [path for path in of("rtl") if reads(path)] == []
