"""The C source of Monocypher, which the firmware checks signatures with.

It comes with PyPI's ``pymonocypher``, the package that signs on the host, and is no part of this project.
``python -m gradloom.firmware.chip.monocypher_source`` fetches it.
"""

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

__all__ = ["SUMS", "VERSION", "fetch", "monocypher"]

VERSION = "4.0.3.4"
#: SHA-256 of the files that are compiled.
SUMS = {
    "monocypher.c": "57eb914fc88136119bd41655cccb8c250048bf54d470540625186f8ab16f64be",
    "monocypher.h": "c494da712122da7ff679fdcf318a5317e84972b6c950fe9d896212947797facd",
}


def _place() -> Path:
    return Path(sys.prefix) / "share" / "gradloom" / f"monocypher-{VERSION}"


def monocypher() -> Path:
    """The folder of the C source, whose files have the known sums.

    :class:`ValueError` if it is not there.
    """
    place = _place()
    for name, known in SUMS.items():
        path = place / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != known:
            raise ValueError(f"{name}: Monocypher {VERSION} is not there; python -m {__spec__.name} fetches its source")
    return place


def fetch() -> Path:
    """Brings the C source from the package index, unless it is there.

    :class:`ValueError` if it does not come, or is another.
    """
    try:
        return monocypher()
    except ValueError:
        pass
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"),
                *("--no-binary", "pymonocypher", f"pymonocypher=={VERSION}", "-d", folder),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        archives = list(Path(folder).glob("*.tar.gz"))
        if done.returncode or len(archives) != 1:
            said = (done.stderr.strip().splitlines() or ["no archive came"])[-1]
            raise ValueError(f"pymonocypher {VERSION}: its source does not come: {said}")
        _place().mkdir(parents=True, exist_ok=True)
        with tarfile.open(archives[0]) as archive:
            for name in SUMS:
                file = archive.extractfile(f"pymonocypher-{VERSION}/{name}")
                assert file is not None
                (_place() / name).write_bytes(file.read())
    return monocypher()


if __name__ == "__main__":
    try:
        print(fetch())
    except ValueError as error:
        sys.exit(str(error))
