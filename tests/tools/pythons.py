"""Other versions of Python on this machine: ``python tests/tools/pythons.py 3.13`` prints where one is, if there is."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

MADE = Path(__file__).parents[2] / "build"


def find(version, *, imports="sys"):
    """Path of an interpreter of ``version`` such as 3.10 that can import ``imports``, or None.

    First the one in ``build`` that ``make evidence-pythons`` makes, then those on PATH and of pyenv: a shim on PATH may
    be there and fail.
    """
    named = shutil.which(f"python{version}")
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for path in (
        MADE / f"python{version}/bin/python",
        *([Path(named)] if named else []),
        *sorted(pyenv.glob(f"{version}.*/bin/python")),
    ):
        if _works(path, version, imports):
            return path
    return None


def _works(path, version, imports):
    """Whether ``path`` is a Python of ``version`` that can import ``imports``."""
    code = f"import sys, {imports}; sys.exit('{{}}.{{}}'.format(*sys.version_info) != '{version}')"
    try:
        return subprocess.run([path, "-I", "-c", code], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


if __name__ == "__main__":
    found = find(sys.argv[1])
    print(found or f"no Python {sys.argv[1]} on PATH or of pyenv's", file=sys.stdout if found else sys.stderr)
    sys.exit(found is None)
