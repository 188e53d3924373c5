"""Transport by Linux UIO and u-dma-buf, without PYNQ.

The overlay that ``flash`` loads provides both devices.
"""

import mmap
import os
import select
import struct
from pathlib import Path

from .barrier import memory_barrier
from .machine import MachineDesign, own_design
from .transport import Transport

#: Before the name of a device, its buffer's.
BUFFER = "udmabuf-"


def own_device() -> str:
    """What Linux calls the registers of the design that this host came with."""
    design = own_design()
    return MachineDesign.device if design is None else design.device


class UioTransport(Transport):
    """Registers of a UIO device, and a u-dma-buf for the window.

    The buffer is opened with ``O_SYNC``: Linux maps it uncached (write-combining, by the overlay's
    ``sync-mode``), since the accelerator's memory port does not see the CPU's caches. Needs the rights to
    both device files: run as root, or give them by a udev rule.

    Parameters
    ----------
    name : :class:`str` or ``None``
        What the overlay calls the registers; the buffer's begins with ``udmabuf-``. None: that of :func:`own_device`.
    clock_hz : :class:`float` or ``None``
        For seconds beside cycles. None: what the kernel says of ``pl_clk0``, which only root may read; else the clock
        of the design that the host came with. :class:`ValueError` where the first is above the second.
    sys, dev : :class:`str`
        Where sysfs and the device files are; tests give others.
    """

    real_time = True

    def __init__(self, *, name: str | None = None, clock_hz: float | None = None, sys: str = "/sys", dev: str = "/dev"):
        self._barrier = memory_barrier()
        name = own_device() if name is None else name
        buffer_name = BUFFER + name
        device = find_uio(Path(sys) / "class" / "uio", name)
        buffer = Path(sys) / "class" / "u-dma-buf" / buffer_name
        if not buffer.is_dir():
            raise ValueError(
                f"no u-dma-buf called {buffer_name!r}: is the design loaded (xmutil loadapp), "
                f"and the kernel module u-dma-buf?"
            )
        register_bytes = int((device / "maps" / "map0" / "size").read_text(), 0)
        self.window_base = int((buffer / "phys_addr").read_text(), 0)
        self.window_size = int((buffer / "size").read_text(), 0)
        self.clock_hz = _clock(Path(sys)) if clock_hz is None else clock_hz

        self._uio = open_device(Path(dev) / device.name)
        try:
            self._registers = mmap.mmap(self._uio, register_bytes)
            # A 32-bit view makes each access one bus transfer; slices of bytes would not.
            self._words = memoryview(self._registers).cast("I")
            self._buffer = open_device(Path(dev) / buffer_name)
            try:
                self._window = mmap.mmap(self._buffer, self.window_size)
            except BaseException:
                os.close(self._buffer)
                raise
        except BaseException:
            os.close(self._uio)
            raise

    def read32(self, offset: int) -> int:
        return self._words[offset // 4]

    def write32(self, offset: int, value: int) -> None:
        self._words[offset // 4] = value

    def read_memory(self, offset: int, length: int) -> bytes:
        # What STATUS said was read before.
        self._barrier()
        return self._window[offset : offset + length]

    def write_memory(self, offset: int, data: bytes) -> None:
        self._window[offset : offset + len(data)] = data
        # Write-combining memory may be written after the registers, the bell among them.
        self._barrier()

    def wait_interrupt(self, timeout: float | None = None) -> bool:
        # UIO masks the line at each interrupt. It is level-sensitive, so one that came before the unmasking
        # is seen too.
        os.write(self._uio, struct.pack("=I", 1))
        ready, _, _ = select.select([self._uio], [], [], timeout)
        if not ready:
            return False
        os.read(self._uio, 4)
        return True

    def close(self) -> None:
        self._words.release()
        self._registers.close()
        self._window.close()
        os.close(self._buffer)
        os.close(self._uio)


def _clock(sys: Path) -> float | None:
    own = own_design()
    asked = None if own is None or own.clock_mhz is None else own.clock_mhz * 1e6
    try:
        found = float((sys / "kernel/debug/clk/pl0_ref/clk_rate").read_text())
    except (OSError, ValueError):
        return asked
    # The kernel rounds what dividers make.
    if asked is not None and found > 1.001 * asked:
        raise ValueError(f"pl_clk0 runs at {found:,.0f} Hz, the timing holds up to {asked:,.0f} Hz: run load.sh again")
    return found


def find_uio(folder: Path, name: str) -> Path:
    """The UIO device called ``name``, of ``/sys/class/uio``."""
    for device in sorted(folder.glob("uio*")):
        if (device / "name").read_text().strip() == name:
            return device
    raise ValueError(
        f"no UIO device called {name!r}: is the design loaded (xmutil loadapp), and the kernel "
        f"module uio_pdrv_genirq with of_id=generic-uio?"
    )


def open_device(path: Path) -> int:
    """A descriptor of a device file; :class:`ValueError` without the rights."""
    try:
        return os.open(path, os.O_RDWR | os.O_SYNC)
    except PermissionError:
        raise ValueError(
            f"{path}: no permission: run with sudo, or give your group the rights by a udev rule"
        ) from None
