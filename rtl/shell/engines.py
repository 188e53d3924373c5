"""Engines of a machine: their numbers, names, commands and phases."""
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from amaranth.lib.data import StructLayout

from .signature import ControlOpcode, ControlOperands, LoadOperands, StoreOperands

__all__ = ["CONTROL", "COUNTED", "LOAD", "STORE", "Engine", "EngineSpec", "Engines"]

#: The engine field of a command has 4 bits.
_MOST = 16
#: The phase field of a command has 3 bits, and the counters have this many words.
_PHASES, COUNTED = 8, 16


@dataclass(frozen=True, kw_only=True)
class EngineSpec:
    """An engine as programs, shell and tools know it.

    Parameters
    ----------
    name : str
        A lower-case identifier; names ports, queues, messages.
    opcodes : type
        Its opcodes, by name.
    operands : mapping
        Layout of the operands by opcode; opcodes that are missing have those of ``default``.
    default : StructLayout
    phases : tuple of str
        What its cycles count as. A command names one; the first unless it says otherwise.
    operand_bits : int
        Operand bits that its queue keeps: those of the widest layout.
    """

    name: str
    opcodes: type[IntEnum]
    default: StructLayout
    operands: Mapping[int, StructLayout] = field(default_factory=dict)
    phases: tuple[str, ...]
    operand_bits: int = 160

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or self.name != self.name.lower():
            raise ValueError(f"engine {self.name!r}: a name must be a lower-case identifier")
        if not 1 <= len(self.phases) <= _PHASES:
            raise ValueError(f"engine {self.name}: has {len(self.phases)} phases, must be 1 to {_PHASES}")


class Engine(int):
    """An engine of a machine: its number, and what it is."""

    spec: EngineSpec
    #: The number of its first phase among the machine's.
    phase_base: int

    def __new__(cls, number: int, spec: EngineSpec, phase_base: int) -> "Engine":
        made = super().__new__(cls, number)
        made.spec, made.phase_base = spec, phase_base
        return made

    @property
    def name(self) -> str:
        """As in ports and messages."""
        return self.spec.name

    def layout(self, opcode: int) -> StructLayout:
        """Layout of the operands of a command."""
        return self.spec.operands.get(opcode, self.spec.default)

    def phase(self, name: str | None) -> int:
        """Number of a phase among the engine's own; None is the first."""
        if name is None:
            return 0
        try:
            return self.spec.phases.index(name)
        except ValueError:
            raise ValueError(f"phase={name!r}: engine {self.name} has {', '.join(self.spec.phases)}") from None

    def __repr__(self) -> str:
        return f"<engine {int(self)}: {self.name}>"

    __str__ = __repr__


class _TransferOpcode(IntEnum):
    """LOAD and STORE have one command each."""

    TRANSFER = 0


#: Cycles in which no engine executes a command; the sequencer executes CONTROL commands as it meets them.
CONTROL = Engine(0, EngineSpec(name="control", opcodes=ControlOpcode, default=ControlOperands, phases=("wait",)), 0)
LOAD = Engine(1, EngineSpec(name="load", opcodes=_TransferOpcode, default=LoadOperands, phases=("load",),
                            operand_bits=96), 1)
STORE = Engine(2, EngineSpec(name="store", opcodes=_TransferOpcode, default=StoreOperands, phases=("store",),
                             operand_bits=96), 2)


#: Of every machine, by number.
_SHELL = (CONTROL, LOAD, STORE)


class Engines:
    """The engines of a machine: the shell's own, then ``specs`` in their order, which is that of priority.

    Of several commands that could start, or end, in one cycle, the one of the lowest number does. Numbers, trace bits
    and phases follow from the order.

    Attributes
    ----------
    own : tuple of Engine
        Without the shell's.
    queued : tuple of Engine
        All that have a queue: LOAD, STORE and ``own``. ``CONTROL`` has none.
    by_urgency : tuple of Engine
        The same, ``own`` first: a cycle counts for the first of them that executes a command.
    phases : tuple of str
        Names of the machine's phases; a phase counter each.
    """

    def __init__(self, *specs: EngineSpec) -> None:
        names = [*(each.name for each in _SHELL), *(each.name for each in specs)]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"engine {name}: a machine has one engine of a name; give the second another")
        if len(names) > _MOST:
            raise ValueError(f"engines: {len(specs)} besides the shell's, must be at most {_MOST - len(_SHELL)}")
        self.phases: tuple[str, ...] = tuple(phase for each in _SHELL for phase in each.spec.phases)
        own: list[Engine] = []
        for spec in specs:
            own.append(Engine(len(_SHELL) + len(own), spec, len(self.phases)))
            self.phases += spec.phases
        for name in self.phases:
            if self.phases.count(name) > 1:
                raise ValueError(f"phase {name}: two engines of a machine have one of this name; give one another")
        if len(self.phases) > COUNTED:
            raise ValueError(f"engines: {len(self.phases)} phases with the shell's three, must be at most {COUNTED}")
        self.own = tuple(own)
        self.queued = (LOAD, STORE, *own)
        self.by_urgency = (*own, LOAD, STORE)

    def __len__(self) -> int:
        """With the shell's."""
        return len(_SHELL) + len(self.own)

    def __iter__(self) -> Iterator[Engine]:
        """All, by number."""
        return iter((CONTROL, *self.queued))
