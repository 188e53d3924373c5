"""Assembler: commands with named fields, checked against widths."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from amaranth.hdl import Shape
from amaranth.lib import data

from gradloom.rtl.shell.engines import CONTROL, Engine
from gradloom.rtl.shell.signature import COMMAND_BYTES, Command, ControlOpcode

__all__ = ["Instruction", "Assembler", "fields", "most", "pack"]


@cache
def fields(layout: data.StructLayout) -> dict[str, tuple[int, int, bool]]:
    """First bit and width of each field, and whether it is signed."""
    return {name: (f.offset, f.width, Shape.cast(f.shape).signed) for name, f in layout}


def most(layout: data.StructLayout, field: str) -> int:
    """The largest value of an unsigned field."""
    return (1 << fields(layout)[field][1]) - 1


@cache
def _bounds(layout: data.StructLayout) -> dict[str, tuple[int, int, int]]:
    """First bit of each field, its least value, and one more than its largest."""
    return {
        name: (offset, -(1 << (width - 1)) if signed else 0, 1 << (width - signed))
        for name, (offset, width, signed) in fields(layout).items()
    }


def pack(layout: data.StructLayout, values: Mapping[str, int]) -> int:
    """The bits of a struct; a value that its field cannot hold is refused."""
    found = _bounds(layout)
    word = 0
    for name, value in values.items():
        offset, least, end = found[name]
        value = int(value)
        if not least <= value < end:
            raise ValueError(f"{name}={value}: the field has {fields(layout)[name][1]} bits")
        word |= (value if value >= 0 else value + end - least) << offset
    return word


@lru_cache(maxsize=1 << 16)
def _head(
    opcode: int, engine: int, phase: int, wait: tuple[int, ...], post: tuple[int, ...], slots: tuple[int, int] | None
) -> int:
    """The bits of a command without operands. A program has few of them."""
    first, count = slots or (0, 0)
    return pack(
        Command,
        {
            "opcode": opcode,
            "engine": engine,
            "predicated": slots is not None,
            "phase": phase,
            "wait": sum(1 << token for token in wait),
            "post": sum(1 << token for token in post),
            "slot": first,
            "count": count,
        },
    )


@dataclass(frozen=True, slots=True)
class Instruction:
    """A command with its fields by name."""

    engine: Engine
    opcode: int
    operands: dict[str, int]
    wait: tuple[int, ...] = ()
    post: tuple[int, ...] = ()
    phase: str | None = None
    slots: tuple[int, int] | None = None


class Assembler:
    """Collects instructions; ``code`` is the program as it lies in memory."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self._code = bytearray()

    def __len__(self) -> int:
        return len(self.instructions)

    @property
    def code(self) -> bytes:
        return bytes(self._code)

    def add(
        self,
        engine: Engine,
        opcode: int = 0,
        *,
        wait: tuple[int, ...] = (),
        post: tuple[int, ...] = (),
        phase: str | None = None,
        slots: tuple[int, int] | None = None,
        **operands: int,
    ) -> None:
        """Appends a command.

        ``slots``: dropped if the valid bits of ``(first, count)`` slots are all set.

        ``phase``: what its cycles count as; the engine's first unless given.

        An operand that is no Python name is given with a trailing underscore. A YIELD makes all tokens zero, its own
        too: it shall post none.
        """
        if post and (engine, opcode) == (CONTROL, ControlOpcode.YIELD):
            raise ValueError(f"YIELD posts {post}, must post nothing: no token survives it")
        operands = {name.rstrip("_"): value for name, value in operands.items()}
        args = pack(engine.layout(opcode), operands)
        head = _head(opcode, engine, engine.phase(phase), tuple(wait), tuple(post), slots)
        word = head | pack(Command, {"args": args})
        self.instructions.append(Instruction(engine, opcode, operands, wait, post, phase, slots))
        self._code += word.to_bytes(COMMAND_BYTES, "little")

    def extend(self, other: "Assembler", first: int = 0, last: int | None = None) -> None:
        """Appends commands ``first`` to ``last`` (exclusive) of another."""
        last = len(other) if last is None else last
        self.instructions += other.instructions[first:last]
        self._code += other._code[COMMAND_BYTES * first : COMMAND_BYTES * last]

    def add_bits(self, engine: Engine, opcode: int, args: int) -> None:
        """Appends a command with these 160 bits of operands.

        The bits are not interpreted.
        """
        word = pack(Command, {"opcode": opcode, "engine": engine, "args": args})
        self.instructions.append(Instruction(engine, opcode, {}))
        self._code += word.to_bytes(COMMAND_BYTES, "little")
