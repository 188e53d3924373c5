"""A simulated design that talks over a UART."""

from collections.abc import Callable, Iterable
from pathlib import Path

from .device import Harness, SimulationError

__all__ = ["Talker"]

_TROUBLE = {
    1: "the processor has stopped",
    2: "an access of the processor failed",
    4: "a rule of AXI4 was broken",
    8: "the UART sent a broken frame",
    16: "power is gone",
}


class Talker(Harness):
    """A simulated design, heard line by line.

    Parameters
    ----------
    program, directory, arguments : see :class:`~.device.Harness`.
    tell : callable, optional
        Told each line.
    bit : int
        Cycles of a bit of its UART.

    Attributes
    ----------
    cycles : int
        Simulated so far. lines : what the UART has sent, by lines.
    """

    def __init__(
        self,
        program: Path,
        *,
        directory: Path,
        tell: Callable[[str], None] | None = None,
        arguments: Iterable[str] = (),
        bit: int = 4,
    ) -> None:
        super().__init__(program, directory=directory, arguments=arguments)
        self.cycles = 0
        self.lines: list[str] = []
        self.bit, self._tell = bit, tell

    def say(self, data: bytes, *, gap: int = 4000) -> None:
        """Sends ``data`` to the UART.

        A byte follows another after ``gap`` cycles, at least ten bits.
        """
        self._ask(f"t {self.bit:x} {gap:x} {len(data):x}", data)
        self._answer()

    def spoken(self, cycles: int) -> bytes:
        """What the UART says in ``cycles`` cycles, or up to the end of a line."""
        self._ask(f"g {cycles:x}")
        spent, state, count = self._answer()
        text = self._bytes(count)
        self.cycles += spent
        if state:
            raise SimulationError("; ".join(why for bit, why in _TROUBLE.items() if state & bit))
        return text

    def hear(self, cycles: int = 1 << 24) -> str:
        """The next line of the UART.

        :class:`SimulationError` if there is none in ``cycles`` cycles.
        """
        text = b""
        while not text.endswith(b"\n"):
            before = self.cycles
            text += self.spoken(cycles)
            cycles -= self.cycles - before
            if cycles <= 0 and not text.endswith(b"\n"):
                raise SimulationError(f"the UART is silent after {text!r}")
        # A processor that was restarted, or a listener who joined late, leaves half a byte on the line.
        line = text.decode("ascii", errors="replace").rstrip("\n")
        self.lines.append(line)
        if self._tell is not None:
            self._tell(line)
        return line
