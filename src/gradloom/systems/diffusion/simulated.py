"""LoRA steps of a diffusion model in RTL, or on models of its engines."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from gradloom.firmware.job import Losses
from gradloom.models.adapters.lora import Adapter
from gradloom.program.placed import Program
from gradloom.program.tiles.layout import Tiles
from gradloom.rtl.formats.tile_codes import NARROW, TileCoded, coded
from gradloom.rtl.formats.tile_records import BEAT
from gradloom.sim.reference.tile_program import TileHealth
from gradloom.sim.run.device import MEMORY_BYTES
from gradloom.sim.run.machine import Ran

from .program.writer import DiffusionStep

__all__ = ["Stepper", "check_size", "losses_of"]

Factors = Mapping[str, Adapter]


class Stepped(Protocol):
    """A machine that runs steps: simulated, or models of its engines."""

    def write(self, offset: int, content: bytes, /) -> None: ...

    def read(self, offset: int, length: int, /) -> bytes: ...

    def run(self, program: Program, /) -> Ran | TileHealth: ...


class Stepper:
    """Steps in a machine's memory, adapters and moments included.

    ``ran`` has what each step's run returned. ``adapters``: as :meth:`~.integer_descent.IntegerDescent.begun` has
    them.
    """

    def __init__(self, step: DiffusionStep, memory: Stepped, adapters: Factors) -> None:
        check_size(step)
        self.step, self.memory, self.first = step, memory, adapters
        self.number = 0
        self.ran: list[Any] = []
        for offset, content in step.program.contents():
            memory.write(offset, content)
        for (layer, part), each in step.adapted.items():
            values = adapters[layer].parts[part]
            words = np.rint(values * 2.0**each.fraction).astype(np.int64)
            memory.write(each.words.words, each.words.pack(words))
            memory.write(each.words.moments, each.words.pack_moments(0 * words, 0 * words))
            memory.write(each.codes.offset, each.codes.pack(coded(values, NARROW)))

    def __call__(self, data: Mapping[str, np.ndarray], noise: np.ndarray) -> tuple[float, dict[str, Adapter]]:
        """One step: the loss before it, and the adapters after it."""
        self.number += 1
        for name, tiles in self.step.inputs.items():
            x = np.asarray(noise if name == "noise" else data[name], np.float64)
            self.memory.write(tiles.offset, tiles.pack(coded(x.reshape(-1, x.shape[-1]), tiles.bits)))
        self.ran.append(self.memory.run(self.step.written(self.number)))
        loss = float(np.mean(np.square(self.codes(self.step.error).values)))
        return loss, self.adapters()

    def codes(self, tiles: Tiles) -> TileCoded:
        """A tensor in memory."""
        return tiles.unpack(self.memory.read(tiles.offset, tiles.size))

    def adapters(self) -> dict[str, Adapter]:
        """The adapters in memory."""
        parts: dict[str, dict[str, np.ndarray]] = {}
        for (layer, part), each in self.step.adapted.items():
            words = each.words.unpack(self.memory.read(each.words.words, each.words.size))
            parts.setdefault(layer, {})[part] = words * 2.0**-each.fraction
        return {layer: self.first[layer].taking(both) for layer, both in parts.items()}


def check_size(step: DiffusionStep) -> None:
    """Refuses a step that needs more memory than there is."""
    if step.program.length > MEMORY_BYTES:
        raise ValueError(f"a step needs {step.program.length:,} bytes of memory, the simulation has {MEMORY_BYTES:,}")


def losses_of(step: DiffusionStep) -> Losses:
    """Where a step leaves its error, whose mean square is the loss."""
    error = step.error
    return Losses(
        kind="tiles",
        offset=error.offset,
        count=error.count * error.high * error.wide,
        scale=error.count * error.rows * error.features,
        rows=error.record(0, 0).rows,
        row_bytes=BEAT * error.record(0, 0).row_beats,
        bits=error.bits,
    )
