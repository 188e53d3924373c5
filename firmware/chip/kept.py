"""What a job keeps for the time after a power cut.

Two copies are written alternately. The layout is that of ``soc_keep.h``, on a memory card and in a file.
"""

import os
import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import BinaryIO

from .card import BLOCK
from .soc import RECORD_BYTES

__all__ = ["Copy", "KeptFile", "Reason", "KeptRecord", "encode", "newest", "read_copy"]

_MAGIC = b"GLKP"
_LAYOUT = 1
_HEAD = struct.Struct("<4s10I")
_RECORD = struct.Struct("<QII")


class Reason(IntEnum):
    """Why a copy was made."""

    GOES_ON = 0
    DONE = 1
    RUNS = 2
    CYCLES = 3
    MAINS = 4
    HEAT = 5


@dataclass(frozen=True)
class KeptRecord:
    """A run in the log.

    ``total`` is the loss as the machine leaves it: a sum to base 2, 16 bits behind the point.
    """

    total: int
    tokens: int
    saturated: int

    @property
    def loss(self) -> float | None:
        """Nats a token; None without tokens."""
        from math import log

        return self.total / self.tokens / 65536 * log(2) if self.tokens else None


@dataclass(frozen=True, kw_only=True)
class Copy:
    """Words that were kept after ``runs`` runs, with the log of those.

    ``identity`` is the sum of the card's header; a copy of another one is not for this job.
    """

    sequence: int
    identity: int
    runs: int
    words: bytes
    log: tuple[KeptRecord, ...] = ()
    reason: Reason = Reason.GOES_ON


def _whole(data: bytes) -> bytes:
    return data + bytes(-len(data) % BLOCK)


def encode(copy: Copy) -> bytes:
    """A copy as it lies on a card."""
    log = b"".join(_RECORD.pack(each.total, each.tokens, each.saturated) for each in copy.log)
    head = struct.pack(
        "<4s9I",
        _MAGIC,
        _LAYOUT,
        copy.sequence,
        copy.identity,
        copy.runs,
        len(copy.words),
        zlib.crc32(copy.words),
        len(copy.log),
        zlib.crc32(log),
        copy.reason,
    )
    return _whole(head + struct.pack("<I", zlib.crc32(head))) + _whole(copy.words) + _whole(log)


def read_copy(file: BinaryIO, start: int, room: int) -> Copy | None:
    """The copy at byte ``start``, or None if it is not whole.

    It has at most ``room`` bytes.
    """
    file.seek(start)
    head = file.read(BLOCK)
    if len(head) < BLOCK:
        return None
    magic, layout, sequence, identity, runs, size, total, records, log_total, reason, check = _HEAD.unpack_from(head)
    ends = BLOCK + size + -size % BLOCK
    if (magic, layout) != (_MAGIC, _LAYOUT) or zlib.crc32(head[: _HEAD.size - 4]) != check:
        return None
    if ends + RECORD_BYTES * records > room or reason not in Reason.__members__.values():
        return None
    words = file.read(size)
    file.seek(start + ends)
    log = file.read(RECORD_BYTES * records)
    if (zlib.crc32(words), zlib.crc32(log)) != (total, log_total):
        return None
    return Copy(
        sequence=sequence,
        identity=identity,
        runs=runs,
        words=words,
        log=tuple(KeptRecord(*each) for each in _RECORD.iter_unpack(log)),
        reason=Reason(reason),
    )


def newest(file: BinaryIO, start: int, room: int, identity: int) -> Copy | None:
    """The newest whole copy of two, or None.

    They are from byte ``start`` on, and have ``room`` bytes each. The older one is read only if the newer is damaged.
    """
    heads = []
    for place in (0, 1):
        file.seek(start + place * room)
        heads.append((file.read(_HEAD.size), start + place * room))
    known = [(_HEAD.unpack(head), at) for head, at in heads if len(head) == _HEAD.size]
    mine = [(head[2], at) for head, at in known if head[0] == _MAGIC and head[3] == identity]
    if len(mine) == 2 and mine[1][0] - mine[0][0] & 0xFFFFFFFF < 1 << 31:
        mine.reverse()
    return next((copy for _, at in mine if (copy := read_copy(file, at, room)) is not None), None)


@dataclass(frozen=True)
class KeptFile:
    """A copy on Linux, where a file is replaced whole or not at all."""

    path: Path

    def find(self, identity: int) -> Copy | None:
        """The copy there; None if there is none, or it is of another job."""
        try:
            with self.path.open("rb") as file:
                found = read_copy(file, 0, self.path.stat().st_size + BLOCK)
        except FileNotFoundError:
            return None
        return found if found is not None and found.identity == identity else None

    def write(self, copy: Copy) -> None:
        """Replaces the copy there, on the disk before this returns."""
        fresh = self.path.with_name(f".{self.path.name}.new")
        with fresh.open("wb") as file:
            file.write(encode(copy))
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
