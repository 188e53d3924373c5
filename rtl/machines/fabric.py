"""Connects a machine's engines to the shell and to each other."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, ClockDomain, ClockSignal, DomainRenamer, Elaboratable, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Member, Out, connect, flipped

from ..hierarchy import place
from ..shell.engines import Engine, Engines
from ..shell.signature import EngineSignature, Health, LoadBeat, StoreRequest

__all__ = ["Fabric", "LocalReset", "Machine", "Wire", "attach"]


@dataclass(frozen=True)
class Wire:
    """A direct connection of two engines: ``ENGINE.MEMBER`` of each.

    The members have the same signature, in opposite directions.
    """

    one: str
    other: str


@dataclass(frozen=True, eq=False)
class Machine:
    """The engines of a machine and the wires between them.

    Parameters
    ----------
    engines : Engines
    wires : tuple of Wire
        Every member of an engine's component that its specification does not name is at the end of one wire.
    """

    engines: Engines
    wires: tuple[Wire, ...] = ()

    def loop(self, config: Any) -> tuple[Engine, Any] | None:
        """The first engine that offers a loop for self-tests, and the loop.

        The loop is a :class:`~..shell.engines.Loop`.
        """
        return next(((each, each.spec.loop(config)) for each in self.engines.own if each.spec.loop), None)


class Fabric(wiring.Component):
    """The engines of a machine, their memory ports and their wires.

    Ports to memory are selected by number; wires are between engines.

    Adds no cycle to a beat. Payloads of LOAD go to all load ports; the number selects ``valid``, ``ready`` and
    ``refuse``. A request of STORE selects the store port whose beats follow, as many as requested.

    Parameters
    ----------
    machine : Machine
    config
        The machine's configuration: given to each engine's ``unit``.
    data_bits : int
        Width of a beat.

    Members
    -------
    NAME : ``In(EngineSignature())``, for each engine
    load, refuse : LOAD's beats; ``refuse`` also for a number that no port has.
    request, refuse_store, store : STORE's requests and beats; ``refuse_store`` also for a number that no port has.
    health : ``Out(Health)``, the sum over the engines, a cycle later.
    """

    def __init__(self, machine: Machine, config: Any, data_bits: int) -> None:
        self.machine, self.config, self.data_bits = machine, config, data_bits
        self._units = {each: _unit(each, config, data_bits) for each in machine.engines.own}
        self._wires = _ends(machine.wires, self._units, data_bits)
        super().__init__(
            {
                **{each.name: In(EngineSignature()) for each in machine.engines.own},
                "load": In(stream.Signature(LoadBeat(data_bits))),
                "refuse": Out(1),
                "request": In(stream.Signature(StoreRequest)),
                "refuse_store": Out(1),
                "store": Out(stream.Signature(data_bits)),
                "health": Out(Health),
            }
        )

    @property
    def key(self) -> tuple[int, Any]:
        """Key: two fabrics with equal keys share one module."""
        return id(self.machine), self.config

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        units = self._units
        for each, unit in units.items():
            place(m, each.name, unit, platform)
            connect(m, flipped(getattr(self, each.name)), unit.engine)
        for one, other in self._wires:
            _connect(m, one, other)
        self._load(
            m,
            [
                getattr(units[each], f"load_{port.port.name}")
                for each in self.machine.engines.own
                for port in each.loads
            ],
        )
        self._store(
            m,
            [
                getattr(units[each], f"store_{port.port.name}")
                for each in self.machine.engines.own
                for port in each.stores
            ],
        )
        for name in Health.members:
            m.d.sync += self.health[name].eq(sum(unit.health[name] for unit in units.values()))
        return m

    def _load(self, m: Module, ports: list[Any]) -> None:
        """Sends beats to the port of their number.

        A number without a port is refused, and taken as any beat is.
        """
        beat, ready, refused = self.load.p, [], [self.load.p.dest >= len(ports)]
        for number, port in enumerate(ports):
            asked = Signal(name=f"load_{number}")
            m.d.comb += [
                asked.eq(beat.dest == number),
                port.beats.valid.eq(self.load.valid & asked),
                *(port.beats.p[name].eq(beat[name]) for name in ("data", "first", "last", "arg", "index")),
            ]
            ready.append(~asked | port.beats.ready)
            refused.append(asked & port.refuse)
        m.d.comb += [self.load.ready.eq(Cat(ready).all()), self.refuse.eq(Cat(refused).any())]

    def _store(self, m: Module, ports: list[Any]) -> None:
        """Requests to the port of their number, then its beats to STORE."""
        request, count = self.request.p, len(ports)
        asked, before, chosen = (Signal(count, name=name) for name in ("asked", "before", "chosen"))
        unknown, busy, left = Signal(), Signal(), Signal.like(request.beats)
        m.d.comb += asked.eq(Cat(request.source == number for number in range(count)))
        m.d.sync += [before.eq(asked), unknown.eq(request.source >= count)]
        m.d.comb += [
            self.request.ready.eq(~busy & Cat(~asked[n] | port.request.ready for n, port in enumerate(ports)).all()),
            self.refuse_store.eq(unknown | Cat(before[n] & port.refuse for n, port in enumerate(ports)).any()),
            self.store.valid.eq(Cat(chosen[n] & port.beats.valid for n, port in enumerate(ports)).any()),
        ]
        accepted = self.request.valid & self.request.ready
        with m.If(accepted):
            m.d.sync += [busy.eq(1), chosen.eq(asked), left.eq(request.beats - 1)]
        with m.Elif(self.store.valid & self.store.ready):
            m.d.sync += left.eq(left - 1)
            with m.If(left == 0):
                m.d.sync += [busy.eq(0), chosen.eq(0)]
        for number, port in enumerate(ports):
            m.d.comb += [
                port.request.valid.eq(self.request.valid & ~busy & asked[number]),
                port.request.p.arg.eq(request.arg),
                port.request.p.beats.eq(request.beats),
                port.beats.ready.eq(chosen[number] & self.store.ready),
            ]
        # One of four first, then what there is or one of three more: a LUT a bit each.
        payload, begin = 0, 0
        while begin < count:
            values = [port.beats.p for port in ports[begin : begin + (3 if begin else 4)]]
            select = Signal(2, name=f"select_{begin}")
            with m.If(accepted):
                within = Cat(asked[begin + n] for n in range(len(values)))
                first = 1 if begin else 0
                m.d.sync += select.eq(
                    Cat(
                        Cat(within[n] for n in range(len(values)) if n + first & 1).any(),
                        Cat(within[n] for n in range(len(values)) if n + first & 2).any(),
                    )
                )
            payload = _one_of_four(select, *([payload] if begin else []), *values)
            begin += len(values)
        m.d.comb += self.store.p.eq(payload)


def attach(m: Module, shell: Any, fabric: Fabric) -> None:
    """Connects a shell to the engines of its machine."""
    for each in fabric.machine.engines.own:
        connect(m, getattr(shell, each.name), getattr(fabric, each.name))
    connect(m, shell.o_load, fabric.load)
    connect(m, shell.o_request, fabric.request)
    connect(m, fabric.store, shell.i_store)
    m.d.comb += [
        shell.health.eq(fabric.health),
        shell.refuse_load.eq(fabric.refuse),
        shell.refuse_store.eq(fabric.refuse_store),
    ]


class LocalReset(Elaboratable):
    """Gives its content a reset of its own.

    It is the reset of the machine, or the shell's ``abort``.
    """

    def __init__(self, component: wiring.Component, abort: Signal) -> None:
        self.component = component
        self.abort = abort

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        domain = ClockDomain("engines", local=True)
        m.domains += domain
        # The engines' widest net comes from a register of its own, which the machine's reset sets.
        reset = Signal(init=1)
        m.d.sync += reset.eq(self.abort)
        m.d.comb += [domain.clk.eq(ClockSignal("sync")), domain.rst.eq(reset)]
        inner = Module()
        place(inner, "unit", self.component, platform)
        m.submodules.inner = DomainRenamer("engines")(inner)
        return m


def _one_of_four(index: Any, *values: Any) -> Any:
    values += values[-1:] * (4 - len(values))
    return Mux(index[1], Mux(index[0], values[3], values[2]), Mux(index[0], values[1], values[0]))


def _unit(engine: Engine, config: Any, data_bits: int) -> wiring.Component:
    """The component of an engine.

    Refused if a member that the machine connects is missing or is of another kind.
    """
    if engine.spec.unit is None:
        raise ValueError(f"engine {engine.name}: has no unit, so no machine can be made with it")
    if not isinstance(config, engine.spec.parameters):
        raise ValueError(
            f"engine {engine.name}: the machine's configuration {type(config).__name__} must inherit "
            f"{engine.spec.parameters.__name__}"
        )
    unit = engine.spec.unit(engine.spec, config)
    members = unit.signature.members
    for name, member in engine.spec.members(data_bits).items():
        if name not in members or _kind(members[name]) != _kind(member):
            raise ValueError(f"engine {engine.name}: its unit needs a member {name}: {member!r}")
    return unit


def _ends(wires: Iterable[Wire], units: dict[Engine, wiring.Component], data_bits: int) -> list[tuple[Any, Any]]:
    """Both ends of each wire.

    The driving one is first if it is a plain value. Refused are ends that do not fit, and members without a wire.
    """
    named = {each.name: each for each in units}
    open_ends = {
        f"{each.name}.{name}": (unit, name)
        for each, unit in units.items()
        for name in unit.signature.members
        if name not in each.spec.members(data_bits)
    }
    found = []
    for wire in wires:
        ends = []
        for end in (wire.one, wire.other):
            if end not in open_ends:
                engine = end.split(".")[0]
                why = f"{end} has another wire or is none" if engine in named else f"there is no engine {engine}"
                raise ValueError(f"wire {wire.one} - {wire.other}: {why}")
            ends.append(open_ends.pop(end))
        (one, name), (other, other_name) = ends
        member, opposite = one.signature.members[name], other.signature.members[other_name]
        if _kind(member) != _kind(opposite.flip()):
            raise ValueError(f"wire {wire.one} - {wire.other}: {member!r} does not fit {opposite!r}")
        pair = getattr(one, name), getattr(other, other_name)
        found.append(pair if member.is_signature or member.flow is Out else pair[::-1])
    if open_ends:
        raise ValueError(f"machine: no wire leads to {', '.join(open_ends)}")
    return found


def _kind(member: Member) -> Any:
    """Directions and shapes of a member and of its members.

    The value can be compared.
    """
    if member.is_port:
        return member.flow, member.dimensions, member.shape
    return {name: _kind(inner) for name, inner in member.signature.members.items()}, member.dimensions


def _connect(m: Module, one: Any, other: Any) -> None:
    if isinstance(getattr(one, "signature", None), wiring.Signature):
        connect(m, one, other)
    else:
        m.d.comb += other.eq(one)
