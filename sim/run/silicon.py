"""Starts simulated RTL as silicon does, with random registers.

A bitstream of AMD's chips sets initial values, but a reset may come at any time later and must do without them. The
text that is simulated here has no initial value of a register, and none of a memory that is written. Verilator then
makes each of them random by a seed. A memory that is only read keeps its content, which is part of the bitstream.

The ULX3S has no reset. There registers keep the bitstream's values (``reset=False``), and memories do not.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .builds.designs import design
from .device import build_device

__all__ = ["MEMORY_BYTES", "RANDOM", "as_silicon", "silicon_device"]

#: Verilator: undefined values are random, each by the seed of the run.
RANDOM = ("--x-assign", "unique", "--x-initial", "unique")
#: Of the memory beside the machine, which is random, too.
MEMORY_BYTES = 1 << 20

_CLEARED = re.compile(r"^`ifndef SYNTHESIS\n  initial begin : clear_\w+\n.*?^`endif\n", re.MULTILINE | re.DOTALL)
_REGISTER = re.compile(
    r"^( +(?:\(\*.*?\*\) )?(?:output )?reg (?:signed )?(?:\[\d+:\d+\] )?(?:\\\S+ |\w+)) *= *[^;,\n]+;$", re.MULTILINE
)
_INITIAL = re.compile(r"^ *(?:\(\*.*?\*\) )?(?:output )?reg [^;\n]*=[^;\n]*;", re.MULTILINE)


def as_silicon(verilog: str, *, reset: bool = True) -> str:
    """Generated Verilog without values that a chip does not define.

    ``reset``: the chip's registers are defined by a reset; else by the bitstream.
    """
    text = _CLEARED.sub("", verilog)
    if "initial begin : clear_" in text:
        raise ValueError("a memory is cleared in an unknown way")
    if not reset:
        return text
    text = _REGISTER.sub(r"\1;", text)
    left = _INITIAL.search(text)
    if left is not None:
        raise ValueError(f"a register has an initial value in an unknown form: {left[0].strip()}")
    return text


def silicon_device(config: Any, directory: Path, *, tell: Callable[[str], None] | None = None) -> Path:
    """Builds a machine that starts as silicon does, and returns the program.

    Its text goes to ``directory``.
    """
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for path in design(config):
        files.append(directory / path.name)
        files[-1].write_text(as_silicon(path.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
    return build_device(files, memory_bytes=MEMORY_BYTES, **config.bus, arguments=RANDOM, tags=False, tell=tell)
