"""One training step in floating point, in integers, and in RTL."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.firmware.host import Accelerator, Counters
from gradloom.models.adapters.lora import Adapter, Learnt
from gradloom.models.adapters.lora_xs import CoreAdapter
from gradloom.models.adapters.vectors import Vector
from gradloom.models.language import EMBEDDING, HEAD, NORM, LanguageModel
from gradloom.models.pack import QuantizedLinear
from gradloom.models.texts.example import foretold, targets_of
from gradloom.program.assembler import Assembler, Instruction
from gradloom.program.descent import AdamW
from gradloom.program.memory import PAGE, rounded
from gradloom.program.placed import Written
from gradloom.rtl.engines.update.parameters import UPDATE_BEATS
from gradloom.rtl.formats.blocks import dequantize_scales
from gradloom.rtl.formats.linear import MASTER, WEIGHT
from gradloom.rtl.formats.rounding import saturate
from gradloom.rtl.formats.tiles import fraction_bits, tile_moments, tile_rows, untile_moments, untile_rows
from gradloom.rtl.formats.vector import FACTOR_FRAC
from gradloom.rtl.formats.weight_stream import BOOKS, pack_stream
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.sim.reference import linear as reference
from gradloom.sim.run.counted import MismatchError, check_words
from gradloom.sim.run.device import SimulatedDevice
from gradloom.sim.run.machine import Machine, Ran

from ..integers import FloatStep, IntegerStep
from ..mathematics import rope_angles
from ..operations.accumulate import spare_bits
from ..operations.base import DROP, SPARE, Operation
from ..operations.cores import FACTORS
from ..operations.elements import Add, Rope
from ..operations.exponents import choose
from ..operations.products import Gradient, Product
from ..operations.scaling import Narrow, NormBackward, TokenSum
from ..operations.tensors import EDGE, Codes, Halves, Tensor
from ..operations.training import training_operations
from ..operations.transformer import HEAD_MATRIX, IDENTITY, LOSS, TARGETS, Step
from ..operations.updates import Descent, Pack, Unpack, Widen
from ..operations.vector import frac_of, norm_weight
from ..operations.vectors import LAST_NORM, NORMS, last_gains
from ..program.sections import rows_of
from ..program.step import ZEROS, Layout, lower
from ..stored import packed_words, rebased
from .linear import linear_machine

__all__ = [
    "Frozen",
    "Kept",
    "StepMachine",
    "StepRun",
    "Training",
    "encoded",
    "largest",
    "memory_needed",
    "place_frozen",
    "as_bytes",
]

#: A word of the head has so many bits less than a weight.
_HALF = WEIGHT.width - 16


@dataclass
class Frozen:
    """The parts of a model that never change, as floats and as words.

    Parameters
    ----------
    model : LanguageModel
    tensor : callable
        A tensor by Hugging Face's name.
    linear : callable
        A quantised linear by its name.
    """

    model: LanguageModel
    tensor: Callable[[str], np.ndarray]
    linear: Callable[[str], QuantizedLinear]
    held: dict[str, QuantizedLinear] = field(default_factory=dict)
    words: dict[str, np.ndarray] = field(default_factory=dict)
    frac: dict[str, int] = field(default_factory=dict)
    saturated: dict[str, int] = field(default_factory=dict)

    def load(self, operations: Sequence[Operation]) -> None:
        """Makes words of the matrices that the operations use."""
        for operation in operations:
            if isinstance(operation, Product) and isinstance(operation.weight, Codes):
                self._codes(operation.weight.name)
            elif isinstance(operation, Product) and isinstance(operation.weight, Halves):
                self._head()

    def _codes(self, name: str) -> None:
        if name in self.words:
            return
        held = self.held[name] = self.linear(name)
        largest = np.abs(dequantize_scales(held.scale_codes, held.absmax2, held.offset)).max()
        self.frac[name] = fraction_bits(largest, WEIGHT.width)
        words, self.saturated[name] = reference.decoded(
            held.codes,
            held.scale_codes.reshape(len(held.codes), -1),
            held.absmax2,
            held.offset,
            frac=self.frac[name],
            book=BOOKS[held.shape.bits],
        )
        self.words[name] = words.astype(np.int32)

    def _head(self) -> None:
        if HEAD_MATRIX in self.words:
            return
        head = self.head
        frac = fraction_bits(head, 16)
        self.frac[HEAD_MATRIX] = frac + _HALF
        words = np.clip(np.rint(head * 2.0**frac), -(1 << 15), (1 << 15) - 1)
        self.words[HEAD_MATRIX] = words.astype(np.int32) << _HALF

    @cached_property
    def embedding(self) -> np.ndarray:
        """A row a token; every step takes some."""
        return self.tensor(EMBEDDING)

    @cached_property
    def head(self) -> np.ndarray:
        """The head's matrix, its rows padded to whole tiles."""
        head = self.embedding if self.model.tied else self.tensor(HEAD)
        return np.pad(head, ((0, -len(head) % EDGE), (0, 0)))

    def matrix(self, weight: Codes | Halves) -> np.ndarray:
        """Words of a matrix, or of some of its rows."""
        words = self.words[weight.name]
        return words[weight.first : weight.first + weight.outputs] if isinstance(weight, Halves) else words

    def exact(self, weight: Codes | Halves) -> np.ndarray:
        """The same as floats, as the model means them."""
        if isinstance(weight, Halves):
            return self.head[weight.first : weight.first + weight.outputs].astype(np.float64)
        return self.held[weight.name].weight().astype(np.float64)

    def stream(self, name: str) -> bytes:
        """A matrix as it lies in memory."""
        if name == HEAD_MATRIX:
            words = (self.words[name] >> _HALF).astype("<i2")
            return words.reshape(len(words) // EDGE, EDGE, -1, EDGE).swapaxes(1, 2).tobytes()
        held = self.held[name]
        return pack_stream(held.shape, held.codes, held.scale_codes, held.absmax2, held.offset).tobytes()


@dataclass(frozen=True)
class Kept:
    """Blocks of codes, and the fraction bits of their words.

    Moments have none.
    """

    data: np.ndarray
    frac: int


@dataclass
class Training:
    """One step on one text, prepared.

    It has operations, tables, and the step's inputs.

    Parameters
    ----------
    frozen : Frozen
    tokens : sequence of int
        The text; of an :class:`~gradloom.models.texts.example.Example` some tokens alone are learnt.
    adapters : mapping
        By linear; vectors by module.
    layers, head : see :class:`~gradloom.systems.text.operations.transformer.Step`. Without a head, ``inputs`` has
        ``gradient``.
    inputs : mapping, optional
        ``x``, instead of the embeddings, and ``gradient``.
    rule : optional
        SGD's rate, or AdamW; without, adapters stay.
    number : int
        Of the update, from 1 on.
    moments : mapping, optional
        AdamW's, float32's bits, ``NAME.ma`` and ``NAME.mb``, of a vector ``NAME.mw``; zeros unless given.
    texts : int
        Whose gradients an update is made of. With more than one, they are added to ``sums``, and only the last of them
        has a ``rule``.
    sums : mapping, optional
        Of the texts before, words and fraction bits by ``NAME.sa``, ``NAME.sb`` and ``NAME.sw``; zeros unless given.
    wide : bool, optional
        Adapters and moments are stored as blocks of codes of 8 bits, or, False, of 4.
    plus : float
        Factor of the rate of B.
    packed : mapping
        What is stored by its name; made of ``adapters``, and of moments of 0, unless given.
    kept : mapping
        What is in memory of steps before, words and fraction bits by tensor: a text's forward cache. ``x`` among it
        takes the place of the embeddings.
    """

    frozen: Frozen
    tokens: Sequence[int]
    adapters: Mapping[str, Learnt]
    layers: Sequence[int]
    head: bool = True
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    rule: float | AdamW | None = None
    number: int = 1
    moments: Mapping[str, np.ndarray] = field(default_factory=dict)
    texts: int = 1
    sums: Mapping[str, tuple[np.ndarray, int]] = field(default_factory=dict)
    wide: bool | None = None
    plus: float = 1.0
    packed: Mapping[str, Kept] = field(default_factory=dict)
    kept: Mapping[str, tuple[np.ndarray, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.loras = {name: each for name, each in self.adapters.items() if isinstance(each, Adapter)}
        self.cores = {name: each for name, each in self.adapters.items() if isinstance(each, CoreAdapter)}
        self.vectors = {name: each for name, each in self.adapters.items() if isinstance(each, Vector)}
        self.operations = self._operations()
        self.frozen.load(self.operations)
        #: What is in memory before, and values.
        self.starts = {tensor.name: (tensor, np.asarray(values, np.float64)) for tensor, values in self._starting()}
        self.targets = targets_of(self.tokens)

    def _operations(self) -> list[Operation]:
        model = self.frozen.model
        ranks = {name: each.rank for name, each in (self.loras | self.cores).items()}
        self.step = Step(
            model,
            len(self.tokens),
            ranks,
            self.layers,
            self.head,
            vectors=frozenset(self.vectors),
            texts=self.texts,
            made=frozenset(self.cores),
            foretold=foretold(self.tokens),
        )
        scales = {name: each.scale for name, each in self.loras.items()}
        return training_operations(
            self.step, scales, self.rule, self.number, texts=self.texts, wide=self.wide, plus=self.plus
        )

    def _starting(self) -> Iterator[tuple[Tensor, np.ndarray]]:
        ids, entry = np.asarray(self.tokens), self.step.input
        if entry.name in self.kept:
            words, frac = self.kept[entry.name]
            yield entry, words * 2.0**-frac
        else:
            yield entry, self.inputs["x"] if "x" in self.inputs else self.frozen.embedding[ids]
        yield Tensor(IDENTITY, len(ids), EDGE), np.eye(len(ids), EDGE)
        if not self.head:
            yield self.step.gradient, self.inputs["gradient"]
        for module in dict.fromkeys(each.words.name.removesuffix(".w") for each in self._narrows()):
            yield self.step.learnt.words(module), self.vectors[module].values.astype(np.float64)[None]
        for name, core in self.cores.items():
            b = core.b.T * np.float64(core.scale)
            yield self.step.cores.words(name), np.pad(core.r.T.astype(np.float64), ((0, 0), (0, EDGE - core.rank)))
            for which, factor in zip(FACTORS, (-b, b)):
                yield self.step.cores.frozen(name, len(core.b), which), factor
        for total in (add.y.tensor for add in self._sums()):
            words, frac = self.sums.get(total.name, (np.zeros((total.rows, total.features)), 0))
            yield total, words * 2.0**-frac

    @cached_property
    def averaged(self) -> Mapping[str, float]:
        """Tensors that are means over the tokens that are learnt, and the share of all tokens that these are.

        Such a tensor is larger by the inverse of its share than where all are learnt.
        """
        share = foretold(self.tokens) / (len(self.tokens) - 1)
        means, found = False, dict[str, float]()
        for operation in self.operations:
            means |= isinstance(operation, NormBackward) and operation.weight == "norm.back"
            if not means:
                continue
            names = [part.name for part in operation.results if not part.name.endswith(".turned_p")]
            if isinstance(operation, Product) and operation.adapter is not None:
                names.append(operation.hidden)
            if isinstance(operation, Gradient):
                names += [f"{operation.adapter.name}.{which}" for which in operation.sources]
            found |= dict.fromkeys(names, share)
        return found

    @property
    def known(self) -> Mapping[str, int]:
        """Fraction bits of the tensors that earlier steps left in memory.

        Those tensors stay as they are.
        """
        return {name: frac for name, (_, frac) in self.kept.items()}

    def _sums(self) -> list[Add]:
        """Operations that add gradients to those of earlier texts."""
        return [each for each in self.operations if isinstance(each, Add) and each.lazy]

    def _narrows(self) -> list[Narrow]:
        """What makes factors of vectors."""
        return [each for each in self.operations if isinstance(each, Narrow)]

    # ---- in floating point

    def exact(self, *, until: type | None = None) -> FloatStep:
        """The step in float64.

        With ``until``, only up to the first operation of this kind.
        """
        tables: dict[str, np.ndarray] = {name: self._norm(name) for name in self._norms()}
        for name, each in self.loras.items():
            tables |= {f"{name}.a": each.a.astype(np.float64), f"{name}.b": each.b * np.float64(each.scale)}
        tables |= {f"{name}.a": core.a.astype(np.float64) for name, core in self.cores.items()}
        model = self.frozen.model
        # Some are changed in place.
        starts = {name: values.copy() for name, (_, values) in self.starts.items()}
        made = FloatStep(
            starts,
            tables | {TARGETS: self.targets},
            self.frozen.exact,
            angles=rope_angles(len(self.tokens), EDGE, model.rope_theta, np.float64),
        )
        ends = (n for n, each in enumerate(self.operations, start=1) if until is not None and isinstance(each, until))
        made.run(self.operations[: next(ends, None)])
        return made

    def _norms(self) -> list[str]:
        """Weights of norms that do not learn."""
        learnt = self.step.learnt
        names = {
            f"{layer}.{name}": learnt.norm(layer, which) for layer in self.layers for which, name in NORMS.items()
        } | (dict.fromkeys(last_gains(0), LAST_NORM) if self.head else {})
        return [name for name, module in names.items() if module not in self.vectors]

    def _norm(self, name: str) -> np.ndarray:
        gains = last_gains(foretold(self.tokens), self.texts)
        if name in gains:
            return self.frozen.tensor(NORM).astype(np.float64) * gains[name]
        layer, which = name.split(".")
        named = next(each for each, short in NORMS.items() if short == which)
        return self.frozen.tensor(f"model.layers.{layer}.{named}.weight").astype(np.float64)

    # ---- in integers

    def fracs(self, largest: Mapping[str, float], *, headroom: int) -> dict[str, int]:
        """Fraction bits of all tensors, which reach ``largest``."""
        given = dict(self.frozen.frac)
        for name in self._norms():
            given[name] = norm_weight(self._norm(name))[1]
        for name, each in self.loras.items():
            for which, values in (("a", each.a), ("b", each.b * each.scale)):
                given[f"{name}.{which}"] = fraction_bits(values, WEIGHT.width, headroom=1)
        given |= {f"{name}.a": fraction_bits(core.a, WEIGHT.width) for name, core in self.cores.items()}
        for name, (tensor, values) in self.starts.items():
            given[name] = frac_of(float(np.abs(values).max()) or 1.0, tensor.form)
        given |= self.known
        for narrow in self._narrows():
            factors = self.starts[narrow.words.name][1] * narrow.gain.value
            given[narrow.y.name] = fraction_bits(factors, WEIGHT.width, headroom=1)
        sums = self._sums()
        frac = choose(
            (each for each in self.operations if not (isinstance(each, Add) and each.lazy)),
            largest,
            given,
            headroom=headroom,
        )
        for add in sums:
            frac[add.y.name] = (
                self.sums[add.y.name][1] if add.y.name in self.sums else frac[add.b.name] - spare_bits(self.texts)
            )
        return choose(sums, largest, frac, headroom=headroom)

    def tables(self, frac: Mapping[str, int]) -> dict[str, np.ndarray]:
        """Words that the step does not make: norms, angles, targets, adapters."""
        made = {name: norm_weight(self._norm(name))[0] for name in self._norms()}
        angles = np.concatenate(rope_angles(len(self.tokens), EDGE, self.frozen.model.rope_theta, np.float64), axis=1)
        for operation in self.operations:
            if isinstance(operation, Rope):
                made[operation.angles.name] = np.rint(angles * operation.angles.gain * 2.0**FACTOR_FRAC).astype(
                    np.int64
                )
        made[TARGETS] = self.targets
        for operation in self.operations:
            if isinstance(operation, Narrow):
                made[operation.gain.name] = np.full(EDGE, operation.gain.word)
            elif isinstance(operation, TokenSum):
                # Of two rank indices, a token each: the second is nothing.
                made[f"{operation.gain.name}.{operation.x.rows}"] = np.tile([operation.gain.word, 0], operation.x.rows)
            elif isinstance(operation, Descent):
                zeros = np.zeros((2, operation.words.rows, operation.words.tensor.features), np.int64)
                made[operation.moments] = self.moments.get(operation.moments, zeros)
            elif isinstance(operation, Widen):
                made[ZEROS] = np.zeros(UPDATE_BEATS * EDGE, np.int64)
        for name, core in self.cores.items():
            made[f"{name}.a"] = encoded(core.a, frac[f"{name}.a"] + SPARE, MASTER)
        if self.wide is not None:
            return made | self._stored(frac)
        for name, each in self.loras.items():
            for which, values in (("a", each.a), ("b", each.b * each.scale)):
                made[f"{name}.{which}"] = encoded(values, frac[f"{name}.{which}"] + SPARE, MASTER)
                size = values.shape if which == "a" else values.shape[::-1]
                made[f"{name}.m{which}"] = self.moments.get(f"{name}.m{which}", np.zeros((2, *size), np.int64))
        return made

    def _stored(self, frac: Mapping[str, int]) -> dict[str, np.ndarray]:
        """Stored adapters, as bytes.

        The step makes words of them.
        """
        made = {}
        for operation in self.operations:
            if not isinstance(operation, Unpack) or isinstance(operation, Pack):
                continue
            for each in operation.tensors():
                kept, own = self.packed.get(each.packed), 0 if each.moments else frac[each.name] + SPARE
                if kept is not None:
                    made[each.packed] = rebased(each, kept.data, own - kept.frac)
                elif each.moments:
                    made[each.packed] = packed_words(each, np.zeros((2, each.rank, each.features), np.int64), 0)
                else:
                    held = self.loras[operation.adapter.name]
                    values = held.a if each.name.endswith(".a") else held.b.T * held.scale
                    made[each.packed] = packed_words(each, encoded(values, own, MASTER), 0)
        return made

    def integers(self, frac: Mapping[str, int], tell: Callable[[str], None] | None = None) -> IntegerStep:
        """The step by the bit-exact reference."""
        values = {name: encoded(each, frac[name], tensor.form) for name, (tensor, each) in self.starts.items()}
        made = IntegerStep(values, self.tables(frac), self.frozen.matrix, frac=frac)
        made.run(self.operations, tell)
        return made

    # ---- in memory

    def start_data(self, frac: Mapping[str, int]) -> dict[str, bytes]:
        """Data of the text that is not in memory yet, by name.

        They include sums of the texts before it. They are as memory has them.
        """
        return {
            name: tile_rows(encoded(values, frac[name], tensor.form), EDGE)
            for name, (tensor, values) in self.starts.items()
            if name not in self.known
        }

    def data(self, frac: Mapping[str, int]) -> dict[str, bytes]:
        """Data that the step does not make, by name.

        They are as memory has them; the frozen matrices are not included.
        """
        return self.start_data(frac) | as_bytes(self.tables(frac))

    def memory(self, frac: Mapping[str, int], layout: Layout) -> dict[int, bytes]:
        """The same by offset, as far as ``layout`` has a place for it."""
        data = self.data(frac)
        # A part of the loss has targets of its own.
        parts = {name: first for name in layout.offsets if (first := rows_of(name, TARGETS))}
        data |= as_bytes({name: self.targets[first:] for name, first in parts.items()})
        data |= {f"{TARGETS}@0": data[TARGETS]}
        return {
            layout[name]: each[: layout.sizes.get(name, len(each))]
            for name, each in data.items()
            if name in layout.offsets
        }


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
    def counters(self) -> Counters:
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
    """

    def __init__(
        self,
        config: LanguageConfig,
        *,
        memory_bytes: int = 1 << 28,
        device: SimulatedDevice | None = None,
        tell: Callable[[str], None] | None = None,
        files: Sequence[Path] = (),
    ) -> None:
        self.config = config
        self.machine = (
            linear_machine(config, memory_bytes, tell, files) if device is None else Machine(Accelerator(device))
        )
        self.host: Any = self.machine.host
        self.device: Any = self.machine.device
        #: Of what stays, and of that with the last step's tensors behind it.
        self.frozen = self.layout = Layout()
        self.held: set[str] = set()
        #: Where nothing is yet, neither the step's nor, behind it, of requests.
        self.end = 0

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
                self.host.store(offset, frozen.stream(name))
                self.held.add(name)
        layout, program = self.lowered(training, frac, places, yield_every=yield_every, share=share)
        self.layout = layout
        for offset, data in training.memory(frac, layout).items():
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
        self, training: Training, counters: Counters, program: Assembler, start: int, requests: Sequence[Assembler]
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
        sizes = {
            part.name: (part.rows, part.tensor.features)
            for operation in training.operations
            for part in operation.results
        }
        for operation in training.operations:
            if isinstance(operation, Gradient):
                name, rank = operation.adapter.name, operation.adapter.rank
                for kind in ("g",) if training.rule is None or operation.adapter.made else ("", "g"):
                    for which, (_, part) in operation.sources.items():
                        sizes[f"{name}.{which.replace('g', kind)}"] = rank, part.tensor.features
        sizes = {name: size for name, size in sizes.items() if name not in self.layout.shared}
        found = {
            name: untile_rows(self.host.fetch(self.layout[name], 4 * rows * features), rows, features, EDGE)
            for name, (rows, features) in sizes.items()
        }
        moments: dict[str, tuple[int, int]] = {}
        if isinstance(training.rule, AdamW) and training.wide is None:
            moments = {f"{name}.m{which}": sizes[f"{name}.{which}"] for name in training.loras for which in "ab"}
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
                    data = self.host.fetch(self.layout[name], 4 * operation.x.rows * operation.adapter.rank)
                    made[name] = int(np.abs(np.frombuffer(data, "<i4").astype(np.int64)).max()) << DROP
        return made

    def _loss(self, training: Training) -> float:
        if not training.head:
            return 0.0
        places = [self.layout[name] for name in self.layout.offsets if rows_of(name, LOSS) is not None]
        found = np.array([np.frombuffer(self.host.fetch(place, 16), "<u8") for place in places])
        total, count = int(found[:, 0].sum()), int((found[:, 1] & 0xFFFFFFFF).sum())
        return total * 2.0**-16 * math.log(2) / max(count, 1)


def as_bytes(tables: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    """Words that no operation makes, as they lie in memory."""
    made = {}
    for name, words in tables.items():
        if words.dtype == np.uint8:
            made[name] = words.tobytes()
        elif words.ndim == 3:
            made[name] = tile_moments(words[0], words[1], EDGE)
        elif words.ndim == 1:
            whole = words if rows_of(name, TARGETS) is None else np.where(words < 0, 1 << 31, words)
            made[name] = whole.astype(np.int64).astype("<u4").tobytes()
        else:
            made[name] = tile_rows(words.T if name.endswith(".b") else words, EDGE)
    return made


def place_frozen(training: Training, layout: Layout) -> None:
    """The matrices that a step uses."""
    for operation in training.operations:
        if isinstance(operation, Product) and isinstance(operation.weight, Codes):
            layout.codes(operation.weight)
        elif isinstance(operation, Product) and isinstance(operation.weight, Halves):
            layout.place(HEAD_MATRIX, 2 * training.frozen.words[HEAD_MATRIX].size)


def memory_needed(training: Training, frac: Mapping[str, int], config: LanguageConfig) -> int:
    """Bytes of the window that a step takes, its program included.

    It is a power of two.
    """
    layout = Layout()
    place_frozen(training, layout)
    program = lower(training.operations, frac, layout, config)
    return 1 << (layout.end + 4096 + len(program.code)).bit_length()


def largest(made: FloatStep) -> dict[str, float]:
    """Largest magnitude of every tensor of a step."""
    return {name: float(np.abs(values).max(initial=0.0)) for name, values in made.values.items()}


def encoded(values: np.ndarray, frac: int, form: Any) -> np.ndarray:
    return saturate(np.rint(np.asarray(values, np.float64) * 2.0**frac), form.lo, form.hi)[0]
