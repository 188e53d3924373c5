"""Signed adapters on a memory card: the inbox, and what is installed.

The layout is that of ``soc_deliver.h``.
"""

import contextlib
import io
import os
import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import BinaryIO

from .card import BLOCK, DELIVERY, PARTS, CardError, Entry, read_header, section_of

__all__ = ["Area", "Installed", "StorePlace", "DeliveryRequest"]

_STATE_MAGIC, _REQUEST_MAGIC, _LAYOUT = b"GLDS", b"GLDQ", 1
_NONE = 2
_HEAD = struct.Struct("<4s9I")
#: Offset of the word of a trial in a state.
_TRIAL = 500
_PLACE = struct.Struct("<2I32s")
_REQUEST = struct.Struct("<4s3I")


class DeliveryRequest(IntEnum):
    """What the inbox asks the board for."""

    INSTALL = 1
    ROLLBACK = 2


@dataclass(frozen=True)
class StorePlace:
    """A version that lies on the card.

    ``total`` is the CRC-32 of its words, ``result`` their SHA-256.
    """

    version: int
    total: int
    result: bytes


@dataclass(frozen=True, kw_only=True)
class Installed:
    """What is installed; without an adapter ``current`` is None.

    ``highest`` is the highest version that ever was, ``least`` the lowest that may come back, ``request`` the number of
    the last request that was done. ``trial``: the words in use have not been tried on the held-out text yet.
    """

    sequence: int = 0
    current: StorePlace | None = None
    older: StorePlace | None = None
    highest: int = 0
    least: int = 0
    request: int = 0
    keys_version: int = 0
    trial: bool = False


@dataclass(frozen=True, kw_only=True)
class Area:
    """Where a card has its inbox and its adapters.

    ``image`` is the sum in its header.
    """

    entry: Entry
    image: int

    @classmethod
    def of(cls, file: BinaryIO) -> "Area":
        """That of a card; :class:`CardError` if it has none."""
        file.seek(0)
        entries, image = read_header(file.read(BLOCK))
        entry = section_of(entries, DELIVERY)
        if entry is None:
            raise CardError("the card has no room for signed adapters: write one with gradloom card write")
        return cls(entry=entry, image=image)

    @property
    def room(self) -> int:
        """Bytes of the largest package."""
        return self.entry.size // PARTS - BLOCK

    def _part(self, number: int) -> int:
        return self.entry.start + number * (self.entry.size // PARTS)

    def state(self, file: BinaryIO) -> Installed:
        """What is installed, by the newest state that is whole."""
        found = [each for number in (3, 4) if (each := self._state(file, self._part(number))) is not None]
        if len(found) == 2 and found[1].sequence - found[0].sequence & 0xFFFFFFFF >= 1 << 31:
            found.pop()
        return found[-1] if found else Installed()

    def _state(self, file: BinaryIO, start: int) -> Installed | None:
        file.seek(start)
        block = file.read(BLOCK)
        if len(block) < BLOCK or zlib.crc32(block[:-4]) != int.from_bytes(block[-4:], "little"):
            return None
        magic, layout, sequence, image, current, highest, least, request, keys, _ = _HEAD.unpack_from(block)
        if (magic, layout, image) != (_STATE_MAGIC, _LAYOUT, self.image) or current > _NONE:
            return None
        places = [StorePlace(*_PLACE.unpack_from(block, _HEAD.size + number * _PLACE.size)) for number in (0, 1)]
        here = [each if current != _NONE and each.version else None for each in places]
        return Installed(
            sequence=sequence,
            current=here[current] if current != _NONE else None,
            older=here[1 - current] if current != _NONE else None,
            highest=highest,
            least=least,
            request=request,
            keys_version=keys,
            trial=block[_TRIAL : _TRIAL + 4] != bytes(4),
        )

    def ask(self, file: BinaryIO, request: DeliveryRequest, number: int, package: bytes = b"") -> None:
        """Puts a request into the inbox, its block last.

        The card has it before this returns.
        """
        if len(package) > self.room:
            raise CardError(
                f"package: has {len(package):,} bytes, the card's inbox {self.room:,}; sign it with fewer bits"
            )
        head = _REQUEST.pack(_REQUEST_MAGIC, request, number, len(package))
        start = self._part(0)
        # The old request goes first, and the new one comes when all of its package is there.
        for at, data in ((start, bytes(BLOCK)), (start + BLOCK, package), (start, head + _sum(head))):
            file.seek(at)
            file.write(data + bytes(-len(data) % BLOCK))
            file.flush()
            # A card in a board is no file of this machine: the board answers when its card has stored a block.
            with contextlib.suppress(io.UnsupportedOperation):
                os.fsync(file.fileno())


def _sum(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "little")
