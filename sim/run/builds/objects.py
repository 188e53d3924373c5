"""Turns Verilator's C++ into a program, with as little work for the compiler as it takes."""

import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

__all__ = ["PARTS", "drop_parts", "gather", "keep_objects", "kept_objects", "make_options", "reuse_objects"]

#: Files that run each cycle, compiled beside each other. Each reads all headers again.
PARTS = 2
#: Passes of g++ that take half of the time on functions of thousands of statements, and make them no faster.
_LEFT_OUT = (
    "dse",
    "early-inlining",
    "ipa-modref",
    "tree-ccp",
    "tree-dominator-opts",
    "tree-dse",
    "tree-forwprop",
    "tree-fre",
    "tree-pta",
    "tree-sink",
    "tree-sra",
)


def make_options(optimize: int) -> str:
    """Options of make for the files that Verilator writes.

    ``optimize`` is g++'s level for the code that runs each cycle; the rest is not optimised.
    """
    fast = "\\ ".join([f"-O{optimize}", *(f"-fno-{name}" for name in _LEFT_OUT if optimize == 1)])
    return f" OPT_FAST={fast} OPT_SLOW=-O0"


def gather(where: Path, prefix: str) -> list[str]:
    """Writes files that include those that Verilator wrote, and returns the variables of make that compile them.

    Headers are most of a small file. There are :data:`PARTS` files that run each cycle, and one of the rest; a
    precompiled header would take longer than it saves.
    """
    text = (where / f"{prefix}_classes.mk").read_text(encoding="utf-8")
    found: dict[str, list[str]] = {"FAST": [], "SLOW": []}
    for kind, names in re.findall(r"^VM_(?:CLASSES|SUPPORT)_(FAST|SLOW) \+= \\\n((?:  \S+ \\\n)*)", text, re.MULTILINE):
        found[kind] += re.findall(r"\S+(?= \\)", names)
    fast, slow = found["FAST"], found["SLOW"]
    made = {f"gathered_{number}": fast[number::PARTS] for number in range(PARTS)} | {"gathered_slow": slow}
    for name, names in made.items():
        (where / f"{name}.cpp").write_text("".join(f'#include "{each}.cpp"\n' for each in names), encoding="utf-8")
    for name in ("none", "none.fast.gch", "none.slow.gch"):
        (where / name).touch()
    parts = " ".join(list(made)[:PARTS])
    variables = {"VM_FAST": parts, "VM_SLOW": "gathered_slow", "VK_PCH_H": "none"}
    return [f"{key}={value}" for key, value in variables.items()] + ["VK_PCH_I_FAST=", "VK_PCH_I_SLOW="]


def kept_objects(cache: Path, *key: object) -> Path:
    """Folder of the objects that were compiled with the same options."""
    digest = hashlib.sha256(repr((sys.version, *key)).encode()).hexdigest()
    return cache / "sim" / f"runtime-{digest[:20]}"


def reuse_objects(kept: Path, where: Path) -> None:
    """Copies kept objects to ``where``, a folder that make builds in."""
    if kept.is_dir():
        for path in kept.glob("*.o"):
            shutil.copyfile(path, where / path.name)
            # Verilator's makefile builds them again when it is newer itself, which it is about to be.
            later = time.time() + 3600
            os.utime(where / path.name, (later, later))


def keep_objects(where: Path, kept: Path) -> None:
    """Keeps those objects of ``where`` that are not kept yet."""
    kept.mkdir(parents=True, exist_ok=True)
    for path in where.glob("verilated*.o"):
        if not (kept / path.name).exists():
            # Another process may read it at any time.
            number, name = tempfile.mkstemp(dir=kept)
            os.close(number)
            shutil.copyfile(path, name)
            os.replace(name, kept / path.name)


def drop_parts(where: Path) -> None:
    """Deletes what a built program in ``where`` was made from, which is nine tenths of the folder."""
    for path in where.iterdir():
        if path.suffix in (".a", ".cpp", ".d", ".gch", ".o"):
            path.unlink()
