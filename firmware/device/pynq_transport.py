"""Transport by PYNQ.

The overlay is loaded from ``NAME.bit`` and ``NAME.hwh``, the buffer comes from ``pynq.allocate``.
"""

import os
from typing import Any

from .barrier import memory_barrier
from .machine import own_design
from .transport import Transport

_IP = "accelerator"
_LOGIN = "run it as root in PYNQ's environment: sudo bash -lc 'python3 ...' (plain sudo leaves that)"


class MmioTransport(Transport):
    """Registers that PYNQ has mapped, and a buffer of its own.

    PYNQ serves interrupts only through an interrupt controller in the design, which this one does not need:
    the end of a program is polled for. The buffer is not cacheable, since the memory port does not see the
    CPU's caches.

    Parameters
    ----------
    mmio : ``pynq.MMIO``
        The registers.
    window_size : :class:`int`
        Bytes to allocate, a multiple of 4096.
    """

    real_time = True

    def __init__(self, mmio: Any, *, window_size: int = 64 << 20):
        _check_window(window_size)
        import numpy as np
        import pynq

        self._barrier = memory_barrier()
        self.clock_hz = pynq.Clocks.fclk0_mhz * 1e6
        own = own_design()
        if own is not None and own.clock_mhz is not None and self.clock_hz > own.clock_mhz * 1.01e6:
            raise ValueError(
                f"PYNQ runs the design at {self.clock_hz / 1e6:.4g} MHz, it is made for {own.clock_mhz:.4g}: set "
                f"pynq.Clocks.fclk0_mhz, or load the design by gradloom flash and leave --bitfile out"
            )
        self._mmio = mmio
        self._buffer = pynq.allocate(shape=(window_size,), dtype=np.uint8, cacheable=False)
        self.window_base = self._buffer.device_address
        self.window_size = window_size

    def read32(self, offset: int) -> int:
        return self._mmio.read(offset)

    def write32(self, offset: int, value: int) -> None:
        self._mmio.write(offset, value)

    def read_memory(self, offset: int, length: int) -> bytes:
        # Costs nothing on an uncached buffer, and is right on a board whose buffers are cached after all.
        self._buffer.invalidate()
        self._barrier()
        return self._buffer[offset : offset + length].tobytes()

    def write_memory(self, offset: int, data: bytes) -> None:
        import numpy as np

        self._buffer[offset : offset + len(data)] = np.frombuffer(data, np.uint8)
        self._buffer.flush()
        # Write-combining memory may be written after the registers, the bell among them.
        self._barrier()

    def close(self) -> None:
        self._buffer.freebuffer()


class PynqTransport(MmioTransport):
    """A design loaded with PYNQ.

    Parameters
    ----------
    bitfile : :class:`str`
        ``NAME.bit``, with ``NAME.hwh`` beside it.
    window_size : :class:`int`
        Bytes to allocate, a multiple of 4096.
    """

    def __init__(self, bitfile: str, *, window_size: int = 64 << 20):
        _check_window(window_size)
        # Without it PYNQ registers no device, and says only that there is none.
        if "XILINX_XRT" not in os.environ:
            raise ValueError(f"XILINX_XRT is not set, and PYNQ finds no board: {_LOGIN}")
        try:
            import pynq
        except ImportError as error:
            raise ValueError(f"PYNQ cannot be imported ({error}): {_LOGIN}") from error
        self._overlay = pynq.Overlay(bitfile)
        if _IP not in self._overlay.ip_dict:
            found = ", ".join(self._overlay.ip_dict) or "none"
            raise ValueError(f"{bitfile} holds no IP called {_IP!r}, but {found}")
        super().__init__(getattr(self._overlay, _IP).mmio, window_size=window_size)


def _check_window(window_size: int) -> None:
    if window_size <= 0 or window_size % 4096:
        raise ValueError(f"window_size must be a positive multiple of 4096, not {window_size}")
