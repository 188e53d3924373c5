"""What PYNQ makes of the accelerator in an overlay.

Imported before the overlay is loaded, the class is bound to the accelerator by its name in the hardware description:
``overlay.accelerator`` is then a :class:`GradloomIP`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..device.host import Accelerator
from ..device.pynq_transport import MmioTransport
from ..device.selftest import Result, run_selftest
from ..device.transport import Transport
from .board_device import BoardDevice, find_device

try:
    from pynq import DefaultIP
except ImportError:
    # Without PYNQ nobody binds a class to anything.
    DefaultIP = object

__all__ = ["NAME", "GradloomIP"]

#: Vendor, library, name and version of the core in the design.
NAME = "gradloom:accelerator:gradloom:1.0"


class GradloomIP(DefaultIP):
    """The accelerator of a loaded overlay.

    Each of these has the accelerator for itself, and a buffer of ``window_size`` bytes that ends with the block.
    """

    bindto = [NAME]

    @contextlib.contextmanager
    def accelerator(self, *, window_size: int = 64 << 20) -> Iterator[Accelerator]:
        """The driver, for programs of one's own."""
        with self.device(window_size=window_size).held("a PYNQ session"), self._transport(window_size) as transport:
            yield Accelerator(transport)

    def selftest(self) -> list[Result]:
        """``(check, passed, detail)`` of each check."""
        with self.accelerator() as found:
            return run_selftest(found)

    def device(self, *, window_size: int = 64 << 20) -> BoardDevice:
        """What ``gradloom_host.job_run.run_job`` runs a job on."""
        shared = find_device()
        return BoardDevice(shared.options, shared.lock, lambda: self._transport(window_size))

    def _transport(self, window_size: int) -> Transport:
        return MmioTransport(self.mmio, window_size=window_size)
