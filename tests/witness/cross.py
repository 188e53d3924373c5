"""Clang, as ziglang carries it: the KV260's C driver builds for its processors, and gives programs of their kind."""

import subprocess
import sys
import tempfile
from pathlib import Path

from gradloom.boards.firmware_files import firmware_files

__all__ = ["built"]

_PACKAGE = "ziglang==0.15.2"
#: An old glibc, as boards have it, and musl.
_TARGETS = ("aarch64-linux-gnu.2.31", "aarch64-linux-musl")
#: Of an ELF file: 64 bits, little endian, and the machine AArch64.
_AARCH64 = (b"\x7fELF\x02\x01", 183)


def _compile(folder, *arguments):
    command = [sys.executable, "-m", "uv", "tool", "run", "--quiet", "--from", _PACKAGE, "python-zig", "cc"]
    options = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror"]
    return subprocess.run([*command, *options, *arguments], cwd=folder, capture_output=True, text=True)


def _is_of_the_board(path):
    head = path.read_bytes()[:20]
    return head[:6] == _AARCH64[0] and int.from_bytes(head[18:20], "little") == _AARCH64[1]


def built(folder):
    """By target, files and programs that are not built, and how many there are."""
    for name, text in firmware_files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    driver, said = folder / "driver", {}
    for target in _TARGETS:
        # Each file, and the program as the guide builds it.
        jobs = [(f"{path.stem}.o", "-c", path.name) for path in sorted(driver.glob("*.c"))]
        # This one is part of linux_sha.c.
        jobs.remove(("soc_sha.o", "-c", "soc_sha.c"))
        jobs.append(("gradloom_run", *sorted(path.name for path in driver.glob("[lg]*_*.c")), "gradloom.c"))
        wrong = 0
        for output, *given in jobs:
            done = _compile(driver, f"--target={target}", "-o", output, *given)
            if done.returncode or not _is_of_the_board(driver / output):
                print(done.stderr, file=sys.stderr)
                wrong += 1
        said[target] = wrong, len(jobs)
    return said


def main():
    with tempfile.TemporaryDirectory() as folder:
        said = built(Path(folder))
    for target, (wrong, count) in said.items():
        print(f"{target}: {count} files and programs, {wrong} not built")
    return any(wrong for wrong, _ in said.values())


if __name__ == "__main__":
    sys.exit(main())
