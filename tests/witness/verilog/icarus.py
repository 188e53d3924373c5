"""Icarus Verilog: what is installed, or Debian's package unpacked, which needs no root."""

import shutil
import subprocess

from ..debian import UNPACKED, unpacked

__all__ = ["on_path", "simulate"]


def _commands():
    """How ``iverilog`` and ``vvp`` are called."""
    if not unpacked("iverilog", program="iverilog"):
        return ["iverilog"], ["vvp"]
    (library,) = UNPACKED.glob("usr/lib/*/ivl")
    return [UNPACKED / "usr/bin/iverilog", "-B", library], [UNPACKED / "usr/bin/vvp", "-M", library]


def on_path(folder):
    """``folder`` with ``iverilog`` and ``vvp`` in it, for a PATH that is to have them first."""
    for name, command in zip(("iverilog", "vvp"), _commands()):
        program = folder / name
        command = [shutil.which(command[0]) or command[0], *command[1:]]
        program.write_text("#!/bin/sh\nexec " + " ".join(f"'{part}'" for part in command) + ' "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    return folder


def simulate(sources, *, top, folder):
    """What ``top`` prints until it ends; ``sources`` is text by file name."""
    compiler, runtime = _commands()
    for name, text in sources.items():
        (folder / name).write_text(text, encoding="utf-8")
    files = sorted(folder / name for name in sources)
    program = folder / "program.vvp"
    subprocess.run([*compiler, "-g2012", "-s", top, "-o", program, *files], check=True, stderr=subprocess.DEVNULL)
    return subprocess.run([*runtime, program], check=True, capture_output=True, text=True).stdout
