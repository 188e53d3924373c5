"""A training step in RTL, and its place in memory."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.firmware.device.host import Accelerator, ProgramCounters
from gradloom.program.assembler import Assembler, Instruction
from gradloom.program.descent import AdamW
from gradloom.program.memory import PAGE, rounded
from gradloom.program.placed import Written
from gradloom.rtl.formats.weights.tiles import tile_moments, tile_rows, untile_moments, untile_rows
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.sim.run.counted import MismatchError, check_words
from gradloom.sim.run.device import SimulatedDevice
from gradloom.sim.run.machine import MachineRunner, Ran
from gradloom.systems.job import BoardHost

from ..operations.base import DROP
from ..operations.blocks.head import HEAD_MATRIX, LOSS
from ..operations.learnt.updates import Descent, Pack
from ..operations.products import Gradient, Product
from ..operations.tensors import EDGE, Codes, MatrixRows, TensorSlice
from ..program.layout import Layout
from ..program.sections import rows_of
from ..program.step import lower
from ..reference.integers import IntegerStep
from .linear import linear_machine
from .training import Training

__all__ = ["StepMachine", "StepRun", "memory_needed", "place_frozen"]


@dataclass(frozen=True, kw_only=True)
class StepRun:
    """A step that ran in RTL.

    Words of every tensor by name, ``[tokens, features]``, and of adapters as they lie in memory; ``hidden``: the
    largest word of every h, rounded to the precision of the gradients; the run.
    """

    values: dict[str, np.ndarray]
    hidden: dict[str, int]
    loss: float
    ran: Ran

    @property
    def counters(self) -> ProgramCounters:
        """Its counters."""
        return self.ran.counters

    @property
    def instructions(self) -> Sequence[Instruction]:
        """The program."""
        return self.ran.program.instructions

    def check(self, reference: IntegerStep) -> dict[str, int]:
        """Raises :class:`~..run.counted.MismatchError` at a difference.

        Every word, every counter and the cycles of every command are compared. Returns how many.
        """
        words = check_words(self.values, reference.values)
        if self.loss != reference.mean_loss:
            raise MismatchError(f"RTL and reference differ: the loss is {self.loss}, not {reference.mean_loss}")
        return {"words": words} | self.ran.check(saturated=reference.saturated)


class StepMachine:
    """A generated machine in simulation, asked for training steps.

    Counters and cycles of each step are compared with its forecast.

    Parameters
    ----------
    config : LanguageConfig
    memory_bytes : int
    device : SimulatedDevice, optional
        A simulation of it that is there already, in place of one of its own.
    tell : callable, optional
        Told what takes long.
    files : sequence of Path
        Its Verilog; none: it is generated.
    board : BoardHost, optional
        A board in place of a simulation. What a program's text needs of the steps before must be known beforehand.
    """

    def __init__(
        self,
        config: LanguageConfig,
        *,
        memory_bytes: int = 1 << 28,
        device: SimulatedDevice | None = None,
        tell: Callable[[str], None] | None = None,
        files: Sequence[Path] = (),
        board: BoardHost | None = None,
    ) -> None:
        self.config = config
        self.board = board
        if board is not None:
            self.machine = MachineRunner(board)
        elif device is not None:
            self.machine = MachineRunner(Accelerator(device))
        else:
            self.machine = linear_machine(config, memory_bytes, tell, files)
        self.host: Any = self.machine.host
        self.device: Any = self.machine.device
        #: Of what stays, and of that with the last step's tensors behind it.
        self.frozen = self.layout = Layout()
        self.held: set[str] = set()
        #: Where nothing is yet, neither the step's nor, behind it, of requests.
        self.end = 0
        #: What a board's last step has left of adapters and moments, by offset.
        self.left: dict[int, bytes] = {}

    def close(self) -> None:
        """Ends the simulation."""
        self.machine.close()

    def run(
        self,
        training: Training,
        frac: Mapping[str, int],
        places: Mapping[str, int] | None = None,
        *,
        yield_every: int | None = None,
        share: bool = False,
    ) -> StepRun:
        """Runs a step; the frozen matrices stay in memory.

        They stay from step to step. ``places``: of tensors that have their own. With ``share`` the others have places
        in common, and values are those of adapters and moments alone.
        """
        start, program = self.load(training, frac, places, yield_every=yield_every, share=share)
        return self.result(training, self.machine.run(self._written(program, start)))

    def told(
        self, training: Training, frac: Mapping[str, int], places: Mapping[str, int] | None, reference: IntegerStep
    ) -> dict[str, Any]:
        """A step on a board, whose results are the reference's.

        Adapters and moments stay in the board's memory from step to step. Of a board that answers they are compared,
        as are loss and counters: ``equal`` and ``cycles``.
        """
        assert self.board is not None
        start, program = self.load(training, frac, places, share=True)
        ran = self.machine.run(self._written(program, start))
        values, loss = self._values(training), self._loss(training)
        own = {name: reference.values[name] for name in values}
        self.left = {
            self.layout[name]: tile_moments(words[0], words[1], EDGE) if words.ndim == 3 else tile_rows(words, EDGE)
            for name, words in own.items()
            if words.dtype != np.uint8
        }
        if not self.board.answers:
            return {}
        run = StepRun(values=values, hidden={}, loss=loss, ran=ran)
        return {"equal": run.check(reference), "cycles": ran.counters.metrics()["cycles"]}

    def load(
        self,
        training: Training,
        frac: Mapping[str, int],
        places: Mapping[str, int] | None = None,
        *,
        yield_every: int | None = None,
        share: bool = False,
    ) -> tuple[int, Assembler]:
        """Puts a step into memory: where its program lies, and the program."""
        frozen = training.frozen
        place_frozen(training, self.frozen)
        for name, offset in self.frozen.offsets.items():
            if name not in self.held:
                self.host.store(offset, frozen.stream(name, self.config))
                self.held.add(name)
        layout, program = self.lowered(training, frac, places, yield_every=yield_every, share=share)
        self.layout = layout
        for offset, data in training.memory(frac, layout).items():
            if self.left.get(offset) != data:
                self.host.store(offset, data)
        start = rounded(layout.end, PAGE)
        self.host.store(start, program.code)
        self.end = start + len(program.code)
        return start, program

    def _written(self, program: Assembler, start: int) -> Written:
        return Written(config=self.config, instructions=program.instructions, code=program.code, offset=start)

    def lowered(
        self,
        training: Training,
        frac: Mapping[str, int],
        places: Mapping[str, int] | None = None,
        *,
        yield_every: int | None = None,
        share: bool = False,
    ) -> tuple[Layout, Assembler]:
        """A step beside what is in memory: its layout and its program."""
        layout = self.frozen.copy()
        layout.offsets.update(places or {})
        return layout, lower(training.operations, frac, layout, self.config, yield_every=yield_every, share=share)

    def interrupted(
        self,
        training: Training,
        counters: ProgramCounters,
        program: Assembler,
        start: int,
        requests: Sequence[Assembler],
    ) -> StepRun:
        """Results of a step that was loaded and has run.

        ``requests`` were served beside it. Counters are refused that its program and they do not explain; cycles have
        no forecast.
        """
        ran = Ran(program=self._written(program, start), counters=counters)
        return self.result(training, ran, [each for made in requests for each in made.instructions])

    def result(self, training: Training, ran: Ran, requests: Sequence[Instruction] = ()) -> StepRun:
        """Results of a step that has run.

        Counters and cycles are refused that are not as expected.
        """
        ran.check(requests=requests)
        return StepRun(values=self._values(training), hidden=self._hidden(training), loss=self._loss(training), ran=ran)

    def _values(self, training: Training) -> dict[str, np.ndarray]:
        parts: dict[str, list[TensorSlice]] = {}
        for part in (part for operation in training.operations for part in operation.results):
            parts.setdefault(part.name, []).append(part)
        sizes = {name: (own[-1].tensor.rows, own[-1].tensor.features) for name, own in parts.items()}
        for operation in training.operations:
            if isinstance(operation, Gradient):
                name, rank = operation.adapter.name, operation.adapter.rank
                for which, (_, part) in operation.sources.items():
                    sizes[operation.made(which)] = rank, part.tensor.features
                    if training.rule is not None and not operation.adapter.made:
                        sizes[f"{name}.{which.replace('g', '')}"] = rank, part.tensor.features
        sizes = {name: size for name, size in sizes.items() if name not in self.layout.shared}
        found = {
            name: untile_rows(self.host.fetch(self.layout[name], 4 * rows * features), rows, features, EDGE)
            for name, (rows, features) in sizes.items()
        }
        for name, words in found.items():
            # Of a tensor with a text's last block, rows that no operation makes are whatever was there.
            own = parts.get(name, [])
            if own and own[0].tensor.rows * own[0].tensor.tiles > sum(each.rows * each.count for each in own):
                made = np.zeros(words.shape, bool)
                for part in own:
                    part.put(made, np.ones((part.rows, EDGE * part.count), bool))
                found[name] = np.where(made, words, 0)
        moments: dict[str, tuple[int, int]] = {}
        if isinstance(training.rule, AdamW) and training.wide is None:
            learnt = "b" if training.held else "ab"
            moments = {f"{name}.m{which}": sizes[f"{name}.{which}"] for name in training.loras for which in learnt}
            moments |= {
                each.moments: sizes[each.words.name] for each in training.operations if isinstance(each, Descent)
            }
        for name, (rows, features) in moments.items():
            data = self.host.fetch(self.layout[name], 8 * rows * features)
            found[name] = np.stack(untile_moments(data, rows, features, EDGE))
        for operation in training.operations:
            if isinstance(operation, Pack):
                for each in operation.tensors():
                    data = self.host.fetch(self.layout[each.packed], each.shape.bytes)
                    found[each.packed] = np.frombuffer(data, np.uint8)
        return found

    def _hidden(self, training: Training) -> dict[str, int]:
        """In memory, h has lost the bits that a weight has not."""
        made = {}
        for operation in training.operations:
            if isinstance(operation, Product) and operation.adapter is not None:
                for name in {operation.hidden} - self.layout.shared:
                    size = 4 * operation.x.tensor.rows * operation.adapter.rank
                    data = self.host.fetch(self.layout[name], size)
                    made[name] = int(np.abs(np.frombuffer(data, "<i4").astype(np.int64)).max()) << DROP
        return made

    def _loss(self, training: Training) -> float:
        if not training.head:
            return 0.0
        places = [self.layout[name] for name in self.layout.offsets if rows_of(name, LOSS) is not None]
        found = np.array([np.frombuffer(self.host.fetch(place, 16), "<u8") for place in places])
        total, count = int(found[:, 0].sum()), int((found[:, 1] & 0xFFFFFFFF).sum())
        return total * 2.0**-16 * math.log(2) / max(count, 1)


def place_frozen(training: Training, layout: Layout) -> None:
    """The matrices that a step uses."""
    for operation in training.operations:
        if isinstance(operation, Product) and isinstance(operation.weight, Codes):
            layout.codes(operation.weight)
        elif isinstance(operation, Product) and isinstance(operation.weight, MatrixRows):
            layout.place(HEAD_MATRIX, 2 * training.frozen.words[HEAD_MATRIX].size)


def memory_needed(training: Training, frac: Mapping[str, int], config: LanguageConfig) -> int:
    """Bytes of the window that a step takes, its program included.

    It is a power of two.
    """
    layout = Layout()
    place_frozen(training, layout)
    program = lower(training.operations, frac, layout, config)
    return 1 << (layout.end + 4096 + len(program.code)).bit_length()
