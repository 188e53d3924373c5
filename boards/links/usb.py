"""USB devices of this machine, from sysfs, and the udev rules that give users their rights."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

__all__ = ["RULES", "UsbDevice", "udev_rules", "usb_devices"]

#: Where a project has its rules. Below 73, at which systemd reads the tag ``uaccess``.
RULES = "board/60-gradloom.rules"


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


def udev_rules(cables: Sequence[tuple[int, int]], *, board: Sequence[str] = ()) -> str:
    """Rules for udev: users may open a board's cables, here, and its device files, there.

    Who is logged in at the screen, or in the group ``plugdev``. ``cables``: numbers of vendor and product. ``board``:
    matches of device files on the board itself.
    """
    lines = ["# sudo install -m 644 60-gradloom.rules /etc/udev/rules.d && sudo udevadm control --reload"]
    rights = 'MODE="0660", GROUP="plugdev"'
    for vendor, product in cables:
        numbers = f'ATTRS{{idVendor}}=="{vendor:04x}", ATTRS{{idProduct}}=="{product:04x}"'
        # Of serial ports the group stays dialout.
        lines.append(f'SUBSYSTEM=="usb", {numbers}, {rights}, TAG+="uaccess"')
        lines.append(f'SUBSYSTEM=="tty", {numbers}, TAG+="uaccess", ENV{{ID_MM_DEVICE_IGNORE}}="1"')
    lines += [f"{match}, {rights}" for match in board]
    return "\n".join(lines) + "\n"


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
