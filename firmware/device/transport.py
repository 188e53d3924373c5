"""Base class of transports: how the host reaches an accelerator."""

import time
from abc import ABC, abstractmethod

from . import registers

_BUSY = sum(1 << registers.FIELDS[f"STATUS.{name}"][0] for name in ("busy", "request_busy"))


class Transport(ABC):
    """Registers, and a window that host and accelerator share.

    The window is one contiguous buffer that both see.

    A transport keeps both sides coherent: when :meth:`write_memory` returns, a program started afterwards
    reads the new bytes; :meth:`read_memory` gives what the last ended program wrote. Offsets are bytes from
    the window's start.

    Attributes
    ----------
    window_base : :class:`int`
        Address of the window on the accelerator's bus, a multiple of 4096.
    window_size : :class:`int`
        Its size in bytes.
    clock_hz : :class:`float` or ``None``
        The accelerator's clock, where it is known; turns cycles into seconds.
    real_time : :class:`bool`
        Whether the accelerator's clock runs beside the wall clock; a simulated one's does not.
    """

    window_base: int = 0
    window_size: int = 0
    clock_hz: float | None = None
    real_time: bool = False
    poll_interval: float = 0.0005

    @abstractmethod
    def read32(self, offset: int) -> int:
        """The register at byte ``offset``."""

    @abstractmethod
    def write32(self, offset: int, value: int) -> None:
        """Writes the register at byte ``offset``."""

    @abstractmethod
    def read_memory(self, offset: int, length: int) -> bytes:
        """``length`` bytes of the window."""

    @abstractmethod
    def write_memory(self, offset: int, data: bytes) -> None:
        """Puts bytes into the window."""

    def wait_interrupt(self, timeout: float | None = None) -> bool:
        """Waits until the interrupt line is high.

        Returns false after ``timeout`` seconds.

        A transport without an interrupt polls STATUS and IRQ_STATUS, as here, and is done as well when nothing runs;
        one that waits in another way overrides this. The line stays high until the host clears IRQ_STATUS.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while self.read32(registers.STATUS) & _BUSY and not self.read32(registers.IRQ_STATUS):
            if end is not None and time.monotonic() >= end:
                return False
            time.sleep(self.poll_interval)
        return True

    def close(self) -> None:  # noqa: B027 - most transports hold nothing
        """Releases the resources of the transport."""

    def __enter__(self) -> "Transport":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
