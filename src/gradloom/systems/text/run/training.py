"""A training step on one text: its operations, its inputs, and its tables in floating point and in integers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from gradloom.models.adapters.language.lora_xs import CoreAdapter
from gradloom.models.adapters.language.vectors import Vector
from gradloom.models.adapters.lora import Adapter, LearntModule
from gradloom.models.language import NORM
from gradloom.models.texts.example import foretold, targets_of
from gradloom.program.descent import AdamW
from gradloom.program.operations import needed
from gradloom.rtl.engines.update.parameters import UPDATE_BEATS
from gradloom.rtl.formats.rounding import saturate
from gradloom.rtl.formats.weights.linear import MASTER, WEIGHT
from gradloom.rtl.formats.weights.tiles import fraction_bits, tile_moments, tile_rows

from ..operations.base import SPARE, Operation
from ..operations.blocks.attention import IDENTITY
from ..operations.blocks.head import TARGETS
from ..operations.cores import FACTORS
from ..operations.elements import Add, Loss
from ..operations.exponents import choose
from ..operations.learnt.accumulate import spare_bits
from ..operations.learnt.training import training_operations
from ..operations.learnt.updates import Descent, Pack, Unpack, Widen
from ..operations.products import Gradient, Product
from ..operations.scaling import Narrow, NormBackward, TokenSum
from ..operations.tensors import EDGE, Tensor
from ..operations.transformer import StepOperations
from ..operations.vector import frac_of, norm_weight
from ..operations.vectors import LAST_NORM, last_gains, norms_of
from ..order import arranged
from ..program.layout import ZEROS, Layout
from ..program.sections import rows_of
from ..reference.integers import FloatStep, IntegerStep
from ..stored import packed_words, rebased
from .frozen import Frozen

__all__ = ["KeptBlocks", "Training", "as_bytes", "encoded", "largest"]


@dataclass(frozen=True)
class KeptBlocks:
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
    layers, head : see :class:`~gradloom.systems.text.operations.transformer.StepOperations`. Without a head, ``inputs``
        has ``gradient``.
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
    held : bool
        Of adapters of LoRA B alone learns.
    packed : mapping
        What is stored by its name; made of ``adapters``, and of moments of 0, unless given.
    kept : mapping
        What is in memory of steps before, words and fraction bits by tensor: a text's forward cache. ``x`` among it
        takes the place of the embeddings.
    """

    frozen: Frozen
    tokens: Sequence[int]
    adapters: Mapping[str, LearntModule]
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
    held: bool = False
    packed: Mapping[str, KeptBlocks] = field(default_factory=dict)
    kept: Mapping[str, tuple[np.ndarray, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        learnt = arranged(self.frozen.model, self.adapters)
        self.loras = {name: each for name, each in learnt.items() if isinstance(each, Adapter)}
        self.cores = {name: each for name, each in learnt.items() if isinstance(each, CoreAdapter)}
        self.vectors = {name: each for name, each in learnt.items() if isinstance(each, Vector)}
        self.operations = self._operations()
        self.frozen.load(self.operations)
        #: What is in memory before, and values.
        self.starts = {tensor.name: (tensor, np.asarray(values, np.float64)) for tensor, values in self._starting()}
        self.targets = targets_of(self.tokens)

    def _operations(self) -> list[Operation]:
        model = self.frozen.model
        ranks = {name: each.rank for name, each in (self.loras | self.cores).items()}
        self.step = StepOperations(
            model,
            len(self.tokens),
            ranks,
            self.layers,
            self.head,
            vectors=frozenset(self.vectors),
            texts=self.texts,
            made=frozenset(self.cores),
            foretold=foretold(self.tokens),
            held=self.held,
            head_part=self.frozen.head_part,
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
        rows = min(len(ids), EDGE)
        yield Tensor(IDENTITY, rows, EDGE), np.eye(rows, EDGE)
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
            names = [part.name for part in operation.results if ".turned_p" not in part.name]
            if isinstance(operation, Product) and operation.adapter is not None:
                names.append(operation.hidden)
            if isinstance(operation, Gradient):
                names += map(operation.made, operation.sources)
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
        return [each for each in self.operations if isinstance(each, Add) and each.in_place]

    def _narrows(self) -> list[Narrow]:
        """What makes factors of vectors."""
        return [each for each in self.operations if isinstance(each, Narrow)]

    # ---- in floating point

    def exact(self, *, forward: bool = False) -> FloatStep:
        """The step in float64; ``forward``: as far as the losses need it."""
        tables: dict[str, np.ndarray] = {name: self._norm(name) for name in self._norms()}
        for name, each in self.loras.items():
            tables |= {f"{name}.a": each.a.astype(np.float64), f"{name}.b": each.b * np.float64(each.scale)}
        tables |= {f"{name}.a": core.a.astype(np.float64) for name, core in self.cores.items()} | self.frozen.biases
        # Some are changed in place.
        starts = {name: values.copy() for name, (_, values) in self.starts.items()}
        made = FloatStep(
            starts,
            tables | {TARGETS: self.targets},
            self.frozen.exact,
            turns=partial(self.frozen.model.turns, len(self.tokens), 0),
        )
        ends = [number for number, each in enumerate(self.operations, start=1) if isinstance(each, Loss)]
        made.run(needed(self.operations[: ends[-1]]) if forward and ends else self.operations)
        return made

    def _norms(self) -> list[str]:
        """Weights of norms that do not learn."""
        learnt = self.step.learnt
        names = {
            f"{layer}.{name}": learnt.norm(layer, which)
            for layer in self.layers
            for which, name in norms_of(self.frozen.model).items()
        } | (dict.fromkeys(last_gains(0), LAST_NORM) if self.head else {})
        return [name for name, module in names.items() if module not in self.vectors]

    def _norm(self, name: str) -> np.ndarray:
        gains = last_gains(foretold(self.tokens), self.texts)
        if name in gains:
            return self.frozen.ordered(NORM) * gains[name]
        layer, which = name.split(".")
        named = next(each for each, short in norms_of(self.frozen.model).items() if short == which)
        return self.frozen.ordered(f"model.layers.{layer}.{named}.weight")

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
            (each for each in self.operations if not (isinstance(each, Add) and each.in_place)),
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
        made |= self.frozen.angles(self.operations, len(self.tokens)) | self.frozen.added(self.operations)
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
                if self.held and which == "a":
                    continue
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


def largest(made: FloatStep) -> dict[str, float]:
    """Largest magnitude of every tensor of a step."""
    return {name: float(np.abs(values).max(initial=0.0)) for name, values in made.values.items()}


def encoded(values: np.ndarray, frac: int, form: Any) -> np.ndarray:
    return saturate(np.rint(np.asarray(values, np.float64) * 2.0**frac), form.lo, form.hi)[0]
