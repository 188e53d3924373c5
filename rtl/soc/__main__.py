"""Writes the Verilog of the unit on the processor's bus.

It is committed, so that a system on chip needs no synthesis.
"""

from pathlib import Path

from . import DIGEST

__all__ = ["digest_verilog"]


def digest_verilog() -> str:
    """The Verilog of :class:`~gradloom.rtl.units.sha256.Sha256`."""
    from ..emit.verilog import convert
    from ..units.sha256 import Sha256

    name = DIGEST.removesuffix(".v")
    return convert(Sha256(), name=name).files[name]


if __name__ == "__main__":
    (Path(__file__).parent / DIGEST).write_text(digest_verilog(), encoding="ascii", newline="\n")
