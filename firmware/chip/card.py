"""Images of memory cards for a system on chip.

The firmware (``soc_card.c``) loads their sections into memory.
"""

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypedDict

from .adapter_store import HEADER_BYTES
from .soc import HEADER_BYTES as RESERVED

__all__ = [
    "ADAPTER",
    "BLOCK",
    "DELIVERY",
    "KEPT",
    "MAX_SECTIONS",
    "NOTE",
    "PARTS",
    "PLAIN",
    "CardError",
    "CardSection",
    "Entry",
    "Section",
    "place",
    "read_card",
    "read_header",
    "read_section",
    "section_of",
    "write_card",
]

_MAGIC = b"GLCD"
_LAYOUT = 1
#: Bytes of a card's block, and the unit of every section.
BLOCK = 512
MAX_SECTIONS = 12
#: Kinds of section: bytes at an offset of memory, the next adapter of a store there, room for what a job learns, a text
#: about it for whoever reads the card, or room for signed adapters, whose words go to an offset of memory.
PLAIN, ADAPTER, KEPT, NOTE, DELIVERY = 0, 1, 2, 3, 4
#: Parts of a section of the last kind: the inbox, two places for words, two for the state.
PARTS = 5
_UNIT = 64
_ENTRY = struct.Struct("<16s6I")
_CHUNK = 1 << 20


class CardError(ValueError):
    """An image that is not whole."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """Bytes for memory, padded with zeros to a multiple of 64.

    ``parts``: files or bytes one after the other.

    ``offset`` counts from the shared memory's first byte, where a job's header may be: the last section then, since the
    job begins with it. ``capacity``, of an adapter's store: room in each place; of two copies that a job keeps, bytes
    of each; of signed adapters, bytes of their words. Parts of the latter two begin at a multiple of ``unit`` bytes:
    what a card erases at once should hold one of them.
    """

    name: str
    parts: tuple[Path | bytes, ...]
    offset: int
    kind: int = PLAIN
    capacity: int = 0
    unit: int = BLOCK

    @property
    def size(self) -> int:
        """Bytes on the card."""
        if self.kind == KEPT:
            return -(-self.capacity // self.unit) * self.unit * 2
        if self.kind == DELIVERY:
            # A package has a manifest and a mark for each 256 bytes; before it lies the request.
            most = self.capacity + self.capacity // 256 + 1 + 2 * BLOCK
            return -(-most // self.unit) * self.unit * PARTS
        size = sum(part.stat().st_size if isinstance(part, Path) else len(part) for part in self.parts)
        return -(-size // _UNIT) * _UNIT

    @property
    def end(self) -> int:
        """Where its memory ends."""
        if self.kind in (KEPT, NOTE, DELIVERY):
            return self.offset
        return self.offset + (2 * (HEADER_BYTES + self.capacity) if self.kind == ADAPTER else self.size)

    def check(self, memory_bytes: int) -> None:
        """Refuses a section that the firmware would refuse."""
        if not self.name.isascii() or not self.name.isprintable() or not 1 <= len(self.name) <= 16:
            raise ValueError(f"name={self.name!r}: must be 1 to 16 printable ASCII characters")
        if self.kind == DELIVERY:
            if self.parts or self.capacity % _UNIT or self.offset % _UNIT or self.offset + self.capacity > memory_bytes:
                raise ValueError(f"{self.name}: {self.capacity} bytes at {self.offset} must be whole words in memory")
            return
        if self.kind == KEPT:
            if self.offset or self.parts:
                raise ValueError(f"{self.name}: what a job keeps has no content yet")
            return
        if self.kind == NOTE:
            if self.offset:
                raise ValueError(f"offset={self.offset} of {self.name}: must be 0, a note has no place in memory")
            return
        if self.offset == 0 and self.kind == PLAIN:
            if self.size > RESERVED:
                raise ValueError(f"{self.name} has {self.size} bytes: a job's header has at most {RESERVED}")
            return
        if self.offset < RESERVED or self.offset % _UNIT:
            raise ValueError(f"offset={self.offset} of {self.name}: must be a multiple of {_UNIT}, at least {RESERVED}")
        if self.kind == ADAPTER and (self.capacity % _UNIT or self.capacity < self.size):
            raise ValueError(
                f"capacity={self.capacity} of {self.name}: must be a multiple of {_UNIT}, at least {self.size}"
            )
        if self.end > memory_bytes:
            raise ValueError(f"{self.name} ends at byte {self.end:,} of memory: there are {memory_bytes:,}")


def place(name: str, parts: Sequence[Path | bytes], start: int, *, kind: int = PLAIN) -> Section:
    """A section from the next multiple of 4 KB on.

    An adapter's store has exactly the room that this one needs.
    """
    section = Section(name=name, parts=tuple(parts), offset=-(-start // 4096) * 4096, kind=kind)
    if kind == PLAIN:
        return section
    return Section(name=name, parts=section.parts, offset=section.offset, kind=kind, capacity=max(section.size, _UNIT))


class CardSection(TypedDict):
    """A section of a card's image, and its place in the board's memory."""

    name: str
    kind: str
    offset: int
    bytes: int
    capacity: int
    crc32: str


def write_card(file: BinaryIO, sections: Sequence[Section], *, memory_bytes: int) -> list[CardSection]:
    """Writes an image into ``file`` and returns its sections.

    The file must be seekable. Of each section it returns its place, with its CRC-32.

    :class:`ValueError` names the section that has no place.
    """
    if len(sections) > MAX_SECTIONS:
        raise ValueError(f"sections: at most {MAX_SECTIONS}, not {len(sections)}")
    taken: list[Section] = []
    for section in sections:
        section.check(memory_bytes)
        for other in taken:
            if section.offset < other.end and other.offset < section.end:
                raise ValueError(f"{section.name} and {other.name} overlap in memory")
        taken.append(section)
    block, entries = 1, b""
    rows: list[CardSection] = []
    for section in sections:
        block = -(-block * BLOCK // section.unit) * section.unit // BLOCK
        file.seek(block * BLOCK)
        total = 0
        for data in _pieces(section):
            total = zlib.crc32(data, total)
            file.write(data)
        size = section.size
        entries += _ENTRY.pack(
            section.name.encode("ascii"), section.kind, block, size, total, section.offset, section.capacity
        )
        rows.append(
            {
                "name": section.name,
                "kind": ("plain", "adapter", "kept", "note", "delivery")[section.kind],
                "offset": section.offset,
                "bytes": size,
                "capacity": section.capacity,
                "crc32": f"{total:08x}",
            }
        )
        block += -(-size // BLOCK)
        file.write(bytes(-size % BLOCK))
        # What a job learns begins as zeros: a hole in the file. No truncate: it does not lengthen a file in memory.
        if file.seek(0, 2) < block * BLOCK:
            file.seek(block * BLOCK - 1)
            file.write(b"\0")
    body = (struct.pack("<5I", len(sections), block, 0, 0, 0) + entries).ljust(BLOCK - 12, b"\0")
    file.seek(0)
    file.write(_MAGIC + struct.pack("<2I", _LAYOUT, zlib.crc32(body)) + body)
    return rows


def _pieces(section: Section) -> Iterable[bytes]:
    if section.kind in (KEPT, DELIVERY):
        return
    given = 0
    for part in section.parts:
        if isinstance(part, bytes):
            given += len(part)
            yield part
            continue
        with part.open("rb") as source:
            while data := source.read(_CHUNK):
                given += len(data)
                yield data
    if section.size - given:
        yield bytes(section.size - given)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A section as the card's first block has it.

    ``start`` is its first byte on the card, ``total`` its CRC-32.
    """

    name: str
    kind: int
    start: int
    size: int
    total: int
    offset: int
    capacity: int


def read_header(block: bytes) -> tuple[list[Entry], int]:
    """Sections of a card, from its first block.

    Returns also the block's sum, which names the image.

    :class:`CardError` names the damage.
    """
    if len(block) < BLOCK or block[:4] != _MAGIC:
        raise CardError("not an image that gradloom wrote")
    layout, total, count, blocks = struct.unpack_from("<4I", block, 4)
    if layout != _LAYOUT or zlib.crc32(block[12:BLOCK]) != total or count > MAX_SECTIONS:
        raise CardError("the header is damaged")
    found = []
    for index in range(count):
        raw, kind, first, size, check, offset, capacity = _ENTRY.unpack_from(block, 32 + index * _ENTRY.size)
        name = raw.rstrip(b"\0").decode("ascii", "replace")
        if first * BLOCK + size > blocks * BLOCK:
            raise CardError(f"section {name} is damaged")
        found.append(
            Entry(name=name, kind=kind, start=first * BLOCK, size=size, total=check, offset=offset, capacity=capacity)
        )
    return found, total


def section_of(entries: Sequence[Entry], kind: int) -> Entry | None:
    """The first section of a kind, if there is one."""
    return next((each for each in entries if each.kind == kind), None)


def read_section(file: BinaryIO, entry: Entry) -> bytes:
    """Bytes of a section whose sum the header has.

    :class:`CardError` if they do not have it.
    """
    file.seek(entry.start)
    data = file.read(entry.size)
    if len(data) != entry.size or zlib.crc32(data) != entry.total:
        raise CardError(f"section {entry.name} is damaged")
    return data


def read_card(image: bytes) -> list[Section]:
    """The sections of an image, with their bytes as the only part.

    :class:`CardError` names the damage.
    """
    sections = []
    for each in read_header(image[:BLOCK])[0]:
        data = image[each.start : each.start + each.size]
        if len(data) != each.size or (each.kind not in (KEPT, DELIVERY) and zlib.crc32(data) != each.total):
            raise CardError(f"section {each.name} is damaged")
        parts = () if each.kind in (KEPT, DELIVERY) else (data,)
        sections.append(
            Section(name=each.name, parts=parts, offset=each.offset, kind=each.kind, capacity=each.capacity)
        )
    return sections
