"""A wheel, installed in an environment of its own away from the clone, has all files and runs the verbs."""

import functools
import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from .tools import pythons
from .tools.installed import Installed, gradloom_wheel, tracked

OWN = "{}.{}".format(*sys.version_info)
ROOMS = ("rtl", "boards", "sim", "firmware")
LINKS = {f"gradloom/{room}" for room in ROOMS}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return gradloom_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_has_every_file_of_the_packages_and_no_other(wheel):
    with zipfile.ZipFile(wheel) as archive:
        there = {name for name in archive.namelist() if ".dist-info/" not in name}
    wanted = {f"gradloom/{name}" for name in tracked() if name.split("/")[0] in ROOMS}
    wanted |= {name.removeprefix("src/") for name in tracked() if name.startswith("src/gradloom/")} - LINKS
    assert "gradloom/models/data/NOTICE.txt" in wanted
    assert there == wanted


_NEEDED = "amaranth, numpy, onnx, pyosys, safetensors, rich, typer, cocotb, matplotlib, serial, pip"


@functools.cache
def interpreter(version):
    """A Python of ``version`` whose environment has what gradloom needs, or None."""
    return Path(sys.executable) if version == OWN else pythons.find(version, imports=_NEEDED)


@pytest.fixture(scope="module", params=sorted({OWN, "3.13"}))
def installed(request, wheel, tmp_path_factory):
    python = interpreter(request.param)
    if python is None:
        pytest.skip(f"no Python {request.param} with the packages that gradloom needs: make evidence-pythons makes one")
    return Installed(python, wheel, tmp_path_factory.mktemp("installed"))


def test_the_verbs_run_from_an_installed_wheel(installed):
    where = Path(installed.run("import gradloom.rtl, gradloom.sim; print(gradloom.__file__)").strip())
    assert where.is_relative_to(installed.folder), "the clone hides the wheel"
    assert installed.verb("--version") == "gradloom " + installed.run("import gradloom; print(gradloom.__version__)")
    for verb in (("list", "presets"), ("list", "boards"), ("list", "units"), ("doctor",)):
        assert len(json.loads(installed.verb(*verb, "--json"))) > 1
    fine = installed.verb(
        "finetune", "instantft-kv260", "--engine", "reference", "--limit", "20", "--epochs", "1", "-o", "run", "--json"
    )
    assert json.loads(fine)["engine"] == "reference"
    labels = json.loads(
        installed.verb("infer", "instantft-kv260", "--adapter", "run", "--limit", "20", "-o", "labels.npz", "--json")
    )["labels"]
    assert len(labels) == 20
    report = json.loads(installed.verb("generate", "mesh", "-o", "mesh", "--json"))
    assert report["bytes"] > 1000 and (installed.folder / "work/mesh/rtl/mesh.v").is_file()
    assert json.loads(installed.verb("plan", "smollm2-135m", "--json"))["fits"]
    work = installed.folder / "work"
    np.savez(work / "in.npz", x=np.arange(-64, 64) << 12)
    ran = json.loads(
        installed.verb(
            "run", "nf4-encode", "--input", "in.npz", "--output", "out.npz", "--simulator", "amaranth", "--json"
        )
    )
    assert ran["equal"] and ran["words"]
