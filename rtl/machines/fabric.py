"""Connects a machine's engines to the shell and to each other."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from amaranth.hdl import Cat, ClockDomain, ClockSignal, DomainRenamer, Elaboratable, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Member, Out, connect, flipped

from ..engines.tile_forward import TileForward
from ..engines.tile_port import TileStorePort
from ..engines.tile_store import TileStore
from ..hierarchy import place
from ..shell.engines import Engine, LoadPort
from ..shell.signature import EngineSignature, Health, LoadBeat, store_request
from .machine import Machine, Wire

__all__ = ["Fabric", "LocalReset", "Machine", "Wire", "attach"]


class Fabric(wiring.Component):
    """The engines of a machine, their memory ports and their wires.

    Ports to memory are selected by number; wires are between engines.

    Adds no cycle to a beat. Payloads of LOAD go to all load ports; the number selects ``valid``, ``ready`` and
    ``refuse``. A request of STORE selects the store port whose beats follow, as many as requested. Records of tiles are
    made here, of the result slots of all engines that have some.

    Parameters
    ----------
    machine : Machine
    config
        The machine's configuration: given to each engine's ``unit``. With ``forwards`` a request may name a load port
        that takes the beats, too.
    data_bits : int
        Width of a beat.

    Members
    -------
    NAME : ``In(EngineSignature())``, for each engine
    load, refuse : LOAD's beats; ``refuse``, a cycle behind its beat, also for a number that no port has.
    request, refuse_store, store : STORE's requests and beats; ``refuse_store`` also for a number that no port has.
    ahead : where a store port is told of the next request; see :class:`~gradloom.rtl.shell.bus.write_dma.WriteDMA`.
    health : ``Out(Health)``, the sum over the engines, a cycle later.
    """

    def __init__(self, machine: Machine, config: Any, data_bits: int) -> None:
        self.machine, self.config, self.data_bits = machine, config, data_bits
        self.forwards = forwards = getattr(config, "forwards", 0)
        members = {each: each.spec.members(data_bits, forwards) for each in machine.engines.own}
        self._units = {each: _unit(each, config, members[each]) for each in machine.engines.own}
        self._wires = _ends(machine.wires, self._units, members)
        super().__init__(
            {
                **{each.name: In(EngineSignature()) for each in machine.engines.own},
                "load": In(stream.Signature(LoadBeat(data_bits, len(machine.engines.loads)))),
                "refuse": Out(1),
                "request": In(stream.Signature(store_request(forwards))),
                **({"ahead": In(1)} if machine.engines.ahead else {}),
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
        own = self.machine.engines.own
        loads = [getattr(units[each], f"load_{port.port.name}") for each in own for port in each.loads]
        loaded = self._load(m, loads)
        forwards = self._forwards(m, platform, loaded) if self.forwards else None
        records = self._records(m, platform)
        self._store(m, forwards, records)
        for name in Health.members:
            events = [unit.health[name] for unit in units.values()]
            if records and hasattr(records, name):
                events.append(getattr(records, name))
            m.d.sync += self.health[name].eq(sum(events))
        return m

    def _records(self, m: Module, platform: Any) -> TileStore | None:
        """Places what makes records of result slots, if an engine has some."""
        stores = self.machine.engines.stores
        banks = {port: port.port.banks for port in stores if isinstance(port.port, TileStorePort)}
        ports = list(banks)
        if not ports:
            return None
        records = place(m, "records", TileStore(banks=tuple(banks.values())), platform)
        units = {each.name: unit for each, unit in self._units.items()}
        for port, results in zip(ports, records.results, strict=True):
            connect(m, results, getattr(units[port.engine], f"store_{port.port.name}"))
        request = self.request.p
        m.d.comb += records.source.eq(sum(Mux(request.source == port, n, 0) for n, port in enumerate(ports)))
        return records

    def _load(self, m: Module, ports: list[Any]) -> list[Signal]:
        """Sends beats to the port of their number.

        A number without a port is refused, and taken as any beat is. What is refused ends in registers, for each port
        one. Returns of each port whether the payload is its.
        """
        beat, ready, refused = self.load.p, [], [self.load.p.to[len(ports)]]
        mine = []
        for number, port in enumerate(ports):
            asked = Signal(name=f"load_{number}")
            m.d.comb += [
                asked.eq(beat.to[number]),
                port.beats.valid.eq(self.load.valid & asked),
                *(port.beats.p[name].eq(beat[name]) for name in ("data", "first", "last", "arg", "index")),
            ]
            mine.append(asked)
            ready.append(~asked | port.beats.ready)
            refused.append(asked & port.refuse)
        before = Signal(len(refused), name="refused")
        m.d.sync += before.eq(Cat(refused))
        m.d.comb += [self.load.ready.eq(Cat(ready).all()), self.refuse.eq(before.any())]
        return mine

    def _forwards(self, m: Module, platform: Any, loaded: list[Signal]) -> SimpleNamespace:
        """Sends beats of a request with ``forward`` to a load port, too.

        ``loaded``: of each load port whether LOAD's payload is its. A beat waits where LOAD brought one to the port in
        the cycle before, whose way is a cycle longer.

        Returns its ``unit``; ``refused``, as ``refuse_store`` in time; ``waits``: STORE takes no beat; and what is to
        be driven: ``begin``, a request is accepted; ``come``, a beat is taken; ``over``, it is the last.
        """
        request, engines = self.request.p, self.machine.engines
        unit = place(m, "forward", TileForward(), platform)
        takers = [
            (port, getattr(self._units[each], f"forward_{port.port.name}"))
            for each in engines.own
            for port in each.loads
            if isinstance(port.port, LoadPort) and port.port.forwards
        ]
        count = len(takers)
        asked, chosen, after = (Signal(count, name=name) for name in ("asked_to", "chosen_to", "after_to"))
        refused, waits, begin, come, over = (Signal(name=n) for n in ("refused_to", "waits", "begin", "come", "over"))
        m.d.comb += [
            unit.arg.eq(request.arg),
            unit.to_arg.eq(request.to_arg),
            unit.begin.eq(begin),
            unit.i.valid.eq(come),
            unit.i.data.eq(self.store.p),
            asked.eq(Cat(request.to == port for port, _ in takers)),
            # The first beat may come in the next cycle.
            after.eq(Mux(begin, asked & request.forward.replicate(count), chosen)),
        ]
        # Records come from ports whose operand says which.
        tiles = Cat(request.source == port for port in engines.stores if isinstance(port.port, TileStorePort))
        found = Cat(asked[n] & ~taker.refuse for n, (_, taker) in enumerate(takers))
        m.d.sync += [
            refused.eq(request.forward & ~(tiles.any() & found.any() & ~unit.refuse)),
            waits.eq(self.load.valid & (after & Cat(loaded[port] for port, _ in takers)).any()),
            chosen.eq(Mux(over, 0, after)),
        ]
        for n, (_, taker) in enumerate(takers):
            m.d.comb += [taker.arg.eq(unit.record), taker.beat.eq(unit.o)]
            valid = Signal(name=f"forward_{n}")
            m.d.sync += valid.eq(come & chosen[n])
            m.d.comb += taker.beat.valid.eq(valid)
        return SimpleNamespace(unit=unit, refused=refused, waits=waits, begin=begin, come=come, over=over)

    def _store(self, m: Module, forwards: SimpleNamespace | None, records: TileStore | None) -> None:
        """Requests to the port of their number, then its beats to STORE.

        All result slots are behind one port, that of ``records``.
        """
        request, stores = self.request.p, self.machine.engines.stores
        units = {each.name: unit for each, unit in self._units.items()}
        plain = [port for port in stores if not isinstance(port.port, TileStorePort)]
        ports = [getattr(units[port.engine], f"store_{port.port.name}") for port in plain]
        numbers: list[list[int]] = [[port] for port in plain]
        if records:
            ports.append(records.port)
            numbers.append([port for port in stores if port not in plain])
        count = len(ports)
        asked, before, chosen = (Signal(count, name=name) for name in ("asked", "before", "chosen"))
        unknown, busy, left = Signal(), Signal(), Signal.like(request.beats)
        m.d.comb += asked.eq(Cat(Cat(request.source == number for number in each).any() for each in numbers))
        if records:
            m.d.comb += records.ahead.eq(self.ahead & asked[-1])
        m.d.sync += [before.eq(asked), unknown.eq(request.source >= len(stores))]
        refused = unknown | Cat(before[n] & port.refuse for n, port in enumerate(ports)).any()
        valid, ready = Cat(chosen[n] & port.beats.valid for n, port in enumerate(ports)).any(), self.store.ready
        accepted = self.request.valid & self.request.ready
        if forwards:
            refused, valid, ready = refused | forwards.refused, valid & ~forwards.waits, ready & ~forwards.waits
            come = self.store.valid & self.store.ready
            m.d.comb += [forwards.begin.eq(accepted), forwards.come.eq(come), forwards.over.eq(come & (left == 0))]
        m.d.comb += [
            self.request.ready.eq(~busy & Cat(~asked[n] | port.request.ready for n, port in enumerate(ports)).all()),
            self.refuse_store.eq(refused),
            self.store.valid.eq(valid),
        ]
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
                port.beats.ready.eq(chosen[number] & ready),
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
    if fabric.machine.engines.ahead:
        m.d.comb += fabric.ahead.eq(shell.ahead)
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


def _unit(engine: Engine, config: Any, own: dict[str, Member]) -> wiring.Component:
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
    for name, member in own.items():
        if name not in members or _kind(members[name]) != _kind(member):
            raise ValueError(f"engine {engine.name}: its unit needs a member {name}: {member!r}")
    return unit


def _ends(
    wires: Iterable[Wire], units: dict[Engine, wiring.Component], own: dict[Engine, dict[str, Member]]
) -> list[tuple[Any, Any]]:
    """Both ends of each wire.

    The driving one is first if it is a plain value. Refused are ends that do not fit, and members without a wire.
    """
    named = {each.name: each for each in units}
    open_ends = {
        f"{each.name}.{name}": (unit, name)
        for each, unit in units.items()
        for name in unit.signature.members
        if name not in own[each]
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
