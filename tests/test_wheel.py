"""A wheel, installed in an environment of its own away from the clone, has all files and runs the verbs."""
import functools
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from .tools import pythons

ROOT = Path(__file__).parents[1]
OWN = "{}.{}".format(*sys.version_info)
ROOMS = ("rtl", "boards", "sim", "firmware")


def tracked():
    """Files of the repository, those that are about to join it among them."""
    if not (ROOT / ".git").exists():
        pytest.skip("no git repository: nothing says which files belong to the packages")
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True, check=True).stdout.split("\0")
    # A file may be deleted and still listed; a link to a folder is no file.
    return [name for name in listed if name and ((ROOT / name).is_file() or (ROOT / name).is_symlink())]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built without a network from a copy of the files, so that nothing left in the clone gets into it."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in tracked():
        target = folder / "source" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target, follow_symlinks=False)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--no-index",
         "--wheel-dir", folder, folder / "source"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("gradloom-*.whl")
    return made


def test_the_wheel_has_every_file_of_the_packages_and_no_other(wheel):
    with zipfile.ZipFile(wheel) as archive:
        there = {name for name in archive.namelist() if ".dist-info/" not in name}
    wanted = {f"gradloom/{name}" for name in tracked() if name.split("/")[0] in ROOMS}
    assert "gradloom/rtl/models/data/NOTICE.txt" in wanted
    assert there == wanted | {f"gradloom/{name}" for name in ("__init__.py", "__init__.pyi", "__main__.py", "py.typed")}


_NEEDED = "amaranth, numpy, onnx, pyosys, safetensors, rich, typer, cocotb, matplotlib, serial, pip"


@functools.cache
def interpreter(version):
    """A Python of ``version`` whose environment has what gradloom needs, or None."""
    return Path(sys.executable) if version == OWN else pythons.find(version, imports=_NEEDED)


class Installed:
    """The wheel in an environment of its own, where the other packages are visible and the clone is not."""

    def __init__(self, python, wheel, folder):
        self.folder = folder
        self.python = folder / "venv/bin/python"
        self._call(python, "-m", "venv", "--without-pip", folder / "venv")
        self._call(python, "-m", "pip", "--quiet", "--python", self.python, "install", "--no-deps", "--no-index", wheel)
        paths = json.loads(self._call(python, "-P", "-c", "import json, sysconfig as s; print(json.dumps(["
                                      "s.get_path('purelib'), s.get_path('platlib')]))"))
        site = self._call(self.python, "-P", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        # Folders named in a .pth file are searched, but their own .pth files, such as that of an editable install of
        # the clone, are not read.
        Path(site, "environment.pth").write_text("".join(f"{path}\n" for path in dict.fromkeys(paths)))
        (folder / "work").mkdir()

    def _call(self, *command):
        # No test's own paths may lead back to the clone.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False,
                              cwd=self.folder / "work" if (self.folder / "work").exists() else self.folder,
                              env=environment | {"XDG_CACHE_HOME": str(self.folder / "cache"), "COLUMNS": "80"})
        assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
        return done.stdout

    def verb(self, *arguments):
        """What the verb says; anything but success is an error."""
        return self._call(self.folder / "venv/bin/gradloom", *arguments)

    def run(self, code):
        return self._call(self.python, "-c", code)


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
    for verb in ("presets", "boards", "units", "doctor"):
        assert len(json.loads(installed.verb(verb, "--json"))) > 1
    fine = installed.verb("finetune", "instantft-kv260", "--engine", "reference", "--limit", "20", "--epochs", "1",
                          "-o", "run", "--json")
    assert json.loads(fine)["engine"] == "reference"
    labels = json.loads(installed.verb("predict", "instantft-kv260", "--adapter", "run", "--limit", "20", "-o",
                                       "labels.npz", "--json"))["labels"]
    assert len(labels) == 20
    report = json.loads(installed.verb("generate", "mesh", "-o", "mesh", "--json"))
    assert report["bytes"] > 1000 and (installed.folder / "work/mesh/rtl/mesh.v").is_file()
    assert json.loads(installed.verb("plan", "smollm2-135m", "--json"))["fits"]
    work = installed.folder / "work"
    np.savez(work / "in.npz", x=np.arange(-64, 64) << 12)
    ran = json.loads(installed.verb("run", "nf4-encode", "--input", "in.npz", "--output", "out.npz", "--simulator",
                                    "amaranth", "--json"))
    assert ran["equal"] and ran["words"]

