"""Lists the USB devices of this machine, from sysfs."""

import dataclasses
import os
from pathlib import Path

__all__ = ["UsbDevice", "usb_devices"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class UsbDevice:
    """A USB device with its device file and its serial ports."""

    vendor: int
    product: int
    name: str
    node: Path
    ports: tuple[str, ...]

    @property
    def usable(self) -> bool:
        """Whether this user may open it."""
        return os.access(self.node, os.R_OK | os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def usb_devices(root: Path = Path("/")) -> list[UsbDevice]:
    """All devices that are plugged in.

    ``root``: where ``sys`` and ``dev`` are.
    """
    found = []
    for folder in sorted((root / "sys/bus/usb/devices").glob("*")):
        if not (folder / "idVendor").is_file():
            continue
        bus, number = (int(_read(folder / name) or "0") for name in ("busnum", "devnum"))
        found.append(
            UsbDevice(
                vendor=int(_read(folder / "idVendor"), 16),
                product=int(_read(folder / "idProduct"), 16),
                name=_read(folder / "product") or "without a name",
                node=root / f"dev/bus/usb/{bus:03}/{number:03}",
                # An interface's folder is the device's own with a suffix, and holds the folder of its serial port.
                ports=tuple(sorted(f"/dev/{port.name}" for port in folder.glob("*:*/ttyUSB*"))),
            )
        )
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
