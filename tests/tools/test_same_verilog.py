"""The comparison of two checkouts' hardware: each kind of difference is found."""

import subprocess
import sys
from pathlib import Path

import pytest

from . import same_verilog

TEXT = "module adder(input a);\nadder_cell cell0();\nendmodule\n"


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders that hold the same design."""
    both = tmp_path / "before", tmp_path / "after"
    for folder in both:
        (folder / "unit" / "rtl").mkdir(parents=True)
        (folder / "unit" / "rtl" / "adder.v").write_text(TEXT, encoding="utf-8")
        (folder / "unit" / "report.json").write_text(f'"{folder.name}"', encoding="utf-8")
    return both


def test_equal(folders: tuple[Path, Path]) -> None:
    """Files that hold no hardware may differ."""
    assert same_verilog.differing(*folders, {}) == []


def test_differs(folders: tuple[Path, Path]) -> None:
    (folders[1] / "unit/rtl/adder.v").write_text(TEXT + "\n", encoding="utf-8")
    assert same_verilog.differing(*folders, {}) == ["differs: unit/rtl/adder.v"]


@pytest.mark.parametrize("side", (0, 1))
def test_one_side_only(folders: tuple[Path, Path], side: int) -> None:
    (folders[side] / "map.xml").write_text("<map/>", encoding="utf-8")
    assert same_verilog.differing(*folders, {}) == [f"only {('before', 'after')[side]}: map.xml"]


def test_renamed(folders: tuple[Path, Path]) -> None:
    """A name is replaced where it is a whole word, in contents and file names."""
    (folders[1] / "unit/rtl/adder.v").rename(folders[1] / "unit/rtl/sum.v")
    (folders[1] / "unit/rtl/sum.v").write_text(TEXT.replace("adder(", "sum("), encoding="utf-8")
    assert same_verilog.differing(*folders, {"adder": "sum"}) == []
    assert same_verilog.differing(*folders, {"add": "sum"}) == [
        "only before: unit/rtl/adder.v",
        "only after: unit/rtl/sum.v",
    ]


def test_nothing_to_compare(tmp_path: Path) -> None:
    """Two empty folders are no proof of anything."""
    assert same_verilog.differing(tmp_path, tmp_path, {}) == ["nothing to compare"]


def test_command(folders: tuple[Path, Path]) -> None:
    """The exit code tells what was found."""
    command = [sys.executable, str(Path(same_verilog.__file__)), "compare", *map(str, folders)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    (folders[0] / "unit/rtl/adder.v").unlink()
    told = subprocess.run(command, capture_output=True, check=False, text=True)
    assert (told.returncode, told.stdout) == (3, "only after: unit/rtl/adder.v\nnothing to compare\n")
