"""Tells whether the port to the registers has the width that the design was loaded for.

``python3 -m gradloom_host.lanes``; ``load.sh`` asks it after each load.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path

from . import registers

__all__ = ["lanes_fault", "main"]


def lanes_fault(read32: Callable[[int], int]) -> str:
    """What is wrong with the port's width; empty where nothing is.

    A port HPM0 at 32 bits gives 0 for each register that is not the first of its 16 bytes. VERSION is never 0.
    """
    if read32(registers.ID) != registers.CONSTANTS["ID"] or read32(registers.VERSION):
        return ""
    return (
        "registers off the 16-byte lanes read 0: the port HPM0 is at 32 bits, as PYNQ's own overlay leaves it: "
        "unload that overlay, and run load.sh again"
    )


def main(argv: list[str] | None = None) -> int:
    """Reads two registers over UIO; exit code 2 and one line where the second reads 0.

    An argument is a folder that stands before every path of the system.
    """
    from .uio_transport import find_uio, open_device, own_device

    (root,) = (sys.argv[1:] if argv is None else argv) or ["/"]
    try:
        device = find_uio(Path(root) / "sys/class/uio", own_device())
        number = open_device(Path(root) / "dev" / device.name)
        try:
            with mmap.mmap(number, mmap.PAGESIZE) as page, memoryview(page).cast("I") as words:
                fault = lanes_fault(lambda offset: words[offset // 4])
        finally:
            os.close(number)
    except (OSError, ValueError) as error:
        fault = str(error)
    if fault:
        print(f"gradloom: {fault}", file=sys.stderr)
    return 2 if fault else 0


if __name__ == "__main__":
    raise SystemExit(main())
