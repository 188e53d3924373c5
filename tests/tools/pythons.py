"""Other versions of Python on this machine: ``python tests/tools/pythons.py 3.13`` prints where one is, if there is."""
import os
import shutil
import subprocess
import sys
from pathlib import Path


def find(version, *, imports="sys"):
    """Path of an interpreter of ``version`` such as 3.10 that can import ``imports``, or None.

    Those named so on PATH, then pyenv's: a shim on PATH may be there and fail.
    """
    named = shutil.which(f"python{version}")
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for path in ([Path(named)] if named else []) + sorted(pyenv.glob(f"{version}.*/bin/python")):
        if works(path, version, imports=imports):
            return path
    return None


def works(path, version, *, imports="sys"):
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
