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

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from amaranth.hdl import Elaboratable
from amaranth.sim import Simulator

from gradloom.rtl.hierarchy import uncollected
from gradloom.rtl.shell.engines import EngineSpec

from ..quick.engine import QuickEngine
from .gates import LEAD
from .play import BenchOptions, BenchPlay
from .ports import BenchHarness, BenchPorts
from .steps import FENCE, BenchCommand, BenchedRun, BenchLoad, BenchStore, Fence, Process, Step

__all__ = [
    "ENGINE",
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

#: Engine of Amaranth's simulator: a class, or ``"pysim"`` for its own.
ENGINE: Any = QuickEngine


def pressures(hold: int) -> tuple[dict[str, float], ...]:
    """Options of a run, for ``pytest.mark.parametrize``.

    They are none; random stalls; random stalls and long holds.
    """
    return {}, {"stall": 0.5}, {"stall": 0.2, "hold": hold}


def simulate(component: Elaboratable, *processes: Process, background: Iterable[Process] = ()) -> None:
    """Runs testbenches in Amaranth's simulator until they end.

    It does not wait for those of ``background``.
    """
    simulator = _simulator(component)
    for process in processes:
        simulator.add_testbench(process)
    for process in background:
        simulator.add_testbench(process, background=True)
    simulator.run()


def _simulator(component: Elaboratable) -> Simulator:
    with uncollected():
        simulator = Simulator(component, engine=ENGINE)
    simulator.add_clock(1e-6)
    return simulator


def _shown(word: Any) -> str:
    """A word in a message."""
    return f"{word:#x}" if isinstance(word, int) else repr(word)


class EngineBench:
    """Plays steps to a component, in Amaranth's simulator.

    A component is built once for all runs.

    ::

        steps --> parts --> lanes: commands, LOAD, STORE, streams <--> component
                              ^                                          |
                              +-- gates: stalls, holds                   v
                                                               signals of each cycle --> run

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
        self._ports = BenchPorts.of(component)
        self._harness = BenchHarness(component, self._ports)
        self._watch = dict(watch or {})
        if hasattr(component, "health"):
            self._watch |= {name: component.health[name] for name in ("saturated", "underflowed", "norm")}
        if (records := self._ports.records) is not None:
            for name in ("saturated", "underflowed"):
                own = getattr(records, name)
                self._watch[name] = self._watch[name] + own if name in self._watch else own
        self._wires = wires
        self._simulator: Simulator | None = None
        self._run: BenchPlay | None = None

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
        self._run = BenchPlay(
            self._ports,
            self._harness,
            self.spec,
            self._watch,
            [part for part in parts if part],
            BenchOptions(stall=stall, hold=hold, seed=seed, patience=patience, rest=rest),
        )
        if self._simulator is None:
            self._simulator = _simulator(self._harness)
            self._simulator.add_process(self._play)
            self._simulator.add_testbench(self._serve)
            for wire in self._wires:
                self._simulator.add_testbench(wire, background=True)
        else:
            self._simulator.reset()
        self._simulator.run()
        return self._run.result

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
            if self.spec is None or self._ports.engine is None:
                raise ValueError("Command: the bench has no spec, or its component no member engine")
            return
        ports = self._ports
        known = ports.loads | ports.inputs if isinstance(step, BenchLoad) else ports.stores | ports.outputs
        if step.port not in known:
            raise ValueError(f"{step.port}: no port of this name; there are {', '.join(sorted(known)) or 'none'}")

    async def _play(self, ctx: Any) -> None:
        assert self._run is not None
        await self._run.play(ctx)

    async def _serve(self, ctx: Any) -> None:
        assert self._run is not None
        await self._run.serve(ctx)
