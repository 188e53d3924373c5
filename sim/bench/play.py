"""One run of a bench: its parts one after another, a step each cycle."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradloom.rtl.shell.engines import EngineSpec

from .gates import Gates
from .lanes import BenchLanes, BenchState
from .ports import BenchHarness, BenchPorts
from .steps import BenchCommand, BenchedRun, BenchLoad, BenchStore, Step

__all__ = ["BenchOptions", "BenchPlay"]


@dataclass(frozen=True)
class BenchOptions:
    """Options of a run, see :meth:`~.engine.EngineBench.run`."""

    stall: float | Mapping[str, float]
    hold: int
    seed: int
    patience: int
    rest: int


class BenchPlay:
    """Plays the parts of a run; each is the steps between two fences, or one function.

    ``watch``: signals of which the result keeps the value in every cycle.
    """

    def __init__(
        self,
        ports: BenchPorts,
        harness: BenchHarness,
        spec: EngineSpec | None,
        watch: Mapping[str, Any],
        parts: Sequence[Sequence[Step]],
        options: BenchOptions,
    ) -> None:
        self.ports, self.harness, self.watch = ports, harness, watch
        self.parts, self.options, self.state = parts, options, BenchState()
        self.lanes = BenchLanes(ports, harness, spec, self.state)

    @property
    def result(self) -> BenchedRun:
        """The result so far."""
        return self.state.result

    async def serve(self, ctx: Any) -> None:
        """Runs steps that are functions.

        Keeps the simulation alive until the run is over.
        """
        while not self.state.over:
            if self.state.call is not None:
                await self.state.call(ctx)
                self.state.call = None
            await ctx.tick()

    async def play(self, ctx: Any) -> None:
        """Samples signals and goes on by a step, cycle by cycle."""
        self.state.ctx = ctx
        signals = self.ports.signals(self.watch)
        lives = self._lives()
        next(lives)
        async for _, _, *values in ctx.tick().sample(*signals.values()):
            self.state.now = dict(zip(signals, values))
            self._record()
            self.state.cycle += 1
            try:
                next(lives)
            except StopIteration:
                self.state.over = True
                return

    def _record(self) -> None:
        """Notes the events of the cycle that has ended."""
        run, now = self.state.result, self.state.now
        for name in self.watch:
            run.seen.setdefault(name, []).append(now["watch", name])
        if self.ports.engine is None:
            return
        if now["start"]:
            run.started.append(self.state.cycle)
            self.state.under_way.append((self.state.cycle, self.state.asked.popleft()))
            self.state.moved = self.state.cycle
        if now["done"]:
            assert self.state.under_way, f"cycle {self.state.cycle}: done, but no command is under way"
            begun, phase = self.state.under_way.popleft()
            begun = max([begun, *(each + 1 for each in run.done[-1:])])
            run.phases[phase] = run.phases.get(phase, 0) + self.state.cycle - begun + 1
            run.done.append(self.state.cycle)
            self.state.moved = self.state.cycle
        if now["error"] and not self.state.failed:
            run.errors.append((self.state.cycle, int(now["code"])))
            self.state.failed = True

    def _lives(self) -> Iterator[None]:
        """The bench, a step each cycle: one part of the run after another."""
        options = self.options
        run = self.state.result
        for number, part in enumerate(self.parts):
            if callable(part[0]):
                self.state.call = part[0]
                while self.state.call is not None:
                    yield
                self.state.moved = self.state.cycle
                continue
            lanes = self.lanes.of(part, Gates(*_names(part), options.stall, options.hold, options.seed, number))
            while lanes or self.state.under_way:
                for each in list(lanes):
                    if next(lanes[each], False) is False:
                        del lanes[each]
                if self.state.failed:
                    yield from self._reset()
                    break
                if not lanes and not self.state.under_way:
                    break
                yield
                if self.state.cycle - self.state.moved > options.patience + options.hold:
                    raise AssertionError(
                        f"nothing moved for {options.patience} cycles; waiting: {', '.join(lanes) or 'no port'}; "
                        f"{len(self.state.under_way)} commands under way; beats so far: "
                        f"{ {name: len(words) for name, words in run.words.items()} }"
                    )
        for _ in range(options.rest):
            yield
        run.left = [name for name in run.words if self.state.now["store", name, "valid"]]
        run.cycles = self.state.cycle

    def _reset(self) -> Iterator[None]:
        """Resets the component, as the shell does after an error."""
        ports = [
            *self.ports.inputs.values(),
            *(port.beats for port in self.ports.loads.values()),
            *(port.request for port in self.ports.stores.values()),
        ]
        if self.ports.engine is not None:
            ports.append(self.ports.engine.command)
        for port in ports:
            self.state.ctx.set(port.valid, 0)
        for port in (*self.ports.outputs.values(), *(port.beats for port in self.ports.stores.values())):
            self.state.ctx.set(port.ready, 0)
        self.state.ctx.set(self.harness.abort, 1)
        yield
        yield
        self.state.ctx.set(self.harness.abort, 0)
        yield
        self.state.under_way.clear()
        self.state.asked.clear()
        self.state.failed, self.state.moved = False, self.state.cycle


def _names(part: Sequence[Step]) -> tuple[set[str], set[str]]:
    """Inputs and outputs that move beats in a part."""
    inputs = {f"load {step.port}" for step in part if isinstance(step, BenchLoad) and step.beats}
    if any(isinstance(step, BenchCommand) for step in part):
        inputs.add("commands")
    return inputs, {f"store {step.port}" for step in part if isinstance(step, BenchStore) and step.beats}
