"""An engine of Amaranth's simulator that runs only the circuits whose inputs changed.

Amaranth's own engine looks at every process of a design in every delta cycle, runs a module's whole combinational
circuit when one input changes, and its registers at every edge. This one keeps the functions to run in sets: registers
whose inputs are as they were at the last edge wait for a change. Signals have the same values in every delta cycle; a
test compares both engines. It writes no waveforms.
"""

import functools
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NoReturn

from amaranth.hdl import Signal, Value
from amaranth.hdl._ast import ShapeCastable
from amaranth.hdl._mem import MemoryInstance
from amaranth.sim._async import ChangedTrigger, SampleTrigger
from amaranth.sim.pysim import (
    AsyncProcess,
    PySimEngine,
    _PyEngineState,
    _PyMemoryState,
    _PySignalState,
    _PyTriggerState,
    _run_wakers,
    eval_value,
)

from .code import circuits, reader

__all__ = ["QuickEngine"]


class _Edge:
    """Functions of an edge of a clock: those that run at each, and those of which an input has changed since."""

    def __init__(self) -> None:
        self.always: list[Callable[[], None]] = []
        self.waiting: list[Callable[[], None]] = []
        self.due: set[Callable[[], None]] = set()


class _SignalState(_PySignalState):
    """``readers``: functions to run when the signal has changed; ``clocked``: those due at an edge, of each edge."""

    __slots__ = ("readers", "clocked")

    def __init__(self, signal: Any, pending: Any) -> None:
        super().__init__(signal, pending)
        self.readers: list[Callable[[], None]] = []
        self.clocked: list[tuple[set[Callable[[], None]], list[Callable[[], None]]]] = []

    def wait(self, edge: _Edge, run: Callable[[], None]) -> None:
        """``run`` is due at the edge after a change."""
        for due, runs in self.clocked:
            if due is edge.due:
                runs.append(run)
                return
        self.clocked.append((edge.due, [run]))


class _State(_PyEngineState):
    """``ready``: functions to run; ``written``: memories that are to change; ``edges``: those of this delta cycle."""

    def __init__(self) -> None:
        super().__init__()
        self.ready: set[Callable[[], None]] = set()
        self.edges: list[_Edge] = []
        self.written: set[_PyMemoryState] = set()
        self._numbers: dict[int, int] = {}

    def reset(self):
        super().reset()
        self.ready.clear()
        self.written.clear()
        self.edges.clear()

    def get_signal(self, signal):
        # A state keeps its signal, so that no other one has the same identity.
        number = self._numbers.get(id(signal))
        if number is None:
            if signal in self.signals:
                return self.signals[signal]
            number = self._numbers[id(signal)] = self.signals[signal] = len(self.slots)
            self.slots.append(_SignalState(signal, self.pending))
        return number

    def get_memory(self, memory):
        if memory not in self.memories:
            self.memories[memory] = len(self.slots)
            self.slots.append(_PyMemoryState(memory, self.written))
        return self.memories[memory]

    def commit(self, changed=None):
        converged = True
        for memory in self.written:
            converged &= not memory.commit()
        self.written.clear()
        for state in self.pending:
            before, after = state.curr, state.next
            if before != after:
                converged = False
                if state.wakers:
                    _run_wakers(state.wakers, before, after)
                state.curr = after
                self.ready.update(state.readers)
                for due, runs in state.clocked:
                    due.update(runs)
        self.pending.clear()
        # After all changes: what changes together with a clock is what its registers see.
        for edge in self.edges:
            self.ready.update(edge.always)
            self.ready.update(edge.due)
            edge.due.clear()
        self.edges.clear()
        return converged


def _ready(runs: set[Callable[[], None]], run: Callable[[], None]) -> bool:
    """Wakes a function."""
    runs.add(run)
    return True


class QuickEngine(PySimEngine):
    """``Simulator(component, engine=QuickEngine)``."""

    def __init__(self, design: Any) -> None:
        self._design = design
        self._state = _State()
        self._processes: set[Any] = set()
        self._testbenches: list[Any] = []
        self._delta_cycles = 0
        self._active_triggers: set[Any] = set()
        self._always: list[Callable[[], None]] = []
        self._edges: dict[tuple[int, int], _Edge] = defaultdict(_Edge)
        self._add(design.fragment)
        self._start()

    def _add(self, fragment: Any) -> None:
        """Makes the functions of a fragment and of all below it."""
        state = self._state
        todo = [fragment]
        while todo:
            each = todo.pop()
            todo += [part for part, _, _ in each.subfragments]
            for domain, run, inputs, driven in circuits(each, state):
                if domain == "comb":
                    self._always.append(run)
                    for signal in inputs:
                        state.slots[state.get_signal(signal)].readers.append(run)
                    for signal in driven:
                        state.slots[state.get_signal(signal)].is_comb = True
                    if isinstance(each, MemoryInstance):
                        state.add_memory_waker(each._data, functools.partial(_ready, state.ready, run))
                    continue
                of = each.domains[domain]
                edges = [self._edges[state.get_signal(of.clk), int(of.clk_edge == "pos")]]
                if of.async_reset and of.rst is not None:
                    edges.append(self._edges[state.get_signal(of.rst), 1])
                for edge in edges:
                    if inputs is None:
                        edge.always.append(run)
                        continue
                    edge.waiting.append(run)
                    for signal in inputs:
                        state.slots[state.get_signal(signal)].wait(edge, run)
                    if isinstance(each, MemoryInstance):
                        state.add_memory_waker(each._data, functools.partial(_ready, edge.due, run))
        for (number, level), edge in self._edges.items():
            state.slots[number].add_waker(self._waker(edge, level))

    def _waker(self, edge: _Edge, level: int) -> Callable[[int, int], bool]:
        def waker(_: int, after: int) -> bool:
            if after == level:
                self._state.edges.append(edge)
            return True

        return waker

    def _start(self) -> None:
        self._state.ready.update(self._always)
        for edge in self._edges.values():
            edge.due.update(edge.waiting)

    def reset(self):
        super().reset()
        self._start()

    def add_trigger_combination(self, combination, *, oneshot):
        trigger = super().add_trigger_combination(combination, oneshot=oneshot)
        if not oneshot:
            samples = [self._sample(trigger, each) for each in combination._triggers]

            def compute_result() -> None:
                trigger._result = tuple([sample() for sample in samples])

            trigger.compute_result = compute_result
        return trigger

    def _sample(self, trigger: Any, of: Any) -> Callable[[], Any]:
        """A function that reads what a trigger brings."""
        if not isinstance(of, SampleTrigger | ChangedTrigger):
            return lambda: of in trigger._triggers_hit
        read = reader(of.value, self._state)
        shape = of.shape
        return (lambda: shape.from_bits(read())) if isinstance(shape, ShapeCastable) else read

    def get_value(self, expr):
        value = Value.cast(expr)
        if type(value) is Signal:
            return self._state.slots[self._state.get_signal(value)].curr
        return eval_value(self._state, value)

    def step_design(self):
        state, ready = self._state, self._state.ready
        converged = False
        while not converged:
            for trigger in self._active_triggers:
                trigger.run()
            self._active_triggers.clear()
            if ready:
                runs = list(ready)
                ready.clear()
                for run in runs:
                    run()
            for process in self._processes:
                if process.runnable:
                    process.runnable = False
                    process.run()
                    assert type(process) is not AsyncProcess or isinstance(process.waits_on, _PyTriggerState | None)
            converged = state.commit()
            self._delta_cycles += 1

    def write_vcd(self, **_: Any) -> NoReturn:
        raise NotImplementedError("QuickEngine writes no waveforms; leave out engine=")
