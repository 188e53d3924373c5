"""FuseSoC and edalize run the core that a design has."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gradloom.sim.run.builds.runner import verilator_environment

DEEP = pytest.mark.skipif(not os.environ.get("GRADLOOM_DEEP"), reason="half a minute of C++: GRADLOOM_DEEP=1")


def fusesoc(design, target, place, *more, users=True):
    """Runs a target of the core in ``design``."""
    pytest.importorskip("fusesoc")
    pytest.importorskip("edalize")
    environment = verilator_environment()
    # FuseSoC starts cocotb-config and python3 by name.
    environment["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), environment["PATH"]))
    environment.pop("GPI_USERS", None)
    if users:
        told = [
            subprocess.run(
                [sys.executable, "-m", "cocotb_tools.config", option], capture_output=True, text=True, check=True
            ).stdout.strip()
            for option in ("--libpython", "--pygpi-entry-point")
        ]
        environment["GPI_USERS"] = ";".join(told)
    (core,) = design.glob("*.core")
    done = subprocess.run(
        [sys.executable, "-m", "fusesoc.main", "--cores-root", str(design), "run", "--target", target]
        + [f"gradloom:accelerator:{core.stem}:1.0", *more],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_lint_of_a_whole_machine_finds_nothing(machine, tmp_path):
    code, said = fusesoc(machine, "lint", tmp_path)
    assert code == 0, said
    assert "%Warning" not in said


def test_lint_finds_a_fault(unit, tmp_path):
    broken = shutil.copytree(unit, tmp_path / "broken")
    path = broken / "rtl/mesh.v"
    path.write_text(path.read_text().replace("endmodule", "  wire nobody; assign nobody = nowhere;\nendmodule", 1))
    code, said = fusesoc(broken, "lint", tmp_path)
    assert code == 1 and "nowhere" in said


def test_a_simulation_that_would_run_no_test_is_refused(unit, tmp_path):
    code, said = fusesoc(unit, "sim", tmp_path, users=False)
    assert code == 1 and "GPI_USERS is not set" in said


def spoiled(unit, place):
    """The unit with one bit of its vectors changed."""
    broken = shutil.copytree(unit, place / "broken")
    path = broken / "tb/vectors.json"
    plan = json.loads(path.read_text(encoding="utf-8"))
    words = next(iter(plan["parts"][0]["outputs"].values()))
    words[0][0] = f"{int(words[0][0], 16) ^ 1:x}"
    path.write_text(json.dumps(plan), encoding="utf-8")
    return broken


@pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus Verilog is not installed")
def test_a_unit_equals_its_reference_in_icarus(unit, tmp_path):
    code, said = fusesoc(unit, "sim", tmp_path, "--tool", "icarus")
    assert code == 0 and "FAIL=0" in said, said
    code, said = fusesoc(spoiled(unit, tmp_path), "sim", tmp_path / "broken", "--tool", "icarus")
    assert code == 1 and "tests failed" in said


@DEEP
def test_a_unit_equals_its_reference_in_verilator(unit, tmp_path):
    code, said = fusesoc(unit, "sim", tmp_path)
    assert code == 0 and "FAIL=0" in said, said
    code, said = fusesoc(spoiled(unit, tmp_path), "sim", tmp_path / "broken")
    assert code == 1 and "tests failed" in said
