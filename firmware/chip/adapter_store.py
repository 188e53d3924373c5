"""Store of adapters that survives interrupted writes.

The layout is that of ``gradloom_store.h``.
"""

import struct
import zlib
from dataclasses import dataclass
from typing import Protocol

__all__ = ["HEADER_BYTES", "AdapterStore", "StoreMemory", "StoredAdapter"]

_MAGIC = b"GLAD"
_LAYOUT = 1
#: Space before each adapter.
HEADER_BYTES = 64
_FIELDS = struct.Struct("<4s5I")
_UNIT = 64


class StoreMemory(Protocol):
    """Bytes that can be reached.

    An :class:`~.host.Accelerator`'s window is an example.
    """

    def store(self, offset: int, values: bytes) -> None:
        """Puts bytes at ``offset``."""

    def fetch(self, offset: int, length: int) -> bytes:
        """``length`` bytes at ``offset``."""


@dataclass(frozen=True)
class StoredAdapter:
    """A stored adapter.

    ``sequence`` number of the write, ``offset`` of its first byte, ``data``.
    """

    sequence: int
    offset: int
    data: bytes


class AdapterStore:
    """Two places for an adapter of at most ``capacity`` bytes.

    They are from ``offset`` of a memory on.

    Each write goes to the place that is not the newest, its header last: one cut short leaves the older adapter.
    ``offset`` and ``capacity`` are multiples of 64.
    """

    def __init__(self, memory: StoreMemory, offset: int, capacity: int) -> None:
        for name, value, least in (("offset", offset, 0), ("capacity", capacity, _UNIT)):
            if value < least or value % _UNIT:
                raise ValueError(f"{name}={value}: must be a multiple of {_UNIT}, at least {least}")
        self.memory = memory
        self.offset = offset
        self.capacity = capacity

    @property
    def size(self) -> int:
        """Bytes of both places."""
        return 2 * (HEADER_BYTES + self.capacity)

    def find(self) -> StoredAdapter | None:
        """The newest whole adapter, or None."""
        number = self._newest()
        return None if number is None else self._read(number)

    def write(self, data: bytes) -> StoredAdapter:
        """Makes ``data``, whole words, the newest adapter."""
        if len(data) % 4 or len(data) > self.capacity:
            raise ValueError(f"data has {len(data)} bytes: must be a multiple of 4 up to {self.capacity}")
        newest = self._newest()
        spare = 1 if newest == 0 else 0
        at = self._place(spare)
        self.memory.store(at, bytes(4))
        self.memory.store(at + HEADER_BYTES, data)
        header = _place_image(data, 1 if newest is None else self._header(newest)[0] + 1 & 0xFFFFFFFF)[: _FIELDS.size]
        self.memory.store(at + 4, header[4:])
        self.memory.store(at, header[:4])
        return StoredAdapter(int.from_bytes(header[8:12], "little"), at + HEADER_BYTES, data)

    def _place(self, number: int) -> int:
        return self.offset + number * (HEADER_BYTES + self.capacity)

    def _header(self, number: int) -> tuple[int, int, int]:
        """Sequence number, bytes and sum of a place.

        A sequence number of -1: it has no header.
        """
        raw = self.memory.fetch(self._place(number), _FIELDS.size)
        magic, layout, sequence, length, total, check = _FIELDS.unpack(raw)
        whole = (magic, layout, check) == (_MAGIC, _LAYOUT, zlib.crc32(raw[4:20]))
        if not whole or length % 4 or length > self.capacity:
            return -1, 0, 0
        return sequence, length, total

    def _read(self, number: int) -> StoredAdapter | None:
        sequence, length, total = self._header(number)
        if sequence < 0:
            return None
        at = self._place(number) + HEADER_BYTES
        data = self.memory.fetch(at, length)
        return StoredAdapter(sequence, at, data) if zlib.crc32(data) == total else None

    def _newest(self) -> int | None:
        there = [number for number in (0, 1) if self._read(number) is not None]
        if len(there) == 2:
            # Sequence numbers go round: the newer one is ahead by less than half of them.
            return int(self._header(1)[0] - self._header(0)[0] & 0xFFFFFFFF < 1 << 31)
        return there[0] if there else None


def _place_image(data: bytes, sequence: int = 1) -> bytes:
    """A place that holds ``data``, from its header on."""
    body = struct.pack("<4I", _LAYOUT, sequence, len(data), zlib.crc32(data))
    return (_MAGIC + body + struct.pack("<I", zlib.crc32(body))).ljust(HEADER_BYTES, b"\0") + data
