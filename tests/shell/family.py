"""Machines of dummy engines: as many as asked for, with one to three phases each."""
from enum import IntEnum

from gradloom.rtl.shell.engines import Engines, EngineSpec
from gradloom.rtl.shell.signature import ControlOperands

__all__ = ["FAMILIES", "family"]

#: Engines of the machines that are tried.
FAMILIES = (1, 2, 4, 7)


class _Opcode(IntEnum):
    TIME = 0
    HANG = 1
    BAD = 2


def family(count):
    """``count`` engines; the last one's queue keeps fewer operands."""
    return Engines(*(EngineSpec(name=f"dummy_{n}", opcodes=_Opcode, default=ControlOperands,
                                phases=tuple(f"phase_{n}_{p}" for p in range(n % 2 + 1)),
                                operand_bits=32 if n == count - 1 else 160) for n in range(count)))
