"""A wheel, and environments in which it is installed away from the clone."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["ROOT", "Installed", "build_wheel", "gradloom_wheel", "tracked"]

ROOT = Path(__file__).parents[2]


def tracked():
    """Files of the repository, those that are about to join it among them."""
    if not (ROOT / ".git").exists():
        pytest.skip("no git repository: nothing says which files belong to the packages")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    # A file may be deleted and still listed; a link to a folder is no file.
    return [name for name in listed if name and ((ROOT / name).is_file() or (ROOT / name).is_symlink())]


def build_wheel(source, folder):
    """Built without a network."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-build-isolation",
            "--no-deps",
            "--no-index",
            "--wheel-dir",
            folder,
            source,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("*.whl")
    return made


def gradloom_wheel(folder):
    """Built from a copy of the files, so that nothing left in the clone gets into it."""
    for name in tracked():
        target = folder / "source" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target, follow_symlinks=False)
    return build_wheel(folder / "source", folder)


class Installed:
    """Wheels in an environment of their own, where the other packages are visible and the clone is not."""

    def __init__(self, python, wheel, folder):
        self.folder, self.base = folder, python
        self.python = folder / "venv/bin/python"
        self._call(python, "-m", "venv", "--without-pip", folder / "venv")
        self.install(wheel)
        paths = json.loads(
            self._call(
                python,
                "-P",
                "-c",
                "import json, sysconfig as s; print(json.dumps([s.get_path('purelib'), s.get_path('platlib')]))",
            )
        )
        site = self._call(self.python, "-P", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        # Folders named in a .pth file are searched, but their own .pth files, such as that of an editable install of
        # the clone, are not read.
        Path(site, "environment.pth").write_text("".join(f"{path}\n" for path in dict.fromkeys(paths)))
        (folder / "work").mkdir()

    def install(self, wheel):
        """Without what it depends on."""
        self._call(
            self.base, "-m", "pip", "--quiet", "--python", self.python, "install", "--no-deps", "--no-index", wheel
        )

    def _call(self, *command):
        # No test's own paths may lead back to the clone.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            list(map(str, command)),
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder / "work" if (self.folder / "work").exists() else self.folder,
            env=environment | {"XDG_CACHE_HOME": str(self.folder / "cache"), "COLUMNS": "80"},
        )
        assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
        return done.stdout

    def verb(self, *arguments):
        """What the verb says; anything but success is an error."""
        return self._call(self.folder / "venv/bin/gradloom", *arguments)

    def run(self, code):
        return self.python_with("-c", code)

    def python_with(self, *arguments):
        return self._call(self.python, *arguments)
