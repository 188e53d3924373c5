"""LoRA steps of a diffusion model in RTL, or on models of its engines."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from gradloom.compiler.integers.descent import rules_of
from gradloom.compiler.integers.objectives import TARGET
from gradloom.compiler.lowering import TileStep, lower
from gradloom.firmware.jobs.job import Losses
from gradloom.graph.network import Network
from gradloom.program.descent import AdamW
from gradloom.program.placed import Program
from gradloom.program.tiles.layout import Tiles
from gradloom.rtl.formats.tiles.codes import TileCoded, coded
from gradloom.rtl.formats.tiles.records import BEAT
from gradloom.sim.reference.tiles.program import TileHealth
from gradloom.sim.run.device import MEMORY_BYTES
from gradloom.sim.run.machine import Ran

from ..unet import Values

__all__ = ["Stepper", "check_size", "losses_of", "lowered"]


class Stepped(Protocol):
    """A machine that runs steps: simulated, or models of its engines."""

    def write(self, offset: int, content: bytes, /) -> None: ...

    def read(self, offset: int, length: int, /) -> bytes: ...

    def run(self, program: Program, /) -> Ran | TileHealth: ...


def lowered(config: Any, network: Network, learnt: Values, *, images: int, lr: float, whole: bool = False) -> TileStep:
    """The program of a step.

    ``learnt``: weights of adapters as they begin; ``whole``: see :func:`~gradloom.compiler.lowering.lower`.
    """
    rules = rules_of(AdamW(lr=lr), learnt)
    return lower(config, network, samples=images, loss="values", rules=rules, whole=whole)


class Stepper:
    """Steps in a machine's memory, adapters and moments included.

    ``ran`` has what each step's run returned. ``learnt``: adapters' weights as they begin.
    """

    def __init__(self, step: TileStep, memory: Stepped, learnt: Values) -> None:
        check_size(step)
        self.step, self.memory = step, memory
        self.number = 0
        self.ran: list[Any] = []
        for offset, content in step.program.contents():
            memory.write(offset, content)
        for name, each in step.learners.items():
            words = np.rint(np.asarray(learnt[name], np.float64) * 2.0**each.rule.fraction).astype(np.int64)
            memory.write(each.words.words, each.words.pack(words))
            memory.write(each.words.moments, each.words.pack_moments(0 * words, 0 * words))
            codes = coded(words * 2.0**-each.rule.fraction, each.codes.bits)
            memory.write(each.codes.offset, each.codes.pack(codes))

    def __call__(self, data: Values, noise: np.ndarray) -> tuple[float, dict[str, np.ndarray]]:
        """One step: the loss before it, and the adapters' weights after it."""
        self.number += 1
        given: Mapping[str, np.ndarray] = {**data, TARGET: noise}
        for name, places in self.step.inputs.items():
            x = np.asarray(given[name], np.float64)
            for tiles in places:
                self.memory.write(tiles.offset, tiles.pack(coded(x.reshape(-1, x.shape[-1]), tiles.bits)))
        self.ran.append(self.memory.run(self.step.written(self.number)))
        loss = float(np.mean(np.square(self.codes(self.step.shown["error"]).values)))
        return loss, self.learnt()

    def codes(self, tiles: Tiles) -> TileCoded:
        """A tensor in memory."""
        return tiles.unpack(self.memory.read(tiles.offset, tiles.size))

    def learnt(self) -> dict[str, np.ndarray]:
        """The adapters' weights in memory."""
        return {
            name: each.words.unpack(self.memory.read(each.words.words, each.words.size)) * 2.0**-each.rule.fraction
            for name, each in self.step.learners.items()
        }


def check_size(step: TileStep) -> None:
    """Refuses a step that needs more memory than there is."""
    if step.program.length > MEMORY_BYTES:
        raise ValueError(f"a step needs {step.program.length:,} bytes of memory, the simulation has {MEMORY_BYTES:,}")


def losses_of(step: TileStep) -> Losses:
    """Where a step leaves its error, whose mean square is the loss."""
    error = step.shown["error"]
    return Losses(
        kind="tiles",
        offset=error.offset,
        count=error.count * error.high * error.wide,
        scale=error.count * error.rows * error.features,
        rows=error.record(0, 0).rows,
        row_bytes=BEAT * error.record(0, 0).row_beats,
        bits=error.bits,
    )
