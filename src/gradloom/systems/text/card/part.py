"""A part of what a card brings into a job's window, and its description."""

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gradloom.firmware.chip.steps import STATE_BYTES, AdapterPlaces, StepTable, values_of
from gradloom.program.assembler import Assembler
from gradloom.program.patches import patches

from ..operations.learnt.rechosen import FRACS
from ..program.layout import Layout

__all__ = ["BoardPart", "tabled"]


@dataclass
class BoardPart:
    """Bytes from ``offset`` on, one thing after the other.

    ``layout`` gets the place of each. ``description`` is the offset of the part's description, the last of all.
    """

    layout: Layout
    offset: int = 0
    content: bytearray = field(default_factory=bytearray)
    description: int = 0

    def __post_init__(self) -> None:
        self.offset = self.layout.end

    @property
    def end(self) -> int:
        """Where the part ends."""
        return self.offset + len(self.content)

    def bring(self, name: str, data: bytes) -> int:
        """Adds data, and returns its offset."""
        at = self.layout.place(name, len(data))
        self.content.extend(bytes(at - self.end) + data)
        return at

    def describe(self, magic: bytes, *words: int) -> None:
        """Adds the description, of layout 1, with its sum."""
        body = struct.pack(f"<{len(words)}I", *words)
        self.description = self.bring("description", magic + struct.pack("<2I", 1, zlib.crc32(body)) + body)


def tabled(
    program: Assembler, variables: Mapping[str, int], names: Sequence[str], columns: Sequence[str], state: int
) -> bytes:
    """A table that patches a program by exponents of adapters and a row.

    ``variables`` has the values that the program was lowered with; ``names`` are those of the adapters in the order of
    their exponents at ``state``. Nothing is measured.
    """
    places = {name: index for index, name in enumerate(columns)}
    for number, name in enumerate(names):
        for place, which in enumerate(FRACS):
            places[f"{name}.{which}"] = len(columns) + number * STATE_BYTES // 4 + place
    return StepTable(
        programs=(values_of(patches(program.instructions, variables), places),),
        rows=((0,) * len(columns),),
        adapters=tuple(AdapterPlaces(((0, 0),) * len(FRACS), 0, 0, 0) for _ in names),
        state=state,
    ).encoded()
