"""InstantFT of a language model: forward cache and steps.

It runs in floating point, in integers, and in RTL.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.models.adapters.lora import Adapter, finite
from gradloom.program.descent import AdamW, at_rate, scaled
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.systems.job import BoardHost

from ...rates import CONSTANT, Schedule
from ..operations.base import Operation
from ..operations.instant import A, B, InstantStep
from ..operations.learnt.updates import Descent
from ..operations.tensors import EDGE, Tensor
from ..program.layout import Layout
from ..program.step import lower
from ..program.traffic import base_bytes
from ..reference.optimizers import Optimizer, optimizer_state, restore_optimizer
from .forward_cache import Kept, Places, Text, brought_back, reserved
from .frozen import Frozen
from .step import StepMachine, place_frozen
from .trainer import StepResult, execute, follow, foretold
from .training import Training

__all__ = ["Filling", "InstantTrainer", "InstantTraining", "arranged", "instant_machine"]


@dataclass(kw_only=True)
class Filling(Training):
    """The blocks of a text forward; makes the text's cache."""

    instant: InstantStep
    adapters: Mapping[str, Adapter] = field(default_factory=dict)
    head: bool = False

    def _operations(self) -> list[Operation]:
        self.step = self.instant.base
        return self.instant.fill()

    def _starting(self) -> Iterator[tuple[Tensor, np.ndarray]]:
        yield self.step.input, self.frozen.embedding[np.asarray(self.tokens)]


@dataclass(kw_only=True)
class InstantTraining(Training):
    """A step from a text's forward cache, which it makes first where nothing is kept.

    Parameters
    ----------
    instant : InstantStep
    blocks : mapping
        Adapters by block, ``A [rank, hidden]`` and ``B [hidden, rank]``.
    others : see :class:`~.step.Training`; ``moments`` by the names that operations give them. Of the cache in floating
        point, ``kept`` has values and 0.
    """

    instant: InstantStep
    blocks: Mapping[int, Adapter]
    adapters: Mapping[str, Adapter] = field(default_factory=dict)

    def _operations(self) -> list[Operation]:
        self.step = self.instant.base
        rules = None
        if self.rule is not None:
            rules = self.rule, scaled(self.rule, self.blocks[self.layers[0]].scale)
        filling = [] if self.kept else self.instant.fill()
        return filling + self.instant.operations(rules, self.number)

    def _starting(self) -> Iterator[tuple[Tensor, np.ndarray]]:
        yield from self.instant.constants().items()
        yield from self.instant.stacked(self.blocks).items()
        if not self.kept:
            yield self.step.input, self.frozen.embedding[np.asarray(self.tokens)]
        for tensor in self.instant.cached if self.kept else ():
            words, frac = self.kept[tensor.name]
            yield tensor, words * 2.0**-frac

    def _norms(self) -> list[str]:
        return ["norm", "norm.back"] if self.kept else super()._norms()

    def tables(self, frac: Mapping[str, int]) -> dict[str, np.ndarray]:
        """With the moments."""
        made = super().tables(frac)
        for each in self.operations:
            if isinstance(each, Descent):
                size = 2, each.words.rows, each.words.tensor.features
                made[each.moments] = self.moments.get(each.moments, np.zeros(size, np.int64))
        return made


@dataclass
class InstantTrainer:
    """Adapters that learn; what must outlive a step.

    Parameters
    ----------
    frozen : Frozen
    adapters : dict
        By block; replaced step by step.
    layers : sequence of int
    rule : SGD's rate, or AdamW; or an optimiser in floating point, with which all is computed in float64
    machine : StepMachine, optional
        Where programs run (:func:`instant_machine`); without, by the reference.
    schedule : Schedule
        Of the rate.
    rows : int
        Rows of a tensor at most, see :class:`~gradloom.systems.text.operations.instant.InstantStep`.
    """

    frozen: Frozen
    adapters: dict[int, Adapter]
    layers: Sequence[int]
    rule: float | AdamW | Optimizer
    machine: StepMachine | None = None
    rows: int = EDGE
    number: int = 0
    moments: dict[str, np.ndarray] = field(default_factory=dict)
    #: What is kept of each text, and where it lies in the machine's memory.
    cache: dict[Text, Kept] = field(default_factory=dict)
    places: Places = field(default_factory=dict)
    schedule: Schedule = CONSTANT
    #: What tensors reached, of each program.
    filled: dict[str, float] = field(default_factory=dict)
    learnt: dict[str, float] = field(default_factory=dict)
    #: Adapters before the last update.
    before: dict[int, Adapter] = field(default_factory=dict)

    @cached_property
    def exact(self) -> bool:
        """Whether all is in floating point."""
        return not isinstance(self.rule, float | int | AdamW)

    def instant(self, tokens: Sequence[int]) -> InstantStep:
        """The operations on a text."""
        held, rank = self.frozen, self.adapters[self.layers[0]].rank
        return InstantStep(held.model, len(tokens), rank, self.layers, self.rows, held.head_part)

    def filling(self, tokens: Sequence[int]) -> Filling:
        """The step that makes a text's cache."""
        return Filling(self.frozen, tokens, layers=self.layers, instant=self.instant(tokens))

    def learning(self, tokens: Sequence[int], kept: Kept) -> InstantTraining:
        """The next step on a text."""
        rule = None
        if not self.exact:
            assert isinstance(self.rule, float | int | AdamW)
            rule = at_rate(self.rule, self.schedule.factor(self.number + 1))
        return InstantTraining(
            self.frozen,
            tokens,
            layers=self.layers,
            instant=self.instant(tokens),
            blocks=self.adapters,
            kept=kept,
            rule=rule,
            number=self.number + 1,
            moments=self.moments,
        )

    def cache_bytes(self, tokens: Sequence[int]) -> int:
        """What is kept of a text."""
        return self.instant(tokens).cache_bytes

    def update(self, texts: Sequence[Sequence[int]], tell: Callable[[str], None] | None = None) -> StepResult:
        """One update from one text.

        A loss or an adapter that is not finite is refused: the adapters before the update that led there stay.
        """
        kept, self.before = self.before or dict(self.adapters), dict(self.adapters)
        made = self.step(texts[0], tell)
        if not (math.isfinite(made.loss) and finite(self.adapters)):
            self.adapters = self.before if math.isfinite(made.loss) else kept
            raise ValueError("the next loss or adapter is not finite")
        return made

    def step(self, tokens: Sequence[int], tell: Callable[[str], None] | None = None) -> StepResult:
        """One update from one text, whose blocks run only if it is new.

        Cycles and bytes are of both programs.
        """
        fill = self.fill(tokens, tell)
        training = self.learning(tokens, self.cache[tuple(tokens)])
        if self.exact:
            made = self._in_float(training)
        else:
            frac = self.fracs(training, self.learnt, tell)
            made, reached = execute(training, frac, self.machine, tell, self.places.get(tuple(tokens)))
            follow(self.learnt, reached)
            self.moments = {
                each.moments: made.values[each.moments]
                for each in training.operations
                if isinstance(each, Descent) and each.moments in made.values
            }
            self._learn(training.instant, made.values[A] * 2.0 ** -frac[A], made.values[B] * 2.0 ** -frac[B])
        self.number += 1
        return made if fill is None else made.behind(fill)

    def fill(self, tokens: Sequence[int], tell: Callable[[str], None] | None = None) -> StepResult | None:
        """Keeps a text's cache; None if it is kept already."""
        if tuple(tokens) in self.cache:
            return None
        training = self.filling(tokens)
        if self.exact:
            exact = training.exact().values
            made = StepResult(
                loss=0.0,
                saturated=0,
                words=0,
                values=exact,
                frac=dict.fromkeys(exact, 0),
                base_bytes=base_bytes(training.operations),
            )
        else:
            frac = self.fracs(training, self.filled, tell)
            made, reached = execute(training, frac, self.machine, tell, self.places.get(tuple(tokens)))
            follow(self.filled, reached)
        self.cache[tuple(tokens)] = {
            each.name: (made.values[each.name], made.frac[each.name]) for each in training.instant.cached
        }
        return made

    def fracs(
        self, training: Training, reached: dict[str, float], tell: Callable[[str], None] | None = None
    ) -> dict[str, int]:
        """Fraction bits of the next program, whose tensors ``reached`` so much before."""
        return foretold(training, reached, tell)

    def state(self) -> dict[str, object]:
        """The state that must outlive a step, for :meth:`restore`."""
        return {
            "adapters": {layer: (each.a, each.b) for layer, each in self.adapters.items()},
            "before": {layer: (each.a, each.b) for layer, each in self.before.items()},
            "rule": optimizer_state(self.rule),
            "number": self.number,
            "moments": self.moments,
            "cache": self.cache,
            "filled": self.filled,
            "learnt": self.learnt,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from the state of a trainer of the same fine-tune.

        Caches go to the machine's memory.
        """
        start = dict(self.adapters)
        for mine, name in ((self.adapters, "adapters"), (self.before, "before")):
            mine |= {layer: replace(start[layer], a=a, b=b) for layer, (a, b) in state[name].items()}
        restore_optimizer(self.rule, state["rule"])
        for name in ("number", "moments", "cache", "filled", "learnt"):
            setattr(self, name, state[name])
        if self.machine is not None:
            brought_back(self.machine, self.cache, self.places)

    def loss(self, tokens: Sequence[int]) -> float:
        """Loss in nats a token, in floating point.

        For a text that has a cache, it is computed from the cache.
        """
        return self.score(tokens)["loss"]

    def score(self, tokens: Sequence[int]) -> dict[str, float]:
        """The same with ``accuracy``: the share of learnt tokens that are the likeliest."""
        kept = self.cache.get(tuple(tokens))
        if kept is None:
            kept = {name: (values, 0) for name, values in self.filling(tokens).exact().values.items()}
        made = self.learning(tokens, kept).exact(forward=True)
        return {"loss": made.mean_loss, "accuracy": made.right / max(made.foretold, 1)}

    def _learn(self, instant: InstantStep, a: np.ndarray, b: np.ndarray) -> None:
        for layer, (new_a, new_b) in instant.split(a, b).items():
            held = self.adapters[layer]
            self.adapters[layer] = replace(held, a=new_a, b=new_b / held.scale)

    def _in_float(self, training: InstantTraining) -> StepResult:
        made, instant = training.exact(), training.instant
        assert not isinstance(self.rule, float | int | AdamW)
        gradients = instant.split(made.values["instant.ga"], made.values["instant.gb"])
        for layer, held in self.adapters.items():
            self.adapters[layer] = replace(held, a=held.a.astype(np.float64), b=held.b.astype(np.float64))
        blocks = self.adapters
        self.rule.step(
            {f"{layer}.{which}": getattr(blocks[layer], which) for layer in self.layers for which in "ab"},
            {
                f"{layer}.{which}": g * (blocks[layer].scale if which == "b" else 1)
                for layer in self.layers
                for which, g in zip("ab", gradients[layer])
            },
            self.schedule.factor(self.number + 1),
        )
        return StepResult(
            loss=made.mean_loss,
            saturated=0,
            words=0,
            values=made.values,
            frac={},
            base_bytes=base_bytes(training.operations),
        )


def instant_machine(
    trainer: InstantTrainer,
    texts: Sequence[Sequence[int]],
    config: LanguageConfig,
    tell: Callable[[str], None] | None = None,
    files: Sequence[Path] = (),
    board: BoardHost | None = None,
) -> StepMachine:
    """The trainer's machine, with room for the caches of all texts.

    The first text is the longest. ``files``: its Verilog; none: it is generated. ``board``: in place of a simulation.
    """
    layout, caches, needed = arranged(trainer, texts, config, tell)
    machine = trainer.machine = StepMachine(config, memory_bytes=needed, tell=tell, files=files, board=board)
    machine.frozen, machine.held = layout, caches
    return machine


def arranged(
    trainer: InstantTrainer,
    texts: Sequence[Sequence[int]],
    config: LanguageConfig,
    tell: Callable[[str], None] | None = None,
) -> tuple[Layout, set[str], int]:
    """Layout of the machine's memory: frozen matrices and caches.

    The caches of all texts are behind the frozen matrices. Returns the layout, names of the caches' parts, and the
    memory that these and a program take, a power of two. The trainer receives the places.
    """
    first = texts[0]
    fill = trainer.filling(first)
    frac = foretold(fill, trainer.filled, tell)
    exact = fill.exact().values
    kept = {
        each.name: (np.rint(exact[each.name] * 2.0 ** frac[each.name]), frac[each.name]) for each in fill.instant.cached
    }
    learn = trainer.learning(first, kept)
    layout = Layout()
    for training in (fill, learn):
        place_frozen(training, layout)
    caches = reserved(layout, trainer.places, texts, lambda text: trainer.instant(text).cached)
    end = 0
    for training, fracs in ((fill, frac), (learn, foretold(learn, dict(trainer.learnt)))):
        behind = layout.copy()
        behind.offsets.update(trainer.places[tuple(first)])
        program = lower(training.operations, fracs, behind, config)
        end = max(end, behind.end + 4096 + len(program.code))
    return layout, caches, 1 << end.bit_length()
