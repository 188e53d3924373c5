"""The ports of a component by kind, and the component with a reset of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Elaboratable, Module, ResetInserter, Signal
from amaranth.lib import stream, wiring

from gradloom.rtl.engines.tile_port import ResultSignature
from gradloom.rtl.engines.tile_store import TileStore
from gradloom.rtl.shell.signature import LoadSignature, PortRequest, StoreSignature

__all__ = ["BenchHarness", "BenchPorts"]


@dataclass(frozen=True)
class BenchPorts:
    """A component's ports by kind and name.

    ``engine``: its port to the shell, if it has one. ``loads``, ``stores``: ports to memory. ``inputs``, ``outputs``:
    other streams. ``results``: ports of result slots, whose store ports are those of ``records``.
    """

    engine: Any
    loads: dict[str, Any]
    stores: dict[str, Any]
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    results: list[Any]
    records: TileStore | None

    @classmethod
    def of(cls, component: Any) -> "BenchPorts":
        """Those of ``component``, by the signatures of its members."""
        loads: dict[str, Any] = {}
        stores: dict[str, Any] = {}
        inputs: dict[str, Any] = {}
        outputs: dict[str, Any] = {}
        results: list[Any] = []
        records: TileStore | None = None
        for name, member in component.signature.members.items():
            if not member.is_signature or member.dimensions:
                continue
            port = getattr(component, name)
            if isinstance(member.signature, LoadSignature):
                loads[name.removeprefix("load_")] = port
            elif isinstance(member.signature, StoreSignature):
                stores[name.removeprefix("store_")] = port
            elif isinstance(member.signature, ResultSignature):
                if records is not None:
                    raise ValueError(f"{name}: the component has a second port of result slots, must have one at most")
                records = TileStore(banks=(member.signature.banks,))
                results.append(port)
                stores[name.removeprefix("store_")] = records.port
            elif isinstance(member.signature, stream.Signature):
                (outputs if member.flow is wiring.Out else inputs)[name] = port
        for streams, ports in ((inputs, loads), (outputs, stores)):
            for name in streams.keys() & ports.keys():
                raise ValueError(f"{name}: the component has a port and a stream of this name")
        return cls(
            engine=getattr(component, "engine", None),
            loads=loads,
            stores=stores,
            inputs=inputs,
            outputs=outputs,
            results=results,
            records=records,
        )

    def signals(self, watch: Mapping[str, Any]) -> dict[Any, Any]:
        """Signals that are sampled in each cycle, those to ``watch`` among them."""
        found: dict[Any, Any] = {("watch", name): signal for name, signal in watch.items()}
        if self.engine is not None:
            port = self.engine
            found |= {
                "start": port.command.valid & port.command.ready,
                "done": port.done,
                "error": port.error.valid,
                "code": port.error.code,
            }
        for name, port in self.loads.items():
            found |= {("load", name, "ready"): port.beats.ready, ("load", name, "refuse"): port.refuse}
        for name, port in self.inputs.items():
            found["in", name, "ready"] = port.ready
        for name, port in self.stores.items():
            found |= {
                ("store", name, "asked"): port.request.ready,
                ("store", name, "refuse"): port.refuse,
                ("store", name, "valid"): port.beats.valid,
                ("store", name, "beat"): port.beats.p,
            }
        for name, port in self.outputs.items():
            found |= {("store", name, "valid"): port.valid, ("store", name, "beat"): port.p}
        return found


class BenchHarness(Elaboratable):
    """A component with a reset of its own.

    As in a machine, load ports share a payload and store ports a request, and ``records`` makes those of ``results``.
    """

    def __init__(self, component: wiring.Component, ports: BenchPorts) -> None:
        self.component = component
        self.loads, self.stores = list(ports.loads.values()), list(ports.stores.values())
        self.results, self.records = ports.results, ports.records
        self.abort = Signal()
        self.beat = Signal(self.loads[0].beats.p.shape()) if self.loads else None
        self.request = Signal(PortRequest)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.unit = ResetInserter(self.abort)(self.component)
        if self.records is not None:
            m.submodules.records = ResetInserter(self.abort)(self.records)
            for one, other in zip(self.records.results, self.results, strict=True):
                wiring.connect(m, one, other)
        m.d.comb += [port.beats.p.eq(self.beat) for port in self.loads]
        m.d.comb += [port.request.p.eq(self.request) for port in self.stores]
        # A clock for components that have none.
        m.d.sync += Signal().eq(0)
        return m
