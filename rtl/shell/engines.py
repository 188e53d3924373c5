"""Engines of a machine: numbers, commands, phases and ports."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar

from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import Component, In, Member, Out, Signature

from .signature import (
    ControlOpcode,
    ControlOperands,
    EngineSignature,
    ForwardSignature,
    Health,
    LoadOperands,
    LoadSignature,
    StoreOperands,
    StoreSignature,
)

__all__ = [
    "CONTROL",
    "COUNTED",
    "LOAD",
    "OPERAND_BEATS",
    "STORE",
    "TAP_BEATS",
    "Engine",
    "EngineSpec",
    "Engines",
    "LoadPort",
    "Loop",
    "MemoryPort",
    "PortNumber",
    "StorePort",
]

#: Beats of a tap that wait for STORE while an encoder goes on.
TAP_BEATS = 128
#: Beats of operands of which a program may count on that they are taken before the engine has a command for them.
OPERAND_BEATS = 512
#: The engine field of a command has 4 bits.
_MOST = 16
#: The fields ``dest`` and ``source`` of LOAD and STORE have 8 bits.
_MOST_PORTS = 256
#: The phase field of a command has 3 bits, and the counters have this many words.
_PHASES, COUNTED = 8, 16


@dataclass(frozen=True)
class MemoryPort:
    """A port between an engine and memory.

    Parameters
    ----------
    name : str
        A lower-case identifier, unique among the engine's ports of its direction.
    doc : str
        A line: what goes through it.
    arg : StructLayout
        Of the operand ``arg``, 32 bits.
    """

    name: str
    doc: str
    arg: StructLayout = field(default_factory=lambda: StructLayout({"_reserved": 32}))

    def __post_init__(self) -> None:
        if not _is_name(self.name):
            raise ValueError(f"port {self.name!r}: a name must be a lower-case identifier")
        if self.arg.size != 32:
            raise ValueError(f"port {self.name}: arg has {self.arg.size} bits, must have 32")


@dataclass(frozen=True)
class LoadPort(MemoryPort):
    """LOAD sends beats to it.

    Parameters
    ----------
    forwards : bool
        STORE may send it records of tiles, too, in machines with ``forwards``.
    """

    forwards: bool = False


class StorePort(MemoryPort):
    """STORE takes beats from it.

    ``ahead``: it may be told of the next request while beats of the last are on their way.
    """

    ahead: ClassVar = False

    def signature(self, data_bits: int) -> Signature:
        """Of the engine's member; the bus has ``data_bits``."""
        return StoreSignature(data_bits)


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A memory of an engine, for a self-test that copies through it.

    The engine returns the words that were written.

    Parameters
    ----------
    load, store : str
        The ports.
    beats : int
        Beats of a copy.
    bits : int
        Of a word. Words from 0 to 2**15 - 1 come back unchanged.
    kept, group : int
        Of each ``group`` words the first ``kept`` come back.
    arg : int
        Of the LOAD and of the STORE.
    """

    load: str
    store: str
    beats: int
    bits: int
    kept: int
    group: int
    arg: int = 0


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
    loads, stores : tuple of LoadPort, of StorePort
        Its ports to memory.
    parameters : type
        Its parameters, a class of :class:`~gradloom.rtl.shell.parameters.Parameters` that the machine's configuration
        inherits.
    unit : callable
        Makes its component: ``unit(spec, config)`` with the machine's configuration. The component has at least the
        members that :meth:`members` names; others are wires to other engines.
    loop : callable, optional
        A :class:`Loop` that it offers, from the configuration.
    operand_bits : int
        Operand bits that its queue keeps: those of the widest layout.
    """

    name: str
    opcodes: type[IntEnum]
    default: StructLayout
    operands: Mapping[int, StructLayout] = field(default_factory=dict)
    phases: tuple[str, ...]
    loads: tuple[LoadPort, ...] = ()
    stores: tuple[StorePort, ...] = ()
    parameters: type = object
    unit: "Callable[[EngineSpec, Any], Component] | None" = None
    loop: Callable[[Any], Loop] | None = None
    operand_bits: int = 160

    def __post_init__(self) -> None:
        if not _is_name(self.name):
            raise ValueError(f"engine {self.name!r}: a name must be a lower-case identifier")
        if not 1 <= len(self.phases) <= _PHASES:
            raise ValueError(f"engine {self.name}: has {len(self.phases)} phases, must be 1 to {_PHASES}")
        for kind, ports in (("load", self.loads), ("store", self.stores)):
            names = [port.name for port in ports]
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"engine {self.name}: has two {kind} ports {name}; give one another name")

    def members(self, data_bits: int, forwards: int = 0) -> dict[str, Member]:
        """Members of every component of the engine.

        The bus has ``data_bits``.

        ``engine``: commands. ``load_NAME``, ``store_NAME``: one of each of its ports. ``forward_NAME``: in machines
        with ``forwards``, of load ports that take them. ``health``: events of this cycle.
        """
        return {
            "engine": In(EngineSignature()),
            **{f"load_{port.name}": In(LoadSignature(data_bits)) for port in self.loads},
            **{
                f"forward_{port.name}": In(ForwardSignature(data_bits, port.arg))
                for port in self.loads
                if forwards and port.forwards
            },
            **{f"store_{port.name}": In(port.signature(data_bits)) for port in self.stores},
            "health": Out(Health),
        }


class PortNumber(int):
    """Number of a port in its machine.

    It is ``dest`` of a LOAD or ``source`` of a STORE.
    """

    #: Name of its engine.
    engine: str
    port: MemoryPort

    def __new__(cls, number: int, engine: str, port: MemoryPort) -> "PortNumber":
        made = super().__new__(cls, number)
        made.engine, made.port = engine, port
        return made

    def __repr__(self) -> str:
        return f"{self.engine}.{self.port.name}"

    __str__ = __repr__


class Engine(int):
    """An engine of a machine: its number and its specification."""

    spec: EngineSpec
    #: The number of its first phase among the machine's.
    phase_base: int
    #: Its ports, in the order of the specification.
    loads: tuple[PortNumber, ...]
    stores: tuple[PortNumber, ...]

    def __new__(
        cls, number: int, spec: EngineSpec, phase_base: int, load_base: int = 0, store_base: int = 0
    ) -> "Engine":
        made = super().__new__(cls, number)
        made.spec, made.phase_base = spec, phase_base
        made.loads = tuple(PortNumber(load_base + n, spec.name, port) for n, port in enumerate(spec.loads))
        made.stores = tuple(PortNumber(store_base + n, spec.name, port) for n, port in enumerate(spec.stores))
        return made

    def load(self, name: str) -> PortNumber:
        """``dest`` of its load port of a name."""
        return _port(self, "load", self.loads, name)

    def store(self, name: str) -> PortNumber:
        """``source`` of its store port of a name."""
        return _port(self, "store", self.stores, name)

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


def _is_name(name: str) -> bool:
    return name.isidentifier() and name == name.lower()


def _port(engine: Engine, kind: str, ports: tuple[PortNumber, ...], name: str) -> PortNumber:
    for each in ports:
        if each.port.name == name:
            return each
    has = ", ".join(each.port.name for each in ports) or "none"
    raise ValueError(f"{kind} port {name!r}: engine {engine.name} has {has}")


class _TransferOpcode(IntEnum):
    """LOAD and STORE have one command each."""

    TRANSFER = 0  #: moves one block


#: Cycles in which no engine executes a command; the sequencer executes CONTROL commands as it meets them.
CONTROL = Engine(0, EngineSpec(name="control", opcodes=ControlOpcode, default=ControlOperands, phases=("wait",)), 0)
LOAD = Engine(
    1, EngineSpec(name="load", opcodes=_TransferOpcode, default=LoadOperands, phases=("load",), operand_bits=96), 1
)
STORE = Engine(
    2, EngineSpec(name="store", opcodes=_TransferOpcode, default=StoreOperands, phases=("store",), operand_bits=96), 2
)


#: Of every machine, by number.
_SHELL = (CONTROL, LOAD, STORE)


class Engines:
    """The engines of a machine: the shell's, then ``specs`` in order.

    The order is the order of priority.

    Of several commands that could start, or end, in one cycle, the one of the lowest number does. Numbers of engines
    and ports, trace bits and phases follow from the order.

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
    loads, stores : tuple of PortNumber
        Ports to memory, by number.
    """

    def __init__(self, *specs: EngineSpec) -> None:
        names = [*(each.name for each in _SHELL), *(each.name for each in specs)]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"engine {name}: a machine has one engine of a name; give the second another")
        if len(names) > _MOST:
            raise ValueError(f"engines: {len(specs)} besides the shell's, must be at most {_MOST - len(_SHELL)}")
        self.phases: tuple[str, ...] = tuple(phase for each in _SHELL for phase in each.spec.phases)
        self.loads: tuple[PortNumber, ...] = ()
        self.stores: tuple[PortNumber, ...] = ()
        own: list[Engine] = []
        for spec in specs:
            own.append(Engine(len(_SHELL) + len(own), spec, len(self.phases), len(self.loads), len(self.stores)))
            self.phases += spec.phases
            self.loads += own[-1].loads
            self.stores += own[-1].stores
        for name in self.phases:
            if self.phases.count(name) > 1:
                raise ValueError(f"phase {name}: two engines of a machine have one of this name; give one another")
        if len(self.phases) > COUNTED:
            raise ValueError(f"engines: {len(self.phases)} phases with the shell's three, must be at most {COUNTED}")
        for kind, ports in (("load", self.loads), ("store", self.stores)):
            if len(ports) > _MOST_PORTS:
                raise ValueError(f"engines: {len(ports)} {kind} ports, must be at most {_MOST_PORTS}")
        self.own = tuple(own)
        self.queued = (LOAD, STORE, *own)
        self.by_urgency = (*own, LOAD, STORE)
        #: Whether STORE tells some port of its next request.
        self.ahead = any(port.ahead for spec in specs for port in spec.stores)

    def named(self, name: str) -> Engine:
        """The machine's own engine of a name."""
        for each in self.own:
            if each.name == name:
                return each
        raise ValueError(f"engine {name!r}: this machine has {', '.join(each.name for each in self.own)}")

    def __len__(self) -> int:
        """With the shell's."""
        return len(_SHELL) + len(self.own)

    def __iter__(self) -> Iterator[Engine]:
        """All, by number."""
        return iter((CONTROL, *self.queued))
