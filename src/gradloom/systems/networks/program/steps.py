"""Steps of training in a machine's memory."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from gradloom.compiler.integers.reading import IntegerNetwork, cross_entropy
from gradloom.compiler.lowering import TARGET, TileStep
from gradloom.graph.losses import logistic
from gradloom.program.placed import Program
from gradloom.program.tiles.layout import Tiles
from gradloom.rtl.formats.tiles.codes import TileCoded, coded

__all__ = ["Steps"]


class Memory(Protocol):
    """A machine that runs steps: simulated, or models of its engines."""

    def write(self, offset: int, content: bytes, /) -> None: ...

    def read(self, offset: int, length: int, /) -> bytes: ...

    def run(self, program: Program, /) -> Any: ...


class Steps:
    """Puts a program and what learns into memory, and makes steps.

    ``ran`` has what each run returned. ``exact`` holds what learns as masters do; its shapes are used, and no more.
    """

    def __init__(self, step: TileStep, memory: Memory, exact: IntegerNetwork, loss: str) -> None:
        self.step, self.memory, self.loss, self.result = step, memory, loss, exact.port.tensor.name
        self.ran: list[Any] = []
        for offset, content in step.program.contents():
            memory.write(offset, content)
        for name, each in step.learners.items():
            matrix = exact.matrix(name)
            words = np.rint(matrix * 2.0**each.rule.fraction).astype(np.int64)
            memory.write(each.words.words, each.words.pack(words))
            memory.write(each.words.moments, each.words.pack_moments(0 * words, 0 * words))
            memory.write(each.codes.offset, each.codes.pack(coded(matrix, each.codes.bits)))

    def __call__(self, inputs: Mapping[str, np.ndarray], target: np.ndarray) -> float:
        """One step; the loss before it."""
        for name, written in self.step.inputs.items():
            x = np.asarray(target if name == TARGET else inputs[name], np.float64)
            for tiles in written:
                self.memory.write(tiles.offset, tiles.pack(coded(x.reshape(-1, x.shape[-1]), tiles.bits)))
        self.ran.append(self.memory.run(self.step.written(len(self.ran) + 1)))
        if self.loss == "classes":
            return cross_entropy(self.codes(self.step.shown[self.result]).values, target)
        if self.loss == "labels":
            return logistic(self.codes(self.step.shown[self.result]).values, target)[0]
        return float(np.mean(np.square(self.codes(self.step.shown["error"]).values)))

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
