"""Fine-tunes step by step, in integers or in simulated RTL."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.models.adapters.language.lora_xs import CoreAdapter
from gradloom.models.adapters.lora import Adapter, LearntModule, lowest_layer
from gradloom.program.descent import AdamW, at_rate
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.sim.run.counted import MismatchError
from gradloom.systems.job import BoardHost

from ...rates import CONSTANT, Schedule
from ..operations.base import SPARE
from ..operations.exponents import HEADROOM, of_any_text
from ..operations.learnt.updates import Pack
from ..operations.tensors import Tensor
from ..order import arranged, restored
from ..program.layout import Layout
from ..program.step import lower
from ..program.traffic import base_bytes, words_made
from ..stored import unpacked_words
from . import forward_cache
from .forward_cache import Places, Text, brought_back, reserved
from .frozen import Frozen
from .step import StepMachine, place_frozen
from .training import KeptBlocks, Training, largest

__all__ = ["StepResult", "Trainer", "added", "as_far_as_formats", "execute", "follow", "foretold", "trainer_machine"]


#: Ends of the names of sums of gradients.
_SUMS = (".sa", ".sb", ".sr", ".sw")


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """Result of a step.

    ``loss`` in nats a token, before the update; ``saturated`` of the ``words`` that the step made; ``base_bytes``: read
    of frozen matrices; ``values``: every tensor's words. Of a machine also ``cycles`` and their ``forecast``, ``total``
    and by phase, and ``equal``: how much was found equal to reference and forecast. Of several texts before one update:
    mean, sums, and the last one's.
    """

    loss: float
    saturated: int
    words: int
    base_bytes: int
    values: Mapping[str, np.ndarray]
    frac: Mapping[str, int]
    cycles: Mapping[str, int] = field(default_factory=dict)
    forecast: Mapping[str, int] = field(default_factory=dict)
    equal: Mapping[str, int] = field(default_factory=dict)

    def behind(self, *earlier: "StepResult") -> "StepResult":
        """The same with all that was counted in programs before this one."""
        every = [*earlier, self]
        return replace(
            self,
            saturated=sum(each.saturated for each in every),
            words=sum(each.words for each in every),
            base_bytes=sum(each.base_bytes for each in every),
            cycles=added(each.cycles for each in every),
            forecast=added(each.forecast for each in every),
            equal=added(each.equal for each in every),
        )


def added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Sums by name."""
    total: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total


def as_far_as_formats(
    step: Callable[[int], StepResult],
    steps: int,
    progress: Callable[[int, int, str], None],
    begun: Sequence[StepResult] = (),
    after: Callable[[list[StepResult]], bool] = lambda found: False,
) -> tuple[list[StepResult], str | None]:
    """Runs ``steps`` while the formats have room for the values.

    Returns the results, and why it stopped, if it did.

    A refusal of the first step is raised: it is the request's fault, and nothing was learnt. ``begun``: results of
    steps that were made already; ``after`` gets all results after each step, and says
    whether it was the last.
    """
    found = list(begun)
    for number in range(len(found), steps):
        progress(number, steps, "fine-tuning")
        try:
            found.append(step(number))
        except MismatchError:
            raise
        except ValueError as error:
            if not found:
                raise
            return found, str(error)
        if after(found):
            break
    return found, None


def foretold(
    training: Training, reached: dict[str, float], tell: Callable[[str], None] | None = None
) -> dict[str, int]:
    """Chooses a step's fraction bits from earlier values of its tensors.

    Unknown values come from a step in floating point. ``reached`` are values as if all tokens were learnt.
    """
    shares = training.averaged
    if not reached or not all(reached.values()):
        if tell is not None:
            tell("a step in floating point")
        for name, most in largest(training.exact()).items():
            reached[name] = reached.get(name, 0.0) or most * shares.get(name, 1.0)
    here = {name: most / shares.get(name, 1.0) for name, most in reached.items()}
    return training.fracs(of_any_text(here), headroom=HEADROOM)


def execute(
    training: Training,
    frac: Mapping[str, int],
    machine: StepMachine | None,
    tell: Callable[[str], None] | None = None,
    places: Mapping[str, int] | None = None,
) -> tuple[StepResult, dict[str, float]]:
    """A step by the reference or on a machine, and its tensors' values.

    Returns also what its tensors reached, as if all tokens were learnt. On a machine, the reference makes the step,
    too, and all is compared: :meth:`StepRun.check`; of a board what outlives the step: :meth:`StepMachine.told`.
    ``places``: see :class:`StepMachine`.
    """
    told: dict[str, Mapping[str, int]] = {}
    if machine is None or machine.board is not None:
        made = training.integers(frac, tell)
        if machine is not None:
            told |= machine.told(training, frac, places, made)
        values, loss, saturated = made.values, made.mean_loss, made.saturated
        most = {name: int(np.abs(words).max(initial=0)) for name, words in values.items()}
    else:
        run = machine.run(training, frac, places)
        values, loss, saturated = run.values, run.loss, run.counters.saturated
        most = run.hidden | {name: int(np.abs(words).max(initial=0)) for name, words in values.items()}
        told["equal"] = run.check(training.integers(frac, tell))
        told["cycles"] = run.counters.metrics()["cycles"]
        if run.ran.forecast is not None:
            told["forecast"] = {"total": run.ran.forecast.total} | run.ran.forecast.phases
    shares = training.averaged
    reached = {name: words * 2.0 ** -frac[name] * shares.get(name, 1.0) for name, words in most.items() if name in frac}
    return StepResult(
        loss=loss,
        saturated=saturated,
        values=values,
        frac=frac,
        words=words_made(training.operations),
        base_bytes=base_bytes(training.operations),
        **told,
    ), reached


def follow(reached: dict[str, float], now: Mapping[str, float]) -> None:
    """Updates the largest values of tensors; earlier ones halve each step."""
    for name, before in reached.items():
        reached[name] = max(now[name], before / 2) if name in now else before


@dataclass
class Trainer:
    """Adapters that learn; what must outlive a step.

    Where the first layers have no adapter, what leaves them never changes for a text: the first step on a text keeps
    it, and later ones run the layers behind alone.

    A tensor's fraction bits come from what it reached in the steps before, half as much with each step, and
    :data:`~gradloom.systems.text.operations.exponents.HEADROOM` bits to spare; in the first step, and where it was all
    zeros, from a step in floating point.

    Parameters
    ----------
    frozen : Frozen
    adapters : mapping
        By linear, or vectors by module; changed in place of their arrays, which become float64 so that a word of 32
        bits fits.
    layers : sequence of int
    rule : SGD's rate, or AdamW
    machine : StepMachine, optional
        Where steps run; without, by the reference.
    texts : int
        Whose gradients an update is made of.
    schedule : Schedule
        Of the rate.
    plus : float
        Factor of the rate of B.
    held : bool
        Of adapters of LoRA B alone learns.
    wide : bool, optional
        Adapters and moments are stored between steps as codes of 8 bits, or, False, of 4; None: as words.
    """

    frozen: Frozen
    adapters: dict[str, LearntModule]
    layers: Sequence[int]
    rule: float | AdamW
    machine: StepMachine | None = None
    texts: int = 1
    number: int = 0
    reached: dict[str, float] = field(default_factory=dict)
    moments: dict[str, np.ndarray] = field(default_factory=dict)
    #: Of the texts since the last update: how many, and sums of their gradients.
    taken: int = 0
    sums: dict[str, tuple[np.ndarray, int]] = field(default_factory=dict)
    wide: bool | None = None
    packed: dict[str, KeptBlocks] = field(default_factory=dict)
    schedule: Schedule = CONSTANT
    plus: float = 1.0
    held: bool = False
    #: What enters the lowest layer that learns, of each text, and where it lies in the machine's memory.
    cache: dict[Text, forward_cache.Kept] = field(default_factory=dict)
    places: Places = field(default_factory=dict)

    @cached_property
    def learning(self) -> Sequence[int]:
        """Layers from the lowest that has an adapter on."""
        lowest = lowest_layer(self.adapters)
        return [layer for layer in self.layers if layer >= lowest]

    def cached(self, tokens: Sequence[int]) -> list[Tensor]:
        """Tensors that are kept of a text."""
        if len(self.learning) == len(self.layers):
            return []
        return [Tensor(f"{self.learning[0]}.x", len(tokens), self.frozen.model.hidden, wide=True)]

    def cache_bytes(self, tokens: Sequence[int]) -> int:
        """What is kept of a text."""
        return sum(4 * each.rows * each.features for each in self.cached(tokens))

    def update(self, texts: Sequence[Sequence[int]], tell: Callable[[str], None] | None = None) -> StepResult:
        """One update from :attr:`texts` texts."""
        if len(texts) != self.texts:
            raise ValueError(f"texts={len(texts)}: an update is made of {self.texts}")
        found = [self.step(tokens, tell) for tokens in texts]
        return replace(found[-1].behind(*found[:-1]), loss=sum(each.loss for each in found) / len(found))

    def step(self, tokens: Sequence[int], tell: Callable[[str], None] | None = None) -> StepResult:
        """One text, and an update if it is the last of :attr:`texts`."""
        training, frac = self.prepared(tokens, tell)
        text = tuple(tokens)
        made, reached = execute(training, frac, self.machine, tell, self.places.get(text))
        values = made.values
        follow(self.reached, reached)
        if text not in self.cache:
            self.cache[text] = {each.name: (values[each.name], frac[each.name]) for each in self.cached(text)}
        self.taken = (self.taken + 1) % self.texts
        if training.rule is None:
            self.sums = {name: (values[name], frac[name]) for name in values if name.endswith(_SUMS)}
        else:
            self.number, self.sums = self.number + 1, {}
            if self.wide is not None:
                self._keep(training, values, frac)
            else:
                self._learn(values, frac)
        return made

    def prepared(
        self, tokens: Sequence[int], tell: Callable[[str], None] | None = None
    ) -> tuple[Training, dict[str, int]]:
        """The next step on a text, and its fraction bits."""
        training = self.training(tokens)
        return training, foretold(training, self.reached, tell)

    def training(self, tokens: Sequence[int]) -> Training:
        """The next step on a text."""
        rule = at_rate(self.rule, self.schedule.factor(self.number + 1)) if self.taken == self.texts - 1 else None
        kept = self.cache.get(tuple(tokens), {})
        return Training(
            self.frozen,
            tokens,
            self.adapters,
            self.learning if kept else self.layers,
            rule=rule,
            number=self.number + 1,
            moments=self.moments,
            texts=self.texts,
            sums=self.sums,
            wide=self.wide,
            plus=self.plus,
            held=self.held,
            packed=self.packed,
            kept=kept,
        )

    def _learn(self, values: Mapping[str, np.ndarray], frac: Mapping[str, int]) -> None:
        """Takes new words of the adapters."""
        for name, held in self.adapters.items():
            if isinstance(held, Adapter):
                found = {
                    which: values[f"{name}.{which}"] * 2.0 ** -(frac[f"{name}.{which}"] + SPARE)
                    for which in held.parts
                    if which == "b" or not self.held
                }
                whole = arranged(self.frozen.model, {name: held})[name]
                new: LearntModule = held.taking({**whole.parts, **found, "b": found["b"].T / held.scale})
                self.adapters |= restored(self.frozen.model, {name: new}, held.rank)
            elif isinstance(held, CoreAdapter):
                r = values[f"{name}.r"][: held.rank, : held.rank].T * 2.0 ** -frac[f"{name}.r"]
                self.adapters[name] = held.taking({"r": r})
            else:
                new = held.taking({"w": values[f"{name}.w"][0] * 2.0 ** -frac[f"{name}.w"]})
                self.adapters |= restored(self.frozen.model, {name: new})
            for which in held.parts:
                moments = f"{name}.m{which}"
                if moments in values:
                    self.moments[moments] = values[moments]

    def _keep(self, training: Training, values: Mapping[str, np.ndarray], frac: Mapping[str, int]) -> None:
        """Takes the stored codes; adapters get their values."""
        words = {}
        for operation in training.operations:
            if isinstance(operation, Pack):
                for each in operation.tensors():
                    own = 0 if each.moments else frac[each.name] + SPARE
                    self.packed[each.packed] = KeptBlocks(values[each.packed], own)
                    if not each.moments:
                        words[each.name] = unpacked_words(each, values[each.packed])[0]
        self._learn(words, frac)

    def state(self) -> dict[str, object]:
        """The state that must outlive a step, for :meth:`restore`."""
        return {
            "adapters": {name: each.parts for name, each in self.adapters.items()},
            "number": self.number,
            "reached": self.reached,
            "moments": self.moments,
            "taken": self.taken,
            "sums": self.sums,
            "cache": self.cache,
            "packed": {name: (each.data, each.frac) for name, each in self.packed.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from where another trainer of the same fine-tune was."""
        for name, parts in state["adapters"].items():
            self.adapters[name] = self.adapters[name].taking(parts)
        self.packed = {name: KeptBlocks(*each) for name, each in state["packed"].items()}
        for name in ("number", "reached", "moments", "taken", "sums", "cache"):
            setattr(self, name, state[name])
        if self.machine is not None:
            brought_back(self.machine, self.cache, self.places)

    def loss(self, tokens: Sequence[int]) -> float:
        """Nats a token, in floating point."""
        training = Training(self.frozen, tokens, self.adapters, self.layers)
        return training.exact(forward=True).mean_loss


def trainer_machine(
    trainer: Trainer,
    texts: Sequence[Sequence[int]],
    config: LanguageConfig,
    tell: Callable[[str], None] | None = None,
    files: Sequence[Path] = (),
    board: BoardHost | None = None,
) -> StepMachine:
    """The trainer's machine, with room for the caches of all texts.

    The texts have the same number of tokens. ``files``: its Verilog; none: it is generated. ``board``: in place of a
    simulation.
    """
    training, frac = trainer.prepared(texts[0], tell)
    layout = Layout()
    place_frozen(training, layout)
    caches = reserved(layout, trainer.places, texts, trainer.cached)
    step = replace(training, rule=trainer.rule)
    behind = layout.copy()
    behind.offsets.update(trainer.places[tuple(texts[0])])
    size = 0
    if board is None:
        program = lower(step.operations, frac, behind, config)
        size = 1 << (behind.end + 4096 + len(program.code)).bit_length()
    machine = trainer.machine = StepMachine(config, memory_bytes=size, tell=tell, files=files, board=board)
    machine.frozen, machine.held = layout, caches
    return machine
