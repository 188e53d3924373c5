"""What a job on a card repeats: a step on each text, with exponents that serve all steps."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from gradloom.firmware.chip.steps import MAX_STEPS
from gradloom.models.adapters.lora import Adapter
from gradloom.models.texts.example import foretold
from gradloom.program.descent import AdamW
from gradloom.rtl.formats.weights.linear import ACTIVATION, MASTER

from ...rates import CONSTANT, Schedule
from ..operations.exponents import of_any_text
from ..operations.instant import A, B, InstantStep
from ..operations.learnt.rechosen import FRACS, REACHES, Rechosen, constants
from ..operations.tensors import EDGE, Tensor
from ..order import restored
from ..run.frozen import Frozen
from ..run.instant import InstantTraining
from ..run.trainer import Trainer
from ..run.training import Training, largest

__all__ = ["Course", "instant_course", "qlora_course"]

_Step = TypeVar("_Step", bound=Training)

#: Bits to spare in tensors whose exponents hold for all steps.
_HEADROOM = 4
#: Texts whose step is made in floating point before the job, at most.
_REHEARSED = 4
#: Steps that move a word one way, at most.
_TRAVELLED = 1000


@dataclass(frozen=True, kw_only=True)
class Course:
    """A fine-tune as a job repeats it.

    Parameters
    ----------
    trainings : sequence of Training
        The step on each text, of which nothing is kept yet.
    frac : mapping
        Fraction bits of every tensor in the first step.
    words : mapping
        Names of what learns, in the order of a card, each with that of its moments.
    cached : sequence of Tensor
        What the first step on a text leaves for later ones.
    learning : sequence of int
        Layers that a later step runs.
    steps : int
        Updates of the job.
    rates : Schedule
        Of the learning rate.
    exponents : Rechosen
        Of adapters that the board chooses again; without any, all stay.
    most : mapping
        Largest word with which a tensor that learns may begin.
    """

    trainings: Sequence[Training]
    frac: Mapping[str, int]
    words: Mapping[str, str]
    most: Mapping[str, int]
    cached: Sequence[Tensor]
    learning: Sequence[int]
    steps: int
    rates: Schedule = CONSTANT
    exponents: Rechosen = field(default_factory=lambda: Rechosen({}, {}))

    @cached_property
    def data(self) -> dict[str, bytes]:
        """What is in memory before the first step, of the first text."""
        return self.trainings[0].data(self.frac)

    def later(self) -> Training:
        """A step on a text of which :attr:`cached` is kept."""
        held = {each.name: (np.zeros((each.rows, each.features)), self.frac[each.name]) for each in self.cached}
        return replace(self.trainings[0], layers=self.learning, kept=held)


def qlora_course(
    frozen: Frozen,
    texts: Sequence[Sequence[int]],
    adapters: Mapping[str, Adapter],
    layers: Sequence[int],
    rule: float | AdamW,
    steps: int,
    rates: Schedule = CONSTANT,
) -> Course:
    """QLoRA's: ``steps`` updates, each from one of ``texts`` in turn.

    All texts have the same number of tokens. Where the first layers have no adapter, the first step on a text keeps
    their output, and later ones begin there.
    """
    _check(texts, rule, steps, rates)
    trainings = [Training(frozen, text, adapters, layers, rule=rule) for text in texts[:steps]]
    frac, exponents = _rehearsed(trainings)
    trainer = Trainer(frozen, dict(adapters), layers, rule)
    words = {f"{name}.{which}": f"{name}.m{which}" for name in exponents.constants for which in "ab"}
    return Course(
        trainings=trainings,
        frac=frac,
        words=words,
        most=dict.fromkeys(words, MASTER.hi),
        cached=trainer.cached(texts[0]),
        learning=trainer.learning,
        steps=steps,
        rates=rates,
        exponents=exponents,
    )


def instant_course(
    frozen: Frozen,
    texts: Sequence[Sequence[int]],
    blocks: Mapping[int, Adapter],
    layers: Sequence[int],
    rule: float | AdamW,
    steps: int,
    rates: Schedule = CONSTANT,
    *,
    rows: int = EDGE,
) -> Course:
    """InstantFT's: the first step on a text makes its forward cache, later ones begin there.

    No exponent changes. The words have room for the furthest that AdamW can move them in all steps, since an array
    takes the lower 24 bits of each as they are. Other tensors have the exponents of the first step on each text and of
    a step behind up to 1,000 moves one way. ``rows``: see :class:`~..operations.instant.InstantStep`.
    """
    _check(texts, rule, steps, rates)
    if not isinstance(rule, AdamW):
        raise ValueError("optimizer=sgd: must be adamw for InstantFT on a card: what sgd adds up to has no bound")
    rank = blocks[layers[0]].rank
    trainings = [
        InstantTraining(
            frozen,
            text,
            layers=layers,
            instant=InstantStep(frozen.model, len(text), rank, layers, rows, frozen.head_part),
            blocks=blocks,
            rule=rule,
        )
        for text in texts[:steps]
    ]
    first = trainings[0]
    now = first.exact()
    gradients = first.instant.split(now.values["instant.ga"], now.values["instant.gb"])
    factors = [rates.factor(number + 1) for number in range(steps)]
    way, reach = sum(factors[:_TRAVELLED]), rule.lr * rule.furthest * sum(factors)
    far, wide = dict(blocks), dict(blocks)
    for layer, (a, b) in gradients.items():
        each = blocks[layer]
        far[layer] = replace(each, a=_moved(each.a, a, rule, way), b=_moved(each.b, b, rule, way))
        wide[layer] = replace(each, a=np.abs(each.a) + reach, b=np.abs(each.b) + reach)
    reached = largest(now)
    _reach(reached, [replace(first, blocks=far), *trainings[1:_REHEARSED]])
    frac = replace(_widest(trainings), blocks=wide).fracs(of_any_text(reached), headroom=_HEADROOM)
    moved = {A: reach, B: reach * blocks[layers[0]].scale}
    return Course(
        trainings=trainings,
        frac=frac,
        words={A: f"{A[:-1]}ma", B: f"{B[:-1]}mb"},
        most={name: ACTIVATION.hi - math.ceil(most * 2.0 ** frac[name]) for name, most in moved.items()},
        cached=first.instant.cached,
        learning=layers,
        steps=steps,
        rates=rates,
    )


def _check(texts: Sequence[Sequence[int]], rule: float | AdamW, steps: int, rates: Schedule) -> None:
    if not 1 <= steps <= MAX_STEPS:
        raise ValueError(f"steps={steps}: a job has from 1 to {MAX_STEPS}")
    if len({len(text) for text in texts}) != 1:
        raise ValueError("texts: all must have the same number of tokens")
    if len({foretold(text) for text in texts}) != 1:
        raise ValueError("texts: all must have the same number of tokens that are learnt")
    if not isinstance(rule, AdamW) and rates.varies:
        raise ValueError(f"schedule={rates.shape}: a board changes the rate of AdamW alone; give --optimizer adamw")


def _moved(values: np.ndarray, gradient: np.ndarray, rule: float | AdamW, way: float) -> np.ndarray:
    """What learns after ``way`` updates in one direction."""
    if not isinstance(rule, AdamW):
        return values - rule * way * gradient
    # AdamW moves a word by about its rate, and what is zero now will go one way or the other.
    random = np.random.default_rng(0).choice((-1.0, 1.0), values.shape)
    return values - rule.lr * way * np.where(gradient, np.sign(gradient), random)


def _reach(reached: dict[str, float], trainings: Sequence[Training]) -> None:
    """Takes the largest values of these steps in floating point, too."""
    for training in trainings:
        for name, value in largest(training.exact()).items():
            reached[name] = max(reached[name], value)


def _widest(trainings: Sequence[_Step]) -> _Step:
    """That of the text whose embeddings reach furthest: it has the fewest fraction bits."""
    entry = trainings[0].step.input.name
    return max(trainings, key=lambda each: float(np.abs(each.starts[entry][1]).max()))


def _rehearsed(trainings: Sequence[Training]) -> tuple[dict[str, int], Rechosen]:
    """Fraction bits that serve all steps, and the first ones of adapters.

    They follow from steps in floating point: of the first texts with the adapters in their first state, and of the
    first text with the adapters moved by an update. A new B is zero, and with it gradients that the second step
    already has.
    """
    first = trainings[0]
    rule = first.rule
    assert rule is not None
    now = first.exact()
    later = {
        name: replace(
            each,
            a=_moved(each.a, now.values[f"{name}.ga"], rule, 1.0),
            b=_moved(each.b, now.values[f"{name}.gb"].T * each.scale, rule, 1.0),
        )
        for name, each in first.loras.items()
    }
    reached = largest(now)
    rank = next(each.rank for each in first.adapters.values() if isinstance(each, Adapter))
    moved = restored(first.frozen.model, later, rank)
    _reach(reached, [replace(first, adapters=moved), *trainings[1:_REHEARSED]])
    frac = replace(_widest(trainings), adapters=moved).fracs(of_any_text(reached), headroom=_HEADROOM)
    found = constants(first.operations, frac)
    given = {name: found[name] for name in first.loras}
    keys = [f"{name}.{which}" for name in given for which in FRACS]
    reach = {key: math.frexp(reached[key])[1] for key in keys if key.rsplit(".", 1)[1] in REACHES}
    chosen = Rechosen(given, {key: frac[key] for key in keys}, reach)
    for name, each in given.items():
        chosen.choose(name, each)
    return frac | chosen.frac, chosen
