"""Options of answers that a board gives by its serial port."""

from dataclasses import dataclass
from typing import Self

from gradloom.options import Bounds, Options, check_request, option

__all__ = ["PortOptions"]


@dataclass(frozen=True, kw_only=True)
class PortOptions(Options):
    """The port of a board that answers in place of this machine."""

    port: str | None = option("Serial port of a board that answers.", metavar="TTY")
    baud: int | None = option(
        "Bits a second of the port.", metavar="N", usual="as the board is built", bounds=Bounds(1)
    )

    def check(self) -> Self:
        """Checks bounds, that a speed is a port's, and that an engine is none of floating point there."""
        super().check()
        if self.port is None:
            check_request("without --port, the serial port of a board", needless={"baud": self.baud})
        elif getattr(self, "engine", None) == "float":
            check_request("with --port, whose board has integers", needless={"engine": "float"})
        return self
