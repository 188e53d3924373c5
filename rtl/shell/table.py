"""The machine table: what a driver has to know of a machine, as text that its registers give.

One line of ASCII, its parts separated by semicolons: first ``name=value,...``, the machine's parameters; then
``dest>source`` of a memory that gives back what it is given, or nothing; then each engine in the order of its number,
``name:phase,...``. A 0 byte ends it. Registers give four bytes at a time, the first in the lowest bits.
"""
from collections.abc import Mapping

from .engines import Engines

__all__ = ["MOST_BYTES", "PROGRAM_FORMAT", "TABLE_FORMAT", "machine_table", "table_words"]

#: Of the text below, and of programs as :class:`~.signature.Command` lays them out. A driver refuses others.
TABLE_FORMAT, PROGRAM_FORMAT = 1, 1

#: TABLE_PLACE has 7 bits, a word 4 bytes; the last word is 0.
MOST_BYTES = 4 * 127


def machine_table(engines: Engines, parameters: Mapping[str, int], loop: tuple[int, int] | None = None) -> str:
    """The text. ``loop``: destination and source of that memory."""
    parts = [",".join(f"{name}={value}" for name, value in parameters.items()),
             "" if loop is None else f"{loop[0]}>{loop[1]}",
             *(f"{each.name}:{','.join(each.spec.phases)}" for each in engines.own)]
    text = ";".join(parts)
    if len(text) > MOST_BYTES:
        raise ValueError(f"machine table: {len(text)} bytes of names, must be at most {MOST_BYTES}; shorten names of "
                         "engines and phases")
    return text


def table_words(text: str) -> list[int]:
    """The text as 32-bit words, the last of them 0."""
    data = text.encode("ascii")
    data += bytes(-len(data) % 4 + 4)
    return [int.from_bytes(data[at:at + 4], "little") for at in range(0, len(data), 4)]
