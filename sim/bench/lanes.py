"""Lanes, which run beside each other in a bench: commands, LOAD, STORE, and each plain stream.

A lane is an iterator: it goes on by a cycle each time, and ends when all that it had is done.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from gradloom.program.assembler import pack
from gradloom.rtl.shell.engines import EngineSpec

from .gates import Gates
from .ports import BenchHarness, BenchPorts
from .steps import BenchCommand, BenchedRun, BenchLoad, BenchStore, Process, Step

__all__ = ["BenchLanes", "BenchState"]


@dataclass
class BenchState:
    """Where a run is.

    ``now``: the signals that were sampled in the cycle that has ended; ``moved``: the last cycle in which one
    moved something. ``under_way``: of each command when it was taken, and its phase; ``asked``: phases of commands that
    are offered.
    ``call``: a step that runs alone.
    """

    ctx: Any = None
    cycle: int = 0
    now: dict[Any, Any] = field(default_factory=dict)
    moved: int = 0
    under_way: deque[tuple[int, str]] = field(default_factory=deque)
    asked: deque[str] = field(default_factory=deque)
    failed: bool = False
    over: bool = False
    call: Process | None = None
    result: BenchedRun = field(default_factory=BenchedRun)


class BenchLanes:
    """Makes the lanes of a part of a run, which change its ``state``."""

    def __init__(self, ports: BenchPorts, harness: BenchHarness, spec: EngineSpec | None, state: BenchState) -> None:
        self.ports, self.harness, self.spec, self.state = ports, harness, spec, state

    def of(self, part: Sequence[Step], gates: Gates) -> dict[str, Iterator[bool]]:
        """Parallel parts of a run: commands, LOAD, STORE and plain streams.

        Each plain stream is a part of its own.
        """
        lanes: dict[str, Iterator[bool]] = {}
        commands = [step for step in part if isinstance(step, BenchCommand)]
        loads = [step for step in part if isinstance(step, BenchLoad)]
        stores = [step for step in part if isinstance(step, BenchStore)]
        if commands:
            lanes["commands"] = self._command(commands, gates)
        if to_ports := [load for load in loads if load.port in self.ports.loads]:
            lanes["LOAD"] = self._load(to_ports, gates)
        if from_ports := [store for store in stores if store.port in self.ports.stores]:
            lanes["STORE"] = self._store(from_ports, gates)
        for name, port in self.ports.inputs.items():
            if fed := [load for load in loads if load.port == name]:
                lanes[f"load {name}"] = self._feed(fed, port, gates)
        for name, port in self.ports.outputs.items():
            if drained := [store for store in stores if store.port == name]:
                lanes[f"store {name}"] = self._drain(drained, port, gates)
        return lanes

    def _command(self, commands: Sequence[BenchCommand], gates: Gates) -> Iterator[bool]:
        spec, port = self.spec, self.ports.engine.command
        assert spec is not None
        for number, command in enumerate(commands):
            while not gates.open("commands", number, len(commands), self.state.cycle):
                yield True
            args = pack(spec.operands.get(command.opcode, spec.default), dict(command.operands))
            self.state.ctx.set(port.p, {"opcode": int(command.opcode), "args": args})
            self.state.ctx.set(port.valid, 1)
            self.state.asked.append(command.phase or spec.phases[0])
            yield True
            while not self.state.now["start"]:
                yield True
            self.state.ctx.set(port.valid, 0)

    def _load(self, loads: Sequence[BenchLoad], gates: Gates) -> Iterator[bool]:
        for load in loads:
            port, times = self.ports.loads[load.port], self.state.result.loaded.setdefault(load.port, [])
            for index, data in enumerate(load.beats):
                while not gates.open(f"load {load.port}", index, len(load.beats), self.state.cycle):
                    yield True
                self.state.ctx.set(
                    self.harness.beat,
                    {
                        "data": data,
                        "first": index == 0,
                        "last": index == len(load.beats) - 1,
                        "arg": load.arg,
                        "index": index,
                    },
                )
                self.state.ctx.set(port.beats.valid, 1)
                yield True
                while not self.state.now["load", load.port, "ready"]:
                    yield True
                self.state.ctx.set(port.beats.valid, 0)
                if self.state.now["load", load.port, "refuse"]:
                    yield from self._refuse(load.port, index)
                times.append(self.state.cycle - 1)
                self.state.moved = self.state.cycle

    def _refuse(self, port: str, beat: int | None) -> Iterator[bool]:
        self.state.result.refused.append((self.state.cycle - 1, port, beat))
        self.state.failed = True
        yield True

    def _store(self, stores: Sequence[BenchStore], gates: Gates) -> Iterator[bool]:
        for store in stores:
            port = self.ports.stores[store.port]
            for _ in range(store.after):
                self.state.moved = self.state.cycle
                yield True
            # The request's payload is there two cycles ahead, its refusal a cycle behind it.
            self.state.ctx.set(self.harness.request, {"arg": store.arg, "beats": store.beats})
            yield True
            yield True
            if self.state.now["store", store.port, "refuse"]:
                yield from self._refuse(store.port, None)
            self.state.ctx.set(port.request.valid, 1)
            yield True
            while not self.state.now["store", store.port, "asked"]:
                yield True
            self.state.ctx.set(port.request.valid, 0)
            yield from self._drain([BenchStore(store.port, store.beats)], port.beats, gates)

    def _feed(self, loads: Sequence[BenchLoad], port: Any, gates: Gates) -> Iterator[bool]:
        name, payloads = loads[0].port, [each for load in loads for each in load.beats]
        times = self.state.result.loaded.setdefault(name, [])
        for index, payload in enumerate(payloads):
            while not gates.open(f"load {name}", index, len(payloads), self.state.cycle):
                yield True
            self.state.ctx.set(port.p, payload)
            self.state.ctx.set(port.valid, 1)
            yield True
            while not self.state.now["in", name, "ready"]:
                yield True
            self.state.ctx.set(port.valid, 0)
            times.append(self.state.cycle - 1)
            self.state.moved = self.state.cycle

    def _drain(self, stores: Sequence[BenchStore], port: Any, gates: Gates) -> Iterator[bool]:
        name = stores[0].port
        words, times = self.state.result.words.setdefault(name, []), self.state.result.stored.setdefault(name, [])
        for store in stores:
            for _ in range(store.after):
                self.state.moved = self.state.cycle
                yield True
            taken = 0
            while taken < store.beats:
                ready = gates.open(f"store {name}", taken, store.beats, self.state.cycle)
                self.state.ctx.set(port.ready, ready)
                yield True
                if ready and self.state.now["store", name, "valid"]:
                    words.append(self.state.now["store", name, "beat"])
                    times.append(self.state.cycle - 1)
                    self.state.moved = self.state.cycle
                    taken += 1
            self.state.ctx.set(port.ready, 0)
