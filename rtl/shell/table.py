"""The machine table: the text by which drivers know a machine.

One line of ASCII, its parts separated by semicolons: first ``name=value,...``, the machine's parameters; then a loop
for self-tests, ``dest>source,arg,beats,bits,kept,group``, or nothing; then each engine in the order of its number,
``name:phase,...:load port,...:store port,...``, its ports in the order of theirs. A 0 byte ends it. Registers give
four bytes at a time, the first in the lowest bits.

What a program needs is the same text of the machine that it was made for, with ``name>=value`` where a machine with
more runs it too.
"""

from collections.abc import Mapping

from .engines import Engine, Engines, Loop
from .parameters import ShellParameters

__all__ = ["MOST_BYTES", "PROGRAM_FORMAT", "TABLE_FORMAT", "machine_table", "needed_table", "table_of", "table_words"]

#: Of the text below, and of programs: how :class:`~.signature.Command` and the operands of engines are laid out. A
#: driver refuses others.
TABLE_FORMAT, PROGRAM_FORMAT = 2, 2

#: TABLE_PLACE has 7 bits, a word 4 bytes; the last word is 0.
MOST_BYTES = 4 * 127


def machine_table(engines: Engines, parameters: Mapping[str, int], loop: tuple[Engine, Loop] | None = None) -> str:
    """The text. ``loop``: what an engine of the machine offers."""
    parts = [",".join(f"{name}={value}" for name, value in parameters.items()), ""]
    if loop is not None:
        engine, way = loop
        ports = f"{int(engine.load(way.load))}>{int(engine.store(way.store))}"
        parts[-1] = f"{ports},{way.arg},{way.beats},{way.bits},{way.kept},{way.group}"
    parts += (
        ":".join(
            (
                each.name,
                ",".join(each.spec.phases),
                ",".join(port.name for port in each.spec.loads),
                ",".join(port.name for port in each.spec.stores),
            )
        )
        for each in engines.own
    )
    text = ";".join(parts)
    if len(text) > MOST_BYTES:
        raise ValueError(
            f"machine table: {len(text)} bytes of names, must be at most {MOST_BYTES}; shorten names of "
            "engines, phases and ports"
        )
    return text


def table_of(config: ShellParameters) -> str:
    """The text of the machine that a configuration names."""
    return machine_table(config.machine.engines, config.known, config.machine.loop(config))


def needed_table(config: ShellParameters) -> str:
    """The text that programs need which are made for a configuration."""
    parameters, *rest = table_of(config).split(";")
    least = {f"{name}={value}": f"{name}>={value}" for name, value in config.known.items() if name in config.least}
    return ";".join((",".join(least.get(each, each) for each in parameters.split(",")), *rest))


def table_words(text: str) -> list[int]:
    """The text as 32-bit words, the last of them 0."""
    data = text.encode("ascii")
    data += bytes(-len(data) % 4 + 4)
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]
