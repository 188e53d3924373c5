"""Programs of Debian's packages: what is installed, or the package unpacked, which needs no root."""

import shutil
import subprocess
from pathlib import Path

__all__ = ["UNPACKED", "unpack", "unpacked"]

UNPACKED = Path(__file__).parents[2] / "build" / "debian"


def unpacked(*packages, program):
    """Whether ``program`` is on the PATH; if it is not, ``packages`` are unpacked in :data:`UNPACKED`."""
    if shutil.which(program):
        return False
    if not (UNPACKED / "usr/bin" / program).is_file():
        unpack(*packages)
    return True


def unpack(*packages):
    """Unpacks ``packages`` in :data:`UNPACKED`."""
    UNPACKED.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", "-qq", *packages], cwd=UNPACKED, check=True)
    for name in packages:
        (package,) = UNPACKED.glob(f"{name}_*.deb")
        subprocess.run(["dpkg", "-x", package, UNPACKED], check=True)
