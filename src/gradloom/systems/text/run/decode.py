"""Decode requests during a training step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from gradloom.firmware.device.host import Served
from gradloom.program.assembler import Assembler
from gradloom.program.memory import PAGE, rounded
from gradloom.rtl.formats.weights.tiles import tile_rows, untile_rows

from ..operations.decode import Decode
from ..operations.tensors import EDGE, Tensor
from ..program.layout import Layout
from ..program.step import lower
from ..reference.integers import Execution, FloatStep, IntegerStep
from .section_cycles import kept_spacing
from .step import StepMachine, StepRun, place_frozen
from .training import Training, as_bytes, encoded

__all__ = ["Answered", "Decoding", "Loaded", "beside"]


@dataclass(frozen=True)
class Loaded:
    """A request in memory: its program, its offset and its tensors."""

    start: int
    program: Assembler
    layout: Layout


@dataclass
class Decoding:
    """Tokens behind a text.

    Parameters
    ----------
    prompt : Training
        The text, padded to the cache's rows; gives model, adapters and layers.
    frac : mapping
        Its fraction bits.
    position : int
        Tokens before these.
    tokens : sequence of int
    coded : bool
        The head is in codes.
    whole : bool
        All rows of the cache are read: see :class:`~..operations.decode.Decode`.
    """

    prompt: Training
    frac: Mapping[str, int]
    position: int
    tokens: Sequence[int]
    coded: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        self.decode = Decode(
            self.prompt.step,
            self.position,
            self.whole,
            getattr(self.prompt, "instant", None),
            self.coded,
            len(self.tokens),
        )
        self.prompt.frozen.load(self.decode.operations)
        self.fracs = self.decode.fracs({**self.prompt.frozen.frac, **self.frac})

    @cached_property
    def cache(self) -> dict[str, Tensor]:
        """Tensors that the tokens read and add rows to."""
        return {
            each.name: each
            for layer in self.prompt.step.layers
            for which in "kv"
            for each in self.decode.cache(layer, which)
        }

    @property
    def _x(self) -> np.ndarray:
        return self.prompt.frozen.embedding[list(self.tokens)].astype(np.float64)

    def _kept(self, before: Execution | None) -> dict[str, np.ndarray]:
        """The cache as it was before; rows that nobody wrote are 0."""
        made: dict[str, np.ndarray] = {}
        values = {} if before is None else before.values
        kind = next((each.dtype for each in values.values()), np.dtype(np.int64))
        for name, tensor in self.cache.items():
            held = values.get(name)
            made[name] = np.zeros((tensor.rows, tensor.features), kind) if held is None else held.copy()
            # The tensor that takes the tokens' rows has its place in the cache.
            made[self.decode.own(tensor).name] = made[name]
        return made

    def exact(self, before: FloatStep) -> FloatStep:
        """In float64, behind the prompt or the token before."""
        made = FloatStep(
            self._kept(before) | {self.decode.input.name: self._x},
            before.tables,
            before.matrix,
            turns=partial(self.prompt.frozen.model.turns, len(self.tokens), self.position),
        )
        made.run(self.decode.operations)
        return made

    def tables(self) -> dict[str, np.ndarray]:
        """Words that the request does not make."""
        made = self.prompt.tables(self.frac)
        frozen, operations = self.prompt.frozen, self.decode.operations
        return made | frozen.angles(operations, len(self.tokens), self.position) | frozen.added(operations)

    @property
    def words(self) -> np.ndarray:
        """Words of the tokens' embeddings."""
        return encoded(self._x, self.fracs[self.decode.input.name], self.decode.input.form)

    def integers(self, before: IntegerStep | None) -> IntegerStep:
        """By the bit-exact reference, behind the prompt or the token before; None: behind nothing."""
        starts = {
            name: encoded(values, self.frac[name], tensor.form) for name, (tensor, values) in self.prompt.starts.items()
        }
        values = starts | self._kept(before) | {self.decode.input.name: self.words}
        made = IntegerStep(values, self.tables(), self.prompt.frozen.matrix, frac=self.fracs)
        made.run(self.decode.operations)
        return made

    # ---- in RTL

    def load(self, machine: StepMachine, before: IntegerStep) -> Loaded:
        """Puts the request behind the contents of ``machine``.

        It shares the frozen matrices of ``machine``, and brings those that the step lacks. The cache has the state of
        ``before``, and the request's writes go to tensors of its own.
        """
        layout = machine.frozen.copy()
        layout.used = rounded(machine.end, PAGE)
        program = lower(self.decode.operations, self.fracs, layout, machine.config)
        for name in layout.offsets.keys() & self.prompt.frozen.held.keys() - machine.held:
            machine.host.store(layout[name], self.prompt.frozen.stream(name, machine.config))
        machine.host.store(layout.tensor(self.decode.input), tile_rows(self.words, EDGE))
        for name, held in self._kept(before).items():
            machine.host.store(layout.tensor(self.cache[name]), tile_rows(held, EDGE))
        for name, data in as_bytes(self.tables()).items():
            if name in layout.offsets:
                machine.host.store(layout[name], data)
        start = rounded(layout.end, PAGE)
        machine.host.store(start, program.code)
        machine.end = start + len(program.code)
        return Loaded(start, program, layout)

    def values(self, machine: StepMachine, loaded: Loaded) -> dict[str, np.ndarray]:
        """Memory contents of every tensor that the request makes.

        The cache is included.
        """
        tensors = self.cache | {part.name: part.tensor for each in self.decode.operations for part in each.results}
        return {
            name: untile_rows(
                machine.host.fetch(loaded.layout.tensor(each), 4 * each.rows * each.features),
                each.rows,
                each.features,
                EDGE,
            )
            for name, each in tensors.items()
        }


@dataclass(frozen=True)
class Answered:
    """A request beside a step.

    It has the time of the request, cycles of the device; the waiting time and the run time; its words.
    """

    moment: int
    served: Served
    values: dict[str, np.ndarray]


def beside(
    machine: StepMachine,
    training: Training,
    frac: Mapping[str, int],
    tokens: Sequence[tuple[Decoding, IntegerStep]],
    moments: Sequence[int],
    *,
    bound: int,
) -> tuple[StepRun, list[Answered]]:
    """Runs a step that yields, with requests beside it.

    There is a request for each of ``tokens`` (and the state before it), from about the cycle in ``moments`` on, one
    behind the other. By forecast, none waits longer than ``bound`` cycles.
    """
    place_frozen(training, machine.frozen)
    every, _ = kept_spacing(lambda every: machine.lowered(training, frac, yield_every=every)[1], bound, machine.config)
    start, program = machine.load(training, frac, yield_every=every)
    loaded = [each.load(machine, before) for each, before in tokens]
    device, host = machine.device, machine.host
    begin = device.cycles
    host.start(start, len(program))
    found = []
    for (decoding, _), request, moment in zip(tokens, loaded, moments, strict=True):
        device.advance(max(moment - (device.cycles - begin), 1))
        rung = device.cycles - begin
        host.request(request.start, len(request.program))
        found.append((decoding, request, rung, host.wait_request(timeout=36000)))
    counters = host.wait(timeout=36000)
    requests = [each.program for each in loaded]
    return machine.interrupted(training, counters, program, start, requests), [
        Answered(rung, served, decoding.values(machine, request)) for decoding, request, rung, served in found
    ]
