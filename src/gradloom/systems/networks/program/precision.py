"""Which layers have second codes: those that make a result's error least for their cycles, by samples."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gradloom.compiler.passes.doubling import doublable
from gradloom.compiler.passes.folding import passes
from gradloom.graph.base import Operation
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.network import Network
from gradloom.graph.operations import Convolution, Linear
from gradloom.graph.scaling import filled
from gradloom.rtl.formats.tiles.codes import NARROW, coded
from gradloom.sim.time.forecast import forecast
from gradloom.systems.results import SecondCodes
from gradloom.workload import Progress

from .prepared import AUTO, Prepared, precise_of

__all__ = ["fitted"]

#: Samples that errors are measured on; part of cycles that second codes may add unless a budget is given; part of the
#: error that is left alone.
_SAMPLES, _MORE, _LEFT = 48, 8, 0.01

Layers = dict[str, int]


def fitted(
    prepared: Prepared, asked: str | None, x: np.ndarray, config: Any, batch: int, tell: Progress
) -> tuple[Prepared, SecondCodes | None]:
    """``prepared`` with weights, and second codes as ``asked``, that the samples ``x`` choose.

    Returns what the choice was, too, where there was one.
    """
    budget = _budget_of(asked)
    if budget is None:
        whole = replace(prepared, precise=precise_of(prepared.learning.network, asked))
        return whole.fitted(x), None
    plain, network = prepared.fitted(x), prepared.learning.network
    found = _Choice(plain, filled(network, prepared.learning.learners, x), x, config, batch)
    layers, cycles = found.within(budget)
    told = SecondCodes(layers=_named(layers), cycles=cycles, without=found.cycles(0))
    tell(0, 0, f"second codes: {told['layers'] or 'none'}; {cycles:,} cycles a sample, {told['without']:,} without")
    return replace(prepared, precise=layers).fitted(x), told


def _budget_of(asked: str | None) -> int | None:
    """Cycles of a sample's forward pass that may be taken, 0 for the usual ones; None where layers are named."""
    name, _, number = (asked or "").partition(":")
    if name != AUTO:
        return None
    if number and not (number.isdecimal() and int(number)):
        raise ValueError(f"precise={asked}: must be {AUTO}, or {AUTO}:CYCLES with a number above 0")
    return int(number or 0)


def _named(layers: Layers) -> str:
    return ",".join(layer if codes > 1 else f"inputs:{layer}" for layer, codes in layers.items())


class _One(FloatReading):
    """A network whose layer ``name`` reads codes of 8 bits."""

    name = ""

    def step(self, each: Operation, found: dict[str, np.ndarray]) -> None:
        """See :class:`FloatReading`."""
        self._is_read = getattr(each, "layer", "") == self.name
        super().step(each, found)

    def operand(self, x: np.ndarray, *, over_rows: bool = False) -> np.ndarray:
        """See :class:`FloatReading`."""
        if not self._is_read:
            return x
        return coded(x.reshape(-1, x.shape[-1]), NARROW).values.reshape(x.shape).astype(x.dtype)


@dataclass(frozen=True)
class _Step:
    """A second code for what a layer reads, or for its weights, too."""

    layer: str
    codes: int
    #: Part of the error that it takes away, for each pass of the array that it adds.
    worth: float
    error: float


class _Choice:
    """Second codes in the order of their worth."""

    def __init__(self, plain: Prepared, exact: Network, x: np.ndarray, config: Any, batch: int) -> None:
        self.plain, self.exact, self.x, self.config, self.batch = plain, exact, x[:_SAMPLES], config, batch
        #: Weights of two codes are not those that one code can have.
        self.wide = replace(plain, learning=replace(plain.learning, network=exact))
        self._cycles: dict[int, int] = {}

    @cached_property
    def steps(self) -> list[_Step]:
        """Those that take away more than a part of all errors."""
        whole, made = self.plain.network, list[_Step]()
        cost = {each.layer: passes(each, f"{each.layer}.weight", whole) for each in _layers(whole)}
        for layer in doublable(whole):
            if layer not in self._errors or layer not in cost:
                continue
            read, weight = self._errors[layer]
            one, two = read / cost[layer], weight / cost[layer]
            if two > one:
                one = two = (one + two) / 2
            made += [_Step(layer, 1, one, read), _Step(layer, 2, two, weight)]
        made.sort(key=lambda each: -each.worth)
        left = sum(each.error for each in made) * _LEFT
        while made and made[-1].error <= left:
            left -= made.pop().error
        return made

    @cached_property
    def _errors(self) -> dict[str, tuple[float, float]]:
        """Of each layer: squares of what codes change in the result, of what it reads and of its weights."""
        reading = _One(self.exact, dtype=np.float32)
        found = reading.forward(self.x)
        name, made = self.exact.result.tensor.name, dict[str, tuple[float, float]]()
        want = _told(found[name], self.plain.loss)
        operations, own = self.exact.operations, self.plain.learning.network.values
        for number, each in enumerate(operations):
            if not isinstance(each, Linear | Convolution) or each.layer in made:
                continue
            pair = []
            for reading.name, values in ((each.layer, {}), ("", own)):
                kept = {w.name: reading.values[w.name] for w in each.weights}
                reading.values |= {key: np.asarray(values[key], np.float32) for key in kept if key in values}
                held = dict(found)
                for other in operations[number:]:
                    reading.step(other, held)
                reading.values |= kept
                pair.append(float(np.square(_told(held[name], self.plain.loss) - want).mean(dtype=np.float64)))
            made[each.layer] = pair[0], pair[1]
        return made

    def within(self, budget: int) -> tuple[Layers, int]:
        """As many of the steps as fit into a budget, 0 for the usual one; and cycles."""
        most = budget or self.cycles(0) * (_MORE + 1) // _MORE
        if self.cycles(0) > most:
            raise ValueError(
                f"precise={AUTO}:{budget}: must be {self.cycles(0):,} at least, the cycles without second codes"
            )
        fit, beyond = 0, len(self.steps) + 1
        while beyond - fit > 1:
            middle = (fit + beyond) // 2
            fit, beyond = (middle, beyond) if self.cycles(middle) <= most else (fit, middle)
        return self._first(fit), self.cycles(fit)

    def _first(self, count: int) -> Layers:
        return {each.layer: each.codes for each in self.steps[:count]}

    def cycles(self, count: int) -> int:
        """Of a sample with so many of the steps, by forecast."""
        if count not in self._cycles:
            program = replace(self.wide, precise=self._first(count)).forward(self.config, self.batch).program
            self._cycles[count] = -(-forecast(program).total // self.batch)
        return self._cycles[count]


def _layers(network: Network) -> list[Linear | Convolution]:
    return [each for each in network.operations if isinstance(each, Linear | Convolution)]


def _told(result: np.ndarray, loss: str) -> np.ndarray:
    """What a result says: of classes only how they differ."""
    return result - result.mean(-1, keepdims=True) if loss == "classes" else result
