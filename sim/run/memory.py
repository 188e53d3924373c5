"""The memory of a board behind a machine."""

from gradloom.boards import find
from gradloom.rtl.shell.parameters import ShellParameters

from ..time.shell.dram import Dram

__all__ = ["dram_of"]


def dram_of(board: str | None, config: ShellParameters) -> Dram | None:
    """The DRAM of the board with this name, in cycles of a machine of ``config``; None of no name.

    :class:`ValueError` where there is no such board, or where its DRAM's times are not known.
    """
    if board is None:
        return None
    return Dram(**find(board).dram_cycles(clock_mhz=config.clock_mhz, port_bits=config.port_bits))
