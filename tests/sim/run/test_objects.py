"""Files that Verilator wrote are compiled in three, and what a program was made from goes."""

import contextlib

import pytest

from gradloom.sim.run import board
from gradloom.sim.run.builds import objects
from gradloom.sim.run.builds.objects import drop_parts, gather, kept_objects
from gradloom.sim.run.builds.runner import verilator_version
from gradloom.sim.run.device import SimulationError, build_device

from .test_checks import QUIET

CLASSES = """VM_CLASSES_FAST += \\
  Vx_a \\
  Vx_b \\

VM_CLASSES_SLOW += \\
  Vx_a__Slow \\

VM_SUPPORT_FAST += \\
  Vx__Dpi \\

VM_SUPPORT_SLOW += \\
  Vx__Syms__Slow \\

VM_GLOBAL_FAST += \\
  verilated \\
"""


def test_every_file_is_compiled_once(monkeypatch, tmp_path):
    monkeypatch.setattr(objects, "PARTS", 2)
    (tmp_path / "Vx_classes.mk").write_text(CLASSES)
    said = gather(tmp_path, "Vx")
    assert {"VM_FAST=gathered_0 gathered_1", "VM_SLOW=gathered_slow"} <= set(said)
    texts = {name: (tmp_path / f"gathered_{name}.cpp").read_text().split() for name in ("0", "1", "slow")}
    assert texts == {
        "0": ["#include", '"Vx_a.cpp"', "#include", '"Vx__Dpi.cpp"'],
        "1": ["#include", '"Vx_b.cpp"'],
        "slow": ["#include", '"Vx_a__Slow.cpp"', "#include", '"Vx__Syms__Slow.cpp"'],
    }


def test_the_program_and_its_log_stay(tmp_path):
    for name in ("x", "build.log", "x.o", "x.cpp", "x__ALL.a", "x.d", "x.gch"):
        (tmp_path / name).touch()
    drop_parts(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"x", "build.log"}


def test_another_verilator_has_objects_of_its_own(tmp_path):
    assert kept_objects(tmp_path, "/verilator", "5.48") != kept_objects(tmp_path, "/verilator", "5.49")


@pytest.mark.parametrize("version", ["5.49.0", verilator_version()])
def test_a_build_is_of_one_verilator(monkeypatch, tmp_path, version):
    """Another version does not get the program of this one: it builds, which is refused here."""
    (tmp_path / "gradloom.sv").write_text(QUIET.read_text(encoding="utf-8"))
    build_device([tmp_path / "gradloom.sv"], memory_bytes=1 << 13, data_bits=64, address_bits=32)
    monkeypatch.setattr("gradloom.sim.run.device.verilator_version", lambda: version)
    monkeypatch.setattr("gradloom.sim.run.device._run_whole", lambda *_: (1, "Error: it would be built"))
    with contextlib.nullcontext() if version == verilator_version() else pytest.raises(SimulationError, match="built"):
        build_device([tmp_path / "gradloom.sv"], memory_bytes=1 << 13, data_bits=64, address_bits=32)


def test_a_folder_without_a_design_is_not_served(tmp_path, capsys):
    assert board.main([str(tmp_path), str(tmp_path / "socket")]) == 2
    assert "report.json" in capsys.readouterr().err and not (tmp_path / "socket").exists()
