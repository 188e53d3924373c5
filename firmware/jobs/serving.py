"""Answers of a device's registers, memory and interrupt to frames."""

from __future__ import annotations

import hashlib
from typing import Any

from ..device.registers import REGISTERS
from ..device.transport import Transport
from .frames import PIECE, FrameError, field

__all__ = ["answered", "opened"]

#: Seconds that one answer may wait for the interrupt.
_LONGEST = 10.0
_OFFSETS = frozenset(REGISTERS.values())


def opened(transport: Transport) -> dict[str, Any]:
    """The message that describes a transport to the other side."""
    return {
        "base": transport.window_base,
        "size": transport.window_size,
        "clock_hz": transport.clock_hz,
        "real_time": transport.real_time,
    }


def answered(transport: Transport, message: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes] | None:
    """Does what a message asks of a transport.

    It asks to ``read``, ``write``, ``fetch``, ``digest``, ``store`` or ``wait``. Returns the answer; None where it asks
    for something else. :class:`FrameError` where a place is not of the device.
    """
    do = message.get("do")
    if do == "read":
        return {"value": transport.read32(_register(message))}, b""
    if do == "write":
        transport.write32(_register(message), field(message, "value", int, 0, (1 << 32) - 1))
        return {}, b""
    if do in ("fetch", "digest"):
        length = field(message, "length", int, 0, PIECE)
        found = transport.read_memory(_place(transport, message, length), length)
        return {}, found if do == "fetch" else hashlib.sha256(found).digest()
    if do == "store":
        transport.write_memory(_place(transport, message, len(data)), data)
        return {}, b""
    if do == "wait":
        return {"high": transport.wait_interrupt(min(float(field(message, "seconds", float, 0.0)), _LONGEST))}, b""
    return None


def _register(message: dict[str, Any]) -> int:
    offset: int = field(message, "offset", int)
    if offset not in _OFFSETS:
        raise FrameError(f"offset={offset:#x}: is of no register")
    return offset


def _place(transport: Transport, message: dict[str, Any], length: int) -> int:
    offset: int = field(message, "offset", int, 0)
    if offset + length > transport.window_size:
        raise FrameError(
            f"offset={offset}: with length {length} it must lie in the window of {transport.window_size} bytes"
        )
    return offset
