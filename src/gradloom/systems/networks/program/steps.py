"""Steps of training in a machine's memory."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from gradloom.compiler.integers.objectives import TARGET, WEIGHT, cross_entropy, weights_of_rows
from gradloom.compiler.integers.reading import IntegerNetwork
from gradloom.graph.losses import logistic
from gradloom.program.placed import Program
from gradloom.program.tiles.layout import Tiles
from gradloom.rtl.formats.tiles.codes import TileCoded, coded

from .programs import KeptBatches, Programs

__all__ = ["MachineSteps"]


class StepHost(Protocol):
    """A machine that runs steps: simulated, or models of its engines."""

    def write(self, offset: int, content: bytes, /) -> None: ...

    def read(self, offset: int, length: int, /) -> bytes: ...

    def run(self, program: Program, /) -> Any: ...


class MachineSteps:
    """Puts programs and what learns into memory, and makes steps.

    ``ran`` has what each run returned. ``exact`` holds what learns as masters do; its shapes are used, and no more.
    """

    def __init__(self, programs: Programs, memory: StepHost, exact: IntegerNetwork, loss: str) -> None:
        self.programs, self.step, self.memory, self.loss = programs, programs.step, memory, loss
        self.result = exact.port.tensor.name
        self.ran: list[Any] = []
        self.kept, self.steps = KeptBatches(programs.sets.count), 0
        for written in filter(None, (programs.trunk, programs.step)):
            for offset, content in written.program.contents():
                memory.write(offset, content)
        for name, each in self.step.learners.items():
            matrix = exact.matrix(name)
            words = np.rint(matrix * 2.0**each.rule.fraction).astype(np.int64)
            memory.write(each.words.words, each.words.pack(words))
            memory.write(each.words.moments, each.words.pack_moments(0 * words, 0 * words))
            memory.write(each.codes.offset, each.codes.pack(coded(matrix, each.codes.bits)))

    def __call__(self, inputs: Mapping[str, np.ndarray], target: np.ndarray, batch: int = 0) -> float:
        """One step on a batch; the loss before it.

        ``inputs`` and ``target`` are those that the batch had before, if there was one of its number.
        """
        place, is_there = self.kept.take(batch)
        if not is_there:
            self._given(inputs, target, place)
        self.steps += 1
        self.ran.append(self.memory.run(self.step.written(self.steps, place)))
        if self.loss == "classes":
            return cross_entropy(self.codes(self.step.shown[self.result]).values, target)
        if self.loss == "labels":
            return logistic(self.codes(self.step.shown[self.result]).values, target)[0]
        return float(np.mean(np.square(self.codes(self.step.shown["error"]).values)))

    def _given(self, inputs: Mapping[str, np.ndarray], target: np.ndarray, place: int) -> None:
        """Puts a batch into memory, and makes what is kept of it."""
        trunk, sets, given = self.programs.trunk, self.programs.sets, {**inputs, TARGET: target}
        given[WEIGHT] = weights_of_rows(target)
        for name, written in self.step.inputs.items():
            if name in given:
                self._put(given[name], [sets.tiles(tiles, place) for tiles in written])
        if trunk is not None:
            for name, written in trunk.inputs.items():
                self._put(given[name], written)
            self.ran.append(self.memory.run(trunk.written(1, place)))

    def _put(self, values: np.ndarray, places: Sequence[Tiles]) -> None:
        x = np.asarray(values, np.float64)
        for tiles in places:
            self.memory.write(tiles.offset, tiles.pack(coded(x.reshape(-1, x.shape[-1]), tiles.bits)))

    def codes(self, tiles: Tiles) -> TileCoded:
        """A tensor in memory."""
        return tiles.unpack(self.memory.read(tiles.offset, tiles.size))

    def matrices(self) -> dict[str, np.ndarray]:
        """What learns, as masters in memory."""
        made = {}
        for name, each in self.step.learners.items():
            words = each.words.unpack(self.memory.read(each.words.words, each.words.size))
            made[name] = words * 2.0**-each.rule.fraction
        return made
