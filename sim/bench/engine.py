"""Bench of one engine: commands and beats under back-pressure.

An engine is driven as the shell drives it: LOAD brings beats to its load ports, one transfer after another; STORE takes
beats from its store ports likewise; commands are offered in order, each as soon as the engine takes it::

    bench = EngineBench(SPEC, config)
    run = bench.check(
        Load("factors", factors), FENCE,
        Command(Opcode.SCALE, {"tokens": 5}), Load("x", x), Store("y", len(y)),
        words={"y": y}, stall=0.3, hold=600)
    assert run.done[0] - run.started[0] == cycles

Other streams of the component, and those of a unit without a specification, are ports too: each gets and gives its
beats beside the others.
"""

import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from amaranth.hdl import Elaboratable, Module, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.sim import Simulator

from gradloom.program.assembler import pack
from gradloom.rtl.engines.tile_port import ResultSignature
from gradloom.rtl.engines.tile_store import TileStore
from gradloom.rtl.shell.engines import EngineSpec
from gradloom.rtl.shell.signature import LoadSignature, PortRequest, StoreSignature

__all__ = [
    "FENCE",
    "LEAD",
    "BenchCommand",
    "EngineBench",
    "Fence",
    "BenchLoad",
    "BenchedRun",
    "BenchStore",
    "pressures",
    "simulate",
]

#: Beats that move before a port is held: results must be under way by then.
LEAD = 4
#: Cycles between the end of a hold and the next.
_APART = 16


@dataclass(frozen=True)
class BenchCommand:
    """A command of the engine.

    Parameters
    ----------
    opcode : int
    operands : mapping
        By name, as the specification lays them out.
    phase : str, optional
        What its cycles count as; the engine's first phase unless given.
    """

    opcode: int
    operands: Mapping[str, int] = field(default_factory=dict)
    phase: str | None = None


@dataclass(frozen=True)
class BenchLoad:
    """Beats for a load port ``load_PORT``.

    ``arg`` is LOAD's operand. Where the component has no such port, they are payloads for its input stream ``PORT``.
    """

    port: str
    beats: Sequence[Any]
    arg: int = 0


@dataclass(frozen=True)
class BenchStore:
    """Takes ``beats`` beats from a store port or an output stream.

    ``store_PORT`` is a store port, ``PORT`` an output stream of payloads.

    ``arg`` is STORE's operand. It begins ``after`` cycles later than it could.
    """

    port: str
    beats: int
    arg: int = 0
    after: int = 0


class Fence:
    """All steps before it end before those behind it begin."""


FENCE = Fence()

#: Plays in Amaranth's simulator, with its context.
Process = Callable[[Any], Awaitable[None]]
#: A step; an async function of the simulator's context runs alone, as if between fences.
Step = BenchCommand | BenchLoad | BenchStore | Fence | Process


@dataclass
class BenchedRun:
    """Result of a run. Cycles count from its beginning.

    Attributes
    ----------
    words : dict
        Beats, or payloads of plain streams, by port.
    loaded, stored : dict
        By port the cycle in which each beat was taken: by the engine, from the engine.
    started, done : list of int
        Cycles in which commands were taken and done.
    phases : dict
        Cycles by phase: of each command from the one in which it was taken, or the command before it was done, to the
        one in which it was done. The shell's counters count the same.
    errors : list
        ``(cycle, code)`` of each error of the engine.
    refused : list
        ``(cycle, port, beat)`` of each beat or request that a port refused; requests have no beat.
    seen : dict
        Of each signal that is watched the value in every cycle.
    left : list of str
        Store ports and streams that offered more beats in the end.
    cycles : int
    """

    words: dict[str, list[Any]] = field(default_factory=dict)
    loaded: dict[str, list[int]] = field(default_factory=dict)
    stored: dict[str, list[int]] = field(default_factory=dict)
    started: list[int] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    phases: dict[str, int] = field(default_factory=dict)
    errors: list[tuple[int, int]] = field(default_factory=list)
    refused: list[tuple[int, str, int | None]] = field(default_factory=list)
    seen: dict[str, list[Any]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    cycles: int = 0

    @property
    def codes(self) -> list[int]:
        """Codes of the errors, in order."""
        return [code for _, code in self.errors]

    def total(self, name: str, command: int | None = None) -> int:
        """Sum of a watched signal over all cycles.

        With ``command``, from that command's start to its end.
        """
        if command is None:
            return sum(self.seen[name])
        return sum(self.seen[name][self.started[command] : self.done[command] + 1])


def pressures(hold: int) -> tuple[dict[str, Any], ...]:
    """Options of a run, for ``pytest.mark.parametrize``.

    They are none; random stalls; random stalls and long holds.
    """
    return {}, {"stall": 0.5}, {"stall": 0.2, "hold": hold}


def simulate(component: Elaboratable, *processes: Process, background: Iterable[Process] = ()) -> None:
    """Runs testbenches in Amaranth's simulator until they end.

    It does not wait for those of ``background``.
    """
    simulator = Simulator(component)
    simulator.add_clock(1e-6)
    for process in processes:
        simulator.add_testbench(process)
    for process in background:
        simulator.add_testbench(process, background=True)
    simulator.run()


def _shown(word: Any) -> str:
    return f"{word:#x}" if isinstance(word, int) else repr(word)


class _Gates:
    """When a port may move a beat: random stalls, and long holds.

    Holds come one after another: all outputs at once, then each output where there are several, then each input; part
    ``number`` of a run begins with the one of this number. A hold begins when its port has moved :data:`LEAD` beats, or
    half of what it moves; it waits for its turn, but not beyond the port's last beat.
    """

    def __init__(
        self, inputs: set[str], outputs: set[str], stall: float | Mapping[str, float], hold: int, seed: int, number: int
    ) -> None:
        self.hold = hold
        names = sorted(outputs) + sorted(inputs)
        self.stall = {name: stall.get(name.split()[-1], 0.0) if isinstance(stall, Mapping) else stall for name in names}
        self.random = {name: random.Random(f"{seed} {number} {name}") for name in names}
        holds = [outputs] * (len(outputs) > 1) + [{name} for name in names]
        first = number % max(len(holds), 1)
        self.holds = (holds[first:] + holds[:first]) if hold else []
        self.until = dict.fromkeys(names, 0)
        self.calm = 0

    def open(self, name: str, moved: int, count: int, cycle: int) -> bool:
        """Whether beat ``moved`` of ``count`` may move in this cycle."""
        if cycle >= self.until[name] and moved >= min(LEAD, count // 2):
            turn = cycle >= self.calm and bool(self.holds) and name in self.holds[0]
            held = next((each for each in self.holds if name in each), None) if turn or moved == count - 1 else None
            if held:
                self.holds.remove(held)
                self.until |= dict.fromkeys(held, cycle + self.hold)
                if turn:
                    self.calm = cycle + self.hold + _APART
        return cycle >= self.until[name] and self.random[name].random() >= self.stall[name]


class _Harness(Elaboratable):
    """A component with a reset of its own.

    As in a machine, load ports share a payload and store ports a request, and ``records`` makes those of ``results``.
    """

    def __init__(
        self,
        component: wiring.Component,
        loads: Sequence[Any],
        stores: Sequence[Any],
        results: Sequence[Any],
        records: TileStore | None,
    ) -> None:
        self.component, self.loads, self.stores = component, loads, stores
        self.results, self.records = results, records
        self.abort = Signal()
        self.beat = Signal(loads[0].beats.p.shape()) if loads else None
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


class EngineBench:
    """Plays steps to a component, in Amaranth's simulator.

    A component is built once for all runs.

    Parameters
    ----------
    spec : EngineSpec, optional
        Of the engine; None for a unit that has streams alone.
    config
        The machine's configuration, from which ``spec.unit`` makes the component.
    component : Component, optional
        In its place: a unit, or an engine without its ports to memory. An engine has a member ``engine``.
    wires : sequence of async function
        Each is given the simulator's context and plays the other end of a wire, from the beginning to the end of a run.
    watch : mapping
        Signals of which a run keeps the value in every cycle, by name. Of an engine with ``health`` they are
        ``saturated``, ``underflowed`` and ``norm`` besides, those of the records of its result slots included.
    """

    def __init__(
        self,
        spec: EngineSpec | None = None,
        config: Any = None,
        *,
        component: Any = None,
        wires: Sequence[Process] = (),
        watch: Mapping[str, Any] | None = None,
    ) -> None:
        if component is None:
            if spec is None or spec.unit is None:
                raise ValueError("EngineBench: give it a spec with a unit, or a component")
            component = spec.unit(spec, config)
        self.spec, self.component = spec, component
        self._sort()
        self._harness = _Harness(
            component, list(self._loads.values()), list(self._stores.values()), self._results, self._records
        )
        self._watch = dict(watch or {})
        if hasattr(component, "health"):
            self._watch |= {name: component.health[name] for name in ("saturated", "underflowed", "norm")}
        if self._records is not None:
            for name in ("saturated", "underflowed"):
                own = getattr(self._records, name)
                self._watch[name] = self._watch[name] + own if name in self._watch else own
        self._wires = wires
        self._simulator: Simulator | None = None

    def _sort(self) -> None:
        """The component's ports, by kind."""
        self._loads: dict[str, Any] = {}
        self._stores: dict[str, Any] = {}
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Any] = {}
        self._results: list[Any] = []
        self._records: TileStore | None = None
        for name, member in self.component.signature.members.items():
            if not member.is_signature or member.dimensions:
                continue
            port = getattr(self.component, name)
            if isinstance(member.signature, LoadSignature):
                self._loads[name.removeprefix("load_")] = port
            elif isinstance(member.signature, StoreSignature):
                self._stores[name.removeprefix("store_")] = port
            elif isinstance(member.signature, ResultSignature):
                if self._records is not None:
                    raise ValueError(f"{name}: the component has a second port of result slots, must have one at most")
                self._records = TileStore(banks=(member.signature.banks,))
                self._results.append(port)
                self._stores[name.removeprefix("store_")] = self._records.port
            elif isinstance(member.signature, stream.Signature):
                (self._outputs if member.flow is wiring.Out else self._inputs)[name] = port
        for streams, ports in ((self._inputs, self._loads), (self._outputs, self._stores)):
            for name in streams.keys() & ports.keys():
                raise ValueError(f"{name}: the component has a port and a stream of this name")
        self._engine = getattr(self.component, "engine", None)

    def run(
        self,
        *steps: Step,
        stall: float | Mapping[str, float] = 0.0,
        hold: int = 0,
        seed: int = 0,
        patience: int = 5000,
        rest: int = 24,
    ) -> BenchedRun:
        """Plays steps to the component in its state after power-on.

        The same arguments make the same run.

        ``stall`` is the chance that a port pauses for a cycle: commands, loads, stores and streams, each for itself; or
        the chance by port, 0 for those that are missing. ``hold`` is the length of long holds in cycles; with 0 there
        are none. Between two fences all outputs are held at once, each output is held alone, and each input is starved
        alone; after each fence another of these is the first. A hold shows how results without room behave, if both its
        length and the beats that are to follow exceed the depth of all queues behind an output.

        After an error of the engine, a beat or a request that is refused, the steps before the next fence are dropped
        and the component is reset, as the shell does it; the run goes on behind the fence. In the end the bench watches
        ``rest`` cycles more.

        Raises
        ------
        AssertionError
            Nothing moved for ``patience`` cycles, or the engine ended a command that it has not.
        """
        if not all(0 <= chance < 1 for chance in (stall.values() if isinstance(stall, Mapping) else [stall])):
            raise ValueError(f"stall={stall}: must be at least 0 and below 1")
        if hold < 0:
            raise ValueError(f"hold={hold}: must be at least 0")
        parts: list[list[Step]] = [[]]
        for step in steps:
            if isinstance(step, Fence) or callable(step):
                parts += [[], []] if isinstance(step, Fence) else [[step], []]
            else:
                self._know(step)
                parts[-1].append(step)
        self._parts = [part for part in parts if part]
        self._options = stall, hold, seed, patience, rest
        self._result = BenchedRun()
        self._call: Process | None = None
        self._failed = self._over = False
        if self._simulator is None:
            self._simulator = Simulator(self._harness)
            self._simulator.add_clock(1e-6)
            self._simulator.add_process(self._play)
            self._simulator.add_testbench(self._serve)
            for wire in self._wires:
                self._simulator.add_testbench(wire, background=True)
        else:
            self._simulator.reset()
        self._simulator.run()
        return self._result

    def check(
        self, *steps: Step, words: Mapping[str, Sequence[Any]] | None = None, errors: Sequence[int] = (), **options: Any
    ) -> BenchedRun:
        """Runs as :meth:`run` does, and compares the result.

        Raises
        ------
        AssertionError
            A port gave other ``words`` or has more of them; the codes of errors are others; a beat was refused; without
            errors, a command was not done.
        """
        run = self.run(*steps, **options)
        assert run.codes == list(errors), f"errors {run.errors}, expected {list(errors)}"
        assert not run.refused, f"refused (cycle, port, beat): {run.refused}"
        for name, expected in (words or {}).items():
            found = run.words.get(name, [])
            wrong = [n for n, pair in enumerate(zip(found, expected)) if pair[0] != pair[1]]
            assert not wrong, (
                f"{name}: {len(wrong)} of {len(expected)} words differ, the first is word {wrong[0]}: "
                f"{_shown(found[wrong[0]])}, expected {_shown(expected[wrong[0]])}"
            )
            assert len(found) == len(expected), f"{name}: {len(found)} words, expected {len(expected)}"
        assert not run.left, f"more words than expected: {run.left}"
        commands = sum(isinstance(step, BenchCommand) for step in steps)
        assert errors or len(run.done) == commands, f"{len(run.done)} of {commands} commands are done"
        return run

    def _know(self, step: Any) -> None:
        """Refuses a step that the component cannot be given."""
        if isinstance(step, BenchCommand):
            if self.spec is None or self._engine is None:
                raise ValueError("Command: the bench has no spec, or its component no member engine")
            return
        known = {**self._loads, **self._inputs} if isinstance(step, BenchLoad) else {**self._stores, **self._outputs}
        if step.port not in known:
            raise ValueError(f"{step.port}: no port of this name; there are {', '.join(sorted(known)) or 'none'}")

    async def _serve(self, ctx: Any) -> None:
        """Runs steps that are functions.

        Keeps the simulation alive until the run is over.
        """
        while not self._over:
            if self._call is not None:
                await self._call(ctx)
                self._call = None
            await ctx.tick()

    async def _play(self, ctx: Any) -> None:
        self._ctx, self._cycle = ctx, 0
        signals = self._signals()
        lives = self._lives()
        next(lives)
        async for _, _, *values in ctx.tick().sample(*signals.values()):
            self._now = dict(zip(signals, values))
            self._record()
            self._cycle += 1
            try:
                next(lives)
            except StopIteration:
                self._over = True
                return

    def _signals(self) -> dict[Any, Any]:
        """Signals that are sampled in each cycle."""
        found: dict[Any, Any] = {("watch", name): signal for name, signal in self._watch.items()}
        if self._engine is not None:
            port = self._engine
            found |= {
                "start": port.command.valid & port.command.ready,
                "done": port.done,
                "error": port.error.valid,
                "code": port.error.code,
            }
        for name, port in self._loads.items():
            found |= {("load", name, "ready"): port.beats.ready, ("load", name, "refuse"): port.refuse}
        for name, port in self._inputs.items():
            found["in", name, "ready"] = port.ready
        for name, port in self._stores.items():
            found |= {
                ("store", name, "asked"): port.request.ready,
                ("store", name, "refuse"): port.refuse,
                ("store", name, "valid"): port.beats.valid,
                ("store", name, "beat"): port.beats.p,
            }
        for name, port in self._outputs.items():
            found |= {("store", name, "valid"): port.valid, ("store", name, "beat"): port.p}
        return found

    def _record(self) -> None:
        """Notes what happened in the cycle that has ended."""
        run, now = self._result, self._now
        for name in self._watch:
            run.seen.setdefault(name, []).append(now["watch", name])
        if self._engine is None:
            return
        if now["start"]:
            run.started.append(self._cycle)
            self._under_way.append((self._cycle, self._asked.popleft()))
            self._moved = self._cycle
        if now["done"]:
            assert self._under_way, f"cycle {self._cycle}: done, but no command is under way"
            begun, phase = self._under_way.popleft()
            begun = max([begun, *(each + 1 for each in run.done[-1:])])
            run.phases[phase] = run.phases.get(phase, 0) + self._cycle - begun + 1
            run.done.append(self._cycle)
            self._moved = self._cycle
        if now["error"] and not self._failed:
            run.errors.append((self._cycle, int(now["code"])))
            self._failed = True

    def _lives(self) -> Iterator[None]:
        """The bench, a step each cycle: one part of the run after another."""
        stall, hold, seed, patience, rest = self._options
        run = self._result
        self._moved = 0
        self._under_way: deque[tuple[int, str]] = deque()
        self._asked: deque[str] = deque()
        for number, part in enumerate(self._parts):
            if callable(part[0]):
                self._call = part[0]
                while self._call is not None:
                    yield
                self._moved = self._cycle
                continue
            lanes = self._lanes(part, _Gates(*self._names(part), stall, hold, seed, number))
            while lanes or self._under_way:
                for each in list(lanes):
                    if next(lanes[each], False) is False:
                        del lanes[each]
                if self._failed:
                    yield from self._reset()
                    break
                if not lanes and not self._under_way:
                    break
                yield
                if self._cycle - self._moved > patience + hold:
                    raise AssertionError(
                        f"nothing moved for {patience} cycles; waiting: {', '.join(lanes) or 'no port'}; "
                        f"{len(self._under_way)} commands under way; beats so far: "
                        f"{ {name: len(words) for name, words in run.words.items()} }"
                    )
        for _ in range(rest):
            yield
        run.left = [name for name in run.words if self._now["store", name, "valid"]]
        run.cycles = self._cycle

    def _reset(self) -> Iterator[None]:
        """Resets the component, as the shell does after an error."""
        ports = [
            *self._inputs.values(),
            *(port.beats for port in self._loads.values()),
            *(port.request for port in self._stores.values()),
        ]
        if self._engine is not None:
            ports.append(self._engine.command)
        for port in ports:
            self._ctx.set(port.valid, 0)
        for port in (*self._outputs.values(), *(port.beats for port in self._stores.values())):
            self._ctx.set(port.ready, 0)
        self._ctx.set(self._harness.abort, 1)
        yield
        yield
        self._ctx.set(self._harness.abort, 0)
        yield
        self._under_way.clear()
        self._asked.clear()
        self._failed, self._moved = False, self._cycle

    def _names(self, part: Sequence[Step]) -> tuple[set[str], set[str]]:
        inputs = {f"load {step.port}" for step in part if isinstance(step, BenchLoad) and step.beats}
        if any(isinstance(step, BenchCommand) for step in part):
            inputs.add("commands")
        return inputs, {f"store {step.port}" for step in part if isinstance(step, BenchStore) and step.beats}

    def _lanes(self, part: Sequence[Step], gates: _Gates) -> dict[str, Iterator[bool]]:
        """Parallel parts of a run: commands, LOAD, STORE and plain streams.

        Each plain stream is a part of its own.
        """
        lanes: dict[str, Iterator[bool]] = {}
        commands = [step for step in part if isinstance(step, BenchCommand)]
        loads = [step for step in part if isinstance(step, BenchLoad)]
        stores = [step for step in part if isinstance(step, BenchStore)]
        if commands:
            lanes["commands"] = self._command(commands, gates)
        if to_ports := [load for load in loads if load.port in self._loads]:
            lanes["LOAD"] = self._load(to_ports, gates)
        if from_ports := [store for store in stores if store.port in self._stores]:
            lanes["STORE"] = self._store(from_ports, gates)
        for name, port in self._inputs.items():
            if fed := [load for load in loads if load.port == name]:
                lanes[f"load {name}"] = self._feed(fed, port, gates)
        for name, port in self._outputs.items():
            if drained := [store for store in stores if store.port == name]:
                lanes[f"store {name}"] = self._drain(drained, port, gates)
        return lanes

    def _command(self, commands: Sequence[BenchCommand], gates: _Gates) -> Iterator[bool]:
        spec, port = self.spec, self.component.engine.command
        assert spec is not None
        for number, command in enumerate(commands):
            while not gates.open("commands", number, len(commands), self._cycle):
                yield True
            args = pack(spec.operands.get(command.opcode, spec.default), dict(command.operands))
            self._ctx.set(port.p, {"opcode": int(command.opcode), "args": args})
            self._ctx.set(port.valid, 1)
            self._asked.append(command.phase or spec.phases[0])
            yield True
            while not self._now["start"]:
                yield True
            self._ctx.set(port.valid, 0)

    def _load(self, loads: Sequence[BenchLoad], gates: _Gates) -> Iterator[bool]:
        for load in loads:
            port, times = self._loads[load.port], self._result.loaded.setdefault(load.port, [])
            for index, data in enumerate(load.beats):
                while not gates.open(f"load {load.port}", index, len(load.beats), self._cycle):
                    yield True
                self._ctx.set(
                    self._harness.beat,
                    {
                        "data": data,
                        "first": index == 0,
                        "last": index == len(load.beats) - 1,
                        "arg": load.arg,
                        "index": index,
                    },
                )
                self._ctx.set(port.beats.valid, 1)
                yield True
                while not self._now["load", load.port, "ready"]:
                    yield True
                self._ctx.set(port.beats.valid, 0)
                if self._now["load", load.port, "refuse"]:
                    yield from self._refuse(load.port, index)
                times.append(self._cycle - 1)
                self._moved = self._cycle

    def _refuse(self, port: str, beat: int | None) -> Iterator[bool]:
        self._result.refused.append((self._cycle - 1, port, beat))
        self._failed = True
        yield True

    def _store(self, stores: Sequence[BenchStore], gates: _Gates) -> Iterator[bool]:
        for store in stores:
            port = self._stores[store.port]
            for _ in range(store.after):
                self._moved = self._cycle
                yield True
            # The request's payload is there two cycles ahead, its refusal a cycle behind it.
            self._ctx.set(self._harness.request, {"arg": store.arg, "beats": store.beats})
            yield True
            yield True
            if self._now["store", store.port, "refuse"]:
                yield from self._refuse(store.port, None)
            self._ctx.set(port.request.valid, 1)
            yield True
            while not self._now["store", store.port, "asked"]:
                yield True
            self._ctx.set(port.request.valid, 0)
            yield from self._drain([BenchStore(store.port, store.beats)], port.beats, gates)

    def _feed(self, loads: Sequence[BenchLoad], port: Any, gates: _Gates) -> Iterator[bool]:
        name, payloads = loads[0].port, [each for load in loads for each in load.beats]
        times = self._result.loaded.setdefault(name, [])
        for index, payload in enumerate(payloads):
            while not gates.open(f"load {name}", index, len(payloads), self._cycle):
                yield True
            self._ctx.set(port.p, payload)
            self._ctx.set(port.valid, 1)
            yield True
            while not self._now["in", name, "ready"]:
                yield True
            self._ctx.set(port.valid, 0)
            times.append(self._cycle - 1)
            self._moved = self._cycle

    def _drain(self, stores: Sequence[BenchStore], port: Any, gates: _Gates) -> Iterator[bool]:
        name = stores[0].port
        words, times = self._result.words.setdefault(name, []), self._result.stored.setdefault(name, [])
        for store in stores:
            for _ in range(store.after):
                self._moved = self._cycle
                yield True
            taken = 0
            while taken < store.beats:
                ready = gates.open(f"store {name}", taken, store.beats, self._cycle)
                self._ctx.set(port.ready, ready)
                yield True
                if ready and self._now["store", name, "valid"]:
                    words.append(self._now["store", name, "beat"])
                    times.append(self._cycle - 1)
                    self._moved = self._cycle
                    taken += 1
            self._ctx.set(port.ready, 0)
